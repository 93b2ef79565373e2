/* host/run/async_checkpoint.h: a checkpoint that is written while training continues.
 *
 *     weft_async_checkpoint_begin(&save, snapshot, directory, &state, &identities, &text, &err);    copies the state
 *     ... optimizer steps; after each: weft_async_checkpoint_look(save, false, &ended, &err) ...
 *     weft_async_checkpoint_look(save, true, &ended, &err);                                         waits for the end
 *     weft_async_checkpoint_close(save);
 *
 * A thread writes the copy with the code of a synchronous save (save.h). It uses files and host memory only: the main
 * threads exchange the ranks' data for it after each step. */
#ifndef WEFT_HOST_RUN_ASYNC_CHECKPOINT_H
#define WEFT_HOST_RUN_ASYNC_CHECKPOINT_H

#include "run/checkpoint.h"
#include "run/engine.h"

/* A copy in host memory of this rank's state, from which a checkpoint is written while training continues. A device
 * with its own memory copies into pinned memory (weft/transfer.h). If the host sees the device's memory, the copy is
 * a device buffer, and frozen parameters are read in place. Allocated once, as the plan counts it (program/paths.h). */
typedef struct weft_snapshot weft_snapshot;

/* Allocates the memory. The plan must have asynchronous saves. */
weft_status weft_snapshot_create(weft_snapshot **out, weft_engine *engine, weft_error *err);
void weft_snapshot_destroy(weft_snapshot *self); /* NULL is fine */

typedef struct weft_async_checkpoint weft_async_checkpoint;

/* Called on rank 0 by the thread before the manifest is written; syncs what must precede it. NULL: nothing. */
typedef weft_status weft_async_checkpoint_first(void *context, weft_error *err);

/* Copies the current state and starts writing it; the snapshot is in use until close. One at a time. After a failure,
 * which all ranks share, nothing has started. [collective] */
weft_status weft_async_checkpoint_begin(weft_async_checkpoint **out, weft_snapshot *snapshot, const weft_engine *engine,
                                        const char *directory, const weft_checkpoint_state *state,
                                        const weft_identities *identities, const weft_text *text,
                                        weft_async_checkpoint_first *first, void *context, weft_error *err);

/* Serves the threads of all ranks; waits: until they have ended. With *ended, the same on all ranks, status and message
 * are the save's; before, the communicator's. [collective] */
weft_status weft_async_checkpoint_look(weft_async_checkpoint *self, bool waits, bool *ended, weft_error *err);

/* Aborts a save that has not ended; a single rank completes it. NULL is fine. */
void weft_async_checkpoint_close(weft_async_checkpoint *self);

const weft_checkpoint_state *weft_async_checkpoint_state(const weft_async_checkpoint *self);
/* Seconds of its thread, after its end, including waits for steps to end. */
double weft_async_checkpoint_seconds(const weft_async_checkpoint *self);

#endif
