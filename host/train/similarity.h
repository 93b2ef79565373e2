/* host/train/similarity.h: measures the rotation of the model's mean hidden state during a run: [run] similarity.
 *
 *     1 - cosine(mean last hidden state now, mean last hidden state before the first step)
 *
 * over the positions of the evaluation split that have a target (run/values.h). 0 is the same direction, 2 the opposite
 * one. The initial mean is stored in similarity.json of the run's directory, so that a resumed run is compared with its
 * own beginning. */
#ifndef WEFT_HOST_TRAIN_SIMILARITY_H
#define WEFT_HOST_TRAIN_SIMILARITY_H

#include "run/values.h"
#include "run/session.h"

typedef struct weft_similarity {
    weft_session *session; /* NULL: disabled */
    weft_hidden *hidden;
    const char *path;     /* of similarity.json */
    double *before, *now; /* [width] on rank 0: the initial mean if known, and the last one */
    bool known;           /* identical on all ranks */
} weft_similarity;

/* Opens the measurement; disabled if the run does not request it or has no evaluation. path: of similarity.json, which
 * must outlive self. resumed: an earlier process measured the initial mean; a warning is printed if it is missing.
 * Close it also after a failure. [collective] */
weft_status weft_similarity_open(weft_similarity *self, weft_session *session, const char *path, bool resumed,
                                 weft_error *err);
void weft_similarity_close(weft_similarity *self); /* a zeroed one is fine */

/* Sets out->similarity after an evaluation at `step`; NaN: unknown. At step 0 this measures the initial mean; storing
 * it may fail on rank 0 only. [collective] */
weft_status weft_similarity_note(weft_similarity *self, weft_evaluation *out, uint64_t step, weft_error *err);

/* Returns half the squared distance of the unit vectors, which is 1 - cosine without its rounding near 0: never below
 * 0, and 0 for equal vectors. NaN if one of them is zero or not finite. */
double weft_similarity_of(const double *a, const double *b, int64_t n);

#endif
