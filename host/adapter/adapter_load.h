/* host/adapter/adapter_load.h: loads the adapters of a directory, each in PEFT's format, into the region of a model
 * that they have joined. */
#ifndef WEFT_HOST_ADAPTER_ADAPTER_LOAD_H
#define WEFT_HOST_ADAPTER_ADAPTER_LOAD_H

#include "model/region.h"

/* Flags for a directory. */
#define WEFT_ADAPTER_SOME  1u /* it may contain only some of the adapters (stack.h); the others stay unchanged */
#define WEFT_ADAPTER_SAVED 2u /* the model will be saved: everything in the directory must be trained */

/* Checks that the directory's files contain each weight of the adapters in its shape, and otherwise only parameters of
 * the base. WEFT_E_DATA: files of another adapter or model. WEFT_E_USER: a later save would lose one of the base's
 * parameters. */
weft_status weft_adapter_check(const weft_declared *declared, const char *directory, uint32_t flags, weft_error *err);

/* Checks that the model has each module that modules_to_save of the directory's adapter_config.json names. */
weft_status weft_adapter_check_modules(const weft_declared *declared, const char *directory, weft_error *err);

/* Loads them, for the part that the region stores. Modules of the base in the file replace the base's own. */
weft_status weft_adapter_load(const weft_region *region, const char *directory, uint32_t flags, weft_error *err);

/* Loads them to the host, in fp32 and complete: out[p] for each parameter of the file, to be freed by the caller. Other
 * entries stay unchanged. */
weft_status weft_adapter_values(float **out, const weft_declared *declared, const char *directory, weft_error *err);

#endif
