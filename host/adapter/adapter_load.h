/* host/adapter/adapter_load.h: the adapters of a directory, each as PEFT writes one, into the region of a model that
 * they have joined. */
#ifndef WEFT_HOST_ADAPTER_ADAPTER_LOAD_H
#define WEFT_HOST_ADAPTER_ADAPTER_LOAD_H

#include "model/region.h"

/* Proves that the directory's files have each weight of the adapters in its shape, and nothing else but parameters of
 * the base. WEFT_E_DATA: it belongs to another adapter or model. saves: what this run trains is saved, and WEFT_E_USER
 * where it leaves one of those parameters out. */
weft_status weft_adapter_check(const weft_declared *declared, const char *directory, bool saves, weft_error *err);

/* Reads them, as far as the region keeps them; what else the file has are modules of the base, which take the place of
 * the base's own. */
weft_status weft_adapter_load(const weft_region *region, const char *directory, weft_error *err);

/* The same on the host, in fp32 and whole: out[p] for each parameter that the file has, each to be freed; the others
 * stay as they are. */
weft_status weft_adapter_values(float **out, const weft_declared *declared, const char *directory, weft_error *err);

#endif
