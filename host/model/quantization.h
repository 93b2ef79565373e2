/* host/model/quantization.h: quantization_config of config.json, by which a directory says that another program has
 * packed its weights. How weights lie in files is no affair of a model plugin's: of bitsandbytes, whose tensors are
 * read as they are (base/bitsandbytes.h), the key is taken out before the plugin sees the text, and what is saved
 * from then on, in numbers or in blocks of Weft's, does not have it. Of other programs it stays, and the plugin refuses
 * it. */
#ifndef WEFT_HOST_MODEL_QUANTIZATION_H
#define WEFT_HOST_MODEL_QUANTIZATION_H

#include <stdbool.h>
#include <weft/base.h>

/* Replaces *text, config.json, by one without the key, if that is bitsandbytes'; *taken says whether. Fails if the
 * text is not strict JSON; path names it in the error. */
weft_status weft_quantization_take(bool *taken, char **text, size_t *bytes, const char *path, weft_error *err);

#endif
