/* tests/train/test_generate.c: greedy and sampled generation, with and without the key-value cache, and sampling of an
 * id from logits. */
#include "assets.h"
#include "golden.h"
#include "scratch.h"
#include "suite.h"
#include "base/text.h"
#include "run/generate.h"

#include <math.h>

static const char *const models[] = {"llama-tied", "llama-gqa", "llama-bf16", "llama-fp16"};
static const int64_t contexts[] = {32, 64, 48, 40};
enum { N_MODELS = 4, NONE = -1 };
static const int32_t prompt[] = {1, 17, 33, 5, 20};
enum { N_PROMPT = 5 };

/* Returns a set with one id, or an empty set. */
static const weft_stop_ids *only(int32_t id) {
    static weft_stop_ids stop;
    stop.n = id >= 0 ? 1 : 0;
    stop.ids[0] = id;
    return &stop;
}

static const weft_generate_options greedy = {.tokens = 20, .top_p = 1.0, .cache = true};

/* ---- a generator for a model ---- */

typedef struct bench {
    weft_run *run;
    weft_generator *generator;
} bench;

/* directory: a golden model's name, or a path. */
static void bench_run(bench *b, const char *directory, uint32_t more) {
    char path[4096], model[4200];
    const char *overrides[] = {model, "model.plugin=llama", "tokenizer.plugin=bpe", "tokenizer.bos=yes"};
    const uint32_t needs = WEFT_NEEDS(WEFT_PART_MODEL) | WEFT_NEEDS(WEFT_PART_POLICY) | WEFT_NEEDS(WEFT_PART_STRATEGY) |
                           WEFT_NEEDS(WEFT_PART_DEVICE) | more;
    weft_error err = WEFT_ERROR_INIT;
    if (directory[0] == '/' || directory[0] == '.') (void)snprintf(path, sizeof path, "%s", directory);
    else golden_path(path, sizeof path, directory);
    (void)snprintf(model, sizeof model, "model.path=%s", path);
    ck_assert_ok(weft_run_open(&b->run, NULL, overrides, more != 0 ? 4 : 2, needs, &err), err);
}

static void bench_open(bench *b, const char *directory, int64_t n_prompt, const weft_generate_options *options) {
    weft_error err = WEFT_ERROR_INIT;
    bench_run(b, directory, 0);
    ck_assert_ok(weft_generator_create(&b->generator, b->run, n_prompt, options, &err), err);
}

static void bench_close(bench *b) {
    weft_generator_destroy(b->generator);
    weft_run_close(b->run);
}

static weft_status keep(void *context, int32_t id, weft_error *err) {
    return weft_bytes_put(context, &id, sizeof id);
}

/* Returns the continuation of the prompt: *n ids, freed by the caller. */
static int32_t *continued(const char *model, const weft_generate_options *options, int32_t eos, int64_t *n) {
    weft_error err = WEFT_ERROR_INIT;
    weft_bytes ids = {0};
    bench b;
    bench_open(&b, model, N_PROMPT, options);
    ck_assert_ok(weft_generator_run(b.generator, prompt, N_PROMPT, only(eos), keep, &ids, &err), err);
    bench_close(&b);
    *n = (int64_t)(ids.n / sizeof(int32_t));
    return (int32_t *)(void *)ids.data;
}

static bool same_ids(const char *model, const weft_generate_options *a, const weft_generate_options *b) {
    int64_t n = 0, m = 0;
    int32_t *x = continued(model, a, NONE, &n), *y = continued(model, b, NONE, &m);
    const bool same = n == a->tokens && m == b->tokens && n == m && memcmp(x, y, (size_t)n * sizeof *x) == 0;
    free(x);
    free(y);
    return same;
}

/* ---- the cache ---- */

/* Returns the distance between the best and the second logit. */
static float gap(const float *logits, int64_t n, int64_t *best) {
    float second = -INFINITY;
    *best = 0;
    for (int64_t i = 1; i < n; i++) {
        if (logits[i] > logits[*best]) {
            second = logits[*best];
            *best = i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    return logits[*best] - second;
}

/* Copies the logits of a text's last position. */
static float *logits_of(bench *b, const int32_t *text, int64_t past, int64_t n, int64_t vocabulary) {
    weft_error err = WEFT_ERROR_INIT;
    const float *logits = NULL;
    float *out = malloc((size_t)vocabulary * sizeof *out);
    ck_assert_ok(weft_generator_logits(b->generator, &logits, text, past, n, &err), err);
    memcpy(out, logits, (size_t)vocabulary * sizeof *out);
    return out;
}

/* Runs one text position by position through both, and in one call through the generation loop. */
TESTS(the_cache_changes_no_greedy_id, N_MODELS) {
    weft_generate_options with = greedy, without = greedy;
    bench cached, whole;
    int32_t text[64];
    int64_t n = N_PROMPT, past = 0, vocabulary = 0;
    int32_t close = 0;
    with.tokens = without.tokens = contexts[_i] - N_PROMPT + 1;
    without.cache = false;
    memcpy(text, prompt, sizeof prompt);
    bench_open(&cached, models[_i], N_PROMPT, &with);
    bench_open(&whole, models[_i], N_PROMPT, &without);
    vocabulary = weft_generator_plan(cached.generator)->declared->info.vocab_size;
    for (; n < contexts[_i]; n++) {
        int64_t a = 0, b = 0;
        float *x = logits_of(&cached, text, past, n, vocabulary), *y = logits_of(&whole, text, 0, n, vocabulary);
        const float between = gap(y, vocabulary, &b);
        (void)gap(x, vocabulary, &a);
        ck_assert_float_lt(fabsf(x[b] - y[b]), 1e-4f);
        if (between > 1e-4f) ck_assert_int_eq(a, b);
        else close++;
        text[n] = (int32_t)b;
        past = n;
        free(x);
        free(y);
    }
    bench_close(&cached);
    bench_close(&whole);
    if (close == 0) ck_assert(same_ids(models[_i], &with, &without));
    else printf("%s: %d places whose two best logits are closer than 1e-4\n", models[_i], (int)close);
}

/* Processing the prompt in two chunks results in the same state as in one. */
TESTS(a_prompt_in_pieces_gives_the_same_logits, N_MODELS) {
    bench b;
    int64_t vocabulary = 0;
    float *one = NULL, *two = NULL;
    bench_open(&b, models[_i], N_PROMPT, &greedy);
    vocabulary = weft_generator_plan(b.generator)->declared->info.vocab_size;
    one = logits_of(&b, prompt, 0, N_PROMPT, vocabulary);
    free(logits_of(&b, prompt, 0, 2, vocabulary));
    two = logits_of(&b, prompt, 2, N_PROMPT, vocabulary);
    ck_assert_double_lt(relative_error(two, one, vocabulary), 1e-5);
    free(one);
    free(two);
    bench_close(&b);
}

/* ---- the loop ---- */

TEST(an_eos_ends_the_text_unless_it_is_ignored) {
    weft_generate_options on = greedy;
    int64_t all = 0, cut = 0, at = 0, more = 0;
    int32_t *ids = continued("llama-gqa", &greedy, NONE, &all), *stopped = NULL, *ignored = NULL;
    const int32_t eos = ids[7];
    on.ignore_eos = true;
    while (ids[at] != eos) at++;
    stopped = continued("llama-gqa", &greedy, eos, &cut);
    ignored = continued("llama-gqa", &on, eos, &more);
    ck_assert_int_eq(all, greedy.tokens);
    ck_assert_int_eq(cut, at); /* the sink has not received it */
    ck_assert_int_eq(more, greedy.tokens);
    ck_assert_int_eq(memcmp(ids, stopped, (size_t)cut * sizeof *ids), 0);
    ck_assert_int_eq(memcmp(ids, ignored, (size_t)more * sizeof *ids), 0);
    free(ids);
    free(stopped);
    free(ignored);
}

static weft_status refuse_third(void *context, int32_t id, weft_error *err) {
    return ++*(int *)context == 3 ? weft_error_set(err, WEFT_E_SYSTEM, "the reader went away") : WEFT_OK;
}

TEST(a_sink_that_fails_ends_the_text_with_its_own_words) {
    weft_error err = WEFT_ERROR_INIT;
    int calls = 0;
    bench b;
    bench_open(&b, "llama-tied", N_PROMPT, &greedy);
    ck_assert_int_eq(weft_generator_run(b.generator, prompt, N_PROMPT, only(NONE), refuse_third, &calls, &err),
                     WEFT_E_SYSTEM);
    ck_assert_str_eq(err.text, "the reader went away");
    ck_assert_int_eq(calls, 3);
    bench_close(&b);
}

TESTS(a_text_longer_than_the_model_is_refused, 2 * N_MODELS) {
    weft_generate_options options = greedy;
    weft_error err = WEFT_ERROR_INIT;
    weft_generator *none = NULL;
    int64_t n = 0;
    bench b;
    char most[64];
    options.cache = _i % 2 == 0;
    options.tokens = contexts[_i / 2] - N_PROMPT + 1; /* the last id needs no position */
    free(continued(models[_i / 2], &options, NONE, &n));
    ck_assert_int_eq(n, options.tokens);
    (void)snprintf(most, sizeof most, "at most %lld tokens", (long long)options.tokens);
    options.tokens++;
    bench_run(&b, models[_i / 2], 0);
    ck_assert_int_eq(weft_generator_create(&none, b.run, N_PROMPT, &options, &err), WEFT_E_USER);
    ck_assert_says(err, most);
    ck_assert_ptr_null(none);
    weft_run_close(b.run);
}

/* A copy of a model with NaN as its last weight. */
TEST(rejects_a_nan_weight_without_output) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    const float nan = NAN;
    char from[4096], path[4200];
    weft_error err = WEFT_ERROR_INIT;
    weft_bytes ids = {0};
    bench b;
    scratch_make();
    golden_path(from, sizeof from, "llama-gqa");
    for (int i = 0; i < 2; i++) {
        size_t n = 0;
        char *bytes = NULL;
        (void)snprintf(path, sizeof path, "%s/%s", from, files[i]);
        bytes = read_bytes(path, &n);
        if (i == 1) memcpy(bytes + n - sizeof nan, &nan, sizeof nan);
        write_bytes(scratch_path(files[i]), bytes, n);
        free(bytes);
    }
    bench_open(&b, scratch, N_PROMPT, &greedy);
    ck_assert_int_eq(weft_generator_run(b.generator, prompt, N_PROMPT, only(NONE), keep, &ids, &err), WEFT_E_NUMERIC);
    ck_assert_says(err, "position 4");
    ck_assert_uint_eq(ids.n, 0);
    bench_close(&b);
    scratch_remove();
}

/* ---- sampling through the loop ---- */

static weft_generate_options sampled(double temperature, uint64_t seed) {
    weft_generate_options out = greedy;
    out.temperature = temperature;
    out.seed = seed;
    return out;
}

TESTS(a_seed_gives_the_same_text_again, N_MODELS) {
    const weft_generate_options one = sampled(1.5, 7), two = sampled(1.5, 8);
    ck_assert(same_ids(models[_i], &one, &one));
    ck_assert(!same_ids(models[_i], &one, &two));
    ck_assert(!same_ids(models[_i], &one, &greedy));
}

TESTS(a_cut_to_one_id_is_greedy, N_MODELS) {
    weft_generate_options k = sampled(2.0, 7), p = sampled(2.0, 7);
    k.top_k = 1;
    p.top_p = 1e-9;
    ck_assert(same_ids(models[_i], &k, &greedy));
    ck_assert(same_ids(models[_i], &p, &greedy));
}

/* ---- sampling from logits ---- */

enum { IDS = 6, DRAWS = 40000 };
/* Probabilities 1/16, 1/2, 0, 1/8, 1/4, 1/16 at temperature 1. */
static const double odds[IDS] = {0.0625, 0.5, 0.0, 0.125, 0.25, 0.0625};

/* Returns the frequency of each id. */
static void draw(double found[IDS], double temperature, int64_t top_k, double top_p) {
    const weft_generate_options options = {
        .tokens = 1, .temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = 3};
    float logits[IDS], work[IDS];
    int64_t times[IDS] = {0};
    for (int i = 0; i < IDS; i++) logits[i] = (float)log(odds[i]) + 3.0f;
    for (uint64_t at = 0; at < DRAWS; at++) times[weft_sample(logits, IDS, &options, at, work)]++;
    for (int i = 0; i < IDS; i++) found[i] = (double)times[i] / DRAWS;
}

/* Checks for at most five standard deviations. */
static void check_odds(const double found[IDS], const double wanted[IDS]) {
    for (int i = 0; i < IDS; i++)
        ck_assert_msg(fabs(found[i] - wanted[i]) <= 5.0 * sqrt(wanted[i] * (1.0 - wanted[i]) / DRAWS),
                      "id %d: drawn %.4f of the time, not %.4f", i, found[i], wanted[i]);
}

TEST(ids_are_drawn_by_their_probability) {
    double found[IDS], wanted[IDS], whole = 0.0;
    draw(found, 1.0, 0, 1.0);
    check_odds(found, odds);
    for (int i = 0; i < IDS; i++) whole += wanted[i] = sqrt(odds[i]); /* temperature 2 */
    for (int i = 0; i < IDS; i++) wanted[i] /= whole;
    draw(found, 2.0, 0, 1.0);
    check_odds(found, wanted);
    draw(found, 0.01, 0, 1.0);
    ck_assert_double_gt(found[1], 0.9999);
}

TEST(cuts_keep_the_largest) {
    static const double one[IDS] = {0, 1, 0, 0, 0, 0}, two[IDS] = {0, 2.0 / 3, 0, 0, 1.0 / 3, 0};
    static const double three[IDS] = {0, 4.0 / 7, 0, 1.0 / 7, 2.0 / 7, 0};
    static const struct {
        int64_t top_k; /* ties with the k-th are kept, too */
        double top_p;  /* the smallest set that reaches p, after top_k */
        const double *wanted;
    } rows[] = {{2, 1.0, two},  {3, 1.0, three}, {4, 1.0, odds},   {100, 1.0, odds}, {0, 0.49, one},
                {0, 0.51, two}, {0, 0.74, two},  {0, 0.76, three}, {2, 0.6, one}, /* 0.5 of 0.75 is two thirds */
                {2, 0.7, two}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        double found[IDS];
        draw(found, 1.0, rows[i].top_k, rows[i].top_p);
        check_odds(found, rows[i].wanted);
    }
}

TEST(greedy_takes_the_lowest_of_equals) {
    const weft_generate_options options = {.tokens = 1, .top_p = 1.0};
    const float logits[] = {-1.0f, 2.0f, 2.0f, -INFINITY, 1.0f}, none[] = {-INFINITY, -INFINITY};
    float work[5];
    ck_assert_int_eq(weft_sample(logits, 5, &options, 0, work), 1);
    ck_assert_int_eq(weft_sample(none, 2, &options, 0, work), 0);
}

/* Values of transformers' RepetitionPenaltyLogitsProcessor(1.3). */
TEST(the_penalty_is_that_of_transformers) {
    static const float logits[] = {2.0f, -1.0f, 0.5f, 3.0f, -2.0f, 0.0f};
    static const float expected[] = {
        1.53846156597137451171875f, -1.2999999523162841796875f, 0.5f, 2.30769228935241699218750f, -2.0f, 0.0f};
    static const int32_t text[] = {0, 1, 1, 3, 5, 0};
    float out[6];
    weft_penalize(out, logits, 6, text, 6, 1.3);
    for (int i = 0; i < 6; i++)
        ck_assert_msg(memcmp(&out[i], &expected[i], sizeof out[i]) == 0, "%d: %.9g", i, (double)out[i]);
}

/* With such a high penalty no id is repeated while another one is available. */
TEST(penalized_ids_do_not_come_again) {
    weft_generate_options options = greedy;
    int64_t n = 0;
    int32_t *ids = NULL;
    options.repetition_penalty = 1e6;
    options.ignore_eos = true;
    ids = continued("llama-gqa", &options, NONE, &n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < i; k++) ck_assert_int_ne(ids[i], ids[k]);
    ck_assert_int_gt(n, 4);
    free(ids);
}

/* ---- a real model ---- */

static weft_status put_ids(void *context, const int32_t *ids, size_t n) {
    return weft_bytes_put(context, ids, n * sizeof *ids);
}

static weft_status put_text(void *context, const char *bytes, size_t n) {
    return weft_bytes_put(context, bytes, n);
}

/* Returns BOS and 200 ids as text. */
static weft_bytes tell(const char *directory, bool cache) {
    const weft_generate_options options = {.tokens = 200, .top_p = 1.0, .cache = cache, .ignore_eos = true};
    weft_error err = WEFT_ERROR_INIT;
    weft_bytes ids = {0}, out = {0};
    const weft_ids_sink to_ids = {&ids, put_ids};
    const weft_text_sink to_text = {&out, put_text};
    weft_text text = {0};
    bench b;
    bench_run(&b, directory, WEFT_NEEDS(WEFT_PART_TOKENIZER));
    ck_assert_ok(weft_text_open(&text, b.run, &err), err);
    ck_assert_ok(text.plugin->encode(text.tokenizer, &to_ids, "", 0, text.prompt_flags, &err), err);
    ck_assert_uint_eq(ids.n, sizeof(int32_t));
    ck_assert_ok(weft_generator_create(&b.generator, b.run, 1, &options, &err), err);
    ck_assert_ok(weft_generator_run(b.generator, &text.info.bos, 1, only(NONE), keep, &ids, &err), err);
    ck_assert_uint_eq(ids.n, 201 * sizeof(int32_t));
    ck_assert_ok(text.plugin->decode(text.tokenizer, &to_text, (const int32_t *)(void *)ids.data, 201, 0, &err), err);
    weft_bytes_free(&ids);
    weft_text_close(&text);
    bench_close(&b);
    return out;
}

TESTS(a_real_model_tells_the_story_that_is_known, 2) {
    const char *path = asset_path("stories260k/expected_greedy_200.txt"), *directory = asset_path("stories260k/hf");
    weft_bytes found;
    size_t n = 0;
    char *wanted = NULL;
    if (access(path, R_OK) != 0) {
        printf("skipped: a real model's story, because %s is not there (WEFT_ASSETS names another place)\n", path);
        return;
    }
    wanted = read_bytes(path, &n);
    found = tell(directory, _i == 0);
    ck_assert_msg(found.n == n && memcmp(found.data, wanted, n) == 0, "found:\n%.*s\nwanted:\n%s", (int)found.n,
                  found.data, wanted);
    free(wanted);
    weft_bytes_free(&found);
}

int main(void) {
    return run_tests(test_case("generate", 300, NULL, NULL));
}
