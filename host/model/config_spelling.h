/* host/model/config_spelling.h: config.json in the spellings of transformers 4 and 5 at once, so that both load what is
 * saved. */
#ifndef WEFT_HOST_MODEL_CONFIG_SPELLING_H
#define WEFT_HOST_MODEL_CONFIG_SPELLING_H

#include <weft/base.h>

/* A copy to which is added, in front, what one of them reads and is said in the other's words alone:
 *   dtype                     torch_dtype, and the other way round
 *   rope_parameters           rope_theta, rope_scaling and partial_rotary_factor
 *   rope_parameters by sort   the same of full_attention, and rope_local_base_freq of sliding_attention (Gemma 3)
 * What transformers 4 wrote 5 reads as it is. Nothing that is there is changed but null, and nothing is said
 * that contradicts it. text is JSON. NULL: no memory. The caller frees it. [any-thread] */
char *weft_config_json_spelled(const char *text, size_t bytes, size_t *out_bytes);

#endif
