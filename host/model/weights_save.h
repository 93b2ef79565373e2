/* host/model/weights_save.h: writes config.json with the keys of transformers 4 and 5, so that both versions load a
 * saved model. */
#ifndef WEFT_HOST_MODEL_WEIGHTS_SAVE_H
#define WEFT_HOST_MODEL_WEIGHTS_SAVE_H

#include <weft/base.h>

/* Returns a copy with keys added at the front that one version reads and that exist only in the other version's
 * spelling:
 *   dtype                     torch_dtype, and the reverse
 *   rope_parameters           rope_theta, rope_scaling and partial_rotary_factor
 *   rope_parameters by type   the same from full_attention, and rope_local_base_freq from sliding_attention (Gemma 3)
 * transformers 5 reads files of transformers 4 without changes. Existing values other than null are kept, and no added
 * key contradicts them. text must be JSON. NULL: no memory. The caller frees the copy. [any-thread] */
char *weft_config_json_spelled(const char *text, size_t bytes, size_t *out_bytes);

#endif
