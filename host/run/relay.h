/* host/run/relay.h: ranks that a thread beside the main one may speak with, although the communicator is the
 * main thread's alone: what the thread asks of its peers waits until the main threads of all ranks serve it.
 *
 *     the thread:        weft_process_group_agree(weft_relay_peers(relay), status, err)       ... waits ...
 *     the main threads:  weft_relay_serve(relay, false, &ended, err)                  after each step
 *
 * The threads of all ranks ask for the same in the same order, as main threads would. Of a rank alone nothing is asked,
 * and serving it is a look at whether its thread has ended. */
#ifndef WEFT_HOST_RUN_RELAY_H
#define WEFT_HOST_RUN_RELAY_H

#include "model/process_group.h"

typedef struct weft_relay weft_relay;

/* peers: of the main thread, which outlive it; NULL: a rank alone. */
weft_status weft_relay_create(weft_relay **out, const weft_process_group *peers, weft_error *err);
void weft_relay_destroy(weft_relay *self); /* its thread has ended; NULL is fine */

/* For the thread; they live as long as the relay. */
const weft_process_group *weft_relay_peers(const weft_relay *self);
/* The thread asks for nothing any more. [any-thread] */
void weft_relay_end(weft_relay *self);

/* Does what the threads of all ranks ask for by now. *ended: those of all ranks have. waits: until that is so. A
 * failure is the communicator's: weft_relay_close follows. [collective] */
weft_status weft_relay_serve(weft_relay *self, bool waits, bool *ended, weft_error *err);

/* Nothing is served any more: whatever the thread asks for fails. */
void weft_relay_close(weft_relay *self);

#endif
