/* host/base/join.h: joins directory and file names. */
#ifndef WEFT_HOST_BASE_JOIN_H
#define WEFT_HOST_BASE_JOIN_H

#include <weft/base.h>

enum { WEFT_PATH_BYTES = 4096 };

/* Writes "directory/name"; only the name if directory is "". */
static inline weft_status weft_path_join(char path[WEFT_PATH_BYTES], const char *directory, const char *name,
                                         weft_error *err) {
    const int n = snprintf(path, WEFT_PATH_BYTES, "%s%s%s", directory, directory[0] == '\0' ? "" : "/", name);
    if (n >= 0 && n < WEFT_PATH_BYTES) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "%s/%s: the path is longer than %d bytes", directory, name,
                          WEFT_PATH_BYTES - 1);
}

#endif
