/* weft/tokenizer.h: bytes to ids and back (tokenizer/1).
 *
 * A tokenizer is made from a directory (the model's, or one that [tokenizer] path names) and is read-only
 * afterwards, so that several threads may encode at once. Text is bytes with a length: a NUL is a byte like any
 * other, and every byte of the input reaches the ids. Long documents come back through a sink, piece by piece, so
 * that no side guesses a size.
 *
 * What a user typed and what a template wrote are kept apart: WEFT_ENCODE_PLAIN makes special tokens in a text plain
 * text, WEFT_TOKENIZER_SPECIAL gives their ids, and WEFT_TOKENIZER_CHAT renders conversations and says which ids are
 * answers.
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
#define WEFT_DECODE_KEEP_SPECIAL 1u /* write special tokens as their names; else as if they were not there */

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

    /* An id that is no token's gives no text: a model's vocabulary may be padded beyond the tokenizer's. BOS and EOS
     * are special tokens, unless WEFT_TOKENIZER_SPECIAL says otherwise. The bytes need not be valid UTF-8. [any-thread]
     * [required] */
    weft_status (*decode)(const weft_tokenizer *tokenizer, const weft_text_sink *sink, const int32_t *ids, size_t n,
                          uint32_t flags, weft_error *err);

    /* Name i of a file in the directory that belongs to this tokenizer and exists there, so that a saved model gets
     * a copy; NULL ends the list. A name has no folder but additional_chat_templates/. [main] [optional: nothing is
     * copied] */
    const char *(*file)(const weft_tokenizer *tokenizer, uint32_t i);

    const void *(*extension)(const weft_tokenizer *tokenizer, const char *id); /* [any-thread] [optional: none] */
} weft_tokenizer_plugin;

/* The extension WEFT_TOKENIZER_SPECIAL: special tokens by name. */
#define WEFT_TOKENIZER_SPECIAL "weft.tokenizer.special/1"
typedef struct weft_tokenizer_special {
    uint32_t struct_size;
    uint32_t flags;

    /* Id of the token that is written so ("<|im_end|>"), whether it is special or only added; -1: there is none.
     * [any-thread] [required] */
    int32_t (*id)(const weft_tokenizer *tokenizer, const char *name, size_t bytes);

    /* 1: the id is a special token's, which decoding leaves out. [any-thread] [required] */
    int32_t (*is_special)(const weft_tokenizer *tokenizer, int32_t id);
} weft_tokenizer_special;

/* The extension WEFT_TOKENIZER_ADD: tokens beside those of the files ([tokenizer] add), and a pad token for a tokenizer
 * that has none (pad = add). The host sees to the model's rows and its config.json; the tokenizer's files are the
 * plugin's. */
#define WEFT_TOKENIZER_ADD "weft.tokenizer.add/1"
typedef struct weft_tokenizer_add {
    uint32_t struct_size;
    uint32_t flags;

    /* Right after create, before anything is encoded, at most once: each of n names that differ, none of them empty,
     * is a special token from here on, in info, encode and decode, with the next free id in their order. One that the
     * tokenizer has in some form is refused. pad: the number of the one that is the pad token from here on; -1: none.
     * That one keeps its id where there is a token that is written so, and is refused where there is another pad token.
     * After a failure it can only be destroyed. [main] [required] */
    weft_status (*add)(weft_tokenizer *tokenizer, const char *const *names, uint32_t n, int32_t pad, weft_error *err);

    /* The text of the i-th file of the table's `file`, as a saved model has to have it: it goes to the sink and
     * *changed becomes 1, or the directory's own is right and *changed stays 0. [main] [required] */
    weft_status (*file)(const weft_tokenizer *tokenizer, uint32_t i, const weft_text_sink *sink, int32_t *changed,
                        weft_error *err);
} weft_tokenizer_add;

/* The extension WEFT_TOKENIZER_CHAT: conversations as the model's own template writes them.
 *
 *     weft_chat_message messages[] = {{sizeof *messages, 0, "user", "Hello", 5, NULL, 0},
 *                                     {sizeof *messages, 0, "assistant", "Hi!", 3, NULL, 0}};
 *     weft_chat chat = {sizeof chat, 0, messages, 2, sizeof *messages, 0, NULL, NULL, 0, 0};
 *     chat_table->encode(tokenizer, &sink, &chat, err);      ids, and for each the answer that it belongs to
 *
 * The answers are the {% generation %} blocks of a template that has them. In another template the answer of an
 * assistant's message is all that the template writes for the message after the generation prompt, up to the last
 * special token: the end token. White space after the end token is no part of the answer. If the template writes no
 * special token for the message itself, the next one is the end token, with white space before it. An id belongs to an
 * answer if any of its bytes does. With WEFT_CHAT_PROMPT only blocks are answers.
 */
#define WEFT_TOKENIZER_CHAT "weft.tokenizer.chat/1"

typedef struct weft_chat_message {
    uint32_t struct_size;
    uint32_t flags;
    const char *role;    /* "system", "user", "assistant", "tool", ... UTF-8 */
    const char *content; /* UTF-8; NULL: null */
    uint64_t content_bytes;
    const char *more; /* further fields, one JSON object; they win over role and content; NULL: none */
    uint64_t more_bytes;
} weft_chat_message;

/* flags of a chat */
#define WEFT_CHAT_PROMPT  1u /* end where the model's next answer begins (add_generation_prompt) */
#define WEFT_CHAT_SPECIAL 2u /* special tokens written in messages are special tokens; without it they are text */
/* WEFT_E_DATA if the template does not know a message's role, writes nothing of a message, or does not read a key of a
 * message or a variable. A tokenizer of an older version ignores the flag. */
#define WEFT_CHAT_COMPLETE 4u

typedef struct weft_chat {
    uint32_t struct_size;
    uint32_t flags;
    const weft_chat_message *messages;
    uint64_t n_messages;
    uint32_t stride; /* of messages */
    uint32_t reserved;
    const char *named;     /* a template by name; NULL: the one in the tokenizer's files */
    const char *variables; /* further ones (tools, documents, enable_thinking), one JSON object; NULL: none */
    uint64_t variables_bytes;
    int64_t now; /* of strftime_now, in seconds since 1970; 0: the clock's */
} weft_chat;

#define WEFT_CHAT_END 0x40000000 /* in an answer's number: this id is its end token */

/* Receives n ids, and for each the number of its answer, or -1. The number counts blocks in the order of the text, or
 * the assistant's messages, from 0. */
typedef struct weft_chat_sink {
    void *context;
    weft_status (*put)(void *context, const int32_t *ids, const int32_t *answers,
                       size_t n); /* [any-thread]: of the call that it is given to */
} weft_chat_sink;

typedef struct weft_tokenizer_chat {
    uint32_t struct_size;
    uint32_t flags;

    /* Whether there is such a template, and it can be read. [any-thread] [required] */
    weft_status (*check)(const weft_tokenizer *tokenizer, const char *named, weft_error *err);

    /* The text. [any-thread] [required] */
    weft_status (*render)(const weft_tokenizer *tokenizer, const weft_text_sink *sink, const weft_chat *chat,
                          weft_error *err);

    /* The ids of the text, to which nothing is added: BOS is there if the template writes it. WEFT_E_DATA: the template
     * refuses the conversation. [any-thread] [required] */
    weft_status (*encode)(const weft_tokenizer *tokenizer, const weft_chat_sink *sink, const weft_chat *chat,
                          weft_error *err);

    /* Name i of the named templates; NULL ends the list. [any-thread] [required] */
    const char *(*named)(uint32_t i);

    /* The text of named template i, as files of a model hold it: a model that was trained with it gets it along.
     * [any-thread] [optional: the name has to be given again] */
    const char *(*source)(uint32_t i);
} weft_tokenizer_chat;

#ifdef __cplusplus
}
#endif
#endif
