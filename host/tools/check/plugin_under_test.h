/* host/tools/check/plugin_under_test.h: plugin under test, with filled keys, and a host that tracks its memory. */
#ifndef WEFT_HOST_TOOLS_CHECK_PLUGIN_UNDER_TEST_H
#define WEFT_HOST_TOOLS_CHECK_PLUGIN_UNDER_TEST_H

#include "config/config.h"
#include "plugin/crash.h"
#include "plugin/plugin.h"

#include <stdbool.h>
#include <weft/base.h>

/* ---- corrupt files, to test readers ---- */

typedef enum weft_wrong {
    WEFT_WRONG_MISSING = 0,
    WEFT_WRONG_DIRECTORY = 1,
    WEFT_WRONG_EMPTY = 2,
    WEFT_WRONG_JUNK = 3, /* random bytes */
    WEFT_WRONG_CUT = 4,  /* the first two thirds of a valid file, which may still be valid */
    WEFT_N_WRONG = 5
} weft_wrong;

const char *weft_wrong_name(weft_wrong wrong); /* "an empty file" */
/* True if the content is unreadable in every format. */
bool weft_wrong_is_nothing(weft_wrong wrong);

/* Writes the file to `path`, also over a previous corrupt one; right: the valid file that it replaces. [main] */
weft_status weft_wrong_make(const char *path, weft_wrong wrong, const char *right, weft_error *err);

/* The plugin to test, and its options. */
typedef struct weft_plugin_under_test_options {
    const char *file;             /* absolute path */
    const char *kind, *id;        /* plugin within the file */
    const char *const *overrides; /* "section.key=value", for required keys */
    size_t n_overrides;
    bool is_given;         /* the user passed an override */
    const char *directory; /* of a model or a tokenizer; NULL: from the templates */
    double seconds;        /* timeout of a rule */
} weft_plugin_under_test_options;

typedef struct weft_plugin_under_test {
    const weft_plugin_under_test_options *options;
    const weft_loaded *loaded;
    weft_config *parsed;
    void *config;   /* filled; its strings belong to `parsed` */
    bool refused;   /* opening failed because of user input */
    bool is_moot;   /* the rule does not apply */
    char idle[320]; /* keys without effect on any answer: "blocks, depth"; "": unknown */
    char note[640]; /* remarks on a passed rule, such as skipped inputs; "": no remark */
} weft_plugin_under_test;

/* Loads the file and fills the keys. WEFT_E_UNSUPPORTED: a required key is missing. `refused` is set if the user passed
 * an unknown key or an invalid value. Close it also after a failure. [main] */
weft_status weft_plugin_under_test_open(weft_plugin_under_test *self, const weft_plugin_under_test_options *options,
                                        weft_error *err);
void weft_plugin_under_test_close(weft_plugin_under_test *self);

/* Opens one of this project's plugins with default keys. WEFT_E_UNSUPPORTED: not found. Close it in any case. [main] */
weft_status weft_plugin_under_test_open_own(weft_plugin_under_test *self, const char *kind, const char *id,
                                            weft_error *err);

/* Returns key i; NULL: no more. */
const weft_key *weft_plugin_under_test_key_at(const weft_plugin_under_test *self, uint64_t i);
/* Return a key by name and type (NULL: not found), and the address of its value in `config`. */
const weft_key *weft_plugin_under_test_key(const weft_plugin_under_test *self, const char *name, int32_t type);
void *weft_plugin_under_test_value(const weft_plugin_under_test *self, const weft_key *key);

/* The same plugin with one key set to another value. */
typedef struct weft_plugin_under_test_other {
    weft_plugin_under_test tested;
    weft_plugin_under_test_options options;
    const char **overrides;
    char text[160];
} weft_plugin_under_test_other;

/* WEFT_E_USER: the key rejects the value. _word: the value as text. Close it also after a failure. [main] */
weft_status weft_plugin_under_test_open_other(weft_plugin_under_test_other *out, const weft_plugin_under_test *from,
                                              const char *key, double value, weft_error *err);
weft_status weft_plugin_under_test_open_word(weft_plugin_under_test_other *out, const weft_plugin_under_test *from,
                                             const char *key, const char *value, weft_error *err);
void weft_plugin_under_test_close_other(weft_plugin_under_test_other *out);

#define weft_plugin_under_test_table(self, kind) weft_loaded_table((self)->loaded, kind)

/* Returns one of two hosts. They fill allocations with the poison byte, and run parallel_for in increasing (0xa5) or
 * decreasing (0x5a) order. Answers must not depend on either. */
const weft_host *weft_plugin_under_test_host(uint8_t poison);
/* Returns the first host with an inaccessible page after each allocation. An out-of-bounds access crashes in the call
 * that makes it, and not in a later one. For few allocations only. */
const weft_host *weft_plugin_under_test_guarded_host(void);
/* Returns the number of live allocations from these hosts. */
int64_t weft_plugin_under_test_pieces(void);

/* Checks that a `create` that failed with `status` left its output unchanged and freed its memory; else WEFT_E_PLUGIN
 * with a message. what: the rejected input. Returns WEFT_OK if `create` did not fail. [main] */
weft_status weft_plugin_under_test_refused(weft_status status, const void *made, const char *what, weft_error *err);

/* Checks that `once` leaks no allocations of these hosts, no file descriptors and no heap memory (from the plugin's own
 * malloc). Runs it several times, because one-time initialization may keep memory. [main] */
weft_status weft_plugin_under_test_releases(weft_plugin_under_test *tested,
                                            weft_status (*once)(weft_plugin_under_test *tested, weft_error *err),
                                            weft_error *err);

/* Records the current query, "text 3 of 17 bytes", for the parent's report of a crash or a hang. [main] */
void weft_plugin_under_test_asks(const char *format, ...) WEFT_PRINTF(1, 2);
const char *weft_plugin_under_test_asked(void);

/* Returns the last plugin slot called by the child process, in the same shared page. NULL: not recorded. [main] */
weft_crumb *weft_plugin_under_test_call(void);

enum { WEFT_POISON_ONE = 0xa5, WEFT_POISON_TWO = 0x5a };

/* WEFT_MOOT: the rule tests an optional feature that the plugin lacks. WEFT_BROKEN: a violation, with its message. */
#define WEFT_MOOT(tested, err, ...) ((tested)->is_moot = true, weft_error_set(err, WEFT_E_UNSUPPORTED, __VA_ARGS__))
#define WEFT_BROKEN(err, ...)       weft_error_set(err, WEFT_E_PLUGIN, __VA_ARGS__)

#endif
