/* host/model/query_model.h: handles quantization_config of config.json, which states that another program has packed
 * the weights. Model plugins do not handle file formats. Weft reads tensors of bitsandbytes as they are
 * (base/bitsandbytes.h) and removes the key before the plugin reads the text. Saved models, in numbers or in Weft's
 * blocks, do not have the key. The plugin rejects the key of other programs. */
#ifndef WEFT_HOST_MODEL_ASK_MODEL_H
#define WEFT_HOST_MODEL_ASK_MODEL_H

#include <stdbool.h>
#include <weft/base.h>

/* Removes the key from *text, config.json, if it is that of bitsandbytes, and sets *taken. Fails if the text is not
 * strict JSON; `path` names the file in the error. */
weft_status weft_quantization_take(bool *taken, char **text, size_t *bytes, const char *path, weft_error *err);

#endif
