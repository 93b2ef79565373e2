/* host/plugin/process.h: saves and restores the host's process state around a plugin's code.
 *
 * A library that was linked with -Ofast flushes denormals in the thread that loads it. An MPI replaces signal handlers.
 * The state is saved before foreign code runs, and compared after it:
 *   floating-point control word, locale, working directory, umask: restored, and a change is the plugin's error
 *   signal handlers: restored
 * Used around each load, entry, create and validate. After every other call (enter.h) the host checks the calling
 * thread's floating-point control word and the umask, which is cheap enough for each kernel of a step. */
#ifndef WEFT_HOST_PLUGIN_PROCESS_H
#define WEFT_HOST_PLUGIN_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <weft/base.h>

typedef struct weft_process {
    uint64_t fp_control; /* of the calling thread */
    mode_t mask;
    char directory[4096];
    char locale[512];
    struct sigaction handlers[65];
    unsigned char has_handler[65];
} weft_process;

/* Return and restore the floating-point control word of this thread. Restoring fails with WEFT_E_PLUGIN, "changed the
 * floating-point mode while WHEN", if it differs. For calls of one plugin by another. [any-thread] [hot] */
uint64_t weft_process_fp(void);
weft_status weft_process_restore_fp(uint64_t before, const char *when, weft_error *err);

/* [main] */
void weft_process_save(weft_process *out);

/* Restores all changed state. WEFT_E_PLUGIN with "it changed the ... while WHEN" for any change other than a handler.
 * [main] */
weft_status weft_process_restore(const weft_process *saved, const char *when, weft_error *err);

/* Begins a call on this thread: returns its floating-point control word for the next two functions. [any-thread] [hot]
 */
uint64_t weft_process_begin_call(void);

/* Returns true if the call that began with fp_control changed neither the control word nor the umask. [any-thread]
 * [hot] */
bool weft_process_is_kept(uint64_t fp_control);

/* Restores both. WEFT_E_PLUGIN with "changed the ... while WHEN". [any-thread] */
weft_status weft_process_end_call(uint64_t fp_control, const char *when, weft_error *err);

#endif
