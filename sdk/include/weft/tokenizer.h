/* weft/tokenizer.h: bytes to ids and back (tokenizer/1).
 *
 * A tokenizer is made from a directory (the model's, or one that [tokenizer] path names) and is read-only
 * afterwards, so that several threads may encode at once. Text is bytes with a length: a NUL is a byte like any
 * other, and every byte of the input reaches the ids. Long documents come back through a sink, piece by piece, so
 * that no side guesses a size.
 *
 * Later users this serves: chat templates (an extension "weft.tokenizer.chat/1"), other formats than tokenizer.json.
 */
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H

#include <weft/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_tokenizer weft_tokenizer; /* the plugin's own */

/* Receives n ids (encode) or n bytes (decode); called any number of times, in order. */
typedef struct weft_ids_sink {
    void *context;
    weft_status (*put)(void *context, const int32_t *ids, size_t n); /* [any-thread]: of the call that it is given to */
} weft_ids_sink;

typedef struct weft_text_sink {
    void *context;
    weft_status (*put)(void *context, const char *bytes, size_t n); /* [any-thread]: of the call that it is given to */
} weft_text_sink;

typedef struct weft_tokenizer_info {
    uint32_t struct_size;
    uint32_t flags;
    int32_t vocab_size; /* highest id + 1, added tokens included */
    int32_t bos;        /* -1: the tokenizer has none */
    int32_t eos;
    int32_t unk;
    int32_t pad;
    int32_t auto_bos; /* 1: the files ask for BOS before a text (bos = auto) */
    int32_t auto_eos; /* 1: the files ask for EOS after a text (eos = auto) */
    int32_t reserved;
} weft_tokenizer_info;

/* encode flags */
#define WEFT_ENCODE_BOS   1u /* put BOS first */
#define WEFT_ENCODE_EOS   2u /* put EOS last */
#define WEFT_ENCODE_PLAIN 4u /* special tokens written in the text are text */
/* decode flags */
#define WEFT_DECODE_KEEP_SPECIAL 1u /* write special tokens as their names instead of leaving them out */

typedef struct weft_tokenizer_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* directory: absolute. err names the file and, where it is JSON, the key. [main] [required] */
    weft_status (*create)(weft_tokenizer **out, const weft_host *host, const void *config, const char *directory,
                          weft_error *err);
    void (*destroy)(weft_tokenizer *tokenizer); /* [main] [required] */

    /* out->struct_size is set by the caller. [any-thread] [required] */
    void (*info)(const weft_tokenizer *tokenizer, weft_tokenizer_info *out);

    /* Nothing is added unless flags ask for it. [any-thread] [required] */
    weft_status (*encode)(const weft_tokenizer *tokenizer, const weft_ids_sink *sink, const char *text, size_t bytes,
                          uint32_t flags, weft_error *err);

    /* An id that is no token's gives no text: a model's vocabulary may be padded beyond the tokenizer's. The bytes need
     * not be valid UTF-8. [any-thread] [required] */
    weft_status (*decode)(const weft_tokenizer *tokenizer, const weft_text_sink *sink, const int32_t *ids, size_t n,
                          uint32_t flags, weft_error *err);

    /* Name i of a file in the directory that belongs to this tokenizer and exists there, so that a saved model gets
     * a copy; NULL ends the list. [main] [optional: nothing is copied] */
    const char *(*file)(const weft_tokenizer *tokenizer, uint32_t i);

    const void *(*extension)(const weft_tokenizer *tokenizer, const char *id); /* [any-thread] [optional: none] */
} weft_tokenizer_plugin;

#ifdef __cplusplus
}
#endif
#endif
