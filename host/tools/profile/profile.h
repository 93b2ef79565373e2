/* host/tools/profile/profile.h: optimizer steps timed device call by device call, and added up by what the calls are
 * for.
 *
 * A profile listens to a stepper while it lives. What it times is the training step as it is: the same program, buffers
 * and kernels; two readings of a clock around each call are all that is added. */
#ifndef WEFT_HOST_TOOLS_PROFILE_PROFILE_H
#define WEFT_HOST_TOOLS_PROFILE_PROFILE_H

#include "run/step.h"

enum { WEFT_PROFILE_ROWS = 64, WEFT_PROFILE_PRODUCTS = 64 };

/* One kind of work in a step. */
typedef struct weft_profile_row {
    const char *operation; /* "linear"; "reduce", "norm", "optimizer", "data"; "rest" is what no other row has */
    const char *part;      /* "input gradient"; empty where there are no parts */
    int64_t calls;
    double seconds;
    double flops; /* products and attention, causal counted by half; else 0 */
    double bytes; /* that the others read and write; 0: unknown, or flops count */
    bool recompute;
} weft_profile_row;

typedef struct weft_profile_step {
    double seconds; /* of the whole step; the rows add up to it */
    weft_step_result result;
    double flops, recompute_flops; /* of all rows: of the step itself; of what was computed a second time */
    int32_t n_rows;
    weft_profile_row rows[WEFT_PROFILE_ROWS]; /* in order of first appearance; kinds beyond the last are in "rest" */
} weft_profile_step;

/* A product of the steps that were kept, without recomputed ones. */
typedef struct weft_profile_product {
    const char *operation, *part; /* of its row */
    weft_product_shape shape;
    int64_t calls;
} weft_profile_product;

typedef struct weft_profile weft_profile;

/* keep: how many steps can be kept. The stepper must outlive the profile. */
weft_status weft_profile_create(weft_profile **out, weft_stepper *stepper, int64_t keep, weft_error *err);
void weft_profile_destroy(weft_profile *profile); /* NULL is fine */

/* weft_stepper_train, timed. keep: false for a step that only warms up. */
weft_status weft_profile_train(weft_profile *profile, uint64_t step, double lr, double clip, bool keep,
                               weft_error *err);

int64_t weft_profile_count(const weft_profile *profile); /* steps kept */
const weft_profile_step *weft_profile_at(const weft_profile *profile, int64_t i);
/* The one of median time; of an even number the faster of the two in the middle. At least one must have been kept. */
const weft_profile_step *weft_profile_median(const weft_profile *profile);
const weft_profile_product *weft_profile_products(const weft_profile *profile, int32_t *n);

#endif
