/* host/command/generate_fit.h: checks whether the plan of `weft generate` fits into memory, and which options would
 * fit. */
#ifndef WEFT_HOST_COMMAND_GENERATE_FIT_H
#define WEFT_HOST_COMMAND_GENERATE_FIT_H

#include "cli/fit_flags.h"
#include "run/generate.h"

typedef struct weft_generate_fit {
    const weft_args *args;
    const weft_run *run;
    const weft_generate_options *options;
    int64_t n_prompt;
    int64_t bytes; /* --fit; 0: query the device */
} weft_generate_fit;

/* Checks the plan as a weft_generate_judge; context: a weft_generate_fit. */
weft_status weft_generate_fit_judge(void *context, const weft_engine *engine, weft_error *err);

#endif
