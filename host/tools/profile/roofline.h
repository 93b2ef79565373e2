/* host/tools/profile/roofline.h: what the machine could give at most, measured at the products of a profiled step. */
#ifndef WEFT_HOST_TOOLS_PROFILE_ROOFLINE_H
#define WEFT_HOST_TOOLS_PROFILE_ROOFLINE_H

#include "tools/profile/profile.h"

typedef struct weft_roofline_row {
    const char *operation, *part; /* as in a profile's row */
    weft_product_shape shape;
    int64_t calls;  /* in all steps that the profile kept */
    double flops;   /* of one */
    double seconds; /* of one, at the library's fastest */
} weft_roofline_row;

typedef struct weft_roofline {
    double peak;      /* operations per second out of registers */
    double bandwidth; /* bytes per second */
    /* Operations per second if every product of the step ran as fast as the library can make it: their operations over
     * the sum of their times. 0: the step has no product. */
    double products;
    int32_t n_rows;
    weft_roofline_row rows[WEFT_PROFILE_PRODUCTS];
} weft_roofline;

/* What a row of a profile could reach at most, in operations or bytes per second: a row of products by its own
 * products, attention, which is none, by all of the step's. 0: that is not known. */
double weft_roofline_of(const weft_roofline *roofline, const weft_profile_row *row);

/* Takes some seconds. A device that cannot measure itself is refused by name. */
weft_status weft_roofline_measure(weft_roofline *out, const weft_engine *engine, const weft_profile *profile,
                                  weft_error *err);

#endif
