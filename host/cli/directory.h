/* host/cli/directory.h: a directory in the position of an INI file: of a run or an adapter, which stand for the trained
 * result, or of a model. */
#ifndef WEFT_HOST_CLI_DIRECTORY_H
#define WEFT_HOST_CLI_DIRECTORY_H

#include <stdbool.h>
#include <weft/base.h>

/* Reads the settings for continuing an adapter from its directory or its run's directory: its base,
 * the base's storage format, and added tokens. */

/* Strings are owned; NULL: unset. */
typedef struct weft_learned {
    char *adapter, *base; /* its directory and its base's, absolute */
    char *stored;         /* [model] base of its run, if it is not auto */
    char *tokens, *pad;   /* [tokenizer] add and pad_token of its run */
} weft_learned;

/* Reads the directory. found: false if the path is neither. A missing base is an error. Call weft_learned_clear in any
 * case. */
weft_status weft_learned_read(weft_learned *out, bool *found, const char *path, weft_error *err);
void weft_learned_clear(weft_learned *self);

enum { WEFT_DIRECTORY_OVERRIDES = 6 };

/* Settings from a directory for the run that a command then opens. */
typedef struct weft_directory {
    char *ini;                                 /* the run's own; NULL: a model has no INI file, and the overrides are
                                      * complete */
    char *overrides[WEFT_DIRECTORY_OVERRIDES]; /* overrides that precede those of the user, which win */
    size_t n;
} weft_directory;

bool weft_is_directory(const char *path);

/* Reads a directory. has_length: the user sets the length of a run; otherwise a model is planned for one epoch.
 * WEFT_E_USER: not a directory of these kinds. Clear out also after a failure. */
weft_status weft_directory_read(weft_directory *out, const char *path, bool has_length, weft_error *err);

/* Checks path, an argument that should be an INI file for the command, or a directory that weft_directory_read accepts.
 * The error names its actual kind and the likely intention. */
weft_status weft_directory_check(const char *path, const char *command, bool takes_directory, weft_error *err);

void weft_directory_clear(weft_directory *self);

#endif
