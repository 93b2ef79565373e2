/* chat.h: conversations as text, for a tokenizer of any sort: the template of its files, the named ones, and which
 * bytes of a rendered text are answers. */
#ifndef WEFT_TOKENIZER_COMMON_CHAT_H
#define WEFT_TOKENIZER_COMMON_CHAT_H

#include "jinja.h"
#include <weft/tokenizer.h>

/* A special token that templates may write, by variable: bos_token and so on; text NULL: there is none. */
typedef struct chat_token {
    const char *variable;
    const char *text;
    size_t n;
} chat_token;

enum { CHAT_N_TOKENS = 4 };

typedef struct chat_templates {
    const weft_host *host;
    jinja_template *own;
    char *why; /* there is no own one; NULL: the files have none */
    jinja_template **named;
    chat_token tokens[CHAT_N_TOKENS]; /* the tokenizer's memory */
} chat_templates;

/* source NULL: the files have no template. One that cannot be read is no failure here: who asks for it is told. */
weft_status chat_open(chat_templates *self, const weft_host *host, const char *name, const char *source, size_t n,
                      weft_error *err);
void chat_close(chat_templates *self);

/* The template in tokenizer_config.json or chat_template.jinja of a directory. config may be NULL. The caller releases
 * *source; it stays NULL where there is none. */
weft_status chat_find(char **source, size_t *n, char *name, size_t size, const weft_host *host, const char *directory,
                      const json_t *config, weft_error *err);

weft_status chat_check(const chat_templates *self, const char *named, weft_error *err);
const char *chat_named(uint32_t i);        /* name; NULL ends the list */
const char *chat_named_source(uint32_t i); /* its template */

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
    json_t *messages; /* an array of objects */
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
weft_status chat_check_use(const jinja_output *text, const chat_work *work, weft_error *err);

#endif
