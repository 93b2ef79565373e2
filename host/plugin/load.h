/* host/plugin/load.h: validates and loads one plugin file.
 *
 * The file is opened once. Its bytes are read, hashed and validated (preflight) from that descriptor. Then the dynamic
 * loader maps it by its canonical path, and the mapped file must be the same file. Files stay loaded and their
 * descriptors open until the process ends. A file that was rejected after its code ran is rejected again with the same
 * message: a second load would run no code and look valid. */
#ifndef WEFT_HOST_PLUGIN_LOAD_H
#define WEFT_HOST_PLUGIN_LOAD_H

#include "plugin/trust.h"
#include "plugin/plugin.h"

/* Loads a file and selects its plugin by kind and id, or the only one of its kind if id is NULL. path: any path to the
 * file. trust: NULL trusts all; an untrusted file is WEFT_E_USER. *out lives as long as the process. Errors begin with
 * the file's name. [main] */
weft_status weft_plugin_load(const weft_loaded **out, const char *path, const weft_trust *trust, const char *kind,
                             const char *id, weft_error *err);

/* Reads the file's note if this host could load the file. Runs no code of the file. trust and errors as above. [main]
 */
weft_status weft_plugin_file_note(weft_preflight *out, const char *path, const weft_trust *trust, weft_error *err);

#endif
