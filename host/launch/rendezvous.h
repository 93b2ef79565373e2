/* host/launch/rendezvous.h: how ranks find the store by which they tell one another small things before their
 * communicator can (WEFT_HOST_EXCHANGE of weft/host.h).
 *
 * Ranks that this program started have a connection of their launcher's (own_launcher.h). Under another launcher rank 0
 * serves the store in a thread, and the others reach it by the first of
 *
 *     WEFT_RENDEZVOUS=host:port             whoever starts the ranks sets it for all of them
 *     MASTER_ADDR and MASTER_PORT           as torchrun sets them; the port behind that one, which is taken
 *     SLURM_STEP_NODELIST, SLURM_JOB_ID     the first machine of a step, a port of the job's
 *     one machine                           a socket that the launcher's process gives the name
 */
#ifndef WEFT_HOST_LAUNCH_RENDEZVOUS_H
#define WEFT_HOST_LAUNCH_RENDEZVOUS_H

#include <stdbool.h>
#include <weft/host.h>

#define WEFT_RENDEZVOUS "WEFT_RENDEZVOUS"

/* Offers the exchange to plugins; what is asked of it first connects. patience: seconds. [main] */
void weft_rendezvous_offer(int32_t patience);
/* No longer: this rank's connection is closed, and rank 0 waits until the others have closed theirs, unless something
 * has failed. [main] */
void weft_rendezvous_end(bool failed);

/* The first name of "gpu[03-07,11],login1", with its zeros: "gpu03". False: it cannot be read. */
bool weft_rendezvous_first_host(char *out, size_t size, const char *list);

#endif
