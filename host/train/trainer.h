/* host/train/trainer.h: a complete training run: steps, evaluations, checkpoints, and the output directory (output.c).
 *
 *     config.ini       the resolved configuration
 *     *.jsonl          the records (journal.h); tensorboard/ the same for TensorBoard (journal.h)
 *     similarity.json  the initial mean last hidden state, if [run] similarity is set (run/values.h)
 *     checkpoints/     step-N directories, and best, a link to one of them
 *     model/           the result, a Hugging Face directory
 *     ranks.json       with several ranks, at the end: memory and traffic of each rank */
#ifndef WEFT_HOST_TRAIN_TRAINER_H
#define WEFT_HOST_TRAIN_TRAINER_H

#include "run/session.h"
#include "train/tables.h"

typedef enum weft_output_mode {
    WEFT_OUTPUT_NEW = 0,      /* a directory that contains a run is rejected */
    WEFT_OUTPUT_RESUME = 1,   /* it must contain a run */
    WEFT_OUTPUT_OVERWRITE = 2 /* a run's files there are removed */
} weft_output_mode;

typedef struct weft_output {
    char *directory; /* short enough for the path of each file in it */
    weft_output_mode mode;
    bool writes;    /* this rank writes; on the others only `directory` is set, and the calls below have no effect */
    int lock;       /* descriptor of .lock, held for the life of the run */
    bool made_lock; /* the lock file was new */
    bool had_run;   /* the directory has files of an earlier run */
} weft_output;

/* Creates the directory, takes its lock (on conflict the error names the other process) and checks its contents.
 * Removes no files of a run; weft_output_begin does. RESUME creates no directory. Rejects the root, the directories
 * that the run reads (NULL: unset), and files with the names of a run's that no run created. writes: this rank writes
 * for all. */
weft_status weft_output_open(weft_output **out, const char *directory, weft_output_mode mode, bool writes,
                             const char *model, const char *tokenizer, weft_error *err);
void weft_output_close(weft_output *output); /* NULL is fine */

/* Fails if the directory's name no longer refers to the opened directory: it was renamed, removed or replaced, and
 * another run may be there. Call it before each write by name. */
weft_status weft_output_check(const weft_output *output, weft_error *err);

/* Prepares the directory for the files of this run. If an earlier run was made there, removes the temporary files of
 * killed processes, "config.ini.PID.tmp"; OVERWRITE also removes config.ini, the records, similarity.json, report.html,
 * tensorboard/, checkpoints/ and model/, and no other file, and none at all if these contain one that no run wrote. */
weft_status weft_output_begin(const weft_output *output, weft_error *err);

/* Rejects an input path (the INI file, a model, data) inside the run's own output. A missing path is fine. */
weft_status weft_output_protect(const weft_output *output, const char *path, weft_error *err);

/* Writes "directory/name" to path and returns it. */
const char *weft_output_path(const weft_output *output, char path[WEFT_PATH_BYTES], const char *name);

typedef struct weft_train_options {
    weft_output_mode mode;
    bool inexact; /* resume even if the recorded facts differ */
    bool quiet;
    bool verbose;    /* print all details before the first loss and after the last */
    uint32_t tables; /* mask of weft_shown */
    int64_t values;  /* steps with printed values; one rank only */
    int64_t room;    /* bytes of a rank's device from the user; 0: query the device */
    bool any_room;   /* start even if the plan does not fit */
} weft_train_options;

/* Trains to the end, or until a signal: then saves the state and returns WEFT_E_STOPPED. */
weft_status weft_train(const char *path, const char *const *overrides, size_t n_overrides,
                       const weft_train_options *options, weft_error *err);

#endif
