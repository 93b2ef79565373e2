/* host/tools/check/tokenizer_trial.h: test bench for tokenizers: an instance, random texts, sinks, rules. */
#ifndef WEFT_HOST_TOOLS_CHECK_TOKENIZER_TRIAL_H
#define WEFT_HOST_TOOLS_CHECK_TOKENIZER_TRIAL_H

#include "tools/check/rule.h"

#include <weft/tokenizer.h>

/* Checks that longer structs with zero padding render to the same text and ids. Longer structs with unknown non-zero
 * fields, and structs shorter than in SDK 1.0, must be rejected with a message. A tokenizer without the extension or
 * without a template passes. [main] */
weft_status weft_conversations_later(const weft_tokenizer_plugin *table, const weft_tokenizer *made, weft_error *err);

enum { WEFT_TRIAL_TEXTS = 64, WEFT_TRIAL_TEXT = 3000, WEFT_TRIAL_IDS = 8 * WEFT_TRIAL_TEXT };

typedef struct weft_tokenizer_instance {
    const weft_tokenizer_plugin *table;
    weft_tokenizer *made;
    weft_tokenizer_info info;
    bool refused; /* its `create` failed */
} weft_tokenizer_instance;

/* Close it also after a failure. */
weft_status weft_tokenizer_open(weft_tokenizer_instance *self, const weft_plugin_under_test *tested, weft_error *err);
weft_status weft_tokenizer_open_in(weft_tokenizer_instance *self, const weft_plugin_under_test *tested, uint8_t poison,
                                   weft_error *err);
void weft_tokenizer_close(weft_tokenizer_instance *self);
/* Returns an optional table; NULL: it has none of that id. */
const void *weft_tokenizer_table(const weft_tokenizer_instance *self, const char *id);

/* weft_text_drawn returns a random number of a text. weft_text_draw writes the text of at most WEFT_TRIAL_TEXT bytes:
 * words, other scripts, invalid UTF-8 and zero bytes. Text 0 is empty. */
uint32_t weft_text_drawn(uint32_t text, uint32_t at);
size_t weft_text_draw(char *out, uint32_t text);

/* Sinks. */
typedef struct weft_trial_ids {
    int32_t id[WEFT_TRIAL_IDS];
    size_t n, most; /* most: the sink fails once after this number */
} weft_trial_ids;

typedef struct weft_trial_text {
    char bytes[WEFT_TRIAL_IDS * 4];
    size_t n, most; /* most: the sink fails once after this number */
} weft_trial_text;

bool weft_trial_same_ids(const weft_trial_ids *a, const weft_trial_ids *b);
bool weft_trial_same_text(const weft_trial_text *a, const weft_trial_text *b);

weft_status weft_trial_put_ids(void *context, const int32_t *id, size_t n);
weft_status weft_trial_put_text(void *context, const char *bytes, size_t n);

weft_status weft_tokenizer_encode(const weft_tokenizer_instance *self, weft_trial_ids *out, const char *from, size_t n,
                                  uint32_t flags, weft_error *err);
weft_status weft_tokenizer_decode(const weft_tokenizer_instance *self, weft_trial_text *out, const int32_t *id,
                                  size_t n, uint32_t flags, weft_error *err);

/* Buffers of one trial. */
typedef struct weft_tokenizer_desk {
    weft_tokenizer_instance self;
    char from[WEFT_TRIAL_TEXT];
    size_t n; /* bytes in `from` */
    weft_trial_ids one, two;
    weft_trial_text back, again;
} weft_tokenizer_desk;

typedef weft_status (*weft_on_text)(weft_tokenizer_desk *d, weft_error *err);

/* Runs a test for each text, with one instance for all of them. */
weft_status weft_tokenizer_each_text(const weft_plugin_under_test *tested, weft_on_text holds, weft_error *err);

/* The rule of tokenizer_tables.c. */
weft_status weft_tokenizer_serves_by_tables(weft_plugin_under_test *tested, weft_error *err);

#endif
