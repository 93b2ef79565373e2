/* host/train/output.h: the directory of a run: who may write there, and what is in it.
 *
 *     config.ini       the resolved configuration
 *     *.jsonl          the records (records.h); tensorboard/ the same for TensorBoard (event_file.h)
 *     similarity.json  the mean last hidden state of the beginning, where [run] similarity asks for it (similarity.h)
 *     checkpoints/     step-N directories, and best, a link to one of them
 *     model/           the result, a Hugging Face directory
 *     ranks.json       of several ranks, at the end: what each took and sent
 */
#ifndef WEFT_HOST_TRAIN_OUTPUT_H
#define WEFT_HOST_TRAIN_OUTPUT_H

#include <stdbool.h>
#include <weft/base.h>

typedef enum weft_output_mode {
    WEFT_OUTPUT_NEW = 0,      /* a directory that holds a run is refused */
    WEFT_OUTPUT_RESUME = 1,   /* it must hold one */
    WEFT_OUTPUT_OVERWRITE = 2 /* what a run left there is removed */
} weft_output_mode;

typedef struct weft_output {
    char *directory;
    bool writes;    /* this rank does; the others know the directory's name, and all calls below are nothing to them */
    int lock;       /* descriptor of .lock, held while the run lives */
    bool made_lock; /* there was none */
} weft_output;

/* Refuses a directory that cannot be a run's own: the root, or one that the run reads (NULL: none). [any-thread] */
weft_status weft_output_judge_place(const char *directory, const char *model, const char *tokenizer, weft_error *err);

/* Makes the directory, takes its lock (another process that holds it is named) and checks what is in it. Changes
 * nothing that a run left there; weft_output_clear does. RESUME makes no directory. OVERWRITE fails if the directory
 * holds such names and no run was made there. writes: this is the rank that does
 * so for all. */
weft_status weft_output_open(weft_output **out, const char *directory, weft_output_mode mode, bool writes,
                             weft_error *err);
void weft_output_close(weft_output *output); /* NULL is fine */

/* Fails if the directory's name no longer leads to the directory that was opened: somebody renamed, removed or replaced
 * it, and another run may be there. Before each write by name. */
weft_status weft_output_check(const weft_output *output, weft_error *err);

/* Removes the temporary files that killed processes left, "config.ini.PID.tmp". */
weft_status weft_output_sweep(const weft_output *output, weft_error *err);

/* OVERWRITE: removes config.ini, the records, similarity.json, report.html, tensorboard/, checkpoints/ and model/;
 * nothing else, and nothing at all if these hold a file that no run wrote. */
weft_status weft_output_clear(weft_output *output, weft_error *err);

/* Refuses a path that the run reads (the INI file, a model, data) where it lies in what a run writes there. One that
 * does not exist is fine. */
weft_status weft_output_protect(const weft_output *output, const char *path, weft_error *err);

/* "directory/name" into path. */
weft_status weft_output_path(const weft_output *output, char *path, size_t size, const char *name, weft_error *err);

#endif
