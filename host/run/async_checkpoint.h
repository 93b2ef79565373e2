/* host/run/async_checkpoint.h: a checkpoint that is written while training goes on.
 *
 *     weft_async_checkpoint_begin(&save, snapshot, directory, &state, &identities, &text, &err);    the state is copied
 *     ... optimizer steps; after each: weft_async_checkpoint_look(save, false, &ended, &err) ...
 *     weft_async_checkpoint_look(save, true, &ended, &err);                                         until it is whole
 *     weft_async_checkpoint_close(save);
 *
 * A thread writes what was copied, with the code of a save in place (saving.h). It touches files and the host's memory
 * alone: what ranks have to tell each other meanwhile their main threads do after a step (relay.h). */
#ifndef WEFT_HOST_RUN_ASYNC_CHECKPOINT_H
#define WEFT_HOST_RUN_ASYNC_CHECKPOINT_H

#include "run/checkpoint.h"
#include "run/snapshot.h"

typedef struct weft_async_checkpoint weft_async_checkpoint;

/* What must be on the disk before the checkpoint counts as whole: called on rank 0 by the thread. NULL: nothing. */
typedef weft_status weft_async_checkpoint_first(void *context, weft_error *err);

/* Copies what the engine has now, and begins to write that; the snapshot is its own until close. One at a time. On a
 * failure, which all ranks have then, nothing has begun. [collective] */
weft_status weft_async_checkpoint_begin(weft_async_checkpoint **out, weft_snapshot *snapshot, const weft_engine *engine,
                                        const char *directory, const weft_checkpoint_state *state,
                                        const weft_identities *identities, const weft_text *text,
                                        weft_async_checkpoint_first *first, void *context, weft_error *err);

/* Serves the threads of all ranks; waits: until they have ended. Once *ended, alike on all ranks, the status is the
 * save's, and so is the sentence; before that it is the communicator's. [collective] */
weft_status weft_async_checkpoint_look(weft_async_checkpoint *self, bool waits, bool *ended, weft_error *err);

/* One that has not ended is given up by all ranks, but for a rank alone, whose save comes to its end. NULL is fine. */
void weft_async_checkpoint_close(weft_async_checkpoint *self);

const weft_checkpoint_state *weft_async_checkpoint_state(const weft_async_checkpoint *self);
/* Seconds that its thread has worked, once it has ended: of them, those at which ranks waited for a step to end. */
double weft_async_checkpoint_seconds(const weft_async_checkpoint *self);

#endif
