/* host/tools/check/other_key.h: checks that an instance depends only on its own keys: not on other instances in the
 * process, nor on the rank that the environment names. */
#ifndef WEFT_HOST_TOOLS_CHECK_OTHER_KEY_H
#define WEFT_HOST_TOOLS_CHECK_OTHER_KEY_H

#include "graph/graph.h"
#include "tools/check/rule.h"

typedef struct weft_answer {
    uint64_t fingerprint; /* hash of all answers */
} weft_answer;

void weft_answer_begin(weft_answer *out);
void weft_answer_add(weft_answer *to, const void *bytes, size_t n);
void weft_answer_add_text(weft_answer *to, const char *text); /* NULL: "" */
#define WEFT_ANSWER_ADD(to, what) weft_answer_add(to, &(what), sizeof(what))

/* Operations on an instance, for weft_other_keys. */
typedef struct weft_answers {
    size_t size; /* size of an instance; `close` accepts a zeroed one */
    weft_status (*open)(void *instance, const weft_plugin_under_test *tested, weft_error *err);
    void (*close)(void *instance);
    weft_status (*ask)(weft_answer *to, void *instance, weft_error *err);
} weft_answers;

/* Instance of a plugin that has only keys: a policy or a strategy. */
typedef struct weft_keyed {
    const weft_plugin_under_test *tested;
    bool backwards; /* numbered queries run from the last to the first */
} weft_keyed;

/* Returns the i-th of n numbers in query order. */
uint32_t weft_keyed_at(const weft_keyed *self, uint32_t i, uint32_t n);
/* Adds the answer to one number as a sum, which does not depend on the order. */
void weft_keyed_add(weft_answer *to, uint32_t number, const weft_answer *one);

weft_status weft_keyed_open(void *instance, const weft_plugin_under_test *tested, weft_error *err);
void weft_keyed_close(void *instance);

/* Checks independence for each key that is a number, a boolean or an enum. An instance with another value runs in one
 * process with an instance of the unmodified keys, created before or after it. It must answer as in a process of its
 * own. Rejected values are skipped.
 *
 * Also checks that answers do not depend on rank variables of launchers. Plugins with only keys (weft_keyed_open) must
 * answer identically in both query orders.
 *
 * Each trial is a child process, so no instance may exist in this one before. plugin under test->idle gets the keys
 * that change no answer with any value. [main] */
weft_status weft_other_keys(weft_plugin_under_test *tested, const weft_answers *answers, weft_error *err);

/* ---- operators that a model records in its segments, per mode, as an answer ---- */

typedef struct weft_recorded {
    weft_graph **graphs; /* [n]: each segment in each mode; NULL: unsupported */
    int32_t n;
} weft_recorded;

/* Calls `forward` for each of them. `declared` must outlive it. Free it also after a failure. [main] */
weft_status weft_recorded_make(weft_recorded *out, const weft_declared *declared, weft_error *err);
void weft_recorded_free(weft_recorded *recorded);

/* Adds all operators with their inputs, weights and arguments. */
void weft_recorded_add(weft_answer *to, const weft_recorded *recorded);

/* True if two recordings of one model compute the same: weft_recorded_add adds the same. */
bool weft_recorded_same(const weft_recorded *a, const weft_recorded *b);

#endif
