/* host/run/checkpoint.h: saving a run and taking it up again.
 *
 * out/checkpoints/step-N/ is itself a directory that transformers loads: config.json, safetensors, tokenizer files.
 * Beside them lies what only a resume needs:
 *
 *     state/<slot>.safetensors      the optimizer's states, keyed by parameter name: "exp_avg.safetensors"
 *     state/master.safetensors      fp32 masters, where the saved weights are narrower: of trained parameters, and of
 * the frozen ones as well if they too would lose bits state/run.json                step, counters, best loss, the
 * facts of the run and their changes state/config.ini              the resolved configuration manifest.json written
 * last: sizes and SHA-256 of every file; of tensors per grid cell, as one root
 *
 * A checkpoint is written under a temporary name, synced, given its manifest, synced again and renamed: a directory
 * called step-N with a manifest that verifies is whole, and nothing else counts. */
#ifndef WEFT_HOST_RUN_CHECKPOINT_H
#define WEFT_HOST_RUN_CHECKPOINT_H

#include "run/engine.h"

#define WEFT_BEST_NAME "best" /* the link to the best checkpoint (best.h) */

/* What a resume continues from. */
typedef struct weft_checkpoint_state {
    uint64_t step;    /* optimizer steps done */
    uint64_t tokens;  /* targets trained on so far */
    double eval_loss; /* at this step; NaN: not measured */
    double best_loss; /* lowest so far; NaN: none */
    uint64_t best_step;
} weft_checkpoint_state;

/* A fact about how a run's numbers come to be. A resume must find it unchanged: batch, context, grid, reduce, data,
 * device, plugins and their files' SHA-256, ... Facts that are only noted may change, as learning rate, schedule or
 * strategy may: such a change is printed. Values that do not fit end in their SHA-256. */
typedef struct weft_identity {
    char name[64]; /* "[train] micro_batch" */
    char value[512];
    bool noted;
} weft_identity;

/* A fact that changed at a resume, kept in all later checkpoints of the run. */
typedef struct weft_change {
    uint64_t step;
    char name[64], from[512], to[512];
} weft_change;

typedef struct weft_identities {
    weft_identity *items;
    int32_t n;
    weft_change *changes; /* oldest first */
    int32_t n_changes;
} weft_identities;

/* All facts of this engine and run; data_fingerprint: of weft_data_info. weft_identities_clear afterwards, also on
 * failure. */
weft_status weft_identities_collect(weft_identities *out, const weft_engine *engine, uint64_t data_fingerprint,
                                    weft_error *err);
void weft_identities_clear(weft_identities *identities);

/* Saves into directory/step-N, replacing one of the same step. text: its files are copied; may be NULL. The free space
 * is checked first; on any failure the directory is as it was, and no rank takes the checkpoint for saved.
 * [collective] */
weft_status weft_checkpoint_save(const weft_engine *engine, const char *directory, const weft_checkpoint_state *state,
                                 const weft_identities *identities, const weft_text *text, weft_error *err);

/* The same files without state/ and manifest, for people: out/model. Replaces it in one step. [collective] */
weft_status weft_model_save(const weft_engine *engine, const char *directory, const weft_text *text, weft_error *err);

/* Path of the newest checkpoint whose manifest verifies, and its state. Broken ones are passed over with a warning that
 * names what is wrong; one that cannot be read is an error. WEFT_E_USER: there is none. peers: the ranks, which share
 * the work; NULL: this one alone. [collective] */
weft_status weft_checkpoint_newest(char *path, size_t size, weft_checkpoint_state *state, const char *directory,
                                   const weft_process_group *peers, const weft_host *host, weft_error *err);

/* What weft_checkpoint_restore would refuse for its model or its facts, before any memory is taken. [collective] */
weft_status weft_checkpoint_judge(const weft_engine *engine, const char *path, const weft_identities *identities,
                                  bool inexact, weft_error *err);

/* Parameters and optimizer state of a checkpoint into an allocated engine. Facts that differ are refused by name, all
 * at once, or, with inexact, printed; each change, and those that the checkpoint tells of, are added to
 * identities->changes. Each rank reads what it keeps. [collective] */
weft_status weft_checkpoint_restore(weft_engine *engine, const char *path, weft_identities *identities, bool inexact,
                                    weft_error *err);

/* Removes what is older than the `keep` newest whole checkpoints up to `step`, the one just saved; best_step (0: none)
 * stays, and so do those that hold files which no run wrote, with a warning. Later steps, which a resume passed over as
 * broken, are neither counted nor touched. Temporary directories of a killed run are removed as well. */
weft_status weft_checkpoint_retain(const char *directory, uint64_t step, int64_t keep, uint64_t best_step,
                                   const weft_host *host, weft_error *err);

/* SHA-256 in hex of the fp32 parameters and optimizer state, by name order of declaration: the run's bits, the same on
 * all ranks. [collective] */
weft_status weft_engine_hash(char hex[65], const weft_engine *engine, weft_error *err);

#endif
