/* host/launch/own_launcher.h: ranks of this machine that are started by nobody but this program.
 *
 * For communicators that need no launcher of a library's own (NCCL). The note of one says `weft {ranks}` where others
 * name mpiexec (weft/comm.h). */
#ifndef WEFT_HOST_LAUNCH_OWN_LAUNCHER_H
#define WEFT_HOST_LAUNCH_OWN_LAUNCHER_H

#include <stdint.h>

#include <stdbool.h>
#include <weft/comm.h>

/* What its ranks are told: their places, and the descriptor of their connection to the store (table_server.h). */
#define WEFT_OWN_RANK  "WEFT_RANK"
#define WEFT_OWN_SIZE  "WEFT_RANKS"
#define WEFT_OWN_STORE "WEFT_STORE"

/* "weft {ranks}": this program starts them. */
bool weft_launch_is_own(const char *launch);

/* In a process of its own: starts n ranks of the program with these words, serves their store, and waits for them. What
 * the process is to end with: 0, or the first other status of a rank (128 and the signal's number for one that a signal
 * ended). */
int weft_own_launcher_run(int32_t n, const char *program, char *const *words);

#endif
