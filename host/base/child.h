/* host/base/child.h: something done in a process of its own, so that one that crashes, hangs or ends the process
 * becomes an answer like any other. */
#ifndef WEFT_HOST_BASE_CHILD_H
#define WEFT_HOST_BASE_CHILD_H

#include <stdbool.h>
#include <weft/base.h>

typedef struct weft_child {
    char *text; /* what the child wrote to its end of the pipe, with a zero behind it; the caller's to free */
    size_t n;
    bool in_time; /* it ended by itself */
    int status;   /* as waitpid gives it */
} weft_child;

/* Runs body(end, context) in a child that then ends with status 0; its standard streams lead nowhere, a crash is the
 * system's to tell, and no core is written. most: bytes of its answer. seconds: how long it may take. [main] */
weft_status weft_child_run(weft_child *out, void (*body)(int end, void *context), void *context, size_t most,
                           double seconds, weft_error *err);

#endif
