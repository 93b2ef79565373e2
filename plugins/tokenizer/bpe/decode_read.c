/* decode_read.c: reads the steps of the decoder. */
#include "decode.h"
#include "split.h"
#include "unicode.h"

static bpe_decode_step *add_step(bpe_decode *self, int32_t kind, weft_status *status, weft_error *err) {
    const bpe_decode_step fresh = {kind, BPE_ALWAYS, 0, 0, {NULL, 0}, {BPE_NUMERIC, {NULL, 0}, NULL, NULL}};
    if (*status != WEFT_OK) return NULL;
    bpe_list_add(&self->steps, &fresh, 1);
    if (self->steps.failed) *status = bpe_no_memory(err);
    return self->steps.failed ? NULL : &BPE_AT(&self->steps, bpe_decode_step)[self->steps.n - 1];
}

static weft_status read_replace(bpe_decode *self, const bpe_place *at, const json_t *json, weft_error *err) {
    const bpe_place here = bpe_place_key(at, "pattern");
    weft_status status = bpe_json_known(at, json, "type pattern content", err);
    bpe_decode_step *step = add_step(self, BPE_DECODE_REPLACE, &status, err);
    if (step == NULL) return status;
    status = bpe_json_copy(&step->content, self->host, at, json, "content", err);
    if (status == WEFT_OK)
        status = bpe_pattern_read(&step->pattern, self->host, &here, json_object_get(json, "pattern"), err);
    return status;
}

static weft_status read_count(int64_t *out, const bpe_place *at, const json_t *json, const char *key, weft_error *err) {
    const bpe_place here = bpe_place_key(at, key);
    const json_t *value = json_object_get(json, key);
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 0) return WEFT_OK;
    return bpe_json_fail(err, &here, "must be an integer, at least 0.");
}

static weft_status read_strip(bpe_decode *self, const bpe_place *at, const json_t *json, weft_error *err) {
    const bpe_place here = bpe_place_key(at, "content");
    int32_t point = 0;
    weft_status status = bpe_json_known(at, json, "type content start stop", err);
    bpe_decode_step *step = add_step(self, BPE_DECODE_STRIP, &status, err);
    if (step == NULL) return status;
    status = bpe_json_copy(&step->content, self->host, at, json, "content", err);
    if (status != WEFT_OK) return status;
    if (step->content.n == 0 || bpe_utf8(step->content.bytes, step->content.n, &point) != step->content.n)
        return bpe_json_fail(err, &here, "must be one character.");
    status = read_count(&step->start, at, json, "start", err);
    return status == WEFT_OK ? read_count(&step->stop, at, json, "stop", err) : status;
}

static weft_status read_meta(bpe_decode *self, const bpe_place *at, const json_t *json, weft_error *err) {
    weft_status status =
        bpe_json_known(at, json, "type replacement add_prefix_space prepend_scheme split str_rep", err);
    bpe_decode_step *step = add_step(self, BPE_DECODE_META, &status, err);
    if (step == NULL) return status;
    return bpe_meta_read(&step->content, &step->scheme, self->host, at, json, err);
}

static weft_status read_plain(bpe_decode *self, const bpe_place *at, const json_t *json, int32_t kind, const char *keys,
                              weft_error *err) {
    weft_status status = bpe_json_known(at, json, keys, err);
    (void)add_step(self, kind, &status, err);
    return status;
}

static weft_status read_step(void *context, const bpe_place *at, const json_t *json, const char *type,
                             weft_error *err) {
    bpe_decode *self = context;
    const bpe_place here = bpe_place_key(at, "type");
    if (strcmp(type, "Replace") == 0) return read_replace(self, at, json, err);
    if (strcmp(type, "Strip") == 0) return read_strip(self, at, json, err);
    if (strcmp(type, "Metaspace") == 0) return read_meta(self, at, json, err);
    if (strcmp(type, "ByteFallback") == 0) return read_plain(self, at, json, BPE_DECODE_BYTE_PIECES, "type", err);
    if (strcmp(type, "Fuse") == 0) return read_plain(self, at, json, BPE_DECODE_FUSE, "type", err);
    if (strcmp(type, "ByteLevel") == 0)
        return read_plain(self, at, json, BPE_DECODE_BYTE_LEVEL, "type add_prefix_space trim_offsets use_regex", err);
    return bpe_json_fail(err, &here,
                         "the decoder %s is not supported. Allowed: Sequence, Replace, Strip, "
                         "Metaspace, ByteFallback, Fuse, ByteLevel.",
                         bpe_quote(type, strlen(type)).text);
}

weft_status bpe_decode_read(bpe_decode *self, const weft_host *host, const bpe_place *at, const json_t *json,
                            weft_error *err) {
    self->host = host;
    self->joined = json != NULL && !json_is_null(json);
    bpe_list_init(&self->steps, host, sizeof(bpe_decode_step));
    return bpe_json_steps(self, read_step, at, json, "decoders", err);
}

void bpe_decode_free(bpe_decode *self) {
    if (self->host == NULL) return;
    for (size_t i = 0; i < self->steps.n; i++) {
        bpe_decode_step *step = &BPE_AT(&self->steps, bpe_decode_step)[i];
        self->host->release(self->host, step->content.bytes);
        bpe_pattern_free(&step->pattern, self->host);
    }
    bpe_list_free(&self->steps);
}
