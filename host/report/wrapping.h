/* host/report/wrapping.h: prints the modules that a wrap policy turned into units: a line of totals, and the complete
 * tree. */
#ifndef WEFT_HOST_REPORT_WRAPPING_H
#define WEFT_HOST_REPORT_WRAPPING_H

#include "model/layout.h"

/* A module is wrapped if a unit has its path, or if a unit of several modules contains all of it but not all of its
 * parent module. */
typedef struct weft_wrapped {
    int32_t *unit; /* [n_modules] unit of all parameters of its subtree; WEFT_WRAPPED_NONE, WEFT_WRAPPED_SEVERAL */
    bool *is_wrapped;
    int32_t n_wrapped;
} weft_wrapped;

enum { WEFT_WRAPPED_NONE = -1, WEFT_WRAPPED_SEVERAL = -2 };

/* Computes the wrapping. Free it also after a failure. */
weft_status weft_wrapped_make(weft_wrapped *out, const weft_declared *declared, const weft_layout *layout,
                              weft_error *err);
void weft_wrapped_free(weft_wrapped *self);

/* Returns the wrapped modules in percent of all modules. */
double weft_wrapped_percent(const weft_wrapped *self, const weft_declared *declared);

/* Prints modules, units and parameters in one line. width: of the label; policy: id of the wrap policy. */
void weft_wrapped_print_line(const weft_wrapped *self, const weft_declared *declared, const weft_layout *layout,
                             const char *policy, int width, FILE *to);

/* Prints each module with its tag (top_module, module group, --fsdp_wrap_module, --unwrap-module) and its unit; then
 * the totals. */
void weft_wrapped_print(const weft_wrapped *self, const weft_declared *declared, const weft_layout *layout, FILE *to);

#endif
