/* host/ab/comparison_table.c: see comparison_table.h. */
#include "ab/comparison_table.h"

#include "base/units.h"
#include "base/words.h"

#include <jansson.h>
#include <math.h>

static const char *const answers[] = {"undecided", "faster", "slower", "no difference"};

/* A logarithm of a ratio as a share of time: 0.1 is 10 % more. */
static double share(double log_ratio) {
    return expm1(log_ratio);
}

static char name_of(int32_t arm) {
    return (char)('A' + arm);
}

int32_t weft_ab_winner(const weft_ab_contest *contest) {
    int32_t best = -1, slower = 0;
    for (int32_t i = 1; i < contest->n; i++) {
        const weft_ab_verdict *verdict = &contest->arms[i].verdict;
        slower += verdict->answer == WEFT_AB_SLOWER;
        if (verdict->answer != WEFT_AB_FASTER) continue;
        if (best < 0 || verdict->ratio.median < contest->arms[best].verdict.ratio.median) best = i;
    }
    return best < 0 && slower == contest->n - 1 ? 0 : best;
}

/* ---- numbers ---- */

static void describe_mark(char *text, size_t size, const weft_ab_contest *contest, int32_t mark) {
    const weft_plan *plan = &contest->arms[0].session->engine->plan;
    const int32_t n = plan->declared->n_parameters;
    *text = '\0';
    if (mark >= n) weft_words_append(text, size, "%s of ", plan->states[mark / n - 1].name);
    weft_words_append(text, size, "%s", mark < 0 ? "the loss" : plan->declared->parameters[mark % n].name);
}

/* Whether the arms differ in what must not change numbers. */
static bool promises_bits(const char *label) {
    return strncmp(label, "strategy.", 9) == 0 || strncmp(label, "policy.", 7) == 0;
}

static void print_numbers(const weft_ab_contest *contest, int32_t i, FILE *to) {
    const weft_ab_arm *arm = &contest->arms[i];
    const weft_coverage *coverage = &arm->session->engine->plan.train.coverage;
    char what[300];
    (void)fprintf(to, "numbers  %c ", name_of(i));
    if (!arm->numbers.comparable) {
        (void)fprintf(to, "trains other parameters or states than A: there are no bits to compare\n");
        return;
    }
    if (arm->numbers.step < 0) {
        (void)fprintf(to, "has the bits of A after each of %d steps\n", (int)WEFT_AB_COMPARED);
        return;
    }
    describe_mark(what, sizeof what, contest, arm->numbers.mark);
    if (arm->numbers.step == 0) (void)fprintf(to, "begins with other numbers than A: %s\n", what);
    else (void)fprintf(to, "parts from A at step %d: %s", (int)arm->numbers.step, what);
    if (arm->numbers.step == 0) return;
    if (promises_bits(arm->spec->label) && coverage->covered)
        (void)fprintf(to, "; the contract promises the same: a defect, ask weft prove");
    else if (!coverage->covered) (void)fprintf(to, "; the contract does not cover it: %s", coverage->why);
    (void)fputc('\n', to);
}

/* ---- a table ---- */

static void describe_interval(char *text, size_t size, const weft_median_interval *at) {
    if (!at->bounded) (void)snprintf(text, size, "%+.1f %%", 100 * share(at->median));
    else
        (void)snprintf(text, size, "%+.1f %% (%+.1f to %+.1f)", 100 * share(at->median), 100 * share(at->low),
                       100 * share(at->high));
}

static void print_seconds(char text[WEFT_UNIT_SIZE], double seconds) {
    if (seconds < 1) (void)snprintf(text, WEFT_UNIT_SIZE, "%.2f ms", 1e3 * seconds);
    else (void)weft_unit_seconds(text, seconds);
}

static void print_row(const weft_ab_contest *contest, int32_t i, int width, FILE *to) {
    const weft_ab_arm *arm = &contest->arms[i];
    char step[WEFT_UNIT_SIZE], speed[WEFT_UNIT_SIZE], exchange[WEFT_UNIT_SIZE] = "-", memory[WEFT_UNIT_SIZE];
    char sent[WEFT_UNIT_SIZE], events[WEFT_UNIT_SIZE], beside[80] = "";
    print_seconds(step, arm->seconds);
    if (arm->exchange > 0) print_seconds(exchange, arm->exchange);
    if (i > 0) describe_interval(beside, sizeof beside, &arm->verdict.ratio);
    (void)fprintf(to, "%c %-*s  %9s  %10s  %9s  %10s  %10s  %7s  %s\n", name_of(i), width, arm->spec->label, step,
                  weft_unit_count(speed, (int64_t)((double)arm->targets / arm->seconds)), exchange,
                  weft_unit_bytes(memory, arm->bytes), weft_unit_bytes(sent, arm->sent),
                  weft_unit_count(events, arm->events), beside);
}

static void print_answer(const weft_ab_contest *contest, int32_t i, FILE *to) {
    const weft_ab_verdict *verdict = &contest->arms[i].verdict;
    const double bound = 100 * share(verdict->bound);
    (void)fprintf(to, "verdict  %c ", name_of(i));
    switch (verdict->answer) {
    case WEFT_AB_FASTER:
    case WEFT_AB_SLOWER:
        (void)fprintf(to, "is %s than A: a %s takes %.1f %% %s time\n", answers[verdict->answer],
                      contest->per_target ? "target" : "step", 100 * fabs(share(verdict->ratio.median)),
                      verdict->answer == WEFT_AB_FASTER ? "less" : "more");
        break;
    case WEFT_AB_NO_DIFFERENCE: (void)fprintf(to, "and A: no difference above %.1f %%\n", bound); break;
    default: (void)fprintf(to, "is not decided: %d rounds are too few; give more --minutes\n", (int)verdict->rounds);
    }
}

static void print_noise(const weft_ab_contest *contest, FILE *to) {
    const weft_ab_verdict *verdict = &contest->arms[1].verdict;
    char noise[80], seconds[WEFT_UNIT_SIZE];
    describe_interval(noise, sizeof noise, &verdict->noise);
    (void)fprintf(to, "noise    A against itself: %s, in two cases of three; what is smaller is no difference\n",
                  noise);
    (void)fprintf(to, "measured %d rounds of %lld steps an arm, by turns, in %s\n", (int)contest->times.rounds,
                  (long long)contest->block, weft_unit_seconds(seconds, contest->seconds));
}

void weft_ab_print(const weft_ab_contest *contest, FILE *to) {
    int width = 3;
    for (int32_t i = 0; i < contest->n; i++) {
        const int n = (int)strlen(contest->arms[i].spec->label);
        if (n > width) width = n;
    }
    (void)fprintf(to, "  %-*s  %9s  %10s  %9s  %10s  %10s  %7s  %s\n", width, "arm", "step", "targets/s", "exchange",
                  "memory", "sent", "events", "time beside A (95 %)");
    for (int32_t i = 0; i < contest->n; i++) print_row(contest, i, width, to);
    for (int32_t i = 1; i < contest->n; i++) print_numbers(contest, i, to);
    print_noise(contest, to);
    for (int32_t i = 1; i < contest->n; i++) print_answer(contest, i, to);
}

/* ---- an object ---- */

/* Shares of time; null where there is no bound. */
static json_t *interval_object(const weft_median_interval *at) {
    return json_pack("{s:f, s:o, s:o}", "median", share(at->median), "low",
                     at->bounded ? json_real(share(at->low)) : json_null(), "high",
                     at->bounded ? json_real(share(at->high)) : json_null());
}

static json_t *numbers_object(const weft_ab_contest *contest, const weft_ab_arm *arm) {
    char what[300];
    if (!arm->numbers.comparable) return json_pack("{s:b}", "comparable", 0);
    if (arm->numbers.step < 0)
        return json_pack("{s:b, s:b, s:i}", "comparable", 1, "same_bits", 1, "steps", (int)WEFT_AB_COMPARED);
    describe_mark(what, sizeof what, contest, arm->numbers.mark);
    return json_pack("{s:b, s:b, s:i, s:s, s:b}", "comparable", 1, "same_bits", 0, "step", (int)arm->numbers.step,
                     "first", what, "covered", (int)arm->session->engine->plan.train.coverage.covered);
}

static json_t *arm_object(const weft_ab_contest *contest, int32_t i) {
    const weft_ab_arm *arm = &contest->arms[i];
    json_t *times = json_array();
    json_t *object = NULL;
    for (int32_t r = 0; r < contest->times.rounds; r++)
        (void)json_array_append_new(times, json_real(contest->times.of[i][r]));
    object = json_pack("{s:s, s:f, s:f, s:o, s:I, s:I, s:I, s:o}", "arm", arm->spec->label, "step_seconds",
                       arm->seconds, "targets_per_second", (double)arm->targets / arm->seconds, "exchange_seconds",
                       arm->exchange >= 0 ? json_real(arm->exchange) : json_null(), "planned_bytes",
                       (json_int_t)arm->bytes, "sent_bytes", (json_int_t)arm->sent, "events", (json_int_t)arm->events,
                       "rounds", times);
    if (i == 0 || object == NULL) return object;
    (void)json_object_set_new(object, "verdict", json_string(answers[arm->verdict.answer]));
    (void)json_object_set_new(object, "time_beside_first", interval_object(&arm->verdict.ratio));
    if (arm->verdict.answer == WEFT_AB_NO_DIFFERENCE)
        (void)json_object_set_new(object, "no_difference_above", json_real(share(arm->verdict.bound)));
    (void)json_object_set_new(object, "numbers", numbers_object(contest, arm));
    return object;
}

weft_status weft_ab_print_json(const weft_ab_contest *contest, FILE *to, weft_error *err) {
    const int32_t winner = weft_ab_winner(contest);
    json_t *arms = json_array(), *object = NULL;
    for (int32_t i = 0; i < contest->n; i++) (void)json_array_append_new(arms, arm_object(contest, i));
    object = json_pack("{s:o, s:s, s:o, s:I, s:f, s:o, s:i}", "arms", arms, "compared",
                       contest->per_target ? "seconds per target" : "seconds per step", "noise",
                       interval_object(&contest->arms[1].verdict.noise), "block_steps", (json_int_t)contest->block,
                       "seconds", contest->seconds, "winner",
                       winner >= 0 ? json_string(contest->arms[winner].spec->label) : json_null(), "ranks",
                       (int)weft_platform_size(contest->meeting.platform));
    if (object == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the object that is printed");
    (void)json_dumpf(object, to, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    (void)fputc('\n', to);
    json_decref(object);
    return WEFT_OK;
}
