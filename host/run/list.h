/* host/run/list.h: which checkpoints a directory holds. */
#ifndef WEFT_HOST_RUN_LIST_H
#define WEFT_HOST_RUN_LIST_H

#include <weft/base.h>

typedef struct weft_step_list {
    uint64_t *steps; /* of directories called step-N, newest first; the caller frees them */
    size_t n;
} weft_step_list;

/* A directory that does not exist holds none. Checkpoints that a crash left under the name .step-N.old are put back
 * first. */
weft_status weft_step_list_read(weft_step_list *out, const char *directory, weft_error *err);

/* "directory/step-N"; path: WEFT_PATH_BYTES. */
weft_status weft_step_path(char *path, const char *directory, uint64_t step, weft_error *err);

#endif
