/* host/run/snapshot.h: a copy in the host's memory of what a rank keeps of a run, from which a checkpoint is written
 * while training goes on.
 *
 * The device puts it there by itself where it has memory of its own (weft/transfer.h: the memory is pinned); where the
 * host sees the device's memory the copy is a buffer of the device, and what is frozen is read where it lies. Taken
 * once, as the plan counts it (program/save_place.h). */
#ifndef WEFT_HOST_RUN_SNAPSHOT_H
#define WEFT_HOST_RUN_SNAPSHOT_H

#include "run/state.h"

typedef struct weft_snapshot weft_snapshot;

/* Takes the memory; nothing is in it yet. The plan says that checkpoints are saved beside training. */
weft_status weft_snapshot_create(weft_snapshot **out, weft_engine *engine, weft_error *err);
void weft_snapshot_destroy(weft_snapshot *self); /* NULL is fine */

/* Copies what the engine has now, behind all that its device was told, and waits for that. [main] */
weft_status weft_snapshot_fill(weft_snapshot *self, weft_error *err);

/* What was copied, as the regions of the engine are (run/fetch.h): to be read without its device, by one thread at a
 * time. What other ranks keep comes through the region's peers. */
weft_region weft_snapshot_parameters(const weft_snapshot *self);
weft_region weft_snapshot_state(const weft_snapshot *self, int64_t state);

#endif
