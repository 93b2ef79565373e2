/* host/model/config_json.h: config.json as text that goes out as it came in, but for the type of the weights and
 * what else a saved model must say. */
#ifndef WEFT_HOST_MODEL_CONFIG_JSON_H
#define WEFT_HOST_MODEL_CONFIG_JSON_H

#include <weft/base.h>

#define WEFT_ADDITIONAL_TEMPLATES "additional_chat_templates" /* the folder of further *.jinja in a model's directory */

/* A copy in which "dtype" and "torch_dtype" of the outermost object, where they are texts, name this type (WEFT_F32,
 * WEFT_BF16 or WEFT_F16); every other byte is as before. text is JSON. NULL: no memory. The caller frees it.
 * [any-thread] */
char *weft_config_json_with_dtype(const char *text, size_t bytes, int32_t dtype, size_t *out_bytes);

/* A key of the outermost object, and its value as JSON. */
typedef struct weft_json_change {
    const char *key, *value;
} weft_json_change;

enum { WEFT_JSON_CHANGES = 8 }; /* at most, at once */

/* A copy in which each of these keys has its value: in the place of the one that is there, else as a first member. The
 * object must not be empty. Else as above. [any-thread] */
char *weft_config_json_change(const char *text, size_t bytes, const weft_json_change *changes, size_t n,
                              size_t *out_bytes);

/* A copy without this key of the outermost object, and without the comma that goes with it. Else as above.
 * [any-thread] */
char *weft_config_json_without(const char *text, size_t bytes, const char *key, size_t *out_bytes);

#endif
