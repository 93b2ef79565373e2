/* tests/train/test_profile.c: the profile of a step counts correctly, adds up to the step's time, and changes no bit;
 * the roofline is measured at the step's matmuls. */
#include "tools/profile/profile.h"
#include "suite.h"
#include "train_rig.h"

#include <math.h>

enum { HIDDEN = 32, MLP = 56, LAYERS = 2, HEADS = 4, KV_HEADS = 2, VOCABULARY = 80, LENGTH = 24 };
enum { HEAD = HIDDEN / HEADS, KV = KV_HEADS * HEAD, MICRO_BATCHES = 3, ROWS = 2 };
#define PLACES ((double)(ROWS * LENGTH))
/* Operations of one micro-batch. */
#define LINEAR    (2.0 * PLACES * LAYERS * (2.0 * HIDDEN * HIDDEN + 2.0 * HIDDEN * KV + 3.0 * HIDDEN * MLP))
#define ATTENTION (LAYERS * 2.0 * ROWS * LENGTH * LENGTH * HIDDEN) /* two matmuls, half for causal */
#define LOGITS    (2.0 * PLACES * HIDDEN * VOCABULARY)
/* Elements of the operands of a linear layer, and of all of them in a micro-batch. */
#define OPERANDS(in, out) (PLACES * (in) + (double)(in) * (out) + PLACES * (out))
#define LINEAR_OPERANDS                                                                                                \
    (LAYERS * (2.0 * OPERANDS(HIDDEN, HIDDEN) + 2.0 * OPERANDS(HIDDEN, KV) + 3.0 * OPERANDS(HIDDEN, MLP)))

typedef struct setting {
    row_data data;
    fresh_model model;
    train_rig rig;
    weft_profile *profile;
} setting;

static void setting_open_with(setting *s, const char *override, const char *another) {
    const char *const overrides[] = {"model.start=fresh", override, another};
    const fresh_shape shape = {HIDDEN, MLP, LAYERS, HEADS, KV_HEADS, VOCABULARY, 64, false};
    weft_plan_spec spec;
    row_data_random(&s->data, 5, LENGTH, VOCABULARY, 11);
    fresh_model_make(&s->model, &shape);
    spec = train_rig_spec(&s->data, MICRO_BATCHES, false);
    spec.rows = ROWS;
    train_rig_open(&s->rig, s->model.path, &s->data, overrides, override == NULL ? 1 : another == NULL ? 2 : 3);
    train_rig_start(&s->rig, &spec);
    s->profile = NULL;
}

static void setting_open(setting *s, const char *override) {
    setting_open_with(s, override, NULL);
}

static void profile_steps(setting *s, int64_t warmup, int64_t keep) {
    weft_error err = WEFT_ERROR_INIT;
    s->profile = weft_profile_create(s->rig.stepper, keep);
    for (int64_t i = 1; i <= warmup + keep; i++)
        ck_assert_ok(weft_profile_train(s->profile, (uint64_t)i, 1e-3, 0.5, i > warmup, &err), err);
    ck_assert_int_eq(s->profile->n_steps, keep);
}

static void setting_close(setting *s) {
    weft_profile_destroy(s->profile);
    train_rig_close(&s->rig);
    fresh_model_remove(&s->model);
    row_data_free(&s->data);
}

static const weft_profile_row *find_row(const weft_profile_step *step, const char *operation, const char *part) {
    for (int32_t i = 0; i < step->n_rows; i++)
        if (strcmp(step->rows[i].operation, operation) == 0 && strcmp(step->rows[i].part, part) == 0)
            return &step->rows[i];
    return NULL;
}

typedef struct expected_row {
    const char *operation, *part;
    int64_t calls;
    double flops, bytes; /* bytes < 0: not checked */
} expected_row;

static void check_rows(const weft_profile_step *step, const expected_row *expected, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const expected_row *e = &expected[i];
        const weft_profile_row *row = find_row(step, e->operation, e->part);
        ck_assert_msg(row != NULL, "no row %s %s", e->operation, e->part);
        ck_assert_msg(row->calls == e->calls, "%s %s: %lld calls", e->operation, e->part, (long long)row->calls);
        ck_assert_msg(row->flops == e->flops, "%s %s: %.17g operations", e->operation, e->part, row->flops);
        ck_assert_msg(e->bytes < 0.0 || row->bytes == e->bytes, "%s %s: %.17g bytes", e->operation, e->part,
                      row->bytes);
    }
    ck_assert_int_eq(step->n_rows, (int)n);
}

TEST(work_is_what_a_hand_counts) {
    const double a = MICRO_BATCHES, values = PLACES * 4.0;
    setting s;
    setting_open(&s, "optimizer.plugin=adamw");
    profile_steps(&s, 1, 2);
    {
        const weft_profile_step *step = &s.profile->steps[1];
        const weft_engine *engine = s.rig.engine;
        const double trained = (double)weft_declared_numel(engine->plan.declared, true);
        const double grid = (double)engine->plan.layout->trainable_numel;
        const int64_t units = engine->plan.layout->n_units;
        const expected_row expected[] = {
            {"embedding", "forward", MICRO_BATCHES, 0, a * (2.0 * values * HIDDEN + values)},
            {"rms_norm", "forward", MICRO_BATCHES * (2 * LAYERS + 1), 0, -1},
            {"linear", "forward", MICRO_BATCHES * 7 * LAYERS, a * LINEAR, a * 4.0 * LINEAR_OPERANDS},
            {"rope", "forward", MICRO_BATCHES * 2 * LAYERS, 0, -1},
            {"attention", "forward", MICRO_BATCHES * LAYERS, a * ATTENTION, -1},
            {"add", "forward", MICRO_BATCHES * 2 * LAYERS, 0, a * 2 * LAYERS * 3.0 * values * HIDDEN},
            {"swiglu", "forward", MICRO_BATCHES * LAYERS, 0, a * LAYERS * 3.0 * values * MLP},
            {"lm_head", "backward", MICRO_BATCHES, a * 3.0 * LOGITS, -1},
            {"rms_norm", "backward", MICRO_BATCHES * (2 * LAYERS + 1), 0, -1},
            {"copy", "backward", MICRO_BATCHES * 2 * LAYERS, 0, a * 2 * LAYERS * 2.0 * values * HIDDEN},
            {"linear", "weight gradient", MICRO_BATCHES * 7 * LAYERS, a * LINEAR, a * 4.0 * LINEAR_OPERANDS},
            {"linear", "input gradient", MICRO_BATCHES * 7 * LAYERS, a * LINEAR, a * 4.0 * LINEAR_OPERANDS},
            {"swiglu", "backward", MICRO_BATCHES * LAYERS, 0, -1},
            {"attention", "backward", MICRO_BATCHES * LAYERS, a * 2.0 * ATTENTION, -1},
            {"rope", "backward", MICRO_BATCHES * 2 * LAYERS, 0, -1},
            {"embedding", "backward", MICRO_BATCHES, 0, -1},
            {"reduce", "", MICRO_BATCHES * units, 0, 4.0 * grid * (2.0 + 3.0 * (MICRO_BATCHES - 1))},
            {"norm", "", 1, 0, 4.0 * trained},
            {"optimizer", "", 1, 0, 4.0 * grid * 7.0},
            {"data", "", 1, 0, 0},
            {"rest", "", 1, 0, 0},
        };
        check_rows(step, expected, LENGTH(expected));
        ck_assert_double_eq(step->flops, a * 3.0 * (LINEAR + ATTENTION + LOGITS));
        ck_assert_double_eq(step->recompute_flops, 0.0);
        ck_assert_int_eq(step->result.n_places, MICRO_BATCHES * ROWS * LENGTH);
    }
    setting_close(&s);
}

/* In bf16 an update also writes the copies of matrices that matmuls read, or of gains if the weights are bf16. */
TESTS(an_update_moves_its_operands_and_its_copies, 2) {
    const double matrices = LAYERS * (2.0 * HIDDEN * HIDDEN + 2.0 * HIDDEN * KV + 3.0 * HIDDEN * MLP) +
                            (double)VOCABULARY * HIDDEN;
    const double gains = (2.0 * LAYERS + 1.0) * HIDDEN;
    const double per_element[] = {28.0, 24.0}, copies[] = {2.0 * matrices, 4.0 * gains};
    setting s;
    setting_open_with(&s, "train.precision=bf16", _i == 0 ? "train.weights=fp32" : "train.weights=bf16");
    profile_steps(&s, 0, 1);
    {
        const weft_profile_row *row = find_row(&s.profile->steps[0], "optimizer", "");
        const double grid = (double)s.rig.engine->plan.layout->trainable_numel;
        ck_assert_ptr_nonnull(row);
        ck_assert_double_eq(row->bytes, per_element[_i] * grid + copies[_i]);
    }
    setting_close(&s);
}

/* A REDUCE across ranks has no slot of a micro-batch's gradient, so its bytes are not counted. The bytes of
 * micro-batches equal those of `single`. */
TEST(a_reduce_without_a_micro_batch_moves_nothing) {
    setting s;
    setting_open_with(&s, "strategy.plugin=ddp", "strategy.reduce_at=last");
    profile_steps(&s, 0, 1);
    {
        const weft_profile_row *row = find_row(&s.profile->steps[0], "reduce", "");
        const weft_layout *layout = s.rig.engine->plan.layout;
        ck_assert_ptr_nonnull(row);
        ck_assert_int_eq(row->calls, (MICRO_BATCHES + 1) * layout->n_units);
        ck_assert_double_eq(row->bytes, 4.0 * (double)layout->trainable_numel * (2.0 + 3.0 * (MICRO_BATCHES - 1)));
    }
    setting_close(&s);
}

/* Recomputed work is not counted as work of the step, and its time has its own rows. */
TEST(recomputed_work_is_apart) {
    setting s;
    setting_open(&s, "train.activation_checkpointing=yes");
    profile_steps(&s, 0, 1);
    {
        const weft_profile_step *step = &s.profile->steps[0];
        const weft_profile_row *row = find_row(step, "linear", "recompute");
        ck_assert_double_eq(step->flops, MICRO_BATCHES * 3.0 * (LINEAR + ATTENTION + LOGITS));
        ck_assert(step->recompute_flops > 0.0 && step->recompute_flops <= MICRO_BATCHES * (LINEAR + ATTENTION));
        ck_assert(row != NULL && row->recompute && row->flops <= step->recompute_flops);
        for (int32_t i = 0; i < s.profile->n_products; i++)
            ck_assert_int_eq(s.profile->products[i].calls % MICRO_BATCHES, 0);
    }
    setting_close(&s);
}

static double products_flops(const setting *s) {
    const weft_profile_product *products = s->profile->products;
    double flops = 0.0;
    for (int32_t i = 0; i < s->profile->n_products; i++)
        flops += (double)products[i].calls * 2.0 * (double)products[i].shape.m * (double)products[i].shape.n *
                 (double)products[i].shape.k;
    return flops;
}

/* No gradient is computed below the trained parameters: a complete forward, and the head's logits and one gradient. */
TEST(frozen_parts_make_no_products) {
    setting s;
    setting_open(&s, "train.trainable=head");
    profile_steps(&s, 1, 2);
    ck_assert_double_eq(s.profile->steps[0].flops, MICRO_BATCHES * (LINEAR + ATTENTION + 2.0 * LOGITS));
    ck_assert_double_eq(products_flops(&s), 2 * MICRO_BATCHES * (LINEAR + 2.0 * LOGITS));
    ck_assert_ptr_null(find_row(&s.profile->steps[0], "linear", "weight gradient"));
    setting_close(&s);
}

/* Returns the seconds of the newest instructions that run segments. */
static double segment_seconds(const train_rig *rig) {
    const int32_t held = weft_trace_count(rig->stepper->trace),
                  instructions = rig->engine->plan.train.program->n_instructions;
    double sum = 0.0;
    for (int32_t i = held - instructions; i < held; i++) {
        const weft_trace_entry *entry = weft_trace_entry_at(rig->stepper->trace, i);
        const int32_t kind = rig->engine->plan.train.program->instructions[entry->instruction].kind;
        if (kind == WEFT_INSTRUCTION_FORWARD || kind == WEFT_INSTRUCTION_BACKWARD) sum += weft_trace_seconds(entry);
    }
    return sum;
}

static double operator_seconds(const weft_profile_step *step) {
    double sum = 0.0;
    for (int32_t i = 0; i < step->n_rows; i++)
        if (step->rows[i].part[0] != '\0') sum += step->rows[i].seconds;
    return sum;
}

/* Device calls make up nearly all time of their instructions. The machine may preempt between two calls, so the best of
 * some steps counts. */
TEST(rows_add_up) {
    weft_error err = WEFT_ERROR_INIT;
    double best = 0.0;
    setting s;
    setting_open(&s, "device.threads=1");
    s.profile = weft_profile_create(s.rig.stepper, 20);
    for (int64_t i = 0; i < 20; i++) {
        const weft_profile_step *step = &s.profile->steps[i];
        double sum = 0.0, operators = 0.0, instructions = 0.0;
        ck_assert_int_eq(weft_profile_train(s.profile, (uint64_t)i + 1, 1e-3, 0.5, true, &err), WEFT_OK);
        operators = operator_seconds(step);
        instructions = segment_seconds(&s.rig);
        for (int32_t r = 0; r < step->n_rows; r++) {
            ck_assert_double_ge(step->rows[r].seconds, -1e-6); /* the remainder, negative at most by rounding */
            sum += step->rows[r].seconds;
        }
        ck_assert_double_eq_tol(sum, step->seconds, 1e-9);
        ck_assert_double_le(operators, instructions);
        if (operators / instructions > best) best = operators / instructions;
    }
    ck_assert_msg(best > 0.9, "at most %.1f %% of the time of forward and backward lies in operators", 100.0 * best);
    setting_close(&s);
}

TEST(the_median_is_in_the_middle) {
    weft_error err = WEFT_ERROR_INIT;
    setting s;
    setting_open(&s, NULL);
    for (int64_t keep = 1; keep < 8; keep++) {
        int64_t below = 0, above = 0;
        double median = 0.0;
        profile_steps(&s, 0, keep);
        median = weft_profile_median(s.profile)->seconds;
        for (int64_t i = 0; i < keep; i++) {
            below += s.profile->steps[i].seconds < median;
            above += s.profile->steps[i].seconds > median;
        }
        ck_assert_int_le(below, (keep - 1) / 2);
        ck_assert_int_le(above, keep / 2);
        ck_assert_int_eq(weft_profile_train(s.profile, 9, 1e-3, 0.5, true, &err), WEFT_E_HOST);
        weft_profile_destroy(s.profile);
        s.profile = NULL;
    }
    setting_close(&s);
}

TEST(timing_changes_no_bit) {
    setting with, without;
    float *a = NULL, *b = NULL;
    setting_open(&with, NULL);
    setting_open(&without, NULL);
    profile_steps(&with, 1, 3);
    train_rig_steps(&without.rig, 4);
    a = train_rig_parameters(&with.rig);
    b = train_rig_parameters(&without.rig);
    ck_assert(same_floats(a, b, with.rig.engine->plan.layout->numel));
    free(a);
    free(b);
    setting_close(&with);
    setting_close(&without);
}

TEST(the_roofline_is_over_the_step_products) {
    weft_error err = WEFT_ERROR_INIT;
    weft_roofline roofline;
    double flops = 0.0, seconds = 0.0;
    setting s;
    setting_open(&s, NULL);
    profile_steps(&s, 0, 2);
    ck_assert_ok(weft_roofline_measure(&roofline, s.rig.engine, s.profile, &err), err);
    ck_assert(roofline.peak > 1e9 && roofline.bandwidth > 1e8 && isfinite(roofline.peak) &&
              isfinite(roofline.bandwidth));
    for (int32_t i = 0; i < roofline.n_rows; i++) {
        ck_assert(roofline.rows[i].seconds > 0.0 && isfinite(roofline.rows[i].seconds));
        flops += (double)roofline.rows[i].calls * roofline.rows[i].flops;
        seconds += (double)roofline.rows[i].calls * roofline.rows[i].seconds;
    }
    ck_assert_double_eq(flops, 2 * MICRO_BATCHES * 3.0 * (LINEAR + LOGITS));
    ck_assert_double_eq_tol(roofline.products, flops / seconds, 1e-6 * roofline.products);
    setting_close(&s);
}

/* Returns the last number of a row of the printed table: its share of its bound, in percent. */
static double printed_share(const char *text, const char *row) {
    const char *line = strstr(text, row), *end = line == NULL ? NULL : strchr(line + 1, '\n');
    ck_assert_msg(end != NULL && end - line > 12 && memcmp(end - 2, " %", 2) == 0, "no share of %s in\n%s", row, text);
    return atof(end - 8);
}

/* The bound is the longer of the FLOPs at the peak and the bytes at the bandwidth. */
static void check_bounds(const setting *s, double peak, double bandwidth, bool by_flops) {
    static const char *const parts[] = {"forward", "weight gradient", "input gradient"};
    const weft_roofline roofline = {.peak = peak, .bandwidth = bandwidth};
    const weft_session session = {.engine = s->rig.engine};
    const weft_arrival start = {0};
    const weft_profile_report report = {
        .session = &session, .start = &start, .profile = s->profile, .roofline = &roofline};
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    weft_profile_print(&report, to);
    (void)fclose(to);
    for (size_t i = 0; i < LENGTH(parts); i++) {
        const weft_profile_row *row = find_row(weft_profile_median(s->profile), "linear", parts[i]);
        const double seconds = by_flops ? row->flops / peak : row->bytes / bandwidth;
        char name[40];
        (void)snprintf(name, sizeof name, "\nlinear %s ", parts[i]);
        ck_assert_double_eq_tol(printed_share(text, name), 100.0 * seconds / row->seconds, 0.051);
    }
    ck_assert_ptr_null(strstr(text, "matmul ")); /* no table of matmuls */
    free(text);
}

TEST(a_row_has_a_share_of_its_bound) {
    setting s;
    setting_open(&s, NULL);
    profile_steps(&s, 0, 1);
    {
        const weft_profile_row *row = find_row(&s.profile->steps[0], "linear", "forward");
        const double flops = row->flops / row->seconds, bytes = row->bytes / row->seconds;
        check_bounds(&s, 2.0 * flops, 1000.0 * bytes, true);
        check_bounds(&s, 1000.0 * flops, 2.0 * bytes, false);
    }
    setting_close(&s);
}

TEST(a_device_without_a_roofline_is_named) {
    weft_error err = WEFT_ERROR_INIT;
    const weft_device_plugin *original = NULL;
    weft_device_plugin plain;
    weft_roofline roofline;
    setting s;
    setting_open(&s, NULL);
    profile_steps(&s, 0, 1);
    original = s.rig.engine->kernels;
    plain = *original;
    plain.extension = NULL;
    s.rig.engine->kernels = &plain;
    ck_assert_int_eq(weft_roofline_measure(&roofline, s.rig.engine, s.profile, &err), WEFT_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "device cpu has no extension weft.device.roofline/1"));
    s.rig.engine->kernels = original;
    setting_close(&s);
}

int main(void) {
    return run_tests(test_case("profile", 300, NULL, NULL));
}
