/* weft/tokenizer.h: encoding of text to ids and decoding (tokenizer/1).
 *
 * A tokenizer is created from a directory (the model's, or the one in [tokenizer] path). It is read-only afterwards, so
 * that several threads may encode at once. Text is bytes with a length: a NUL is a normal byte, and every byte of the
 * input is encoded. Output is passed to a sink in chunks, so that neither side needs to guess a size.
 *
 * User text and template text are distinguished: WEFT_ENCODE_PLAIN encodes special tokens in a text as plain text,
 * WEFT_TOKENIZER_SPECIAL returns the ids of special tokens, and WEFT_TOKENIZER_CHAT renders conversations and marks the
 * ids of answers.
 */
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H

#include <weft/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_tokenizer weft_tokenizer; /* defined by the plugin */

/* Receives n ids (encode) or n bytes (decode). Called any number of times, in order. */
typedef struct weft_ids_sink {
    void *context;
    weft_status (*put)(void *context, const int32_t *ids, size_t n); /* [any-thread]: within the call that gets it */
} weft_ids_sink;

typedef struct weft_text_sink {
    void *context;
    weft_status (*put)(void *context, const char *bytes, size_t n); /* [any-thread]: within the call that gets it */
} weft_text_sink;

typedef struct weft_tokenizer_info {
    uint32_t struct_size;
    uint32_t flags;
    int32_t vocab_size; /* highest id + 1, including added tokens */
    int32_t bos;        /* -1: no such token */
    int32_t eos;
    int32_t unk;
    int32_t pad;
    int32_t auto_bos; /* 1: the files request BOS before a text (bos = auto) */
    int32_t auto_eos; /* 1: the files request EOS after a text (eos = auto) */
    int32_t reserved;
} weft_tokenizer_info;

/* Encode flags. */
#define WEFT_ENCODE_BOS   1u /* prepend BOS */
#define WEFT_ENCODE_EOS   2u /* append EOS */
#define WEFT_ENCODE_PLAIN 4u /* encode special tokens in the text as plain text */
/* Decode flags. */
#define WEFT_DECODE_KEEP_SPECIAL 1u /* write the names of special tokens; otherwise they are omitted */

typedef struct weft_tokenizer_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* directory: absolute. Errors name the file and, in JSON, the key. [main] [required] */
    weft_status (*create)(weft_tokenizer **out, const weft_host *host, const void *config, const char *directory,
                          weft_error *err);
    void (*destroy)(weft_tokenizer *tokenizer); /* [main] [required] */

    /* The caller sets out->struct_size. [any-thread] [required] */
    void (*info)(const weft_tokenizer *tokenizer, weft_tokenizer_info *out);

    /* Adds special tokens only if flags request them. [any-thread] [required] */
    weft_status (*encode)(const weft_tokenizer *tokenizer, const weft_ids_sink *sink, const char *text, size_t bytes,
                          uint32_t flags, weft_error *err);

    /* An id without a token decodes to empty text, since a model's vocabulary may be padded beyond the tokenizer's. BOS
     * and EOS are special tokens unless WEFT_TOKENIZER_SPECIAL reports otherwise. The bytes may be invalid UTF-8.
     * [any-thread] [required] */
    weft_status (*decode)(const weft_tokenizer *tokenizer, const weft_text_sink *sink, const int32_t *ids, size_t n,
                          uint32_t flags, weft_error *err);

    /* Returns the name of tokenizer file i in the directory, for copying into a saved model; NULL ends the list. Only
     * existing files are listed. The only folder in a name is additional_chat_templates/. [main] [optional: no file is
     * copied] */
    const char *(*file)(const weft_tokenizer *tokenizer, uint32_t i);

    const void *(*extension)(const weft_tokenizer *tokenizer, const char *id); /* [any-thread] [optional: none] */
} weft_tokenizer_plugin;

/* The extension WEFT_TOKENIZER_SPECIAL: special tokens by name. */
#define WEFT_TOKENIZER_SPECIAL "weft.tokenizer.special/1"
typedef struct weft_tokenizer_special {
    uint32_t struct_size;
    uint32_t flags;

    /* Returns the id of the token with this text ("<|im_end|>"), special or only added, or -1. [any-thread]
     * [required] */
    int32_t (*id)(const weft_tokenizer *tokenizer, const char *name, size_t bytes);

    /* Returns 1 if the id is a special token, which decoding omits. [any-thread] [required] */
    int32_t (*is_special)(const weft_tokenizer *tokenizer, int32_t id);
} weft_tokenizer_special;

/* The extension WEFT_TOKENIZER_ADD: adds tokens to those of the files ([tokenizer] add), and a pad token to a tokenizer
 * without one (pad = add). The host extends the model's rows and its config.json; the plugin writes the tokenizer's
 * files. */
#define WEFT_TOKENIZER_ADD "weft.tokenizer.add/1"
typedef struct weft_tokenizer_add {
    uint32_t struct_size;
    uint32_t flags;

    /* Called at most once, directly after create and before any encoding. Adds n distinct, non-empty names as special
     * tokens with the next free ids in their order, visible in info, encode and decode. A name that already exists in
     * any form is an error. pad: index of the name that becomes the pad token, or -1. An existing token with that text
     * keeps its id and becomes the pad token; a different existing pad token is an error. After a failure the tokenizer
     * may only be destroyed. [main] [required] */
    weft_status (*add)(weft_tokenizer *tokenizer, const char *const *names, uint32_t n, int32_t pad, weft_error *err);

    /* Writes the i-th file of the table's `file` to the sink in the form for a saved model and sets *changed to 1. If
     * the file in the directory is already correct, *changed stays 0. [main] [required] */
    weft_status (*file)(const weft_tokenizer *tokenizer, uint32_t i, const weft_text_sink *sink, int32_t *changed,
                        weft_error *err);
} weft_tokenizer_add;

/* The extension WEFT_TOKENIZER_CHAT: renders conversations with the model's chat template.
 *
 *     weft_chat_message messages[] = {{sizeof *messages, 0, "user", "Hello", 5, NULL, 0},
 *                                     {sizeof *messages, 0, "assistant", "Hi!", 3, NULL, 0}};
 *     weft_chat chat = {sizeof chat, 0, messages, 2, sizeof *messages, 0, NULL, NULL, 0, 0};
 *     chat_table->encode(tokenizer, &sink, &chat, err);      ids, and the answer number of each id
 *
 * The answers are the {% generation %} blocks of the template, if it has any. Otherwise the answer of an assistant
 * message is the text that the template writes for it after the generation prompt, up to the last special token: the
 * end token. White space after the end token is not part of the answer. If the template writes no special token for the
 * message itself, the next one is the end token, including white space before it, unless it begins turns. An id belongs
 * to an answer if any of its bytes does. With WEFT_CHAT_PROMPT only blocks are answers.
 */
#define WEFT_TOKENIZER_CHAT "weft.tokenizer.chat/1"

typedef struct weft_chat_message {
    uint32_t struct_size;
    uint32_t flags;
    const char *role;    /* "system", "user", "assistant", "tool", ... UTF-8 */
    const char *content; /* UTF-8; NULL: null */
    uint64_t content_bytes;
    const char *more; /* additional fields, one JSON object; they override role and content; NULL: no fields */
    uint64_t more_bytes;
} weft_chat_message;

/* Flags of a chat. */
#define WEFT_CHAT_PROMPT  1u /* end with the prompt of the model's next answer (add_generation_prompt) */
#define WEFT_CHAT_SPECIAL 2u /* special tokens in messages are encoded as special tokens; otherwise as text */
/* Fails with WEFT_E_DATA if the template does not support a role, writes no text for a message, or ignores a variable
 * or a message's key. Older tokenizers ignore the flag. */
#define WEFT_CHAT_COMPLETE 4u

typedef struct weft_chat {
    uint32_t struct_size;
    uint32_t flags;
    const weft_chat_message *messages;
    uint64_t n_messages;
    uint32_t stride; /* of messages */
    uint32_t reserved;
    const char *named;     /* a template by name; NULL: the one in the tokenizer's files */
    const char *variables; /* more variables (tools, documents, enable_thinking), one JSON object; may be NULL */
    uint64_t variables_bytes;
    int64_t now; /* time for strftime_now, in seconds since 1970; 0: current time */
} weft_chat;

#define WEFT_CHAT_END 0x40000000 /* set in an answer number: this id is the answer's end token */

/* Receives n ids, and for each the number of its answer, or -1. Answers are blocks in text order, or the assistant's
 * messages, numbered from 0. */
typedef struct weft_chat_sink {
    void *context;
    weft_status (*put)(void *context, const int32_t *ids, const int32_t *answers,
                       size_t n); /* [any-thread]: within the call that gets it */
} weft_chat_sink;

typedef struct weft_tokenizer_chat {
    uint32_t struct_size;
    uint32_t flags;

    /* Checks that the template exists and can be parsed. [any-thread] [required] */
    weft_status (*check)(const weft_tokenizer *tokenizer, const char *named, weft_error *err);

    /* Renders the text. [any-thread] [required] */
    weft_status (*render)(const weft_tokenizer *tokenizer, const weft_text_sink *sink, const weft_chat *chat,
                          weft_error *err);

    /* Encodes the rendered text without adding tokens: BOS is present only if the template writes it. WEFT_E_DATA: the
     * template rejects the conversation. [any-thread] [required] */
    weft_status (*encode)(const weft_tokenizer *tokenizer, const weft_chat_sink *sink, const weft_chat *chat,
                          weft_error *err);

    /* Returns the name of named template i; NULL ends the list. [any-thread] [required] */
    const char *(*named)(uint32_t i);

    /* Returns the text of named template i in the format of a model's files, to save it with a model trained with it.
     * [any-thread] [optional: the user must name the template again] */
    const char *(*source)(uint32_t i);
} weft_tokenizer_chat;

#ifdef __cplusplus
}
#endif
#endif
