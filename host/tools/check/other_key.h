/* host/tools/check/other_key.h: an instance keeps to its own keys, whatever instances with other ones are beside it,
 * and whatever rank the environment says that the process is. */
#ifndef WEFT_HOST_TOOLS_CHECK_OTHER_KEY_H
#define WEFT_HOST_TOOLS_CHECK_OTHER_KEY_H

#include "tools/check/rule.h"

typedef struct weft_answer {
    uint64_t fingerprint; /* of all that was answered */
} weft_answer;

void weft_answer_begin(weft_answer *out);
void weft_answer_add(weft_answer *to, const void *bytes, size_t n);
void weft_answer_add_text(weft_answer *to, const char *text); /* NULL: "" */
#define WEFT_ANSWER_ADD(to, what) weft_answer_add(to, &(what), sizeof(what))

/* What an instance is, for weft_other_keys. */
typedef struct weft_answers {
    size_t size; /* of an instance's room, which `close` may be called with while it is zero */
    weft_status (*open)(void *instance, const weft_plugin_under_test *tested, weft_error *err);
    void (*close)(void *instance);
    weft_status (*ask)(weft_answer *to, void *instance, weft_error *err);
} weft_answers;

/* The instance of a plugin that has none but its keys: a policy, a strategy. */
typedef struct weft_keyed {
    const weft_plugin_under_test *tested;
    bool backwards; /* what is numbered is asked from the last to the first */
} weft_keyed;

/* The i-th of n numbers in the order that it is asked in. */
uint32_t weft_keyed_at(const weft_keyed *self, uint32_t i, uint32_t n);
/* Adds the answer to one number: sums do not depend on the order. */
void weft_keyed_add(weft_answer *to, uint32_t number, const weft_answer *one);

weft_status weft_keyed_open(void *instance, const weft_plugin_under_test *tested, weft_error *err);
void weft_keyed_close(void *instance);

/* For each key of the plugin that is a number, yes or no, or one of several names: an instance with another value of it
 * answers in a process that has an instance with the keys as they are, made before it or after it, as it does in one
 * where it is alone. A value that is refused there says nothing. Before that: an instance answers in a process that
 * launchers would have called another rank as it does here. Each of them is a process of its own, so no instance is to
 * have been made in this one. A plugin that has only its keys (weft_keyed_open) answers alike in both orders, too.
 * plugin under test->idle gets the keys none of whose values changes an answer. [main] */
weft_status weft_other_keys(weft_plugin_under_test *tested, const weft_answers *answers, weft_error *err);

#endif
