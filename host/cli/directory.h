/* host/cli/directory.h: a directory where an INI file could stand: a model's, a run's, which stands for its model,
 * or an adapter's, which stands for itself on its base. */
#ifndef WEFT_HOST_CLI_DIRECTORY_H
#define WEFT_HOST_CLI_DIRECTORY_H

#include <stdbool.h>
#include <weft/base.h>

enum { WEFT_DIRECTORY_SAYS = 6 };

/* What a directory says of the run that a command then opens. */
typedef struct weft_directory {
    char *ini;                       /* the run's own; NULL: a model has none, and the command line says all */
    char *says[WEFT_DIRECTORY_SAYS]; /* as overrides before those of the user, which count more */
    size_t n;
} weft_directory;

bool weft_is_directory(const char *path);

/* has_length: the user says how long a run is to be; else a model is planned for one epoch. WEFT_E_USER: the
 * directory of none of them. out is to be cleared, also after a failure. */
weft_status weft_directory_read(weft_directory *out, const char *path, bool has_length, weft_error *err);

/* path, which is to be an INI file for the command, or also a directory that weft_directory_read takes: what it is
 * instead, and what is meant. */
weft_status weft_directory_judge(const char *path, const char *command, bool takes_directory, weft_error *err);

void weft_directory_clear(weft_directory *self);

#endif
