/* host/adapter/adapter_load.h: the adapters of a directory, each as PEFT writes one, into the region of a model that
 * they have joined. */
#ifndef WEFT_HOST_ADAPTER_ADAPTER_LOAD_H
#define WEFT_HOST_ADAPTER_ADAPTER_LOAD_H

#include "model/region.h"

/* What is asked of a directory. */
#define WEFT_ADAPTER_SOME  1u /* it may hold some of the adapters alone (stack.h): the others stay as they are */
#define WEFT_ADAPTER_SAVED 2u /* what is trained is saved, and has to have all that the directory has */

/* Proves that the directory's files have each weight of the adapters in its shape, and nothing else but parameters of
 * the base. WEFT_E_DATA: it belongs to another adapter or model. WEFT_E_USER: what is saved would lack one of those
 * parameters. */
weft_status weft_adapter_check(const weft_declared *declared, const char *directory, uint32_t flags, weft_error *err);

/* Reads them, as far as the region keeps them; what else the file has are modules of the base, which take the place of
 * the base's own. */
weft_status weft_adapter_load(const weft_region *region, const char *directory, uint32_t flags, weft_error *err);

/* The same on the host, in fp32 and whole: out[p] for each parameter that the file has, each to be freed; the others
 * stay as they are. */
weft_status weft_adapter_values(float **out, const weft_declared *declared, const char *directory, weft_error *err);

#endif
