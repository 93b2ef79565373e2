/* host/tools/check/plugin_under_test.h: a plugin that is looked at: loaded, its keys filled, and a host that watches
 * what it does with memory. */
#ifndef WEFT_HOST_TOOLS_CHECK_PLUGIN_UNDER_TEST_H
#define WEFT_HOST_TOOLS_CHECK_PLUGIN_UNDER_TEST_H

#include "config/config.h"
#include "plugin/crash.h"
#include "plugin/plugin.h"

/* What is looked at, and how. */
typedef struct weft_plugin_under_test_options {
    const char *file;             /* absolute */
    const char *kind, *id;        /* of the file's plugins */
    const char *const *overrides; /* "section.key=value", for keys without a default */
    size_t n_overrides;
    bool is_given;         /* the user gave one of them */
    const char *directory; /* of a model or a tokenizer; NULL: what the templates bring */
    double seconds;        /* that a rule may take */
} weft_plugin_under_test_options;

typedef struct weft_plugin_under_test {
    const weft_plugin_under_test_options *options;
    const weft_loaded *loaded;
    weft_config *parsed;
    void *config;   /* filled; what its texts point to belongs to `parsed` */
    bool refused;   /* opening it has failed for what the user gave */
    bool is_moot;   /* the rule has found that it does not apply */
    char idle[320]; /* keys whose other values change no answer: "blocks, depth"; "": none is known */
    char note[640]; /* what a reader has to know of a rule that holds: what it was not tried on; "": nothing */
} weft_plugin_under_test;

/* Loads the file and fills the keys. WEFT_E_UNSUPPORTED: a key without a default is not given. `refused` is set where
 * the user gave an unknown key or a value that one does not take. To be closed, also after a failure. [main] */
weft_status weft_plugin_under_test_open(weft_plugin_under_test *self, const weft_plugin_under_test_options *options,
                                        weft_error *err);
void weft_plugin_under_test_close(weft_plugin_under_test *self);

/* A plugin of this project's own, as it is found, with its keys at their defaults: for what is compared or needed
 * beside the one that is looked at. WEFT_E_UNSUPPORTED: it is not there. To be closed, also after a failure. [main] */
weft_status weft_plugin_under_test_open_own(weft_plugin_under_test *self, const char *kind, const char *id,
                                            weft_error *err);

/* A key of the plugin, and where its value lies in `config`; NULL: it has none of that name and type. */
const weft_key *weft_plugin_under_test_key(const weft_plugin_under_test *self, const char *name, int32_t type);
void *weft_plugin_under_test_value(const weft_plugin_under_test *self, const weft_key *key);

/* The same plugin with one key set to another value. */
typedef struct weft_plugin_under_test_other {
    weft_plugin_under_test tested;
    weft_plugin_under_test_options options;
    const char **overrides;
    char text[160];
} weft_plugin_under_test_other;

/* WEFT_E_USER: its keys do not take that. _word: the value as a file has it. To be closed, also after a failure.
 * [main] */
weft_status weft_plugin_under_test_open_other(weft_plugin_under_test_other *out, const weft_plugin_under_test *from,
                                              const char *key, double value, weft_error *err);
weft_status weft_plugin_under_test_open_word(weft_plugin_under_test_other *out, const weft_plugin_under_test *from,
                                             const char *key, const char *value, weft_error *err);
void weft_plugin_under_test_close_other(weft_plugin_under_test_other *out);

#define weft_plugin_under_test_table(self, kind) weft_loaded_table((self)->loaded, kind)

/* A host whose memory is full of a byte when it is given, and which runs parallel_for upwards (0xa5) or downwards
 * (0x5a): answers may not depend on either. One of two tables. */
const weft_host *weft_plugin_under_test_host(uint8_t poison);
/* The first of them with a page behind each piece of memory that nobody may touch: whoever writes or reads past its end
 * crashes in that call, and not where another one misses what lay there. For what takes few pieces. */
const weft_host *weft_plugin_under_test_guarded_host(void);
/* Pieces of memory that plugins hold now from these hosts. */
int64_t weft_plugin_under_test_pieces(void);

/* A `create` that has failed with `status` leaves its output as it was and gives back what it took: else WEFT_E_PLUGIN
 * with a sentence. what: what it has refused. WEFT_OK where it has not failed. [main] */
weft_status weft_plugin_under_test_refused(weft_status status, const void *made, const char *what, weft_error *err);

/* What `once` takes it gives back: pieces of memory of these hosts, descriptors, and what the C library's heap holds,
 * which a plugin's own malloc takes from. It is done several times: what is made once for the process may stay.
 * [main] */
weft_status weft_plugin_under_test_gives_back(weft_plugin_under_test *tested,
                                              weft_status (*once)(weft_plugin_under_test *tested, weft_error *err),
                                              weft_error *err);

/* What the plugin is asked now, as "text 3 of 17 bytes": for a crash or a hang of the process. It is kept where the
 * process that waits for this one sees it. [main] */
void weft_plugin_under_test_asks(const char *format, ...) WEFT_PRINTF(1, 2);
const char *weft_plugin_under_test_asked(void);

/* The slot that the process which tries a rule was in last: shared in the same way. NULL: nothing is kept. [main] */
weft_crumb *weft_plugin_under_test_call(void);

enum { WEFT_POISON_ONE = 0xa5, WEFT_POISON_TWO = 0x5a };

#endif
