/* host/launch/proc.h: what the system says of a process of this machine, in /proc. */
#ifndef WEFT_HOST_LAUNCH_PROC_H
#define WEFT_HOST_LAUNCH_PROC_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_proc {
    int32_t parent; /* 0: there is no such process, or it has none */
    int32_t status; /* of one that is dead and that nobody has asked for yet, as waitpid gives it; -1: any other */
    char state;     /* the letter of its state; ' ': there is no such process */
} weft_proc;

weft_proc weft_proc_read(int32_t pid);

/* Its program is that file, by whatever path; false where it cannot be seen. */
bool weft_proc_runs(int32_t pid, const char *program);

#endif
