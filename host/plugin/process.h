/* host/plugin/process.h: the process state that belongs to the host, kept safe around a plugin's code.
 *
 * A library that was linked with -Ofast flushes denormals in the thread that loads it; an MPI replaces signal handlers.
 * Save before foreign code runs, and after it:
 *   floating-point control word, locale, working directory, umask: put back, and a change is the plugin's error
 *   signal handlers: put back
 * Used around each load and each entry, and by call.h around each create and validate. After every other call
 * (enter.h) the calling thread's floating-point control word and what it did to the umask are checked, which is cheap
 * enough for each kernel of a step.
 */
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

/* The floating-point control word of this thread, and its return to what it was: WEFT_E_PLUGIN, "changed the
 * floating-point mode while WHEN", if it differs. For calls of one plugin by another. [any-thread] [hot] */
uint64_t weft_process_fp(void);
weft_status weft_process_restore_fp(uint64_t before, const char *when, weft_error *err);

/* [main] */
void weft_process_save(weft_process *out);

/* Puts back what differs. WEFT_E_PLUGIN with "it changed the ... while WHEN" if something other than a handler did.
 * [main] */
weft_status weft_process_restore(const weft_process *saved, const char *when, weft_error *err);

/* Begins a call on this thread: returns its floating-point control word, for the two below. [any-thread] [hot] */
uint64_t weft_process_begin_call(void);

/* True if the call that began with fp_control changed neither the control word nor the umask. [any-thread] [hot] */
bool weft_process_is_kept(uint64_t fp_control);

/* Puts both back. WEFT_E_PLUGIN with "changed the ... while WHEN". [any-thread] */
weft_status weft_process_end_call(uint64_t fp_control, const char *when, weft_error *err);

#endif
