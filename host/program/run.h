/* host/program/run.h: one configuration, its settings, and the plugins that it names, loaded and configured.
 *
 * This is where configuration ends: the stages below receive structs and tables. Every plugin section that is in the
 * file is judged, whatever the command needs, so that a mistake shows at once; a section that is not there is filled
 * with defaults only where the command needs that kind. */
#ifndef WEFT_HOST_PROGRAM_RUN_H
#define WEFT_HOST_PROGRAM_RUN_H

#include "config/settings.h"
#include "model/declare.h"
#include "plugin/described.h"
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
    WEFT_PART_ADAPTER = 8, /* none, unless the configuration names one; further ones that it lists stand behind it */
    WEFT_N_PARTS = WEFT_PART_ADAPTER + WEFT_MOST_ADAPTERS
} weft_part_kind;

/* Masks of parts that a command needs. */
#define WEFT_NEEDS(part) (1u << (part))
#define WEFT_NEEDS_ALL   0xFFu /* of which an adapter is none */
/* Parts of the configuration were exchanged, and it was judged as it is written: pins of what is gone hold nothing. */
#define WEFT_NEEDS_NO_PINNED 0x10000u
/* What `weft generate` needs. */
#define WEFT_NEEDS_TEXT                                                                                                \
    (WEFT_NEEDS(WEFT_PART_MODEL) | WEFT_NEEDS(WEFT_PART_POLICY) | WEFT_NEEDS(WEFT_PART_STRATEGY) |                     \
     WEFT_NEEDS(WEFT_PART_TOKENIZER) | WEFT_NEEDS(WEFT_PART_DEVICE))

/* A loaded plugin and the struct that its keys filled. */
typedef struct weft_part {
    const weft_loaded *loaded; /* NULL: neither needed nor in the file */
    void *config;
    char section[100]; /* where its keys stand, if that is not the section of its kind: of several adapters each has one
                          of its own */
} weft_part;

/* The adapters that are asked for, by id or file, in the order in which they join the model. */
typedef struct weft_adapter_names {
    char *text;                            /* what the names lie in; NULL: nobody has asked yet */
    const char *names[WEFT_MOST_ADAPTERS]; /* of one that is a file: its path */
    int32_t n;
} weft_adapter_names;

typedef struct weft_run {
    const weft_host *host;
    weft_config *config;
    weft_settings settings;
    weft_plugins *plugins;
    weft_part parts[WEFT_N_PARTS];
    weft_described **kin; /* plugins of idle sections (program/kin.h) */
    size_t n_kin;
    weft_vocabulary vocabulary;  /* with tokens that are added (program/tokens.h); rows 0: as the model's files say */
    struct weft_lender *lender;  /* whose host this is (program/lend.h) */
    char *adapter;               /* the adapter plugins that nobody has to name (program/family.h) */
    weft_adapter_names adapters; /* those that are asked for (program/adapters.h) */
    char *trained;               /* what [train] trainable = auto stands for, where it is of this run's own; or NULL */
    bool is_watched;             /* calls that last are reported (launch/lasting.h), until it is closed */
    char *family; /* the model plugin that nobody has to name (program/family.h); NULL: it must be named */
} weft_run;

const char *weft_part_name(int32_t part);     /* "model" */
int32_t weft_part_of(const char *kind);       /* "model" -> WEFT_PART_MODEL; the kind must be one */
const char *weft_part_fallback(int32_t part); /* the plugin that nobody has to name; NULL: it must be named */

/* The section that its keys are in: "model", and of one of several adapters "adapter.lora". */
const char *weft_run_section(const weft_run *run, int32_t part);

/* Id of the part's plugin; NULL: it is not loaded. */
const char *weft_run_id(const weft_run *run, int32_t part);

/* The kind's table of a loaded part: weft_run_table(run, WEFT_PART_DATA, data). */
#define weft_run_table(run, part, kind) weft_loaded_table((run)->parts[part].loaded, kind)

/* The communicator that the ranks of a launcher have, and nothing else of the configuration, so that a rank that cannot
 * open the rest has it. path NULL: the default one. Fails in a process that is no rank. */
weft_status weft_run_open_comm(weft_run **out, const char *path, const char *const *overrides, size_t n_overrides,
                               weft_error *err);

/* path: the INI file. needs: mask of WEFT_NEEDS. */
weft_status weft_run_open(weft_run **out, const char *path, const char *const *overrides, size_t n_overrides,
                          uint32_t needs, weft_error *err);
void weft_run_close(weft_run *run); /* NULL is fine */

/* status, and where it is a failure of the part's plugin whose sentence begins with one of its keys, that key's
 * place in front of it: for each `create`. */
weft_status weft_run_located(const weft_run *run, int32_t part, weft_status status, weft_error *err);

/* `path` of the section: a directory that is there, or an empty one. Asked before files are missed in it. */
weft_status weft_run_check_directory(const weft_run *run, const char *section, const char *path, weft_error *err);

/* The tokenizer that the configuration asks for, and what it adds to documents and prompts. */
typedef struct weft_text {
    const weft_tokenizer_plugin *plugin;
    weft_tokenizer *tokenizer;
    weft_tokenizer_info info;
    const char *directory;
    const weft_tokenizer_add
        *added;              /* of a tokenizer that got tokens, whose files are saved with them; NULL: as it was */
    int32_t own_ids;         /* highest id + 1 before it did, where any were asked for */
    uint32_t document_flags; /* WEFT_ENCODE_BOS, WEFT_ENCODE_EOS */
    uint32_t prompt_flags;   /* WEFT_ENCODE_BOS */
    const char *chat_source; /* of the template that the data name, for the saved model; NULL: they name none */
    const struct weft_text_files *files; /* read at the start of a run (run/text_files.h); NULL: not read yet */
    const char *chat_named;              /* its name */
    int32_t chats;                       /* 1: the data have conversations that a chat template wrote */
    char *end_token; /* owned; what ends a saved model's text ([tokenizer] end); NULL: as its files say */
    int32_t end;     /* its id */
} weft_text;

weft_status weft_text_open(weft_text *out, const weft_run *run, weft_error *err);
void weft_text_close(weft_text *text);
/* A table of the tokenizer's by its id; NULL: it has none. */
const void *weft_text_extension(const weft_text *text, const char *id);

#endif
