/* host/plugin/load.h: validates and loads one plugin file.
 *
 * The file is opened once. Its bytes are read, hashed and validated (preflight) from that descriptor. Then the dynamic
 * loader maps it by its canonical path, and the mapped file must be the same file. Files stay loaded and their
 * descriptors open until the process ends. A file that was rejected after its code ran is rejected again with the same
 * message: a second load would run no code and look valid. */
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

/* Loads a file. path: any path to the file. trust: NULL trusts all; an untrusted file is WEFT_E_USER. On success *out
 * lives as long as the process. Errors begin with the file's name. [main] */
weft_status weft_plugin_file_load(const weft_plugin_file **out, const char *path, const weft_trust *trust,
                                  weft_error *err);

/* Reads the file's note if this host could load the file. Runs no code of the file. trust and errors as above. [main]
 */
weft_status weft_plugin_file_note(weft_preflight *out, const char *path, const weft_trust *trust, weft_error *err);

/* Selects a plugin of the file by kind and id, or the only one of its kind if id is NULL. [main] */
weft_status weft_plugin_file_choose(const weft_loaded **out, const weft_plugin_file *file, const char *kind,
                                    const char *id, weft_error *err);

#endif
