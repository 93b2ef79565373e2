/* host/program/run.h: one configuration, its settings, and its loaded and configured plugins.
 *
 * Configuration ends here: later stages receive structs and tables. Every plugin section in the file is validated,
 * even if the command does not need it, so that an error is reported at once. A missing section is filled with
 * defaults only if the command needs that kind. */
#ifndef WEFT_HOST_PROGRAM_RUN_H
#define WEFT_HOST_PROGRAM_RUN_H

#include "config/settings.h"
#include "model/declare.h"
#include "plugin/plugin.h"
#include <weft/tokenizer.h>

typedef enum weft_part_kind {
    WEFT_PART_MODEL = 0,
    WEFT_PART_POLICY = 1,
    WEFT_PART_STRATEGY = 2,
    WEFT_PART_OPTIMIZER = 3,
    WEFT_PART_DATA = 4,
    WEFT_PART_TOKENIZER = 5,
    WEFT_PART_DEVICE = 6,
    WEFT_PART_COMM = 7,
    WEFT_PART_ADAPTER = 8, /* present only if configured; further adapters follow it */
    WEFT_N_PARTS = WEFT_PART_ADAPTER + WEFT_MOST_ADAPTERS
} weft_part_kind;

/* Masks of parts that a command needs. */
#define WEFT_NEEDS(part) (1u << (part))
#define WEFT_NEEDS_ALL   0xFFu /* excludes adapters */
/* Parts of the configuration were replaced after validation: version pins of removed parts do not apply. */
#define WEFT_NEEDS_NO_PINNED 0x10000u
/* Parts that `weft generate` needs. */
#define WEFT_NEEDS_TEXT                                                                                                \
    (WEFT_NEEDS(WEFT_PART_MODEL) | WEFT_NEEDS(WEFT_PART_POLICY) | WEFT_NEEDS(WEFT_PART_STRATEGY) |                     \
     WEFT_NEEDS(WEFT_PART_TOKENIZER) | WEFT_NEEDS(WEFT_PART_DEVICE))

/* A loaded plugin and the struct filled from its keys. */
typedef struct weft_part {
    const weft_loaded *loaded; /* NULL: not needed and not in the file */
    void *config;
    char section[100]; /* section of its keys if it differs from the kind's; each of several adapters has its own */
} weft_part;

/* The requested adapters, by id or file, in the order in which they are added to the model. */
typedef struct weft_adapter_names {
    char *text;                            /* storage of the names; NULL: not read yet */
    const char *names[WEFT_MOST_ADAPTERS]; /* path of an adapter given as a file */
    int32_t n;
} weft_adapter_names;

typedef struct weft_run {
    const weft_host *host;
    weft_config *config;
    weft_settings settings;
    weft_plugins *plugins;
    weft_part parts[WEFT_N_PARTS];
    weft_plugin_description **unselected; /* plugins of unselected sections (program/sections.h) */
    size_t n_unselected;
    weft_vocabulary vocabulary; /* with added tokens (program/tokens.c); rows 0: as in the model's files */
    struct weft_plugin_lookup *plugin_lookup; /* owns this host (program/open_run.c) */
    char *adapter;                            /* inferred adapter plugins (program/family.c) */
    weft_adapter_names adapters;              /* requested adapters (program/sections.h) */
    char *trained;                            /* value of [train] trainable = auto if this run sets its own; or NULL */
    bool is_watched;                          /* slow calls are reported (launch/watchdog.h) until the run is closed */
    char *family;                             /* inferred model plugin (program/family.c); NULL: it must be named */
} weft_run;

/* ---- capabilities: host keys that need support from the selected plugin, as [strategy] reduce ----
 *
 * The host declares them (config/settings.h). A plugin declares support by flags of its kind's table (weft/strategy.h,
 * weft/optimizer.h). A key without support stays at its default. The plugin's own section may also set these keys, so
 * that one changed line in a file selects another plugin. */

/* Returns the i-th such key of the part's section and its support flag; NULL past the end. */
const weft_key *weft_capability_at(int32_t part, size_t i, uint32_t *flag);
/* Returns the flags of a loaded plugin's table. */
uint32_t weft_capabilities_of(const weft_loaded *loaded);

const char *weft_part_name(int32_t part);     /* "model" */
int32_t weft_part_of(const char *kind);       /* "model" -> WEFT_PART_MODEL; -1: no such kind */
const char *weft_part_fallback(int32_t part); /* default plugin; NULL: it must be named */

/* Returns the section of the part's keys: "model", or "adapter.lora" for one of several adapters. */
const char *weft_run_section(const weft_run *run, int32_t part);

/* Calls visit for each path in the keys of a part's plugin, including lists, in the order of the key table. A value
 * that is no absolute path is skipped. Without a loaded plugin there are no calls. [main] */
typedef weft_status weft_path_visit(void *context, const char *key, const char *path, weft_error *err);
weft_status weft_part_each_path(const weft_part *part, weft_path_visit *visit, void *context, weft_error *err);

/* Returns the id of the part's plugin; NULL: it is not loaded. */
const char *weft_run_id(const weft_run *run, int32_t part);

/* Returns the kind's table of a loaded part: weft_run_table(run, WEFT_PART_DATA, data). */
#define weft_run_table(run, part, kind) weft_loaded_table((run)->parts[part].loaded, kind)

/* Opens only the communicator of the launcher's ranks, so that a rank that fails to open the rest still has it. path
 * NULL: the default path. Fails in a process that is not a rank. */
weft_status weft_run_open_comm(weft_run **out, const char *path, const char *const *overrides, size_t n_overrides,
                               weft_error *err);

/* path: the INI file. needs: mask of WEFT_NEEDS. */
weft_status weft_run_open(weft_run **out, const char *path, const char *const *overrides, size_t n_overrides,
                          uint32_t needs, weft_error *err);
void weft_run_close(weft_run *run); /* NULL is fine */

/* Returns status. If the part's plugin failed and its message begins with one of its keys, prepends the location of
 * that key. Used after each `create`. */
weft_status weft_run_located(const weft_run *run, int32_t part, weft_status status, weft_error *err);

/* Checks that `path` of the section is an existing directory or empty. Called before files in it are reported
 * missing. */
weft_status weft_run_check_directory(const weft_run *run, const char *section, const char *path, weft_error *err);

/* The configured tokenizer and the tokens that it adds to documents and prompts. */
typedef struct weft_text {
    const weft_tokenizer_plugin *plugin;
    weft_tokenizer *tokenizer;
    weft_tokenizer_info info;
    const char *directory;
    const weft_tokenizer_add *added; /* tokenizer with added tokens, whose files are saved with them; NULL: unchanged */
    int32_t own_ids;                 /* highest id + 1 before tokens were added, if any were requested */
    uint32_t document_flags;         /* WEFT_ENCODE_BOS, WEFT_ENCODE_EOS */
    uint32_t prompt_flags;           /* WEFT_ENCODE_BOS */
    const char *chat_source;         /* of the chat template named in the data, for the saved model; NULL: not named */
    const char *chat_named;          /* name of that template */
    int32_t chats;                   /* 1: the data contain conversations formatted by a chat template */
    char *end_token;                 /* owned; end token of a saved model ([tokenizer] end); NULL: as in its files */
    int32_t end;                     /* its id */
} weft_text;

weft_status weft_text_open(weft_text *out, const weft_run *run, weft_error *err);
void weft_text_close(weft_text *text);
/* Returns a table of the tokenizer by its id; NULL: it is missing. */
const void *weft_text_extension(const weft_text *text, const char *id);

#endif
