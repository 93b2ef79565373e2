/* host/base/child.h: runs a function in a child process, so that a crash, a hang or an exit becomes an ordinary result.
 */
#ifndef WEFT_HOST_BASE_CHILD_H
#define WEFT_HOST_BASE_CHILD_H

#include <stdbool.h>
#include <weft/base.h>

typedef struct weft_child {
    char *text; /* bytes that the child wrote to its pipe, terminated by a zero; the caller frees it */
    size_t n;
    bool in_time; /* the child ended by itself, before the timeout */
    int status;   /* in the format of waitpid */
} weft_child;

/* Runs body(end, context) in a child that then exits with status 0. The child's standard streams are /dev/null, the
 * default crash handlers apply, and no core is written. most: maximum bytes of its output. seconds: timeout. [main] */
weft_status weft_child_run(weft_child *out, void (*body)(int end, void *context), void *context, size_t most,
                           double seconds, weft_error *err);

#endif
