/* host/command/chat_turns.h: a conversation on standard input and output: each input line is a user message, and the
 * model replies through the chat template. */
#ifndef WEFT_HOST_COMMAND_CHAT_TURNS_H
#define WEFT_HOST_COMMAND_CHAT_TURNS_H

#include "run/generate.h"
#include "program/run.h"

typedef struct weft_chat_options {
    const char *named;  /* a template by name; NULL: the model's own */
    const char *system; /* its first message; NULL: no system message */
    const char *prompt; /* the only user message; NULL: lines of standard input */
} weft_chat_options;

weft_status weft_chat_turns(const weft_run *run, const weft_text *text, const weft_generate_options *options,
                            const weft_chat_options *chat, weft_error *err);

#endif
