/* host/launch/table_server.h: a small table of values that ranks put for one another, and whoever serves it.
 *
 * Each rank has one connection, over which it asks for one thing at a time: put a value under a key, or get one, which
 * is answered once some rank has put it. The server is a loop over connections; it may be a process (own_launcher.h) or
 * a thread of rank 0 (rendezvous.h). Both ends are the same program on machines that trust each other, as those of a
 * communicator do. */
#ifndef WEFT_HOST_LAUNCH_TABLE_SERVER_H
#define WEFT_HOST_LAUNCH_TABLE_SERVER_H

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

weft_status weft_store_put(weft_store_line to, const char *key, const void *bytes, size_t n, weft_error *err);
weft_status weft_store_get(weft_store_line from, const char *key, void *bytes, size_t n, int32_t patience,
                           weft_error *err);

/* ---- the server ---- */

typedef struct weft_store weft_store;

/* For n ranks at most; NULL: no memory. */
weft_store *weft_store_create(int32_t n);
void weft_store_destroy(weft_store *self); /* closes its connections; NULL is fine */
/* Takes a connection over; false: there are n already, and it is closed. */
bool weft_store_admit(weft_store *self, int file);
/* A socket that listens, whose connections are admitted; the caller closes it. */
void weft_store_listen(weft_store *self, int file);
/* Serves what has come, or waits for it as long as ms says. */
void weft_store_serve(weft_store *self, int ms);
/* All n have come and gone. */
bool weft_store_is_over(const weft_store *self);

#endif
