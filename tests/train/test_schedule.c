/* tests/train/test_schedule.c: the learning rate of each update, against the schedulers of transformers and PyTorch
 * (tests/golden/schedule.json). */
#include "golden.h"
#include "suite.h"
#include "run/session.h"

#include <jansson.h>
#include <math.h>

static json_t *golden(void) {
    char path[4096];
    json_error_t err;
    json_t *root = NULL;
    golden_path(path, sizeof path, "schedule.json");
    root = json_load_file(path, 0, &err);
    ck_assert_msg(root != NULL, "%s: %s", path, err.text);
    return root;
}

static double number(const json_t *object, const char *key, double fallback) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : fallback;
}

static int32_t kind_of(const char *name) {
    static const char *const names[] = {"constant", "linear", "cosine",
                                        "step"}; /* in the order of weft_schedule_kind */
    for (int32_t i = 0; i < 4; i++)
        if (strcmp(names[i], name) == 0) return i;
    ck_abort_msg("no schedule is called %s", name);
    return -1;
}

static weft_schedule schedule_of(const json_t *c) {
    weft_schedule out = {0};
    out.kind = kind_of(json_string_value(json_object_get(c, "schedule")));
    out.steps = (int64_t)number(c, "steps", 0);
    out.warmup = weft_warmup_resolve(number(c, "warmup", 0), out.steps);
    out.every = (int64_t)number(c, "every", 1);
    out.gamma = number(c, "gamma", 1);
    return out;
}

TEST(every_update_uses_the_rate_that_the_libraries_use) {
    json_t *root = golden(), *c = NULL;
    size_t i = 0, points = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        const weft_schedule schedule = schedule_of(c);
        const json_t *at = json_object_get(c, "at");
        ck_assert_msg(schedule.warmup == (int64_t)number(c, "warmup_steps", -1), "case %zu: %lld updates of warm-up", i,
                      (long long)schedule.warmup);
        for (size_t k = 0; k < json_array_size(at); k++, points++) {
            const json_t *point = json_array_get(at, k);
            const int64_t step = (int64_t)json_integer_value(json_array_get(point, 0));
            const double wanted = json_number_value(json_array_get(point, 1));
            const double found = number(c, "lr", 0) * weft_schedule_factor(&schedule, step);
            ck_assert_msg(fabs(found - wanted) <= 1e-12 * fabs(wanted), "case %zu, update %lld: %.17g, not %.17g", i,
                          (long long)step, found, wanted);
        }
    }
    ck_assert_uint_ge(i, 20);
    ck_assert_uint_ge(points, 200);
    json_decref(root);
}

/* A resumed run may continue after the end; the factor must not rise again there. */
TEST(past_the_end_the_factor_stays_at_its_end) {
    const weft_schedule linear = {WEFT_SCHEDULE_LINEAR, 10, 2, 1, 1.0}, cosine = {WEFT_SCHEDULE_COSINE, 10, 2, 1, 1.0};
    for (int64_t step = 11; step < 40; step++) {
        ck_assert(weft_schedule_factor(&linear, step) == 0.0);
        ck_assert(weft_schedule_factor(&cosine, step) == 0.0);
    }
}

TEST(a_warmup_is_steps_or_a_ratio_rounded_up) {
    ck_assert_int_eq(weft_warmup_resolve(0.0, 100), 0);
    ck_assert_int_eq(weft_warmup_resolve(1.0, 100), 1);
    ck_assert_int_eq(weft_warmup_resolve(250.0, 100), 250);
    ck_assert_int_eq(weft_warmup_resolve(0.5, 5), 3);
    ck_assert_int_eq(weft_warmup_resolve(0.001, 7), 1);
}

int main(void) {
    return run_tests(tcase_create("schedule"));
}
