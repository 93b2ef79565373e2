/* host/report/tables.h: optional tables of a run, printed once before its first step. */
#ifndef WEFT_HOST_REPORT_TABLES_H
#define WEFT_HOST_REPORT_TABLES_H

#include "model/layout.h"
#include "run/session.h"

#include <jansson.h>

/* A module is wrapped if a unit has its path, or if a unit of several modules contains all of it but not all of its
 * parent module. */
typedef struct weft_wrapped {
    const weft_declared *declared;
    const weft_layout *layout;
    int32_t *unit; /* [n_modules] unit of all parameters of its subtree; WEFT_WRAPPED_NONE, WEFT_WRAPPED_SEVERAL */
    bool *is_wrapped;
    int32_t n_wrapped;
    double percent; /* of all modules */
} weft_wrapped;

enum { WEFT_WRAPPED_NONE = -1, WEFT_WRAPPED_SEVERAL = -2 };

/* Computes the wrapping, which refers to both arguments; the caller frees it. */
weft_wrapped weft_wrapped_make(const weft_declared *declared, const weft_layout *layout);
void weft_wrapped_free(weft_wrapped *self);

/* Prints modules, units and parameters in one line. width: of the label; policy: id of the wrap policy. */
void weft_wrapped_print_line(const weft_wrapped *self, const char *policy, int width, FILE *to);

/* Prints each module with its tag (top_module, module group, --fsdp_wrap_module, --unwrap-module) and its unit; then
 * the totals. */
void weft_wrapped_print(const weft_wrapped *self, FILE *to);

/* Prints the size of a rank's shard of each unit, each parameter and the complete model, a line each. Of units and of
 * parameters only the first and the last `ends`, 0: all. */
void weft_sharding_print(const weft_plan *plan, const weft_hold *hold, int32_t rank, int32_t ends, FILE *to);
json_t *weft_sharding_object(const weft_plan *plan, const weft_hold *hold, int32_t rank);

/* Bit mask of tables. */
typedef enum weft_shown {
    WEFT_SHOWN_WRAPPING = 1, /* every module with its unit */
    WEFT_SHOWN_SHARDING = 2, /* this rank's shards of the first and last parameters */
    WEFT_SHOWN_SAMPLES = 4   /* sequences of the step, and their first ids */
} weft_shown;

weft_status weft_tables_print(const weft_session *session, uint32_t tables, int64_t step, FILE *to, weft_error *err);

#endif
