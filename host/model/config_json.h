/* host/model/config_json.h: edits config.json as text and preserves every byte except the changed keys.
 *
 * Each function replaces *text by an edited copy and frees the old text. WEFT_E_MEMORY leaves it unchanged. The text
 * must be JSON; only keys of its outermost object are edited. [any-thread] */
#ifndef WEFT_HOST_MODEL_CONFIG_JSON_H
#define WEFT_HOST_MODEL_CONFIG_JSON_H

#include <weft/base.h>

/* Folder of further *.jinja templates in a model's directory. */
#define WEFT_ADDITIONAL_TEMPLATES "additional_chat_templates"

/* Sets the string values of "dtype" and "torch_dtype" to this type: WEFT_F32, WEFT_BF16 or WEFT_F16. */
weft_status weft_config_json_set_dtype(char **text, size_t *bytes, int32_t dtype, weft_error *err);

/* A key and its JSON value. */
typedef struct weft_json_change {
    const char *key, *value;
} weft_json_change;

/* Sets these keys: replaces an existing value, or adds the key at the front. The object must not be empty. */
weft_status weft_config_json_change(char **text, size_t *bytes, const weft_json_change *changes, size_t n,
                                    weft_error *err);

/* Removes a key and its comma. */
weft_status weft_config_json_remove(char **text, size_t *bytes, const char *key, weft_error *err);

/* Returns the value of a key in the text, with its length; NULL: the key is missing. [any-thread] */
const char *weft_config_json_value(const char *text, size_t bytes, const char *key, size_t *out_bytes);

#endif
