/* host/train/journal.h: run log of a training process. Rank 0 writes it to the records (records.h). Every rank measures
 * its own times, which are gathered at saves and at the end. */
#ifndef WEFT_HOST_TRAIN_JOURNAL_H
#define WEFT_HOST_TRAIN_JOURNAL_H

#include "train/per_rank.h"
#include "run/checkpoint.h"
#include "run/values.h"
#include "train/records.h"

/* Prints each value that the instructions of a step compute on a line of stdout: step, instruction, object, and its
 * first numbers. */
extern const weft_value_sink weft_value_rows_to_stdout;

typedef struct weft_journal {
    const weft_session *session;
    weft_records records;     /* open only on rank 0 */
    weft_rank_row since_line; /* totals since the last line of metrics, */
    int64_t targets;          /* and their target tokens */
    weft_rank_row since_row;  /* of this rank, since the last line of phases */
} weft_journal;

/* Opens the records in `directory` on rank 0, truncates them to the checkpoint that this process resumed from (NULL:
 * new run), and records the start. directory must outlive the journal. begin: weft_clock_seconds at this process's
 * start. Afterwards close the records, also after a failure. [collective] */
weft_status weft_journal_open(weft_journal *self, const weft_session *session, const char *directory,
                              const weft_checkpoint_state *resumed_from, double begin, weft_error *err);

/* Records a step that took `seconds`, and reads its trace. Writes a line if one is due. */
weft_status weft_journal_step(weft_journal *self, uint64_t step, const weft_step_result *result, double seconds,
                              weft_error *err);
weft_status weft_journal_evaluation(weft_journal *self, uint64_t step, const weft_evaluation *evaluation,
                                    weft_error *err);
/* Records each rank's time by phase since the last such line; skipped without steps. May fail on rank 0 only.
 * [collective] */
weft_status weft_journal_phases(weft_journal *self, uint64_t step, weft_error *err);

#endif
