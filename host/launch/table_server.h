/* host/launch/table_server.h: a small table of values that ranks put for one another, and its server.
 *
 * Each rank has one connection, over which it requests one thing at a time: to put a value under a key, or to get one,
 * which is answered once some rank has put it. The server is a loop over connections; it may be a process
 * (own_launcher.h) or a thread of rank 0 (rendezvous.h). A connection through a listening socket takes the place of a
 * rank only once it has proved that it has the job's secret (job_secret.h); a rank whose connection has ended may
 * connect again. */
#ifndef WEFT_HOST_LAUNCH_TABLE_SERVER_H
#define WEFT_HOST_LAUNCH_TABLE_SERVER_H

#include "launch/job_secret.h"

#include <stdbool.h>
#include <weft/host.h>

enum { WEFT_STORE_KEY = 64 }; /* bytes of a key with its end */

/* A key is words of [a-z0-9._-]. */
bool weft_store_takes_key(const char *key);

/* ---- a rank's side: blocks until it is answered ---- */

/* A rank's connection. */
typedef struct weft_store_line {
    int file;
    const char *keeper; /* whoever serves, for a sentence: "rank 0" */
} weft_store_line;

/* On a new connection to a listening server: each side proves that it has the key. *again: the connection has ended
 * before that, and another one may succeed. */
weft_status weft_store_greet(int file, const weft_job_key *key, int32_t rank, int32_t patience, bool *again,
                             weft_error *err);
/* True unless it is a socket of this machine whose other end is a process of another user. */
bool weft_store_is_own_user(int file);
weft_status weft_store_put(weft_store_line to, const char *key, const void *bytes, size_t n, weft_error *err);
weft_status weft_store_get(weft_store_line from, const char *key, void *bytes, size_t n, int32_t patience,
                           weft_error *err);

/* ---- the server ---- */

typedef struct weft_store weft_store;

/* For n ranks at most; NULL: no memory. */
weft_store *weft_store_create(int32_t n);
void weft_store_destroy(weft_store *self); /* closes its connections; NULL is fine */
/* Takes over the connection of a rank that needs no proof. */
void weft_store_admit(weft_store *self, int32_t rank, int file);
/* A listening socket; the caller closes it. Those that connect must have the key and, on a socket of this machine, be
 * processes of this user. */
void weft_store_listen(weft_store *self, int file, const weft_job_key *key);
/* Serves what has come, or waits for it as long as ms says. */
void weft_store_serve(weft_store *self, int ms);
/* All n have come and gone. */
bool weft_store_is_over(const weft_store *self);

#endif
