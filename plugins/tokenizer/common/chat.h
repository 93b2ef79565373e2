/* chat.h: conversations as text, for a tokenizer of any sort: the templates of its files, the named ones, and which
 * bytes of a rendered text are answers. A conversation is prepared as `transformers` 5.24 does in apply_chat_template.
 */
#ifndef WEFT_TOKENIZER_COMMON_CHAT_H
#define WEFT_TOKENIZER_COMMON_CHAT_H

#include "jinja.h"
#include <weft/tokenizer.h>

/* A template of the files. Exactly one of `compiled` and `why` is set. */
typedef struct chat_template {
    const char *name;         /* of the list that was given to chat_open */
    jinja_template *compiled; /* NULL: it cannot be used */
    char *why;                /* the error of its compilation */
} chat_template;

typedef struct chat_templates {
    const weft_host *host;
    json_t *list;       /* of chat_find; NULL: the files have no template */
    chat_template *own; /* [n_own], in the order of `list` */
    size_t n_own;
    jinja_template **named; /* those of chat_named */
    json_t *tokens;         /* special tokens by variable: {"bos_token": "<s>", ...}; NULL: there are none */
    json_t *files;          /* names of the files in additional_chat_templates, relative to the directory */
} chat_templates;

/* list: of chat_find, whose reference passes to `self`; NULL: none. A template that cannot be compiled is no failure
 * here; its use is. */
weft_status chat_open(chat_templates *self, const weft_host *host, json_t *list, weft_error *err);
void chat_close(chat_templates *self);

/* The templates of a directory, as transformers finds them: those of chat_template.jinja and
 * additional_chat_templates, or, without such files, those of tokenizer_config.json. *list becomes an array of
 * {"name", "from", "template"}, *files the names of the additional files; each stays NULL if there are none. The caller
 * releases both. config may be NULL. */
weft_status chat_find(json_t **list, json_t **files, const weft_host *host, const char *directory, const json_t *config,
                      weft_error *err);

/* The special tokens that templates get by name, from tokenizer_config.json and special_tokens_map.json: all keys that
 * end in _token, and the entries of extra_special_tokens. Either may be NULL. A new reference; NULL: no memory. */
json_t *chat_special_tokens(const json_t *config, const json_t *map);

weft_status chat_check(const chat_templates *self, const char *named, weft_error *err);
const char *chat_named(uint32_t i);           /* name; NULL ends the list */
void chat_named_list(char *out, size_t size); /* "alpaca, llama2, ..." */
const char *chat_named_source(uint32_t i);    /* its template */

/* A rendered conversation. */
typedef struct chat_text {
    jinja_render *render;
    jinja_output text;
    int32_t *answers; /* per byte: the number of its answer, or -1; NULL: chat_render was called without answers */
    bool blocks;      /* the template has {% generation %} blocks, which are the answers */
} chat_text;

weft_status chat_render(chat_text *out, const chat_templates *self, const weft_chat *chat, bool with_answers,
                        weft_error *err);
void chat_text_free(chat_text *text, const weft_host *host);

/* For the parts of chat_render: a conversation with its template. */
typedef struct chat_work {
    const chat_templates *self;
    const weft_chat *chat;
    const jinja_template *template;
    json_t *messages;  /* an array of objects */
    json_t *variables; /* an object */
} chat_work;

/* Origin of the bytes that message i holds, its role excepted. */
#define CHAT_ORIGIN(i) ((uint32_t)(i) + 2u)

/* Renders `messages`, some of the conversation's. prompt: the value of add_generation_prompt; NULL: the caller's. The
 * text lives until jinja_end(*r), which the caller owes after a failure, too. */
weft_status chat_run(jinja_render **r, jinja_output *text, const chat_work *work, json_t *messages, const bool *prompt,
                     weft_error *err);
/* Fills out->answers for a template without blocks. */
weft_status chat_answers(chat_text *out, const chat_work *work, weft_error *err);
/* WEFT_CHAT_COMPLETE: fails if a part of the conversation leaves no trace in its text. */
weft_status chat_check_use(const chat_text *text, const chat_work *work, weft_error *err);

#endif
