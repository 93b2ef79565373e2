/* host/tools/ab/comparison_table.c: see comparison_table.h. */
#include "tools/ab/comparison_table.h"

#include "base/units.h"
#include "base/text.h"
#include "tools/common/plan_costs.h"

#include <math.h>

char weft_ab_letter(int32_t arm) {
    return (char)('A' + arm);
}

double weft_ab_share(double log_ratio) {
    return expm1(log_ratio);
}

const char *weft_ab_time_name(const weft_ab_experiment *experiment, int32_t i) {
    static const char *const names[] = {"undecided", "faster", "slower", "no difference"};
    const weft_ab_evidence evidence = weft_ab_evidence_of(experiment, i);
    return names[evidence.loose ? WEFT_AB_UNDECIDED : evidence.time];
}

const char *weft_ab_outcome_name(int32_t outcome) {
    static const char *const names[] = {"undecided", "better", "worse", "no difference", "not comparable"};
    return names[outcome];
}

static const char *weft_ab_learning_name(int32_t answer) {
    static const char *const names[] = {"not measured", "learns more", "learns less", "no difference", "undecided"};
    return names[answer];
}

/* "-25.2 % (-42.1 to -11.2)" */
static void weft_ab_print_interval(char *text, size_t size, const weft_median_interval *at) {
    const double median = 100 * weft_ab_share(at->median);
    if (isnan(median)) (void)snprintf(text, size, "-");
    else if (!at->bounded) (void)snprintf(text, size, "%+.1f %%", median);
    else
        (void)snprintf(text, size, "%+.1f %% (%+.1f to %+.1f)", median, 100 * weft_ab_share(at->low),
                       100 * weft_ab_share(at->high));
}

/* "45.10 ms" */
static void weft_ab_print_seconds(char *text, size_t size, double seconds) {
    char unit[WEFT_UNIT_SIZE];
    if (isnan(seconds)) (void)snprintf(text, size, "-");
    else if (seconds < 1) (void)snprintf(text, size, "%.2f ms", 1e3 * seconds);
    else (void)snprintf(text, size, "%s", weft_unit_seconds(unit, seconds));
}

/* ---- numbers ---- */

static void print_where(char *text, size_t size, const weft_ab_numbers *numbers) {
    weft_words_append(text, size, "differs from A at step %d", (int)numbers->step);
    if (numbers->micro_batch >= 0) weft_words_append(text, size, ", micro-batch %d", (int)numbers->micro_batch);
    if (numbers->unit[0] != '\0') weft_words_append(text, size, ", unit %s", numbers->unit);
    weft_words_append(text, size, ": %s", numbers->what);
}

/* True for plugin keys that affect the numbers of steps, other than the choice of the plugin. */
static bool is_learning_key(const char *key) {
    static const char *const sections[] = {"optimizer.", "adapter.", "model.", "data."};
    const char *name = strchr(key, '.');
    if (name == NULL || strcmp(name, ".plugin") == 0 || strncmp(key, "data.validation", 15) == 0) return false;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (strncmp(key, sections[i], strlen(sections[i])) == 0) return true;
    return false;
}

/* Appends a warning if all differing keys belong to one plugin and both arms learn the same. A plugin that ignores a
 * key, or keeps the first instance's value, trains both arms identically. */
static void query_for_keys(char *text, size_t size, const weft_ab_arm *arm) {
    const json_t *keys = json_object_get(arm->difference, "keys"), *row = NULL;
    const char *first = json_string_value(json_object_get(json_array_get(keys, 0), "name"));
    size_t i = 0;
    if (first == NULL) return;
    json_array_foreach(keys, i, row) {
        const char *key = json_string_value(json_object_get(row, "name"));
        if (key == NULL || !is_learning_key(key) || strncmp(key, first, strcspn(first, ".") + 1) != 0) return;
    }
    json_array_foreach(keys, i, row) weft_words_append(text, size, "%s%s", i == 0 ? ", and " : ", ",
                                                       json_string_value(json_object_get(row, "name")));
    weft_words_append(text, size, " has no effect: is the key read, and is the change large enough?");
}

void weft_ab_print_numbers(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_arm *first = &experiment->arms[0], *arm = &experiment->arms[i];
    const weft_ab_evidence evidence = weft_ab_evidence_of(experiment, i);
    const char *why = arm->not_covered[0] != '\0' ? arm->not_covered : first->not_covered;
    (void)snprintf(text, size, "%c ", weft_ab_letter(i));
    if (!arm->numbers.comparable) {
        weft_words_append(text, size, "trains different parameters or states than A: there are no bits to compare");
        return;
    }
    if (arm->numbers.step < 0) {
        weft_words_append(text, size, "has the bits of A after each of %d steps", (int)WEFT_AB_COMPARED);
        query_for_keys(text, size, arm);
        return;
    }
    if (arm->numbers.step == 0) {
        weft_words_append(text, size, "starts with different numbers than A: %s", arm->numbers.what);
        return;
    }
    print_where(text, size, &arm->numbers);
    if (weft_ab_is_defect(&evidence))
        weft_words_append(text, size, "; equal results are guaranteed: this is a bug, run weft prove");
    else if (*why != '\0') weft_words_append(text, size, "; equal results are not guaranteed: %s", why);
    else if (arm->change == WEFT_AB_ROUNDS)
        weft_words_append(text, size, "; equal results are guaranteed only for one micro_batch and one reduce");
    else weft_words_append(text, size, "; equal results are not guaranteed: its settings change the training");
}

/* ---- learning ---- */

void weft_ab_print_learning(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_learned *learned = &experiment->arms[i].learned;
    const weft_paired_loss *at = &learned->beside;
    (void)snprintf(text, size, "%c ", weft_ab_letter(i));
    if (isinf(learned->loss)) weft_words_append(text, size, "diverges: its loss is not finite");
    else if (isinf(experiment->arms[0].learned.loss)) weft_words_append(text, size, "learns, and A diverges");
    else if (learned->answer == WEFT_AB_LEARNING_UNKNOWN) {
        weft_words_append(text, size,
                          "differs by %+.4g per target, and there are too few micro-batches for a confidence interval",
                          at->mean);
        return;
    } else if (learned->answer == WEFT_AB_LEARNS_ALIKE)
        weft_words_append(text, size, "and A: no difference above %.3g a target (%+.3g, %+.3g to %+.3g)",
                          fmax(fabs(at->low), fabs(at->high)), at->mean, at->low, at->high);
    else
        weft_words_append(text, size, "%s than A: %+.4g a target (%+.4g to %+.4g)",
                          weft_ab_learning_name(learned->answer), at->mean, at->low, at->high);
    weft_words_append(text, size, "; loss %.4f and %.4f of A after %lld steps", learned->loss,
                      experiment->arms[0].learned.loss, (long long)experiment->learning.steps);
    if (experiment->learning.seeds > 1) weft_words_append(text, size, ", %d seeds", (int)experiment->learning.seeds);
    else weft_words_append(text, size, ", %lld micro-batches, one seed", (long long)experiment->learning.micro_batches);
}

/* ---- verdicts ---- */

static void print_divergence(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_arm *arm = &experiment->arms[i];
    weft_words_append(text, size, "%c diverges at step %lld: %s", weft_ab_letter(i), (long long)arm->diverged.step,
                      arm->diverged.why);
}

/* Names the limit that ended the rounds, to be raised. */
static const char *print_more(const weft_ab_experiment *experiment) {
    static const char *const words[] = {[WEFT_AB_END_MINUTES] = "give more --minutes",
                                        [WEFT_AB_END_ROUNDS] = "give more --rounds",
                                        [WEFT_AB_END_MOST] =
                                            "the experiment needs more rounds: increase --steps per block",
                                        [WEFT_AB_END_SIGNAL] = "a signal ended it before its time"};
    return words[experiment->end];
}

void weft_ab_print_time(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_verdict *verdict = &experiment->arms[i].verdict;
    const weft_ab_evidence evidence = weft_ab_evidence_of(experiment, i);
    const char *what = experiment->per_target ? "target" : "step";
    *text = '\0';
    if (evidence.first_diverged || evidence.diverged) {
        print_divergence(text, size, experiment, evidence.first_diverged ? 0 : i);
        return;
    }
    (void)snprintf(text, size, "%c ", weft_ab_letter(i));
    switch (verdict->answer) {
    case WEFT_AB_FASTER:
    case WEFT_AB_SLOWER:
        weft_words_append(text, size, "is %s than A: a %s takes %.1f %% %s time", weft_ab_time_name(experiment, i),
                          what, 100 * fabs(weft_ab_share(verdict->ratio.median)),
                          verdict->answer == WEFT_AB_FASTER ? "less" : "more");
        break;
    case WEFT_AB_NO_DIFFERENCE:
        weft_words_append(text, size,
                          evidence.loose ? "is not decided: no difference above %.1f %%"
                                         : "and A: no difference above %.1f %%",
                          100 * weft_ab_share(verdict->bound));
        if (evidence.loose)
            weft_words_append(text, size, " is the limit of %d %s, and --within is %g %%; %s", (int)verdict->rounds,
                              verdict->rounds == 1 ? "round tells" : "rounds tell",
                              100 * weft_ab_share(experiment->within), print_more(experiment));
        break;
    default:
        weft_words_append(text, size, "is not decided: %d %s too few; %s", (int)verdict->rounds,
                          verdict->rounds == 1 ? "round is" : "rounds are", print_more(experiment));
    }
}

static void print_not_comparable(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_evidence evidence = weft_ab_evidence_of(experiment, i);
    const char letter = weft_ab_letter(i);
    if (evidence.first_diverged)
        (void)snprintf(text, size, "%c and A are not comparable: A diverges, so the result of %c is unknown", letter,
                       letter);
    else if (weft_ab_is_defect(&evidence))
        (void)snprintf(text, size,
                       "%c and A are not comparable: its results differ although they are guaranteed to be equal",
                       letter);
    else if (evidence.learning == WEFT_AB_NOT_LEARNED)
        (void)snprintf(text, size,
                       "%c and A are not comparable: they train differently, and their losses are unknown (%s)", letter,
                       experiment->learning.why);
    else
        (void)snprintf(text, size, "%c and A are not comparable: %c is %s and %s; choose which of the two matters",
                       letter, letter, weft_ab_time_name(experiment, i), weft_ab_learning_name(evidence.learning));
}

/* False for an inconclusive time; weft_ab_print_time reports that. */
static bool is_timed(const weft_ab_evidence *evidence) {
    return evidence->time != WEFT_AB_UNDECIDED && !evidence->loose;
}

void weft_ab_print_outcome(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_outcome outcome = experiment->arms[i].outcome;
    const weft_ab_evidence evidence = weft_ab_evidence_of(experiment, i);
    *text = '\0';
    if (outcome == WEFT_AB_NOT_COMPARABLE) print_not_comparable(text, size, experiment, i);
    else if (experiment->arms[i].diverged.step > 0)
        (void)snprintf(text, size, "%c is worse than A, which does not diverge", weft_ab_letter(i));
    else if (experiment->arms[i].learned.answer == WEFT_AB_NOT_LEARNED) return;
    else if (outcome == WEFT_AB_BETTER || outcome == WEFT_AB_WORSE)
        (void)snprintf(text, size, "%c is %s than A", weft_ab_letter(i), weft_ab_outcome_name(outcome));
    else if (outcome == WEFT_AB_UNKNOWN && is_timed(&evidence))
        (void)snprintf(text, size,
                       "%c is not decided: its loss relative to A is uncertain; increase [data] validation or --seeds",
                       weft_ab_letter(i));
}

void weft_ab_print_noise(char *text, size_t size, const weft_ab_experiment *experiment) {
    char noise[80];
    weft_ab_print_interval(noise, sizeof noise, &experiment->arms[1].verdict.noise);
    (void)snprintf(text, size, "A against itself: %s in two of three cases; smaller differences are noise", noise);
}

void weft_ab_print_alone(char *text, size_t size, const weft_ab_experiment *experiment) {
    char noise[80];
    weft_ab_print_interval(noise, sizeof noise, &experiment->alone.noise);
    (void)snprintf(text, size, "A against itself, before the other arms: %s", noise);
    if (!isnan(experiment->alone.told))
        weft_words_append(text, size, "; this time detects %.1f %% with probability 0.5", 100 * experiment->alone.told);
}

static void append_planned(char *text, size_t size, const char *name, int64_t a, int64_t b) {
    if (a == b || a == 0) weft_words_append(text, size, ", %s %s", name, a == b ? "alike" : "and 0 in A");
    else weft_words_append(text, size, ", %s %+.1f %%", name, 100 * ((double)b / (double)a - 1));
}

void weft_ab_print_beside(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_arm *first = &experiment->arms[0], *arm = &experiment->arms[i];
    const weft_median_interval *time = &arm->verdict.ratio;
    const weft_median_interval speed = {-time->median, -time->high, -time->low, time->bounded};
    char part[80];
    weft_ab_print_interval(part, sizeof part, &speed);
    if (isnan(speed.median)) (void)snprintf(text, size, "%c is not timed", weft_ab_letter(i));
    else (void)snprintf(text, size, "%c targets/s %s", weft_ab_letter(i), part);
    if (arm->exchange_of.bounded) {
        weft_ab_print_interval(part, sizeof part, &arm->exchange_of);
        weft_words_append(text, size, ", exchange %s", part);
    }
    append_planned(text, size, "memory", first->bytes, arm->bytes);
    append_planned(text, size, "sent", first->sent, arm->sent);
    append_planned(text, size, "instructions", first->instructions, arm->instructions);
}

static void print_row(const weft_ab_experiment *experiment, int32_t i, int width, FILE *to) {
    const weft_ab_arm *arm = &experiment->arms[i];
    char step[WEFT_UNIT_SIZE], speed[WEFT_UNIT_SIZE], exchange[WEFT_UNIT_SIZE] = "-", memory[WEFT_UNIT_SIZE];
    char sent[WEFT_UNIT_SIZE], instructions[WEFT_UNIT_SIZE], beside[80] = "";
    weft_ab_print_seconds(step, sizeof step, arm->seconds);
    (void)snprintf(speed, sizeof speed, "-");
    if (!isnan(arm->rate)) (void)weft_unit_count(speed, (int64_t)arm->rate);
    if (arm->exchange > 0) weft_ab_print_seconds(exchange, sizeof exchange, arm->exchange);
    if (i > 0) weft_ab_print_interval(beside, sizeof beside, &arm->verdict.ratio);
    (void)fprintf(to, "%c %-*s  %9s  %10s  %9s  %10s  %10s  %12s%s%s\n", weft_ab_letter(i), width, arm->spec->label,
                  step, speed, exchange, weft_unit_bytes(memory, arm->bytes), weft_unit_bytes(sent, arm->sent),
                  weft_unit_count(instructions, arm->instructions), *beside != '\0' ? "  " : "", beside);
}

static void print_rows(const weft_ab_experiment *experiment, FILE *to) {
    int width = 3;
    for (int32_t i = 0; i < experiment->n; i++) {
        const int n = (int)strlen(experiment->arms[i].spec->label);
        if (n > width) width = n;
    }
    (void)fprintf(to, "  %-*s  %9s  %10s  %9s  %10s  %10s  %12s  %s\n", width, "arm", "step", "targets/s", "exchange",
                  "memory", "sent", "instructions", "time beside A (95 %)");
    for (int32_t i = 0; i < experiment->n; i++) print_row(experiment, i, width, to);
}

static void print_difference(const weft_ab_experiment *experiment, int32_t i, FILE *to) {
    const weft_ab_arm *arm = &experiment->arms[i];
    char b[2] = {weft_ab_letter(i), '\0'};
    (void)fprintf(to, "\nwhat differs in %s\n", b);
    weft_plan_diff_print(arm->difference, "A", b, to);
    if (arm->programs[0] != '\0') (void)fprintf(to, "programs of rank 0: %s\n", arm->programs);
    else (void)fprintf(to, "programs of rank 0: the same %lld instructions\n", (long long)arm->instructions);
}

typedef void sentence(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);

static void print_sentences(const weft_ab_experiment *experiment, const char *head, sentence *say, FILE *to) {
    char text[WEFT_AB_SENTENCE];
    for (int32_t i = 1; i < experiment->n; i++) {
        say(text, sizeof text, experiment, i);
        if (text[0] != '\0') (void)fprintf(to, "%-8s %s\n", head, text);
    }
}

static void print_noise(const weft_ab_experiment *experiment, FILE *to) {
    char text[WEFT_AB_SENTENCE], seconds[WEFT_UNIT_SIZE];
    const char *end = experiment->stopped ? ", until a signal arrived" : "";
    if (experiment->alone.rounds > 0) {
        weft_ab_print_alone(text, sizeof text, experiment);
        (void)fprintf(to, "%-8s %s\n", "noise", text);
    }
    if (experiment->times.rounds == 0) {
        (void)fprintf(to, "measured no round of all arms%s\n", end);
        return;
    }
    weft_ab_print_noise(text, sizeof text, experiment);
    (void)fprintf(to, "%-8s %s\n", "", text);
    (void)fprintf(to, "measured %d %s of %lld %s an arm, by turns, in %s%s\n", (int)experiment->times.rounds,
                  experiment->times.rounds == 1 ? "round" : "rounds", (long long)experiment->block,
                  experiment->block == 1 ? "step" : "steps", weft_unit_seconds(seconds, experiment->seconds), end);
}

void weft_ab_print(const weft_ab_experiment *experiment, FILE *to) {
    print_rows(experiment, to);
    for (int32_t i = 1; i < experiment->n; i++) print_difference(experiment, i, to);
    (void)fputc('\n', to);
    print_sentences(experiment, "beside", weft_ab_print_beside, to);
    print_sentences(experiment, "numbers", weft_ab_print_numbers, to);
    if (experiment->learning.steps > 0) print_sentences(experiment, "learned", weft_ab_print_learning, to);
    print_noise(experiment, to);
    print_sentences(experiment, "verdict", weft_ab_print_time, to);
    print_sentences(experiment, "verdict", weft_ab_print_outcome, to);
}

/* results as JSON. Relative times are ratios minus one; unknown values are null. */

static json_t *real_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *interval_object(const weft_median_interval *at) {
    return json_pack("{s:o, s:o, s:o}", "median", real_or_null(weft_ab_share(at->median)), "low",
                     at->bounded ? real_or_null(weft_ab_share(at->low)) : json_null(), "high",
                     at->bounded ? real_or_null(weft_ab_share(at->high)) : json_null());
}

static json_t *numbers_object(const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_numbers *numbers = &experiment->arms[i].numbers;
    const weft_ab_evidence evidence = weft_ab_evidence_of(experiment, i);
    const bool promised = evidence.covered && evidence.change == WEFT_AB_SPREADS;
    if (!numbers->comparable) return json_pack("{s:b}", "comparable", 0);
    if (numbers->step < 0)
        return json_pack("{s:b, s:b, s:i, s:b}", "comparable", 1, "same_bits", 1, "steps", (int)WEFT_AB_COMPARED,
                         "promised", (int)promised);
    return json_pack("{s:b, s:b, s:i, s:o, s:o, s:s, s:b, s:b}", "comparable", 1, "same_bits", 0, "step",
                     (int)numbers->step, "micro-batch",
                     numbers->micro_batch >= 0 ? json_integer(numbers->micro_batch) : json_null(), "unit",
                     numbers->unit[0] != '\0' ? json_string(numbers->unit) : json_null(), "first", numbers->what,
                     "promised", (int)promised, "defect", (int)weft_ab_is_defect(&evidence));
}

static json_t *learned_object(const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_learned *learned = &experiment->arms[i].learned;
    json_t *micro_batches = json_array(), *object = NULL;
    for (int64_t k = 0; learned->micro_batches != NULL && k < experiment->learning.micro_batches; k++)
        (void)json_array_append_new(micro_batches, real_or_null(learned->micro_batches[k]));
    object = json_pack("{s:o, s:o}", "loss", real_or_null(learned->loss), "micro_batches", micro_batches);
    if (i == 0 || object == NULL) return object;
    (void)json_object_set_new(object, "verdict", json_string(weft_ab_learning_name(learned->answer)));
    (void)json_object_set_new(object, "beside_first",
                              json_pack("{s:o, s:o, s:o}", "mean", real_or_null(learned->beside.mean), "low",
                                        real_or_null(learned->beside.low), "high", real_or_null(learned->beside.high)));
    return object;
}

static void add_beside(json_t *object, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_arm *arm = &experiment->arms[i];
    const weft_median_interval *time = &arm->verdict.ratio;
    const weft_median_interval speed = {-time->median, -time->high, -time->low, time->bounded};
    (void)json_object_set_new(object, "outcome", json_string(weft_ab_outcome_name(arm->outcome)));
    (void)json_object_set_new(object, "verdict", json_string(weft_ab_time_name(experiment, i)));
    (void)json_object_set_new(object, "time_beside_first", interval_object(time));
    (void)json_object_set_new(object, "speed_beside_first", interval_object(&speed));
    (void)json_object_set_new(object, "exchange_beside_first",
                              arm->exchange_of.bounded ? interval_object(&arm->exchange_of) : json_null());
    if (arm->verdict.answer == WEFT_AB_NO_DIFFERENCE)
        (void)json_object_set_new(object, "no_difference_above", json_real(weft_ab_share(arm->verdict.bound)));
    (void)json_object_set_new(object, "numbers", numbers_object(experiment, i));
    (void)json_object_set(object, "differs", arm->difference);
    (void)json_object_set_new(object, "programs", arm->programs[0] != '\0' ? json_string(arm->programs) : json_null());
}

static json_t *diverged_object(const weft_ab_arm *arm) {
    if (arm->diverged.step == 0) return json_null();
    return json_pack("{s:I, s:s}", "step", (json_int_t)arm->diverged.step, "why", arm->diverged.why);
}

static json_t *blocks_of(const weft_ab_experiment *experiment, int32_t place) {
    json_t *times = json_array();
    for (int32_t r = 0; r < experiment->times.rounds; r++)
        (void)json_array_append_new(times, real_or_null(experiment->times.of[place][r]));
    return times;
}

static json_t *arm_object(const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_arm *arm = &experiment->arms[i];
    json_t *object = json_pack("{s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:o}", "arm", arm->spec->label, "diverged",
                               diverged_object(arm), "step_seconds", real_or_null(arm->seconds), "targets_per_second",
                               real_or_null(arm->rate), "exchange_seconds",
                               arm->exchange >= 0 ? json_real(arm->exchange) : json_null(), "planned_bytes",
                               (json_int_t)arm->bytes, "sent_bytes", (json_int_t)arm->sent, "instructions",
                               (json_int_t)arm->instructions, "rounds", blocks_of(experiment, i));
    if (object == NULL) return NULL;
    if (i == 0) (void)json_object_set_new(object, "rounds_again", blocks_of(experiment, experiment->n));
    if (i > 0) add_beside(object, experiment, i);
    if (experiment->learning.steps > 0) (void)json_object_set_new(object, "learned", learned_object(experiment, i));
    return object;
}

static json_t *learning_object(const weft_ab_experiment *experiment) {
    if (experiment->learning.steps == 0) return json_pack("{s:b, s:s}", "measured", 0, "why", experiment->learning.why);
    return json_pack("{s:b, s:I, s:i, s:I}", "measured", 1, "steps", (json_int_t)experiment->learning.steps, "seeds",
                     (int)experiment->learning.seeds, "micro_batches", (json_int_t)experiment->learning.micro_batches);
}

weft_status weft_ab_print_json(const weft_ab_experiment *experiment, FILE *to, weft_error *err) {
    const int32_t winner = weft_ab_winner(experiment);
    json_t *arms = json_array(), *object = NULL;
    for (int32_t i = 0; i < experiment->n; i++) (void)json_array_append_new(arms, arm_object(experiment, i));
    object = json_pack("{s:o, s:s, s:o, s:{s:o, s:o}, s:o, s:I, s:f, s:b, s:o, s:i}", "arms", arms, "compared",
                       experiment->per_target ? "seconds per target" : "seconds per step", "noise",
                       interval_object(&experiment->arms[1].verdict.noise), "alone", "noise",
                       interval_object(&experiment->alone.noise), "told_above", real_or_null(experiment->alone.told),
                       "learning", learning_object(experiment), "block_steps", (json_int_t)experiment->block, "seconds",
                       experiment->seconds, "stopped", (int)experiment->stopped, "winner",
                       winner >= 0 ? json_string(experiment->arms[winner].spec->label) : json_null(), "ranks",
                       (int)experiment->meeting.process_context->comm_info.size);
    if (object == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the object that is printed");
    (void)json_dumpf(object, to, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    (void)fputc('\n', to);
    json_decref(object);
    return WEFT_OK;
}
