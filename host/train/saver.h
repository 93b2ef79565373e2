/* host/train/saver.h: the checkpoints of a training run: in place, where training stands until one is whole, or
 * beside training, where the plan has room for it (program/save_place.h). Which old ones go, which is the best, and the
 * lines that records have of saves. */
#ifndef WEFT_HOST_TRAIN_SAVER_H
#define WEFT_HOST_TRAIN_SAVER_H

#include "run/beside.h"
#include "report/progress.h"
#include "train/journal.h"
#include "train/output.h"

typedef struct weft_saver {
    weft_session *session;
    const weft_output *output;
    const weft_identities *identities;
    weft_journal *journal;
    weft_progress *progress;
    bool verbose;

    weft_snapshot *snapshot; /* NULL: all is saved in place */
    weft_beside *under_way;  /* NULL: none is */
    double held;             /* seconds that it has held training so far */
    bool records_failed;     /* rank 0: what it waits for could not be written; its thread's until that has ended */

    uint64_t saved_step; /* of the newest that is whole; UINT64_MAX: none by this process */
    double seconds;      /* that all of them have held training */
    bool unrecorded;     /* a record could not be written: alike on all ranks */
} weft_saver;

/* All above the blank line is filled in. Takes the memory for saving beside training, where the plan says so and every
 * rank has it. [collective] */
weft_status weft_saver_open(weft_saver *self, weft_error *err);
/* One that is under way is given up, but for a rank alone. A zeroed one is fine. */
void weft_saver_close(weft_saver *self);

/* Saves a state of now; waits for one that is under way. lasts: no step follows, so it is saved in place.
 * [collective] */
weft_status weft_saver_save(weft_saver *self, const weft_checkpoint_state *state, bool lasts, weft_error *err);
/* The same in place and without its records, which cannot be written. [collective] */
weft_status weft_saver_rescue(weft_saver *self, const weft_checkpoint_state *state, weft_error *err);

/* Sees to a save that is under way, if one is; waits: until it is whole. [collective] */
weft_status weft_saver_look(weft_saver *self, bool waits, weft_error *err);

/* Does what a kill after the save that this run resumes from has left undone: removes old checkpoints and half-written
 * ones, and points `best` to the best one. [collective] */
weft_status weft_saver_settle(weft_saver *self, const weft_checkpoint_state *state, weft_error *err);

/* A record of a save of this step ("checkpoint" or "model"), which held training for so many seconds. [collective] */
weft_status weft_saver_note(weft_saver *self, const weft_checkpoint_state *state, const char *what, double held,
                            double beside, weft_error *err);

/* What agree does, of records. Ranks that cannot agree because one is gone get another code. */
weft_status weft_saver_agree(weft_saver *self, weft_status status, weft_error *err);

#endif
