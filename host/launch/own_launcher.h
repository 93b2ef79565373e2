/* host/launch/own_launcher.h: built-in launcher of ranks on this machine.
 *
 * For communicators that need no external launcher (NCCL). The note of such a communicator has `weft {ranks}` as its
 * launcher (weft/comm.h). */
#ifndef WEFT_HOST_LAUNCH_OWN_LAUNCHER_H
#define WEFT_HOST_LAUNCH_OWN_LAUNCHER_H

#include <stdint.h>

#include <stdbool.h>
#include <weft/comm.h>

/* Environment of its ranks: rank, world size, and the descriptor of their connection to the store (table_server.h). */
#define WEFT_OWN_RANK  "WEFT_RANK"
#define WEFT_OWN_SIZE  "WEFT_RANKS"
#define WEFT_OWN_STORE "WEFT_STORE"

/* Returns true for "weft {ranks}". */
bool weft_launch_is_own(const char *launch);

/* Starts n ranks of the program with these arguments, serves their store, and waits for them. Runs in its own process.
 * Returns the exit status for the process: 0, or the first other status of a rank (128 plus the signal number if a
 * signal ended it). */
int weft_own_launcher_run(int32_t n, const char *program, char *const *words);

#endif
