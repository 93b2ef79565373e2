/* weftnew-id: a tokenizer: each byte is an id; 256 is BOS and 257 is EOS.
 *
 * The main thread calls `create` and `file`. Any thread may call the other functions, several at once, so the data is
 * read-only. Every byte of a text is encoded, including NUL, and the status returned by a sink is returned to the
 * caller. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0) /* the oldest supported host; newer declarations are hidden */
#include <weft/tokenizer.h>

WEFT_NO_KEYS(weftnew_config)

enum { BOS = 256, EOS = 257, VOCABULARY = 258, PIECE = 1024 };

struct weft_tokenizer {
    const weft_host *host;
};

/* directory: the model's, or that of [tokenizer] path; this tokenizer needs no file. */
static weft_status weftnew_create(weft_tokenizer **out, const weft_host *host, const void *config,
                                  const char *directory, weft_error *err) {
    weft_tokenizer *tokenizer = (weft_tokenizer *)host->alloc(host, sizeof *tokenizer, 8);
    (void)config;
    (void)directory;
    if (tokenizer == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the tokenizer weftnew-id");
    tokenizer->host = host;
    *out = tokenizer;
    return WEFT_OK;
}

static void weftnew_destroy(weft_tokenizer *tokenizer) {
    if (tokenizer != NULL) tokenizer->host->release(tokenizer->host, tokenizer);
}

/* Sets single fields: out may be shorter or longer than this file's struct. */
static void weftnew_info(const weft_tokenizer *tokenizer, weft_tokenizer_info *out) {
    (void)tokenizer;
    out->vocab_size = VOCABULARY;
    out->bos = BOS;
    out->eos = EOS;
    out->unk = out->pad = -1;
    out->auto_bos = out->auto_eos = 1;
}

static weft_status put_one(const weft_ids_sink *sink, int32_t id) {
    return sink->put(sink->context, &id, 1);
}

static weft_status weftnew_encode(const weft_tokenizer *tokenizer, const weft_ids_sink *sink, const char *text,
                                  size_t bytes, uint32_t flags, weft_error *err) {
    int32_t ids[PIECE];
    size_t at = 0, n;
    weft_status status = (flags & WEFT_ENCODE_BOS) != 0 ? put_one(sink, BOS) : WEFT_OK;
    (void)tokenizer;
    (void)err;
    while (status == WEFT_OK && at < bytes) {
        for (n = 0; n < PIECE && at < bytes; n++, at++) ids[n] = (int32_t)(unsigned char)text[at];
        status = sink->put(sink->context, ids, n);
    }
    return status == WEFT_OK && (flags & WEFT_ENCODE_EOS) != 0 ? put_one(sink, EOS) : status;
}

/* Writes the bytes of one id; an id without a token has no bytes. */
static size_t spell(char out[8], int32_t id, uint32_t flags) {
    if (id >= 0 && id < BOS) {
        out[0] = (char)(unsigned char)id;
        return 1;
    }
    if ((flags & WEFT_DECODE_KEEP_SPECIAL) == 0 || (id != BOS && id != EOS)) return 0;
    return (size_t)snprintf(out, 8, "%s", id == BOS ? "<s>" : "</s>");
}

static weft_status weftnew_decode(const weft_tokenizer *tokenizer, const weft_text_sink *sink, const int32_t *ids,
                                  size_t n, uint32_t flags, weft_error *err) {
    char text[PIECE + 8];
    size_t used = 0, i;
    weft_status status = WEFT_OK;
    (void)tokenizer;
    (void)err;
    for (i = 0; i < n && status == WEFT_OK; i++) {
        used += spell(text + used, ids[i], flags);
        if (used < PIECE && i + 1 < n) continue;
        status = sink->put(sink->context, text, used);
        used = 0;
    }
    return status;
}

static const weft_tokenizer_plugin weftnew_table = {(uint32_t)sizeof(weft_tokenizer_plugin),
                                                    0,
                                                    weftnew_create,
                                                    weftnew_destroy,
                                                    weftnew_info,
                                                    weftnew_encode,
                                                    weftnew_decode,
                                                    NULL,
                                                    NULL};

WEFT_PLUGIN(tokenizer, 1, "weftnew-id", "0.1.0", "Each byte is an id.", weftnew_config, NULL, weftnew_table)
