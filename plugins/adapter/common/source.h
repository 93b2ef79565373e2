/* plugins/adapter/common/source.h: what an adapter_config.json says, key by key, for an adapter that is continued. */
#ifndef WEFT_ADAPTER_SOURCE_H
#define WEFT_ADAPTER_SOURCE_H

#include <jansson.h>
#include <weft/adapter.h>

/* The object, of that peft_type; the caller gives it back by json_decref. */
weft_status source_open(json_t **out, const weft_adapter_source *source, const char *type, weft_error *err);
/* Whether null, false, 0, "", [] and {}, the values that are false in Python, or no value at all. */
int source_says_nothing(const json_t *value);
/* Refuses the first key that is set and is neither one of `known`, "a,b,c", nor one of those that say nothing of what
 * an adapter computes. */
weft_status source_check_keys(json_t *config, const char *known, const weft_adapter_source *source, weft_error *err);
/* A whole number from 1 on, by its name there. asked: what the configuration says by the key, which has to be the
 * same; WEFT_AUTO_I64: nothing. */
weft_status source_integer(int64_t *out, const json_t *config, const char *name, const char *key, int64_t asked,
                           const weft_adapter_source *source, weft_error *err);
/* A list of texts, with commas; the caller frees it. */
weft_status source_list(char **out, const json_t *config, const char *key, const weft_adapter_source *source,
                        weft_error *err);

#endif
