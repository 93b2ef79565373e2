/* host/run/run_record.h: state/run.json: where a run was, what it was, and what else a resume has to know. */
#ifndef WEFT_HOST_RUN_RUN_RECORD_H
#define WEFT_HOST_RUN_RUN_RECORD_H

#include "run/checkpoint.h"
#include "run/loss_scale.h"

/* What state/master.safetensors has. */
typedef enum weft_masters { WEFT_MASTERS_NONE = 0, WEFT_MASTERS_TRAINABLE = 1, WEFT_MASTERS_ALL = 2 } weft_masters;

typedef struct weft_record {
    weft_checkpoint_state state;
    weft_identities identities; /* of the run that saved */
    uint64_t updates;           /* that the optimizer has made (weft_engine) */
    weft_loss_scale scale;      /* in fp16; its scale is 0 in other runs */
    int32_t stored_dtype;       /* weft_dtype of the base's files (weft_engine) */
    weft_masters masters;
    weft_choices choices; /* that devices made: none in checkpoints of before there were some */
} weft_record;

weft_status weft_record_save(const weft_record *record, const char *path, weft_error *err);

/* weft_record_clear afterwards, also on failure. */
weft_status weft_record_load(weft_record *out, const char *path, weft_error *err);

void weft_record_clear(weft_record *record); /* of one that was loaded */

/* Refuses the facts of now that differ from a checkpoint's, all at once. */
weft_status weft_record_judge(const weft_record *record, const weft_identities *now, const char *path, weft_error *err);

/* Compares the facts of a checkpoint with those of now: refuses those that differ, or, with inexact, prints them. Noted
 * ones are printed. What changed, and the changes in the record, are added to now->changes. path: the checkpoint's, for
 * the text. */
weft_status weft_record_compare(const weft_record *record, weft_identities *now, bool inexact, const weft_host *host,
                                const char *path, weft_error *err);

#endif
