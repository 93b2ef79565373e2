/* host/model/config_json.h: config.json as text that goes out as it came in, but for the type of the weights. */
#ifndef WEFT_HOST_MODEL_CONFIG_JSON_H
#define WEFT_HOST_MODEL_CONFIG_JSON_H

#include <weft/base.h>

/* A copy in which "dtype" and "torch_dtype" of the outermost object, where they are texts, name this type (WEFT_F32,
 * WEFT_BF16 or WEFT_F16); every other byte is as before. text is JSON. NULL: no memory. The caller frees it.
 * [any-thread] */
char *weft_config_json_with_dtype(const char *text, size_t bytes, int32_t dtype, size_t *out_bytes);

#endif
