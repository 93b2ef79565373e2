/* host/launch/ancestor.h: the launcher that started this process, where it runs on this machine. */
#ifndef WEFT_HOST_LAUNCH_ANCESTOR_H
#define WEFT_HOST_LAUNCH_ANCESTOR_H

typedef struct weft_ancestor {
    int process; /* its pidfd; -1: no such process is above this one, or it cannot be opened */
    int voice;   /* its stderr, opened anew: it hears what is said there even after it has given up its ranks */
} weft_ancestor;

/* note: of the communicator's plugin, with the launcher's path (weft/comm.h). */
weft_ancestor weft_ancestor_find(const char *note);
void weft_ancestor_close(weft_ancestor *self);

#endif
