/* host/run/validate_optimizer.h: what an optimizer declares, judged before anything is planned by it: its states, which
 * become memory and files of a checkpoint, the size of the struct that each step brings, and the update that uses
 * both. */
#ifndef WEFT_HOST_RUN_VALIDATE_OPTIMIZER_H
#define WEFT_HOST_RUN_VALIDATE_OPTIMIZER_H

#include <weft/optimizer.h>

typedef struct weft_optimizer_facts {
    weft_state_slot states[WEFT_MAX_STATES]; /* at the host's size; the names are the optimizer's */
    int64_t n_states;
    int64_t hp_bytes;
} weft_optimizer_facts;

/* out is filled where all of it holds; err names the optimizer by id. [main] */
weft_status weft_optimizer_validate(weft_optimizer_facts *out, const weft_optimizer_plugin *plugin,
                                    const weft_optimizer *optimizer, const char *id, weft_error *err);

#endif
