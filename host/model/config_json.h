/* host/model/config_json.h: edits config.json as text and preserves every byte except the dtype and other changed
 * keys. */
#ifndef WEFT_HOST_MODEL_CONFIG_JSON_H
#define WEFT_HOST_MODEL_CONFIG_JSON_H

#include <weft/base.h>

/* Folder of further *.jinja templates in a model's directory. */
#define WEFT_ADDITIONAL_TEMPLATES "additional_chat_templates"

/* Returns a copy in which the string values of "dtype" and "torch_dtype" in the outermost object name this type
 * (WEFT_F32, WEFT_BF16 or WEFT_F16). All other bytes are preserved. text must be JSON. NULL: no memory. The caller
 * frees the copy. [any-thread] */
char *weft_config_json_with_dtype(const char *text, size_t bytes, int32_t dtype, size_t *out_bytes);

/* A key of the outermost object and its JSON value. */
typedef struct weft_json_change {
    const char *key, *value;
} weft_json_change;

enum { WEFT_JSON_CHANGES = 8 }; /* maximum per call */

/* Returns a copy in which each of these keys has its value: it replaces an existing value, or is added at the front.
 * The object must not be empty. Other rules as above. [any-thread] */
char *weft_config_json_change(const char *text, size_t bytes, const weft_json_change *changes, size_t n,
                              size_t *out_bytes);

/* Returns the value of a key of the outermost object in the text, with its length; NULL: the key is missing.
 * [any-thread] */
const char *weft_config_json_value(const char *text, size_t bytes, const char *key, size_t *out_bytes);

/* Returns a copy without this key of the outermost object and its comma. Other rules as above. [any-thread] */
char *weft_config_json_without(const char *text, size_t bytes, const char *key, size_t *out_bytes);

#endif
