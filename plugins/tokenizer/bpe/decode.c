/* decode.c: runs the steps of the decoder. Byte tokens and byte-level characters become bytes, valid UTF-8 or not:
 * decoding restores the encoded text. */
#include "decode.h"
#include "split.h"
#include "unicode.h"

void bpe_texts_init(bpe_texts *self, const weft_host *host) {
    bpe_list_init(&self->bytes, host, 1);
    bpe_list_init(&self->ends, host, sizeof(size_t));
}

void bpe_texts_free(bpe_texts *self) {
    bpe_list_free(&self->bytes);
    bpe_list_free(&self->ends);
}

void bpe_texts_clear(bpe_texts *self) {
    bpe_list_clear(&self->bytes);
    bpe_list_clear(&self->ends);
}

void bpe_texts_end(bpe_texts *self) {
    bpe_list_add(&self->ends, &self->bytes.n, 1);
}

static int32_t hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the byte of "<0x41>", or -1. */
static int32_t byte_of(const char *text, size_t n) {
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || hex(text[3]) < 0 || hex(text[4]) < 0) return -1;
    return hex(text[3]) * 16 + hex(text[4]);
}

/* Joins consecutive byte tokens to one text. */
static void byte_pieces(const bpe_texts *in, bpe_texts *out) {
    const char *bytes = in->bytes.data == NULL ? "" : in->bytes.data;
    size_t begin = 0;
    bool open = false;
    for (size_t i = 0; i < in->ends.n; i++) {
        const size_t end = BPE_AT(&in->ends, size_t)[i];
        const int32_t value = byte_of(bytes + begin, end - begin);
        const char byte = (char)value;
        if (open && value < 0) bpe_texts_end(out);
        open = value >= 0;
        bpe_list_add(&out->bytes, open ? &byte : bytes + begin, open ? 1 : end - begin);
        if (!open) bpe_texts_end(out);
        begin = end;
    }
    if (open) bpe_texts_end(out);
}

static void strip(const bpe_decode_step *step, bpe_list *out, const char *text, size_t n) {
    const size_t size = step->content.n;
    for (int64_t i = 0; i < step->start && bpe_text_begins(text, n, &step->content); i++) {
        text += size;
        n -= size;
    }
    for (int64_t i = 0; i < step->stop && n >= size && bpe_text_begins(text + n - size, size, &step->content); i++)
        n -= size;
    bpe_list_add(out, text, n);
}

/* Maps characters to bytes. A token with a character that represents no byte is copied unchanged. */
static void byte_level(bpe_list *out, const char *text, size_t n) {
    const size_t before = out->n;
    size_t length = 0;
    for (size_t i = 0; i < n; i += length) {
        int32_t point = 0;
        char byte = 0;
        length = bpe_utf8(text + i, n - i, &point);
        point = bpe_character_byte(point);
        if (point < 0) {
            out->n = before;
            bpe_list_add(out, text, n);
            return;
        }
        byte = (char)point;
        bpe_list_add(out, &byte, 1);
    }
}

/* Replaces the replacement by a blank, and removes it from the first token if encoding prepends it. */
static void meta(const bpe_decode_step *step, bpe_list *out, const char *text, size_t n, bool first) {
    size_t length = 0;
    for (size_t i = 0; i < n; i += length) {
        const bool mark = bpe_text_begins(text + i, n - i, &step->content);
        length = mark ? step->content.n : 1;
        if (!mark) bpe_list_add(out, text + i, 1);
        else if (!first || step->scheme == BPE_NEVER) bpe_list_add(out, " ", 1);
    }
}

static weft_status run_text(const bpe_decode_step *step, bpe_matcher *matcher, bpe_list *out, const char *text,
                            size_t n, bool first, weft_error *err) {
    switch (step->kind) {
    case BPE_DECODE_REPLACE:
        return bpe_replace(&step->pattern, &step->content, matcher, out, text, n, out->n + bpe_longest(n), err);
    case BPE_DECODE_STRIP: strip(step, out, text, n); break;
    case BPE_DECODE_BYTE_LEVEL: byte_level(out, text, n); break;
    case BPE_DECODE_META: meta(step, out, text, n, first); break;
    default: bpe_list_add(out, text, n); break;
    }
    return WEFT_OK;
}

/* Runs a step on all texts. FUSE and BYTE_LEVEL join them. */
static weft_status run_texts(const bpe_decode_step *step, bpe_matcher *matcher, const bpe_texts *in, bpe_texts *out,
                             weft_error *err) {
    const bool fuses = step->kind == BPE_DECODE_FUSE || step->kind == BPE_DECODE_BYTE_LEVEL;
    const char *bytes = in->bytes.data == NULL ? "" : in->bytes.data;
    size_t begin = 0;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < in->ends.n && status == WEFT_OK; i++) {
        const size_t end = BPE_AT(&in->ends, size_t)[i];
        status = run_text(step, matcher, &out->bytes, bytes + begin, end - begin, i == 0, err);
        if (!fuses) bpe_texts_end(out);
        begin = end;
    }
    if (fuses) bpe_texts_end(out);
    return status;
}

static weft_status run_step(const bpe_decode_step *step, bpe_matcher *matcher, const bpe_texts *in, bpe_texts *out,
                            weft_error *err) {
    weft_status status = WEFT_OK;
    bpe_texts_clear(out);
    if (step->kind == BPE_DECODE_BYTE_PIECES) byte_pieces(in, out);
    else status = run_texts(step, matcher, in, out, err);
    if (status == WEFT_OK && (out->bytes.failed || out->ends.failed)) status = bpe_no_memory(err);
    return status;
}

weft_status bpe_decode_run(const bpe_decode *self, bpe_matcher *matcher, bpe_texts texts[2], bpe_texts **out,
                           weft_error *err) {
    weft_status status = texts[0].bytes.failed || texts[0].ends.failed ? bpe_no_memory(err) : WEFT_OK;
    size_t at = 0;
    for (size_t i = 0; i < self->steps.n && status == WEFT_OK; i++, at = 1 - at) {
        const bpe_decode_step *step = &BPE_AT(&self->steps, bpe_decode_step)[i];
        status = run_step(step, matcher, &texts[at], &texts[1 - at], err);
    }
    *out = &texts[at];
    return status;
}
