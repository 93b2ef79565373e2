/* host/report/wrapping.h: which modules a wrap policy made units of: a line of totals, and the whole tree. */
#ifndef WEFT_HOST_REPORT_WRAPPING_H
#define WEFT_HOST_REPORT_WRAPPING_H

#include "model/layout.h"

/* A module is wrapped if a unit bears its path, or if a unit of several modules holds all of it and not all of the
 * module around it. */
typedef struct weft_wrapped {
    int32_t *unit; /* [n_modules] that all parameters of its subtree are in; WEFT_WRAPPED_NONE, WEFT_WRAPPED_SEVERAL */
    bool *is_wrapped;
    int32_t n_wrapped;
} weft_wrapped;

enum { WEFT_WRAPPED_NONE = -1, WEFT_WRAPPED_SEVERAL = -2 };

/* To be freed also after a failure. */
weft_status weft_wrapped_make(weft_wrapped *out, const weft_declared *declared, const weft_layout *layout,
                              weft_error *err);
void weft_wrapped_free(weft_wrapped *self);

/* Of all modules, in percent. */
double weft_wrapped_percent(const weft_wrapped *self, const weft_declared *declared);

/* Modules, units and parameters in one line. width: of the word in front; policy: id of the one that wrapped. */
void weft_wrapped_print_line(const weft_wrapped *self, const weft_declared *declared, const weft_layout *layout,
                             const char *policy, int width, FILE *to);

/* Each module with its tag (top_module, module group, --fsdp_wrap_module, --unwrap-module) and its unit; then the
 * totals. */
void weft_wrapped_print(const weft_wrapped *self, const weft_declared *declared, const weft_layout *layout, FILE *to);

#endif
