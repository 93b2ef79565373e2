/* host/plugin/crash.h: crash handler that reports the file of the crash and the plugin call in progress.
 *
 *     weft: signal 11 (segmentation fault) in weft-optimizer-lion.so (sha256 5d41402abc4b), in optimizer:lion create
 *     weft: signal 6 (abort) in libc.so.6, in optimizer:lion prepare (sha256 5d41402abc4b of
 *         /home/you/weft-optimizer-lion.so), in training, rank 3, step 12
 *     weft: signal 11 (segmentation fault) in weft, after model:mine declare (sha256 5d41402abc4b of
 *         /home/you/weft-model-mine.so), the last plugin's call, which may have broken this process's memory
 *
 * For a crash inside a library, the report names the plugin that the host had called. The host records each call and
 * does not guess from the stack. The record is cheap enough to set before every call into a plugin (enter.h). */
#ifndef WEFT_HOST_PLUGIN_CRASH_H
#define WEFT_HOST_PLUGIN_CRASH_H

#include <stdbool.h>
#include <stdint.h>

/* Installs handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, with their own stack. Once, early in main. [main]
 */
void weft_crash_install(void);

/* Installs them in a child process, where the handlers may be gone; reports go to this descriptor. [main] */
void weft_crash_to(int descriptor);

/* All strings live as long as the process. */
typedef struct weft_doing {
    const char *kind, *id; /* "optimizer", "lion"; NULL: `what` is the complete description */
    const char *sha256;    /* of the plugin's file; NULL: not known */
    const char *file;      /* its path; NULL: not known */
    const char *what;      /* "prepare"; NULL: no slot to report */
    uint64_t fp_control;   /* of the thread before the call (process.h); 0: not checked after it */
} weft_doing;

/* Records the call that this thread is about to make, and returns the previous record so that the caller can restore
 * it. A thread without a record reports that of the thread of weft_crash_install. [any-thread] [hot] */
weft_doing weft_crash_doing(weft_doing now);

/* Returns this thread's record. Safe in a signal handler. [any-thread] */
weft_doing weft_crash_current(void);

/* Reads, from another thread, the record of the thread of weft_crash_install, and the call's unique number. Returns
 * false while the record is being changed. [any-thread] */
bool weft_crash_main_call(weft_doing *out, uint64_t *number);

/* Sets the mode of the calls, for example "training", a string with process lifetime. NULL, the default: no mode.
 * Returns the previous mode. [main] [hot] */
const char *weft_crash_mode(const char *mode);
const char *weft_crash_current_mode(void); /* [any-thread] */

/* Sets the arm that the calls belong to if one process runs several: "strategy.plugin=ddp", a string that lives until
 * it is replaced. NULL, the default: only one arm. Returns the previous arm. [main] [hot] */
const char *weft_crash_arm(const char *arm);
const char *weft_crash_current_arm(void); /* [any-thread] */

/* Sets the current optimizer step; 0: no step. [main] [hot] */
void weft_crash_step(uint64_t step);
uint64_t weft_crash_current_step(void); /* [any-thread] */

/* Sets the rank that the report prints; -1, the default: a single process. [main] */
void weft_crash_rank(int32_t rank);

/* The current call of the thread of weft_crash_install, in memory that another process shares and can read after this
 * process has ended. */
typedef struct weft_crumb {
    char who[96];  /* "optimizer:lion" */
    char what[32]; /* "prepare"; "": no slot to report */
} weft_crumb;

/* Writes the current call to `where` from now on, at each change. NULL, the default: disabled. [main] */
void weft_crash_crumb(weft_crumb *where);

enum { WEFT_CRASH_IN_COMM = 0x100 };
/* Also stores the signal of a crash in *where before the process ends, with WEFT_CRASH_IN_COMM if the crash is in a
 * communicator call. [main] */
void weft_crash_note(_Atomic int32_t *where);

/* Registers a file that was mapped at `address` (any address in it), and updates the list of all mapped libraries. For
 * the loader. [main] */
void weft_crash_add(const char *sha256, const void *address);

#endif
