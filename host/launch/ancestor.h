/* host/launch/ancestor.h: finds the launcher that started this process, if it runs on this machine. */
#ifndef WEFT_HOST_LAUNCH_ANCESTOR_H
#define WEFT_HOST_LAUNCH_ANCESTOR_H

typedef struct weft_ancestor {
    int process; /* its pidfd; -1: this process has no such ancestor, or it cannot be opened */
    int voice;   /* its stderr, opened again: writable even after the launcher has released its ranks */
} weft_ancestor;

/* Finds the launcher. note: of the communicator's plugin, with the launcher's path (weft/comm.h). */
weft_ancestor weft_ancestor_find(const char *note);
void weft_ancestor_close(weft_ancestor *self);

#endif
