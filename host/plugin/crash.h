/* host/plugin/crash.h: crash attribution: reports the file of a crash and the plugin call in progress, and a plugin
 * that ends the process.
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

#include "plugin/plugin.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Installs handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, with their own stack; reports go to the descriptor.
 * Once, early in main, and again in a child process, where the handlers may be gone. [main] */
void weft_crash_install(int descriptor);

/* All pointers are valid as long as the process. */
typedef struct weft_call_record {
    const weft_loaded *loaded; /* the called plugin; NULL: `what` is the complete description */
    const char *sha256;        /* of a file that is being loaded; NULL: no load */
    const char *what;          /* the slot, "prepare"; NULL: no call */
    uint64_t fp_control;       /* of the thread before the call (enter.h); 0: not checked after it */
    uint64_t number;           /* position among the calls of the thread of weft_crash_install; 0: set by set_call */
} weft_call_record;

/* Records the call that this thread is about to make, and returns the previous record so that the caller can restore
 * it. A thread without a record reports that of the thread of weft_crash_install. [any-thread] [hot] */
weft_call_record weft_crash_set_call(weft_call_record now);

/* Returns this thread's record. Safe in a signal handler. [any-thread] */
weft_call_record weft_crash_current(void);

/* Reads, from another thread, the record of the thread of weft_crash_install, and its version, which each change
 * increments. Returns false while the record is being changed. [any-thread] */
bool weft_crash_main_call(weft_call_record *out, uint64_t *version);

/* Reads the longest current call of another thread among those that began during call `number` of that thread, and its
 * duration. Returns false, and leaves both unchanged, if there is none. [any-thread] */
bool weft_crash_other_call(weft_call_record *out, double *seconds, uint64_t number);

/* Where this process is, for its reports. */
extern struct weft_crash_where {
    _Atomic(const char *) mode; /* of the calls, "training", with process lifetime; NULL: none */
    _Atomic(const char *) arm;  /* that the calls belong to if one process runs several: "strategy.plugin=ddp", a string
                                 * that lives until it is replaced; NULL: only one arm */
    _Atomic uint64_t step;      /* of the optimizer; 0: none */
    _Atomic int32_t rank;       /* -1: a single process */
} weft_crash_where;

/* The current call of the thread of weft_crash_install, in memory that another process shares and can read after this
 * process has ended. */
typedef struct weft_crumb {
    char who[96];           /* "optimizer:lion" */
    char what[32];          /* "prepare"; "": no slot to report */
    _Atomic int32_t signal; /* of a crash, with WEFT_CRASH_IN_COMM if it is in a communicator's call; 0: no crash */
} weft_crumb;

enum { WEFT_CRASH_IN_COMM = 0x100 };

/* Writes the current call to `where` from now on, at each change, and a crash. NULL, the default: disabled. [main] */
void weft_crash_crumb(weft_crumb *where);

/* Registers a plugin's file that is mapped at `address` (any address in it). For the loader. [main] */
void weft_crash_add(const char *sha256, const void *address);

/* ---- exit guard ----
 *
 * A plugin that calls exit would choose the exit status, and an incomplete run could look complete. A plugin that ends
 * the main thread would leave a process that never ends.
 *
 *     weft: optimizer:lion (/home/you/weft-optimizer-lion.so) ended the process in its prepare, in training, at step
 *         12: its work is not done
 *
 * An end that bypasses the C library, such as _exit or the system call, cannot be detected inside the process. Another
 * process can detect it and reads the current call from shared memory (weft_crash_crumb). */

/* From here on exit, and pthread_exit of this thread, end the process with status 1 and name the active plugin. Child
 * processes are not guarded until they install it, too. [main] */
void weft_exit_guard_install(void);

/* Returns true in a guarded process before the end of main: an exit now is not the host's. [main] */
bool weft_exit_guard_is_early(void);

/* Disables the guard at the end of main. [main] */
void weft_exit_guard_reached(void);

/* Reports, from another thread, that the main thread ended in this call, and ends the process with status 1.
 * [any-thread] */
void weft_exit_guard_end_main(const weft_call_record *call);

#endif
