/* host/tools/ab/comparison_words.c: see comparison_words.h. */
#include "tools/ab/comparison_words.h"

#include "base/units.h"
#include "base/words.h"

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

const char *weft_ab_learning_name(int32_t answer) {
    static const char *const names[] = {"not measured", "learns more", "learns less", "no difference", "undecided"};
    return names[answer];
}

void weft_ab_say_interval(char *text, size_t size, const weft_median_interval *at) {
    const double median = 100 * weft_ab_share(at->median);
    if (isnan(median)) (void)snprintf(text, size, "-");
    else if (!at->bounded) (void)snprintf(text, size, "%+.1f %%", median);
    else
        (void)snprintf(text, size, "%+.1f %% (%+.1f to %+.1f)", median, 100 * weft_ab_share(at->low),
                       100 * weft_ab_share(at->high));
}

void weft_ab_say_seconds(char *text, size_t size, double seconds) {
    char unit[WEFT_UNIT_SIZE];
    if (isnan(seconds)) (void)snprintf(text, size, "-");
    else if (seconds < 1) (void)snprintf(text, size, "%.2f ms", 1e3 * seconds);
    else (void)snprintf(text, size, "%s", weft_unit_seconds(unit, seconds));
}

/* ---- numbers ---- */

static void say_where(char *text, size_t size, const weft_ab_numbers *numbers) {
    weft_words_append(text, size, "parts from A at step %d", (int)numbers->step);
    if (numbers->micro_batch >= 0) weft_words_append(text, size, ", micro-batch %d", (int)numbers->micro_batch);
    if (numbers->unit[0] != '\0') weft_words_append(text, size, ", unit %s", numbers->unit);
    weft_words_append(text, size, ": %s", numbers->what);
}

/* A key of a plugin on whose keys alone the numbers of steps depend, and not on which plugin it is. */
static bool is_learning_key(const char *key) {
    static const char *const sections[] = {"optimizer.", "adapter.", "model.", "data."};
    const char *name = strchr(key, '.');
    if (name == NULL || strcmp(name, ".plugin") == 0 || strncmp(key, "data.validation", 15) == 0) return false;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (strncmp(key, sections[i], strlen(sections[i])) == 0) return true;
    return false;
}

/* Where all keys that differ are one plugin's, and it learns the same all the same. A plugin that does not read a key,
 * or keeps the first instance's, trains both arms alike. */
static void ask_for_keys(char *text, size_t size, const weft_ab_arm *arm) {
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
    weft_words_append(text, size, " made no difference to them: is the key read, and large enough to be seen?");
}

void weft_ab_say_numbers(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_arm *first = &experiment->arms[0], *arm = &experiment->arms[i];
    const weft_ab_evidence evidence = weft_ab_evidence_of(experiment, i);
    const char *why = arm->not_covered[0] != '\0' ? arm->not_covered : first->not_covered;
    (void)snprintf(text, size, "%c ", weft_ab_letter(i));
    if (!arm->numbers.comparable) {
        weft_words_append(text, size, "trains other parameters or states than A: there are no bits to compare");
        return;
    }
    if (arm->numbers.step < 0) {
        weft_words_append(text, size, "has the bits of A after each of %d steps", (int)WEFT_AB_COMPARED);
        ask_for_keys(text, size, arm);
        return;
    }
    if (arm->numbers.step == 0) {
        weft_words_append(text, size, "begins with other numbers than A: %s", arm->numbers.what);
        return;
    }
    say_where(text, size, &arm->numbers);
    if (weft_ab_is_defect(&evidence))
        weft_words_append(text, size, "; the contract promises the same: a defect, ask weft prove");
    else if (*why != '\0') weft_words_append(text, size, "; the contract does not cover it: %s", why);
    else if (arm->change == WEFT_AB_ROUNDS)
        weft_words_append(text, size, "; the contract promises the same for one micro_batch and one reduce");
    else weft_words_append(text, size, "; the contract promises nothing: its settings learn something else");
}

/* ---- learning ---- */

void weft_ab_say_learning(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_learned *learned = &experiment->arms[i].learned;
    const weft_paired_loss *at = &learned->beside;
    (void)snprintf(text, size, "%c ", weft_ab_letter(i));
    if (isinf(learned->loss)) weft_words_append(text, size, "diverges: its loss is not finite");
    else if (isinf(experiment->arms[0].learned.loss)) weft_words_append(text, size, "learns, and A diverges");
    else if (learned->answer == WEFT_AB_LEARNING_UNKNOWN) {
        weft_words_append(text, size,
                          "differs by %+.4g a target, and there are too few micro-batches to say how surely", at->mean);
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

static void say_divergence(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_arm *arm = &experiment->arms[i];
    weft_words_append(text, size, "%c diverges at step %lld: %s", weft_ab_letter(i), (long long)arm->diverged.step,
                      arm->diverged.why);
}

/* What ended the rounds is what there has to be more of. */
static const char *say_more(const weft_ab_experiment *experiment) {
    static const char *const words[] = {[WEFT_AB_END_MINUTES] = "give more --minutes",
                                        [WEFT_AB_END_ROUNDS] = "give more --rounds",
                                        [WEFT_AB_END_MOST] = "there are no more rounds: give more --steps to a block",
                                        [WEFT_AB_END_SIGNAL] = "a signal ended it before its time"};
    return words[experiment->end];
}

void weft_ab_say_time(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_verdict *verdict = &experiment->arms[i].verdict;
    const weft_ab_evidence evidence = weft_ab_evidence_of(experiment, i);
    const char *what = experiment->per_target ? "target" : "step";
    *text = '\0';
    if (evidence.first_diverged || evidence.diverged) {
        say_divergence(text, size, experiment, evidence.first_diverged ? 0 : i);
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
            weft_words_append(text, size, " is all that %d %s, and --within asks for %g %%; %s", (int)verdict->rounds,
                              verdict->rounds == 1 ? "round tells" : "rounds tell",
                              100 * weft_ab_share(experiment->within), say_more(experiment));
        break;
    default:
        weft_words_append(text, size, "is not decided: %d %s too few; %s", (int)verdict->rounds,
                          verdict->rounds == 1 ? "round is" : "rounds are", say_more(experiment));
    }
}

static void say_not_comparable(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_evidence evidence = weft_ab_evidence_of(experiment, i);
    const char letter = weft_ab_letter(i);
    if (evidence.first_diverged)
        (void)snprintf(text, size, "%c and A are not comparable: A diverges, and what %c would come to is not known",
                       letter, letter);
    else if (weft_ab_is_defect(&evidence))
        (void)snprintf(text, size, "%c and A are not comparable: what it computes is not what it promises", letter);
    else if (evidence.learning == WEFT_AB_NOT_LEARNED)
        (void)snprintf(text, size,
                       "%c and A are not comparable: they learn something else, and what they learn is not known (%s)",
                       letter, experiment->learning.why);
    else
        (void)snprintf(text, size,
                       "%c and A are not comparable: %c is %s and %s; which of the two counts is yours to say", letter,
                       letter, weft_ab_time_name(experiment, i), weft_ab_learning_name(evidence.learning));
}

/* Where it is not, say_time says so. */
static bool is_timed(const weft_ab_evidence *evidence) {
    return evidence->time != WEFT_AB_UNDECIDED && !evidence->loose;
}

void weft_ab_say_outcome(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_outcome outcome = experiment->arms[i].outcome;
    const weft_ab_evidence evidence = weft_ab_evidence_of(experiment, i);
    *text = '\0';
    if (outcome == WEFT_AB_NOT_COMPARABLE) say_not_comparable(text, size, experiment, i);
    else if (experiment->arms[i].diverged.step > 0)
        (void)snprintf(text, size, "%c is worse than A, which does not diverge", weft_ab_letter(i));
    else if (experiment->arms[i].learned.answer == WEFT_AB_NOT_LEARNED) return;
    else if (outcome == WEFT_AB_BETTER || outcome == WEFT_AB_WORSE)
        (void)snprintf(text, size, "%c is %s than A", weft_ab_letter(i), weft_ab_outcome_name(outcome));
    else if (outcome == WEFT_AB_UNKNOWN && is_timed(&evidence))
        (void)snprintf(text, size,
                       "%c is not decided: what it learns beside A is not sure; give more of [data] validation, or "
                       "--seeds",
                       weft_ab_letter(i));
}

void weft_ab_say_noise(char *text, size_t size, const weft_ab_experiment *experiment) {
    char noise[80];
    weft_ab_say_interval(noise, sizeof noise, &experiment->arms[1].verdict.noise);
    (void)snprintf(text, size, "A against itself: %s, in two cases of three; what is smaller is no difference", noise);
}

void weft_ab_say_alone(char *text, size_t size, const weft_ab_experiment *experiment) {
    char noise[80];
    weft_ab_say_interval(noise, sizeof noise, &experiment->alone.noise);
    (void)snprintf(text, size, "A against itself, before the others ran: %s", noise);
    if (!isnan(experiment->alone.told))
        weft_words_append(text, size, "; %.1f %% is told in these minutes as likely as not",
                          100 * experiment->alone.told);
}

static void append_planned(char *text, size_t size, const char *name, int64_t a, int64_t b) {
    if (a == b || a == 0) weft_words_append(text, size, ", %s %s", name, a == b ? "alike" : "where A has none");
    else weft_words_append(text, size, ", %s %+.1f %%", name, 100 * ((double)b / (double)a - 1));
}

void weft_ab_say_beside(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_arm *first = &experiment->arms[0], *arm = &experiment->arms[i];
    const weft_median_interval *time = &arm->verdict.ratio;
    const weft_median_interval speed = {-time->median, -time->high, -time->low, time->bounded};
    char part[80];
    weft_ab_say_interval(part, sizeof part, &speed);
    if (isnan(speed.median)) (void)snprintf(text, size, "%c is not timed", weft_ab_letter(i));
    else (void)snprintf(text, size, "%c targets/s %s", weft_ab_letter(i), part);
    if (arm->exchange_of.bounded) {
        weft_ab_say_interval(part, sizeof part, &arm->exchange_of);
        weft_words_append(text, size, ", exchange %s", part);
    }
    append_planned(text, size, "memory", first->bytes, arm->bytes);
    append_planned(text, size, "sent", first->sent, arm->sent);
    append_planned(text, size, "instructions", first->instructions, arm->instructions);
}
