/* plugins/adapter/common/source.h: reads the keys of an adapter_config.json, to continue an adapter. */
#ifndef WEFT_ADAPTER_SOURCE_H
#define WEFT_ADAPTER_SOURCE_H

#include <jansson.h>
#include <weft/adapter.h>

/* Opens the JSON object and checks its peft_type. The caller releases it with json_decref. */
weft_status source_open(json_t **out, const weft_adapter_source *source, const char *type, weft_error *err);
/* Fails with "FILE: key = value: problem". */
weft_status source_refuse(const weft_adapter_source *source, const json_t *config, const char *key, const char *problem,
                          weft_error *err);
/* True for a missing value, null, false, 0, "", [] and {}: the values that are false in Python. */
int source_says_nothing(const json_t *value);
/* Fails with the first key that is set, unless it is in `known`, "a,b,c", or does not affect the adapter's
 * computation. */
weft_status source_check_keys(json_t *config, const char *known, const weft_adapter_source *source, weft_error *err);
/* Reads an integer of at least 1; `name` is its key in the file. asked: the value of `key` in the user's configuration,
 * which must be equal; WEFT_AUTO_I64: not set. */
weft_status source_integer(int64_t *out, const json_t *config, const char *name, const char *key, int64_t asked,
                           const weft_adapter_source *source, weft_error *err);
/* Reads a list of strings as a comma-separated string; the caller frees it. */
weft_status source_list(char **out, const json_t *config, const char *key, const weft_adapter_source *source,
                        weft_error *err);

#endif
