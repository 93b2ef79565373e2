/* host/plugin/load.h: one plugin file becomes code in this process, or a sentence.
 *
 * The file is opened once. From that descriptor its bytes are read, hashed, and judged (preflight); then the dynamic
 * loader maps it by its canonical path, and what it mapped must be the same file. Files stay loaded and their
 * descriptors open until the process ends. A file that was refused after its code ran is refused again with the same
 * words: a second load would run nothing and look clean.
 */
#ifndef WEFT_HOST_PLUGIN_LOAD_H
#define WEFT_HOST_PLUGIN_LOAD_H

#include "plugin/pins.h"
#include "plugin/plugin.h"

typedef struct weft_plugin_file {
    const char *path; /* canonical and absolute */
    const char *name; /* the part after the last slash */
    char sha256[65];
    weft_preflight note;
    weft_loaded plugins[WEFT_FILE_PLUGINS]; /* note.n_plugins of them */
} weft_plugin_file;

/* path: any path to the file. trust: NULL trusts all; a file that is not trusted is WEFT_E_USER. On success *out lives
 * as long as the process. Errors begin with the file's name. [main] */
weft_status weft_plugin_file_load(const weft_plugin_file **out, const char *path, const weft_trust *trust,
                                  weft_error *err);

/* What the file's note says, if this host could take it; none of its code runs. trust and errors as above. [main] */
weft_status weft_plugin_file_note(weft_preflight *out, const char *path, const weft_trust *trust, weft_error *err);

/* The plugin of the file that is meant: by kind and id, or, where id is NULL, the only one of its kind. [main] */
weft_status weft_plugin_file_choose(const weft_loaded **out, const weft_plugin_file *file, const char *kind,
                                    const char *id, weft_error *err);

#endif
