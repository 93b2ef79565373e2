/* host/plugin/crash.h: a crash names the file it happened in and what the host was doing.
 *
 *     weft: signal 11 (segmentation fault) in weft-optimizer-lion.so (sha256 5d41402abc4b), in optimizer:lion create
 *     weft: signal 6 (abort) in libc.so.6, in optimizer:lion prepare (sha256 5d41402abc4b of
 *         /home/you/weft-optimizer-lion.so), in training, rank 3, step 12
 *     weft: signal 11 (segmentation fault) in weft, after model:mine declare (sha256 5d41402abc4b of
 *         /home/you/weft-model-mine.so), the last plugin's call, which may have broken this process's memory
 *
 * Where the crash lies in a library, the plugin that the host had called is the one to ask: the host knows which, and
 * guesses nothing from the stack. The record of what is being done is cheap enough to set before every call into a
 * plugin (enter.h).
 */
#ifndef WEFT_HOST_PLUGIN_CRASH_H
#define WEFT_HOST_PLUGIN_CRASH_H

#include <stdbool.h>
#include <stdint.h>

/* Handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, on a stack of their own. Once, early in main. [main] */
void weft_crash_install(void);

/* The same in a child process, where the handlers may be gone; the line goes to this descriptor. [main] */
void weft_crash_to(int descriptor);

/* All texts live as long as the process. */
typedef struct weft_doing {
    const char *kind, *id; /* "optimizer", "lion"; NULL: `what` says it all */
    const char *sha256;    /* of the plugin's file; NULL: not known */
    const char *file;      /* its path; NULL: not known */
    const char *what;      /* "prepare"; NULL: nothing worth naming */
    uint64_t fp_control;   /* of the thread before the call (process.h); 0: not checked after it */
} weft_doing;

/* What this thread is about to do; gives what it did, to put it back. A thread that never said counts as doing what the
 * thread of weft_crash_install does. [any-thread] [hot] */
weft_doing weft_crash_doing(weft_doing now);

/* What this thread is doing. Safe in a signal handler. [any-thread] */
weft_doing weft_crash_current(void);

/* What the thread of weft_crash_install is doing, as another thread sees it, and the call's number, which no other has.
 * False: it is just changing. [any-thread] */
bool weft_crash_main_call(weft_doing *out, uint64_t *number);

/* What the calls are for, "training", a text that lives as long as the process; NULL, as at first: for all. Gives what
 * it was. [main] [hot] */
const char *weft_crash_mode(const char *mode);
const char *weft_crash_current_mode(void); /* [any-thread] */

/* Of several that one process runs, which one the calls are for: "strategy.plugin=ddp", a text that stays until another
 * is given; NULL, as at first: it is the only one. Gives what it was. [main] [hot] */
const char *weft_crash_arm(const char *arm);
const char *weft_crash_current_arm(void); /* [any-thread] */

/* The optimizer step that runs; 0: none. [main] [hot] */
void weft_crash_step(uint64_t step);
uint64_t weft_crash_current_step(void); /* [any-thread] */

/* The rank of this process among several, for the line; -1, as at first: it is alone. [main] */
void weft_crash_rank(int32_t rank);

/* What the thread of weft_crash_install has called, as another process reads it that shares the memory: one that has
 * ended says nothing more. */
typedef struct weft_crumb {
    char who[96];  /* "optimizer:lion" */
    char what[32]; /* "prepare"; "": nothing worth naming */
} weft_crumb;

/* It stands there from now on, at each change; NULL, as at first: nowhere. [main] */
void weft_crash_crumb(weft_crumb *where);

enum { WEFT_CRASH_IN_COMM = 0x100 };
/* The signal of a crash is stored there, too, before the process ends; with WEFT_CRASH_IN_COMM if a communicator had
 * been called. [main] */
void weft_crash_note(_Atomic int32_t *where);

/* The loader's: notes a file that was mapped at `address` (any address in it), and takes a new picture of all mapped
 * libraries. [main] */
void weft_crash_add(const char *sha256, const void *address);

#endif
