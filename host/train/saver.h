/* host/train/saver.h: saves the checkpoints of a training run: synchronously, or asynchronously if the plan has memory
 * for it (program/budget.h). Also removes old checkpoints, tracks the best one, and records saves. */
#ifndef WEFT_HOST_TRAIN_SAVER_H
#define WEFT_HOST_TRAIN_SAVER_H

#include "train/progress.h"
#include "run/async_checkpoint.h"
#include "train/journal.h"
#include "train/output.h"

typedef struct weft_saver {
    weft_session *session;
    const weft_output *output;
    const weft_identities *identities;
    weft_journal *journal;
    weft_progress *progress;
    bool verbose;

    weft_async_checkpoint *async; /* NULL: all saves are synchronous */
    double held;                  /* seconds that the current save has blocked training so far */
    bool records_failed; /* rank 0: a record could not be written; owned by the save's thread until it has ended */

    uint64_t saved_step; /* of the newest complete one; UINT64_MAX: no save by this process yet */
    double seconds;      /* total seconds that saves have blocked training */
    bool unrecorded;     /* a record could not be written: identical on all ranks */
} weft_saver;

/* Opens the saver; the caller has set the fields above the first blank line, and saved_step. Allocates the memory for
 * asynchronous saving if the plan has it and every rank can allocate it. [collective] */
weft_status weft_saver_open(weft_saver *self, weft_error *err);
/* Cancels a save in progress, except on a single rank. A zeroed saver is fine. */
void weft_saver_close(weft_saver *self);

/* Saves the current state, after a save in progress has completed. lasts: no step follows, so the save is synchronous.
 * [collective] */
weft_status weft_saver_save(weft_saver *self, const weft_checkpoint_state *state, bool lasts, weft_error *err);
/* Saves synchronously without records, which cannot be written. [collective] */
weft_status weft_saver_rescue(weft_saver *self, const weft_checkpoint_state *state, weft_error *err);

/* Advances a save in progress, if any; waits: until it is complete. [collective] */
weft_status weft_saver_look(weft_saver *self, bool waits, weft_error *err);

/* Finishes a save, or the cleanup after a kill that followed the resumed save: removes old and incomplete checkpoints,
 * and points `best` to the best one. status: of the save. [collective] */
weft_status weft_saver_settle(weft_saver *self, const weft_checkpoint_state *state, weft_status status,
                              weft_error *err);

/* Records a save of this step ("checkpoint" or "model"), which blocked training for `held` seconds; beside: seconds of
 * asynchronous writing. [collective] */
weft_status weft_saver_note(weft_saver *self, const weft_checkpoint_state *state, const char *what, double held,
                            double beside, weft_error *err);

/* Agrees on the status of records. Returns another code if the ranks cannot agree because one is dead. */
weft_status weft_saver_agree(weft_saver *self, weft_status status, weft_error *err);

#endif
