/* plugins/adapter/common/source.c: see source.h. */
#include "source.h"

#include <stdlib.h>

weft_status source_refuse(const weft_adapter_source *source, const json_t *config, const char *key, const char *problem,
                          weft_error *err) {
    const json_t *value = json_object_get(config, key);
    char *text = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
    (void)weft_error_set(err, WEFT_E_DATA, "%s: %s = %.80s: %s", source->config_path, key,
                         text != NULL ? text : "missing", problem);
    free(text);
    return WEFT_E_DATA;
}

weft_status source_open(json_t **out, const weft_adapter_source *source, const char *type, weft_error *err) {
    json_error_t why;
    char problem[160];
    json_t *config = json_loadb(source->config_text, (size_t)source->config_bytes, 0, &why);
    const char *found = json_string_value(json_object_get(config, "peft_type"));
    if (found != NULL && strcmp(found, type) == 0) {
        *out = config;
        return WEFT_OK;
    }
    (void)snprintf(problem, sizeof problem,
                   "the plugin reads another type. Allowed: %s. Fix: set [adapter] plugin to that of the type", type);
    (void)source_refuse(source, config, "peft_type", problem, err);
    json_decref(config);
    return WEFT_E_DATA;
}

int source_says_nothing(const json_t *value) {
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* True if "a,b,c" contains the key. */
static int has_key(const char *list, const char *key) {
    const size_t n = strlen(key);
    while (*list != 0) {
        const size_t item = strcspn(list, ",");
        if (item == n && strncmp(list, key, n) == 0) return 1;
        list += item + (list[item] == ',');
    }
    return 0;
}

weft_status source_check_keys(json_t *config, const char *known, const weft_adapter_source *source, weft_error *err) {
    static const char common[] = "peft_type,peft_version,task_type,auto_mapping,base_model_name_or_path,revision,"
                                 "inference_mode,target_modules,modules_to_save,ensure_weight_tying";
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(config, key, value) {
        if (source_says_nothing(value) || has_key(common, key) || has_key(known, key)) continue;
        return source_refuse(source, config, key,
                             "this key may change what the adapter computes, and Weft does not implement it. Allowed: "
                             "null or false. Fix: merge the adapter into its base with PEFT (merge_and_unload) and use "
                             "that model",
                             err);
    }
    return WEFT_OK;
}

weft_status source_integer(int64_t *out, const json_t *config, const char *name, const char *key, int64_t asked,
                           const weft_adapter_source *source, weft_error *err) {
    const json_t *value = json_object_get(config, name);
    if (!json_is_integer(value) || json_integer_value(value) < 1)
        return source_refuse(source, config, name, "not valid. Allowed: an integer of at least 1", err);
    *out = json_integer_value(value);
    if (asked == WEFT_AUTO_I64 || asked == *out) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "%s is %lld, and %s has %s = %lld: a continued adapter keeps its settings. Fix: remove the "
                          "key, or set it to the value of the file",
                          key, (long long)asked, source->config_path, name, (long long)*out);
}

weft_status source_list(char **out, const json_t *config, const char *key, const weft_adapter_source *source,
                        weft_error *err) {
    const json_t *list = json_object_get(config, key);
    size_t bytes = 1, used = 0;
    if (!json_is_array(list) && !source_says_nothing(list))
        return source_refuse(source, config, key, "not valid. Allowed: a list of names", err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!json_is_string(json_array_get(list, i)))
            return source_refuse(source, config, key, "not valid. Allowed: a list of names", err);
        bytes += json_string_length(json_array_get(list, i)) + 1;
    }
    *out = calloc(bytes, 1);
    if (*out == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    for (size_t i = 0; i < json_array_size(list); i++)
        used += (size_t)snprintf(*out + used, bytes - used, "%s%s", used > 0 ? "," : "",
                                 json_string_value(json_array_get(list, i)));
    return WEFT_OK;
}
