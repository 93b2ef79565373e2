/* host/tools/ab/outcome.c: see outcome.h. */
#include "tools/ab/outcome.h"

#include <string.h>

weft_ab_change weft_ab_change_of(const char *key) {
    static const char *const rounds[] = {"train.micro_batch", "strategy.reduce"};
    static const char *const spreads[] = {"strategy.", "policy.", "comm.",   "checkpoint.",
                                          "plugins.",  "eval.",   "run.out", "train.activation_checkpointing"};
    if (strcmp(key, "strategy.reduce_dtype") == 0) return WEFT_AB_LEARNS;
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++)
        if (strcmp(key, rounds[i]) == 0) return WEFT_AB_ROUNDS;
    for (size_t i = 0; i < sizeof spreads / sizeof *spreads; i++)
        if (strncmp(key, spreads[i], strlen(spreads[i])) == 0) return WEFT_AB_SPREADS;
    return WEFT_AB_LEARNS;
}

static weft_ab_outcome of_time(weft_ab_answer answer) {
    static const weft_ab_outcome of[] = {WEFT_AB_UNKNOWN, WEFT_AB_BETTER, WEFT_AB_WORSE, WEFT_AB_EQUAL};
    return of[answer];
}

static weft_ab_outcome of_learning(weft_ab_learning answer) {
    static const weft_ab_outcome of[] = {WEFT_AB_NOT_COMPARABLE, WEFT_AB_BETTER, WEFT_AB_WORSE, WEFT_AB_EQUAL,
                                         WEFT_AB_UNKNOWN};
    return of[answer];
}

bool weft_ab_is_defect(const weft_ab_evidence *evidence) {
    return !evidence->same_bits && evidence->change == WEFT_AB_SPREADS && evidence->covered;
}

weft_ab_outcome weft_ab_outcome_of(const weft_ab_evidence *evidence) {
    const weft_ab_outcome time = evidence->loose ? WEFT_AB_UNKNOWN : of_time(evidence->time);
    const weft_ab_outcome learning = of_learning(evidence->learning);
    if (evidence->first_diverged) return WEFT_AB_NOT_COMPARABLE;
    if (evidence->diverged) return WEFT_AB_WORSE;
    if (weft_ab_is_defect(evidence)) return WEFT_AB_NOT_COMPARABLE;
    if (evidence->learning == WEFT_AB_NOT_LEARNED) {
        const bool alters = !evidence->same_bits && evidence->change == WEFT_AB_LEARNS;
        return alters ? WEFT_AB_NOT_COMPARABLE : time;
    }
    if (learning == WEFT_AB_UNKNOWN || time == WEFT_AB_UNKNOWN) return WEFT_AB_UNKNOWN;
    if (learning == WEFT_AB_EQUAL) return time;
    if (time == WEFT_AB_EQUAL || time == learning) return learning;
    return WEFT_AB_NOT_COMPARABLE; /* faster and worse, or slower and better */
}
