/* host/train/journal.h: what a training run notes while it runs. Rank 0 writes it into the records (records.h); every
 * rank keeps its own row of times, which come together at saves and at the end. */
#ifndef WEFT_HOST_TRAIN_JOURNAL_H
#define WEFT_HOST_TRAIN_JOURNAL_H

#include "run/checkpoint.h"
#include "report/rank_rows.h"
#include "train/event_file.h"
#include "train/records.h"

/* What has been since the last line of metrics. */
typedef struct weft_metrics_span {
    int64_t targets;
    weft_rank_row row;
} weft_metrics_span;

typedef struct weft_journal {
    const weft_session *session;
    weft_records records;   /* open on rank 0 alone */
    weft_event_file events; /* the same, where [run] tensorboard asks for it */
    weft_metrics_span since_line;
    weft_rank_row since_row; /* of this rank, since the last line of phases */
} weft_journal;

/* Rank 0 opens the records in `directory`, which must outlive them, cut back to the checkpoint that this process
 * resumed from (NULL: none), and records the start. begin: weft_clock_seconds of this process's beginning.
 * [collective] */
weft_status weft_journal_open(weft_journal *self, const weft_session *session, const char *directory,
                              const weft_checkpoint_state *resumed_from, double begin, weft_error *err);
void weft_journal_close(weft_journal *self); /* a zeroed one is fine */

/* A step that took `seconds`; what its trace says is read now. Writes a line where one is due. */
weft_status weft_journal_step(weft_journal *self, uint64_t step, const weft_step_result *result, double seconds,
                              weft_error *err);
weft_status weft_journal_evaluation(weft_journal *self, uint64_t step, const weft_evaluation *evaluation,
                                    weft_error *err);
/* what: "checkpoint" or "model"; seconds that it held training, and those that it took beside; best: of the lowest
 * evaluation loss so far. */
weft_status weft_journal_save(weft_journal *self, uint64_t step, const char *what, double held, double beside,
                              bool best, weft_error *err);
/* What each rank's time went to since the last such line; nothing where no step was made. Rank 0 may fail alone.
 * [collective] */
weft_status weft_journal_phases(weft_journal *self, uint64_t step, weft_error *err);
/* Also beside whoever writes lines. */
weft_status weft_journal_sync(weft_journal *self, weft_error *err);

#endif
