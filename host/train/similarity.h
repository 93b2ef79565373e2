/* host/train/similarity.h: how far a run has turned its model: [run] similarity.
 *
 *     1 - cosine(mean last hidden state now, mean last hidden state before the first step)
 *
 * over the places of the evaluation split that have a target (run/hidden.h): 0 is the same direction, 2 the opposite
 * one. The mean of the beginning stays in similarity.json of the run's directory, so that a run that goes on is held
 * against its own beginning. */
#ifndef WEFT_HOST_TRAIN_SIMILARITY_H
#define WEFT_HOST_TRAIN_SIMILARITY_H

#include "run/session.h"
#include "run/hidden.h"

#define WEFT_SIMILARITY_NAME "similarity.json"

typedef struct weft_similarity {
    weft_session *session; /* NULL: nothing is measured */
    weft_hidden *hidden;
    const char *directory;
    double *before; /* [width] of rank 0; known: it holds the beginning's */
    double *now;
    bool known; /* alike on all ranks */
} weft_similarity;

/* Nothing, where the run does not ask for it or makes no evaluation. directory: of the run, which must outlive it.
 * resumed: the beginning was measured by another process; where it was not, a warning says so. To be closed also after
 * a failure. [collective] */
weft_status weft_similarity_open(weft_similarity *self, weft_session *session, const char *directory, bool resumed,
                                 weft_error *err);
void weft_similarity_close(weft_similarity *self); /* a zeroed one is fine */

/* After an evaluation at `step`: into out->similarity; NaN: it is not known. At step 0 this is the beginning, of which
 * rank 0 may fail alone to keep the mean. [collective] */
weft_status weft_similarity_note(weft_similarity *self, weft_evaluation *out, uint64_t step, weft_error *err);

/* Half the square of the distance of the unit vectors, which is 1 - cosine without its rounding near 0: never below 0
 * and 0 of equal ones. NaN where one of them has no direction. */
double weft_similarity_of(const double *a, const double *b, int64_t n);

#endif
