/* chat.h: chat templates for any tokenizer: the templates of its files, the built-in ones by name, and the detection of
 * answers in rendered text. A conversation is prepared as in apply_chat_template of `transformers` 5.24. */
#ifndef WEFT_TOKENIZER_COMMON_CHAT_H
#define WEFT_TOKENIZER_COMMON_CHAT_H

#include "../../common/jinja/jinja.h"
#include <weft/tokenizer.h>

/* A template of the files. Exactly one of `compiled` and `why` is set. */
typedef struct chat_template {
    const char *name;         /* owned by the list of chat_open */
    jinja_template *compiled; /* NULL: compilation failed */
    char *why;                /* the compilation error */
} chat_template;

typedef struct chat_templates {
    const weft_host *host;
    json_t *list;       /* from chat_find; NULL: the files have no template */
    chat_template *own; /* [n_own], in the order of `list` */
    size_t n_own;
    jinja_template **named; /* templates of chat_named */
    json_t *tokens;         /* special tokens by variable: {"bos_token": "<s>", ...}; NULL: absent */
    json_t *files;          /* file names in additional_chat_templates, relative to the directory */
} chat_templates;

/* Compiles all templates. list: from chat_find or NULL; `self` takes over the reference. A template that cannot be
 * compiled fails at its first use, not here. */
weft_status chat_open(chat_templates *self, const weft_host *host, json_t *list, weft_error *err);
void chat_close(chat_templates *self);

/* Finds the templates of a directory as transformers does: in chat_template.jinja and additional_chat_templates/, or,
 * without these files, in tokenizer_config.json. *list: array of {"name", "from", "template"}. *files: names of the
 * additional files. Both stay NULL if empty; the caller releases them. config may be NULL. */
weft_status chat_find(json_t **list, json_t **files, const weft_host *host, const char *directory, const json_t *config,
                      weft_error *err);

/* Returns the special tokens that templates read as variables, from tokenizer_config.json and special_tokens_map.json:
 * all keys that end in _token, and the entries of extra_special_tokens. Both arguments may be NULL. Returns a new
 * reference; NULL: no memory. */
json_t *chat_special_tokens(const json_t *config, const json_t *map);

weft_status chat_check(const chat_templates *self, const char *named, weft_error *err);
const char *chat_named(uint32_t i);           /* name; NULL after the last one */
void chat_named_list(char *out, size_t size); /* "alpaca, llama2, ..." */
const char *chat_named_source(uint32_t i);    /* source of the template */

/* A rendered conversation. */
typedef struct chat_text {
    jinja_render *render;
    jinja_output text;
    int32_t *answers; /* per byte: number of its answer, or -1; NULL: rendered without answers */
    bool blocks;      /* the template marks answers by {% generation %} blocks */
} chat_text;

weft_status chat_render(chat_text *out, const chat_templates *self, const weft_chat *chat, bool with_answers,
                        weft_error *err);
void chat_text_free(chat_text *text, const weft_host *host);

/* Work shared by the parts of chat_render: a conversation and its template. */
typedef struct chat_work {
    const chat_templates *self;
    const weft_chat *chat;
    const jinja_template *template;
    json_t *messages;  /* array of objects */
    json_t *variables; /* object */
} chat_work;

/* Origin of the bytes of message i, except its role. */
#define CHAT_ORIGIN(i) ((uint32_t)(i) + 2u)

/* Renders `messages`, a subset of the conversation. prompt: value of add_generation_prompt; NULL: the caller's flag.
 * The text lives until jinja_end(*r), which the caller must call after a failure too. */
weft_status chat_run(jinja_render **r, jinja_output *text, const chat_work *work, json_t *messages, const bool *prompt,
                     weft_error *err);
/* Fills out->answers for a template without blocks. */
weft_status chat_answers(chat_text *out, const chat_work *work, weft_error *err);
/* Implements WEFT_CHAT_COMPLETE: fails if the template ignores a part of the conversation. */
weft_status chat_check_use(const chat_text *text, const chat_work *work, weft_error *err);

#endif
