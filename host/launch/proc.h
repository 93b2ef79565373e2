/* host/launch/proc.h: reads the state of a process of this machine from /proc. */
#ifndef WEFT_HOST_LAUNCH_PROC_H
#define WEFT_HOST_LAUNCH_PROC_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_proc {
    int32_t parent; /* 0: the process does not exist or has no parent */
    int32_t status; /* wait status of a zombie, in the format of waitpid; -1: any other process */
    char state;     /* the letter of its state; ' ': the process does not exist */
} weft_proc;

weft_proc weft_proc_read(int32_t pid);

/* Returns true if the process runs this file, through any path; false if it cannot be determined. */
bool weft_proc_runs(int32_t pid, const char *program);

#endif
