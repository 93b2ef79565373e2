/* host/run/async_checkpoint.h: checkpoints that are written while training continues.
 *
 *     weft_async_checkpoint_create(&save, engine, &err);                                      once: allocates the copy
 *     weft_async_checkpoint_begin(save, directory, &state, &identities, &files, ..., &err);   copies the state
 *     ... optimizer steps; after each: weft_async_checkpoint_look(save, false, &result, &err) ...
 *     weft_async_checkpoint_look(save, true, &result, &err);                                  waits for the end
 *
 * A thread writes the copy with the code of a synchronous save (save.h). It uses files and host memory only: the main
 * threads exchange the ranks' data for it after each step.
 *
 * The copy of this rank's state is in pinned memory (weft/transfer.h) if the device has its own memory. If the host
 * sees the device's memory, the copy is a device buffer, and frozen parameters are read in place. The plan counts it
 * (program/budget.h). */
#ifndef WEFT_HOST_RUN_ASYNC_CHECKPOINT_H
#define WEFT_HOST_RUN_ASYNC_CHECKPOINT_H

#include "run/checkpoint.h"

typedef struct weft_async_checkpoint weft_async_checkpoint;

typedef struct weft_async_result {
    bool ended; /* the same on all ranks */
    weft_checkpoint_state state;
    double seconds; /* of the thread, including waits for steps to end */
} weft_async_result;

/* Called on rank 0 by the thread before the manifest is written; syncs what must precede it. */
typedef weft_status weft_async_checkpoint_first(void *context, weft_error *err);

/* Allocates the copy. The plan must have asynchronous saves. */
weft_status weft_async_checkpoint_create(weft_async_checkpoint **out, weft_engine *engine, weft_error *err);
/* Aborts a save that has not ended; a single rank completes it. NULL is fine. */
void weft_async_checkpoint_destroy(weft_async_checkpoint *self);

/* Copies the current state and starts writing it. One at a time. After a failure, which all ranks share, no save has
 * started. [collective] */
weft_status weft_async_checkpoint_begin(weft_async_checkpoint *self, const char *directory,
                                        const weft_checkpoint_state *state, const weft_identities *identities,
                                        const weft_text_files *files, weft_async_checkpoint_first *first, void *context,
                                        weft_error *err);

/* Serves the threads of all ranks, if a save is in progress; waits: until they have ended. With out->ended, status and
 * message are the save's; before, the communicator's. [collective] */
weft_status weft_async_checkpoint_look(weft_async_checkpoint *self, bool waits, weft_async_result *out,
                                       weft_error *err);

#endif
