/* normal.c: the normalizers Prepend, Replace, NFC, NFD, NFKC, NFKD and Lowercase. Bytes that are not UTF-8 stay
 * unchanged. */
#include "normal.h"
#include "unicode.h"

#include <stdlib.h>
#include <utf8proc.h>

static bpe_normal_step *add_step(bpe_normal *self, int32_t kind) {
    const bpe_normal_step fresh = {kind, 0, {NULL, 0}, {0, {NULL, 0}, NULL, NULL}};
    bpe_list_add(&self->steps, &fresh, 1);
    return self->steps.failed ? NULL : &BPE_AT(&self->steps, bpe_normal_step)[self->steps.n - 1];
}

static weft_status read_prepend(bpe_normal *self, const bpe_place *at, const json_t *json, weft_error *err) {
    bpe_normal_step *step = add_step(self, BPE_PREPEND);
    weft_status status = bpe_json_known(at, json, "type prepend", err);
    if (status != WEFT_OK) return status;
    return step == NULL ? bpe_no_memory(err) : bpe_json_copy(&step->content, self->host, at, json, "prepend", err);
}

static weft_status read_replace(bpe_normal *self, const bpe_place *at, const json_t *json, weft_error *err) {
    bpe_normal_step *step = add_step(self, BPE_REPLACE);
    const bpe_place here = bpe_place_key(at, "pattern");
    weft_status status = bpe_json_known(at, json, "type pattern content", err);
    if (status == WEFT_OK && step == NULL) status = bpe_no_memory(err);
    if (status == WEFT_OK) status = bpe_json_copy(&step->content, self->host, at, json, "content", err);
    if (status == WEFT_OK)
        status = bpe_pattern_read(&step->pattern, self->host, &here, json_object_get(json, "pattern"), err);
    return status;
}

static weft_status read_form(bpe_normal *self, const bpe_place *at, const json_t *json, const char *type, bool *found,
                             weft_error *err) {
    static const struct {
        const char *name;
        int32_t kind;
        int32_t form;
    } forms[] = {{"NFC", BPE_UNICODE, UTF8PROC_STABLE | UTF8PROC_COMPOSE},
                 {"NFD", BPE_UNICODE, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
                 {"NFKC", BPE_UNICODE, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                 {"NFKD", BPE_UNICODE, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
                 {"Lowercase", BPE_LOWERCASE, 0}};
    *found = false;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0] && !*found; i++) {
        bpe_normal_step *step = NULL;
        if (strcmp(type, forms[i].name) != 0) continue;
        *found = true;
        step = add_step(self, forms[i].kind);
        if (step == NULL) return bpe_no_memory(err);
        step->form = forms[i].form;
        return bpe_json_known(at, json, "type", err);
    }
    return WEFT_OK;
}

static weft_status read_step(void *context, const bpe_place *at, const json_t *json, const char *type,
                             weft_error *err) {
    bpe_normal *self = context;
    const bpe_place here = bpe_place_key(at, "type");
    bool found = false;
    weft_status status = WEFT_OK;
    if (strcmp(type, "Prepend") == 0) return read_prepend(self, at, json, err);
    if (strcmp(type, "Replace") == 0) return read_replace(self, at, json, err);
    status = read_form(self, at, json, type, &found, err);
    if (status != WEFT_OK || found) return status;
    return bpe_json_fail(err, &here,
                         "the normalizer %s is not supported. Allowed: Sequence, Prepend, Replace, "
                         "NFC, NFD, NFKC, NFKD, Lowercase.",
                         bpe_quote(type, strlen(type)).text);
}

weft_status bpe_normal_read(bpe_normal *self, const weft_host *host, const bpe_place *at, const json_t *json,
                            weft_error *err) {
    self->host = host;
    bpe_list_init(&self->steps, host, sizeof(bpe_normal_step));
    return bpe_json_steps(self, read_step, at, json, "normalizers", err);
}

void bpe_normal_free(bpe_normal *self) {
    if (self->host == NULL) return;
    for (size_t i = 0; i < self->steps.n; i++) {
        bpe_normal_step *step = &BPE_AT(&self->steps, bpe_normal_step)[i];
        self->host->release(self->host, step->content.bytes);
        bpe_pattern_free(&step->pattern, self->host);
    }
    bpe_list_free(&self->steps);
}

typedef struct replacing {
    bpe_list *out;
    const bpe_text *content;
    const char *text;
    size_t most; /* maximal bytes of out */
} replacing;

static weft_status too_long(size_t most, weft_error *err) {
    return weft_error_set(err, WEFT_E_DATA,
                          "the normalized text exceeds %zu bytes: the replacements of tokenizer.json "
                          "multiply it",
                          most);
}

static weft_status replace_visit(void *context, size_t begin, size_t end, bool is_match, weft_error *err) {
    const replacing *self = context;
    const size_t more = is_match ? self->content->n : end - begin;
    if (self->out->n > self->most || more > self->most - self->out->n) return too_long(self->most, err);
    if (is_match) bpe_list_add(self->out, self->content->bytes, self->content->n);
    else bpe_list_add(self->out, self->text + begin, end - begin);
    return WEFT_OK;
}

weft_status bpe_replace(const bpe_pattern *pattern, const bpe_text *content, bpe_matcher *matcher, bpe_list *out,
                        const char *text, size_t n, size_t most, weft_error *err) {
    replacing work = {out, content, text, most};
    return bpe_pattern_each(pattern, matcher, text, n, replace_visit, &work, err);
}

/* Normalizes characters of Unicode 9.0. Memory of utf8proc is freed before the return. */
static weft_status compose_known(const bpe_normal_step *step, bpe_list *out, const char *text, size_t n,
                                 weft_error *err) {
    utf8proc_uint8_t *result = NULL;
    utf8proc_ssize_t length = 0;
    if (n == 0) return WEFT_OK;
    length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &result, (utf8proc_option_t)step->form);
    if (length < 0)
        return weft_error_set(err, WEFT_E_DATA, "The text cannot be normalized: %s.", utf8proc_errmsg(length));
    bpe_list_add(out, result, (size_t)length);
    free(result);
    return WEFT_OK;
}

/* Normalizes valid UTF-8. As in the library, characters that are not in Unicode 9.0 stay unchanged and do not combine,
 * regardless of utf8proc's version. */
static weft_status compose(const bpe_normal_step *step, bpe_list *out, const char *text, size_t n, weft_error *err) {
    size_t done = 0, length = 0;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < n && status == WEFT_OK; i += length) {
        int32_t point = 0;
        length = bpe_utf8(text + i, n - i, &point);
        if (bpe_in_unicode_9(point)) continue;
        status = compose_known(step, out, text + done, i - done, err);
        bpe_list_add(out, text + i, length);
        done = i + length;
    }
    return status == WEFT_OK ? compose_known(step, out, text + done, n - done, err) : status;
}

/* Lowercases each character without its context. Only U+0130 becomes two characters. */
static void lowercase(bpe_list *out, const char *text, size_t n) {
    size_t length = 0;
    for (size_t i = 0; i < n; i += length) {
        int32_t point = 0;
        char lower[4];
        length = bpe_utf8(text + i, n - i, &point);
        if (point == 0x130) bpe_list_add(out, "i\xcc\x87", 3);
        else bpe_list_add(out, lower, bpe_utf8_put(lower, bpe_lower(point)));
    }
}

static weft_status by_stretch(const bpe_normal_step *step, bpe_list *out, const char *text, size_t n, weft_error *err) {
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < n && status == WEFT_OK;) {
        const size_t whole = bpe_valid_prefix(text + i, n - i);
        const size_t stray = bpe_stray_prefix(text + i + whole, n - i - whole);
        if (step->kind == BPE_UNICODE) status = compose(step, out, text + i, whole, err);
        else lowercase(out, text + i, whole);
        bpe_list_add(out, text + i + whole, stray);
        i += whole + stray;
    }
    return status;
}

weft_status bpe_normal_run(const bpe_normal *self, bpe_matcher *matcher, bpe_list buffers[2], const char **text,
                           size_t *n, weft_error *err) {
    const size_t most = bpe_longest(*n);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < self->steps.n && status == WEFT_OK && *n > 0; i++) {
        const bpe_normal_step *step = &BPE_AT(&self->steps, bpe_normal_step)[i];
        bpe_list *out = &buffers[i % 2];
        bpe_list_clear(out);
        if (step->kind == BPE_PREPEND) {
            if (step->content.n + *n > most) return too_long(most, err);
            bpe_list_add(out, step->content.bytes, step->content.n);
            bpe_list_add(out, *text, *n);
        } else if (step->kind == BPE_REPLACE) {
            status = bpe_replace(&step->pattern, &step->content, matcher, out, *text, *n, most, err);
        } else {
            status = by_stretch(step, out, *text, *n, err);
        }
        if (status == WEFT_OK && out->failed) status = bpe_no_memory(err);
        if (status != WEFT_OK) break;
        *text = out->data == NULL ? "" : out->data;
        *n = out->n;
    }
    return status;
}
