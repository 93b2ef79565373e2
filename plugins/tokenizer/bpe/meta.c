/* meta.c: reads the keys of Metaspace, a pre-tokenizer and a decoder. */
#include "split.h"
#include "unicode.h"

static weft_status read_scheme(int32_t *out, const bpe_place *at, const json_t *json, weft_error *err) {
    static const char *const names[] = {"always", "first", "never"};
    const bpe_place here = bpe_place_key(at, "prepend_scheme");
    const json_t *value = json_object_get(json, "prepend_scheme");
    const char *name = json_string_value(value);
    *out = BPE_ALWAYS;
    if (value == NULL || json_is_null(value)) return WEFT_OK;
    for (int32_t i = 0; name != NULL && i < 3; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = i;
        return WEFT_OK;
    }
    return bpe_json_fail(err, &here, "must be always, first or never.");
}

/* Reads add_prefix_space, the old form of prepend_scheme: false means never. */
static weft_status read_prefix(int32_t *scheme, const bpe_place *at, const json_t *json, weft_error *err) {
    const bool yes = true;
    const bpe_place here = bpe_place_key(at, "add_prefix_space");
    const bool given = json_is_string(json_object_get(json, "prepend_scheme"));
    bool prefix = true;
    weft_status status = bpe_json_bool(&prefix, at, json, "add_prefix_space", &yes, err);
    if (status != WEFT_OK || prefix) return status;
    if (given && *scheme != BPE_NEVER)
        return bpe_json_fail(err, &here,
                             "is false, which contradicts prepend_scheme. Allowed: prepend_scheme = never.");
    *scheme = BPE_NEVER;
    return WEFT_OK;
}

weft_status bpe_meta_read(bpe_text *replacement, int32_t *scheme, const weft_host *host, const bpe_place *at,
                          const json_t *json, weft_error *err) {
    const bpe_place here = bpe_place_key(at, "replacement");
    const char *bytes = NULL;
    int32_t point = 0;
    size_t n = 0;
    weft_status status = bpe_json_text(&bytes, &n, at, json, "replacement", err);
    if (status == WEFT_OK && (n == 0 || bpe_utf8(bytes, n, &point) != n))
        status = bpe_json_fail(err, &here, "must be one character, but is %s.", bpe_quote(bytes, n).text);
    if (status == WEFT_OK) status = read_scheme(scheme, at, json, err);
    if (status == WEFT_OK) status = read_prefix(scheme, at, json, err);
    if (status == WEFT_OK && !bpe_text_set(replacement, host, bytes, n)) status = bpe_no_memory(err);
    return status;
}
