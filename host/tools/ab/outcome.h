/* host/tools/ab/outcome.h: which of two arms is better, from what they took, whether they compute the same and what
 * they learned.
 *
 * Where an arm computes the same as the first, or differs only in how sums are rounded, time decides. Where it learns
 * something else, what it learned in the same steps decides together with time: better at one of the two and no worse
 * at the other. Faster and worse is no answer but a choice, and arms of which nobody knows what they learn are not
 * comparable, however fast one of them is. What diverges is worse than what does not. */
#ifndef WEFT_HOST_TOOLS_AB_OUTCOME_H
#define WEFT_HOST_TOOLS_AB_OUTCOME_H

#include "tools/ab/verdict.h"

/* What a difference of keys may do to numbers, the worst of all that differ. */
typedef enum weft_ab_change {
    WEFT_AB_SPREADS = 0, /* the same bits are promised: strategy, policy, communicator, checkpointing */
    WEFT_AB_ROUNDS = 1,  /* the same sums in another order: micro_batch, reduce */
    WEFT_AB_LEARNS = 2   /* all else */
} weft_ab_change;

weft_ab_change weft_ab_change_of(const char *key); /* "strategy.plugin" */

typedef enum weft_ab_learning {
    WEFT_AB_NOT_LEARNED = 0, /* not measured */
    WEFT_AB_LEARNS_MORE = 1,
    WEFT_AB_LEARNS_LESS = 2,
    WEFT_AB_LEARNS_ALIKE = 3,
    WEFT_AB_LEARNING_UNKNOWN = 4 /* too few micro-batches or seeds to say */
} weft_ab_learning;

typedef enum weft_ab_outcome {
    WEFT_AB_UNKNOWN = 0, /* too few rounds */
    WEFT_AB_BETTER = 1,  /* than the first */
    WEFT_AB_WORSE = 2,
    WEFT_AB_EQUAL = 3, /* no difference that can be told */
    WEFT_AB_NOT_COMPARABLE = 4
} weft_ab_outcome;

typedef struct weft_ab_evidence {
    weft_ab_answer time;
    bool same_bits; /* of all that was compared */
    weft_ab_change change;
    bool covered; /* both arms, by the numeric contract */
    weft_ab_learning learning;
    bool loose;                    /* time tells no difference, and could not have told one that counts */
    bool diverged, first_diverged; /* while they were timed */
} weft_ab_evidence;

weft_ab_outcome weft_ab_outcome_of(const weft_ab_evidence *evidence);

/* The same bits are promised, and they part. */
bool weft_ab_is_defect(const weft_ab_evidence *evidence);

#endif
