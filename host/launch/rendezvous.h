/* host/launch/rendezvous.h: connects the ranks to the key-value store for small messages that precede the communicator
 * (WEFT_HOST_EXCHANGE of weft/host.h).
 *
 * Ranks that this program started have a connection from their launcher (find.h). Under another launcher rank 0
 * serves the store in a thread, and the others connect through the first available of:
 *
 *     WEFT_RENDEZVOUS=host:port             set for all ranks by the user or the launcher
 *     MASTER_ADDR and MASTER_PORT           as torchrun sets them; the store has the port after MASTER_PORT
 *     SLURM_STEP_NODELIST, SLURM_JOB_ID     the first machine of a step, a port derived from the job
 *     one machine                           a socket named after the launcher's process
 */
#ifndef WEFT_HOST_LAUNCH_RENDEZVOUS_H
#define WEFT_HOST_LAUNCH_RENDEZVOUS_H

#include <stdbool.h>
#include <weft/host.h>

#define WEFT_RENDEZVOUS "WEFT_RENDEZVOUS"

/* Offers the exchange to plugins; the first request connects. patience: seconds. [main] */
void weft_rendezvous_offer(int32_t patience);
/* Closes this rank's connection. Rank 0 waits until the others have closed theirs, unless the run failed. [main] */
void weft_rendezvous_end(bool failed);

/* Writes the first name of "gpu[03-07,11],login1" with its zeros: "gpu03". Returns false if the list cannot be parsed.
 */
bool weft_rendezvous_first_host(char *out, size_t size, const char *list);

#endif
