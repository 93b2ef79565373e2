/* host/launch/rendezvous.h: connects the ranks to the key-value store for small messages that precede the communicator
 * (WEFT_HOST_EXCHANGE of weft/host.h).
 *
 * Rank 0 serves the store in a thread, and the others connect through the first available of:
 *
 *     WEFT_RENDEZVOUS=host:port             set for all ranks by the user or the launcher
 *     WEFT_RENDEZVOUS=parent                set by this program as the launcher (find.h): as on one machine
 *     MASTER_ADDR and MASTER_PORT           as torchrun sets them; the store has the port after MASTER_PORT
 *     SLURM_STEP_NODELIST, SLURM_JOB_ID     the first machine of a step, a port derived from the job
 *     one machine                           a socket named after the launcher's process
 */
#ifndef WEFT_HOST_LAUNCH_RENDEZVOUS_H
#define WEFT_HOST_LAUNCH_RENDEZVOUS_H

#include "base/hash.h"

#include <stdbool.h>
#include <weft/host.h>

#define WEFT_RENDEZVOUS        "WEFT_RENDEZVOUS"
#define WEFT_RENDEZVOUS_PARENT "parent"

/* Offers the exchange to plugins; the first request connects. patience: seconds. [main] */
void weft_rendezvous_offer(int32_t patience);
/* Closes this rank's connection. Rank 0 waits until the others have closed theirs; after a failure, which they may
 * detect by the same values, for at most a second. [main] */
void weft_rendezvous_end(bool failed);

/* Writes the first name of "gpu[03-07,11],login1" with its zeros: "gpu03". Returns false if the list cannot be parsed.
 */
bool weft_rendezvous_first_host(char *out, size_t size, const char *list);

/* ---- the store: keys and values of the ranks, and its server (table_server.c) ----
 *
 * Each rank has one connection with one request at a time: put a value under a key, or get a value. The reply to a get
 * waits until a rank has put the value. A connection through a listening socket is assigned to a rank after it has
 * proved the job's secret. A rank that has lost its connection may connect again. */

/* ---- authentication: two processes prove that they belong to one user's job ----
 *
 * The secret is WEFT_JOB_SECRET, if it is set. Otherwise it is the file weft/job-secret of the user's data directory
 * ($XDG_DATA_HOME or ~/.local/share), which the first process that needs it creates with mode 0600. The secret is never
 * sent. Each side sends random bytes, and its proof is a SHA-256 over the secret and both sides' bytes. */

#define WEFT_JOB_SECRET "WEFT_JOB_SECRET"

typedef struct weft_job_key {
    char hash[65]; /* of the secret; "": of a job without one */
} weft_job_key;

/* Reads the secret, or creates it. */
weft_status weft_job_key_read(weft_job_key *out, weft_error *err);

enum { WEFT_STORE_KEY = 64 }; /* bytes of a key with its end */

/* Sends all bytes. [any-thread] */
bool weft_send_all(int file, const void *bytes, size_t n);

/* ---- client: calls block until the reply ---- */

/* Authenticates a new connection to a listening server in both directions. *again: the connection ended early, and
 * another attempt may succeed. */
weft_status weft_store_greet(int file, const weft_job_key *key, int32_t rank, int32_t patience, bool *again,
                             weft_error *err);
/* Returns false if it is a local socket with another user's process at the other end. */
bool weft_store_is_own_user(int file);
weft_status weft_store_put(int file, const char *key, const void *bytes, size_t n, weft_error *err);
weft_status weft_store_get(int file, const char *key, void *bytes, size_t n, int32_t patience, weft_error *err);

/* ---- the server ---- */

typedef struct weft_store weft_store;

/* Creates a store for at most n ranks. */
weft_store *weft_store_create(int32_t n);
void weft_store_destroy(weft_store *self); /* closes its connections; NULL is fine */
/* Takes ownership of the connection of a rank that needs no proof. */
void weft_store_admit(weft_store *self, int32_t rank, int file);
/* Accepts connections from a listening socket; the caller closes it. Clients need the key and, on a local socket, must
 * be processes of this user. */
void weft_store_listen(weft_store *self, int file, const weft_job_key *key);
/* Handles pending requests, or waits for one at most `ms`. */
void weft_store_serve(weft_store *self, int ms);
/* Returns true if all n ranks have connected and disconnected. */
bool weft_store_is_over(const weft_store *self);

#endif
