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
    int32_t *answers; /* per byte: the number of its answer, or -1 */
    bool blocks;      /* the template has said itself what the answers are */
} chat_text;

weft_status chat_render(chat_text *out, const chat_templates *self, const weft_chat *chat, weft_error *err);
void chat_text_free(chat_text *text, const weft_host *host);

#endif
