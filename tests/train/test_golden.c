/* Training and generation against transformers and PyTorch (tests/golden/README.md): logits, loss, every gradient, and
 * ten clipped AdamW steps, on small models of LLaMA and other families. For the other families also generation, token
 * by token with the key-value cache. */
#include "golden.h"
#include "suite.h"
#include "run/values.h"

#include <math.h>

static const char *const models[] = {
    "llama-tied",       "llama-gqa",           "llama-bf16",           "llama-fp16",       "llama-pad",
    "family-llama3",    "family-mistral",      "family-qwen2",         "family-qwen3",     "family-smollm3",
    "family-olmo2",     "family-gemma",        "family-gemma2",        "family-gemma3",    "family-phi3",
    "bitsandbytes-nf4", "bitsandbytes-nf4x64", "bitsandbytes-storage", "bitsandbytes-int8"};
static const char *const adamw[] = {"optimizer.plugin=adamw", "optimizer.lr=1e-3", "optimizer.weight_decay=0.01"};
enum { N_MODELS = 15, N_LLAMAS = 5, N_PACKED = 4 }; /* the packed ones, tested only for logits, are last */

/* Returns the i-th model, or the one in WEFT_GOLDEN, for a plugin built elsewhere (plugin/test_own_family.py). */
static const char *model_at(int i) {
    const char *only = getenv("WEFT_GOLDEN");
    return only != NULL ? only : models[i];
}

/* The quick suite has two models on the CUDA emulator, and all on the CPU. */
static int n_models(void) {
    const bool is_short = !is_full() && getenv("WEFT_TEST_DEVICE") != NULL;
    return getenv("WEFT_GOLDEN") != NULL ? 1 : is_short ? 2 : N_MODELS;
}

TESTS(loss_gradients_and_ten_steps, n_models()) {
    golden_batch batch;
    golden_engine g;
    golden_batch_open(&batch, model_at(_i));
    golden_engine_open(&g, &batch, model_at(_i), 1, adamw, 3);
    golden_ten_steps(&g, &batch, true);
    golden_engine_close(&g);
    golden_batch_close(&batch);
}

/* Also compares the mean of the last hidden states, which counts repeated passes. */
TESTS(evaluation_gives_the_loss, n_models()) {
    const bool is_capped = strcmp(model_at(_i), "family-gemma2") == 0;
    golden_batch batch;
    golden_engine g;
    weft_error err = WEFT_ERROR_INIT;
    weft_hidden *hidden = NULL;
    double *mean = NULL;
    golden_batch_open(&batch, model_at(_i));
    golden_engine_open(&g, &batch, model_at(_i), 1, adamw, 3);
    hidden = weft_hidden_create(g.engine);
    mean = calloc((size_t)hidden->width, sizeof *mean);
    ck_assert_int_eq(hidden->width, g.engine->plan.declared->carry_width);
    if (!is_capped) g.stepper->hidden = hidden;
    weft_hidden_begin(hidden);
    for (int pass = 0; pass < 3; pass++) {
        weft_step_result result = {0};
        if (pass == 1) weft_hidden_begin(hidden);
        ck_assert_ok(weft_stepper_evaluate(g.stepper, &result, WEFT_SPLIT_VALIDATION, 0, &err), err);
        ck_assert_int_eq(result.n_targets, batch.count);
        ck_assert_double_lt(fabs(result.loss_sum / golden_doubles(&batch, "loss_sum")[0] - 1.0), 1e-5);
    }
    weft_hidden_mean(hidden, mean);
    if (!is_capped) golden_compare_mean_logits(&g, &batch, mean, hidden->width);
    free(mean);
    weft_hidden_destroy(hidden);
    golden_engine_close(&g);
    golden_batch_close(&batch);
}

TESTS(logits_of_every_place, n_models() < N_MODELS ? n_models() : N_MODELS + N_PACKED) {
    const weft_generate_options options = {.tokens = 1, .top_p = 1.0, .cache = false};
    golden_batch batch;
    weft_run *run = NULL;
    weft_generator *generator = NULL;
    golden_batch_open(&batch, model_at(_i));
    generator = golden_generator(&run, model_at(_i), NULL, 0, batch.length, &options);
    ck_assert_double_lt(golden_worst_logit(&batch, generator), 1e-4);
    weft_generator_destroy(generator);
    weft_run_close(run);
    golden_batch_close(&batch);
}

typedef struct id_list {
    int32_t ids[64];
    int64_t n;
} id_list;

static weft_status keep_id(void *context, int32_t id, weft_error *err) {
    id_list *list = context;
    list->ids[list->n++] = id;
    return WEFT_OK;
}

TESTS(forty_greedy_tokens, n_models() < N_MODELS ? 1 : N_MODELS - N_LLAMAS) {
    enum { PROMPT = 5, TOKENS = 40 };
    const weft_generate_options options = {.tokens = TOKENS, .top_p = 1.0, .cache = true};
    const weft_stop_ids never = {0};
    const char *name = model_at(N_LLAMAS + _i);
    const int32_t *text = NULL;
    id_list list = {.n = 0};
    golden_batch batch;
    weft_run *run = NULL;
    weft_error err = WEFT_ERROR_INIT;
    weft_generator *generator = golden_generator(&run, name, NULL, 0, PROMPT, &options);
    golden_batch_open(&batch, name);
    text = golden_ints(&batch, "greedy");
    ck_assert_ok(weft_generator_run(generator, text, PROMPT, &never, keep_id, &list, &err), err);
    ck_assert_int_eq(list.n, TOKENS);
    for (int32_t i = 0; i < TOKENS; i++)
        ck_assert_msg(list.ids[i] == text[PROMPT + i], "token %d is %d, not %d", (int)i, (int)list.ids[i],
                      (int)text[PROMPT + i]);
    weft_generator_destroy(generator);
    weft_run_close(run);
    golden_batch_close(&batch);
}

int main(void) {
    return run_tests(test_case("golden", 300, NULL, NULL));
}
