/* host/program/unselected.h: unselected plugins of a kind that have their own section in the configuration.
 *
 * [strategy.fsdp] is unused while ddp is selected: its keys are validated and kept with the run, but have no effect.
 * A key of fsdp in [strategy] itself is then rejected, and the error names the correct section. */
#ifndef WEFT_HOST_PROGRAM_UNSELECTED_H
#define WEFT_HOST_PROGRAM_UNSELECTED_H

#include "program/run.h"

/* Queries the plugin of each unused section of the part for its keys and declares them. WEFT_E_USER: the plugin does
 * not exist. If the plugin exists but is unusable here, logs a warning and keeps its section unchanged. */
weft_status weft_unselected_declare(weft_run *run, int32_t part, weft_error *err);

/* Rejects unknown keys in the unused sections of all parts. */
weft_status weft_unselected_check_keys(const weft_run *run, weft_error *err);
/* Rejects adapter keys if no adapter is selected; training would silently ignore them. */
weft_status weft_unselected_check_adapters(const weft_run *run, weft_error *err);
/* Rejects invalid values of the keys in unused sections. */
weft_status weft_unselected_validate(weft_run *run, weft_error *err);

/* Fails with an error for a key that the part's selected plugin lacks. If another plugin of the kind has the key,
 * the error names that plugin and its section. */
weft_status weft_unselected_refuse(const weft_run *run, int32_t part, const char *key, weft_error *err);

/* Rejects host keys with a non-default value that the part's selected plugin does not support, with the same error. */
weft_status weft_unselected_check_capabilities(const weft_run *run, int32_t part, weft_error *err);

/* Does the same in a plugin's own section, where the plugin must support a host key through its flags. */
weft_status weft_unselected_refuse_own(const weft_run *run, int32_t part, const char *section, uint32_t flags,
                                       weft_error *err);

/* Frees the data that weft_unselected_declare stored in the run. */
void weft_unselected_forget(weft_run *run);

#endif
