/* host/program/family.h: infers the model plugin from a model's directory if the configuration names no plugin.
 *
 * A model plugin is named after its model family, as in model_type of config.json. That value is untrusted: it
 * selects only among installed plugin ids and is never used as a file path. */
#ifndef WEFT_HOST_PROGRAM_FAMILY_H
#define WEFT_HOST_PROGRAM_FAMILY_H

#include "program/run.h"

/* Returns model_type of the directory's config.json, which the caller frees; NULL: it is missing or not a valid id. */
char *weft_family_read(const char *directory);

/* Fails if the file of the directory cannot be read or is not a JSON object; err has line and column. */
weft_status weft_family_check(const char *directory, const char *file, weft_error *err);

/* Sets run->family from [model] path if the configuration names no plugin; NULL: not found. */
void weft_family_find(weft_run *run);

/* Returns the base modules that were fully trained with the adapter in a directory, in the syntax of [train]
 * trainable: "*model.norm.*, *lm_head.*". The caller frees it. NULL: no such modules. PEFT matches them by path
 * suffix. */
char *weft_family_fused_modules(const char *directory);

/* Sets run->adapter from the directory in [adapter] from or use if no plugin is named. The value is the list in
 * weft_adapter.json, or peft_type of adapter_config.json in lower case. NULL: no such directory. */
void weft_family_find_adapter(weft_run *run);

/* Reports why no model plugin could be inferred, starting with the directory. */
weft_status weft_family_missing(const weft_run *run, weft_error *err);

#endif
