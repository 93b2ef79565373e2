/* host/checkpoint/checkpoint.h: saving a run and taking it up again.
 *
 * out/checkpoints/step-N/ is itself a directory that transformers loads: config.json, safetensors, tokenizer files. Beside
 * them lies what only a resume needs:
 *
 *     state/<slot>.safetensors      the optimizer's states, keyed by parameter name: "exp_avg.safetensors"
 *     state/master.safetensors      fp32 masters, where the saved weights are narrower
 *     state/run.json                step, counters, best loss, identity of the run
 *     state/config.ini              the resolved configuration
 *     manifest.json                 written last: sizes and SHA-256 of every file; of tensors per grid cell, as one root
 *
 * A checkpoint is written under a temporary name, synced, given its manifest, synced again and renamed: a directory called
 * step-N with a manifest that verifies is whole, and nothing else counts. */
#ifndef WEFT_HOST_CHECKPOINT_H
#define WEFT_HOST_CHECKPOINT_H

#include "train/engine.h"

/* What a resume continues from. */
typedef struct weft_checkpoint_state {
    uint64_t step;    /* optimizer steps done */
    uint64_t tokens;  /* targets trained on so far */
    double eval_loss; /* at this step; NaN: not measured */
    double best_loss; /* lowest so far; NaN: none */
    uint64_t best_step;
} weft_checkpoint_state;

/* A fact that a resume must find unchanged: batch, context, grid, reduce, data, plugin hashes, ... */
typedef struct weft_identity {
    char name[64];
    char value[512];
} weft_identity;

typedef struct weft_identities {
    weft_identity items[48];
    int32_t n;
} weft_identities;

/* All facts of this engine and run; data_fingerprint: of weft_data_info. */
void weft_identities_collect(weft_identities *out, const weft_engine *engine, uint64_t data_fingerprint);

/* Saves into directory/step-N, replacing one of the same step. text: its files are copied; may be NULL. The free space is
 * checked first; on any failure the directory is as it was. */
weft_status weft_checkpoint_save(const weft_engine *engine, const char *directory, const weft_checkpoint_state *state,
                                 const weft_identities *identities, const weft_text *text, weft_error *err);

/* The same files without state/ and manifest, for people: out/model. Replaces it in one step. */
weft_status weft_model_save(const weft_engine *engine, const char *directory, const weft_text *text, weft_error *err);

/* Path of the newest checkpoint whose manifest verifies, and its state. Broken ones are passed over with a warning that names
 * what is wrong. WEFT_E_USER: there is none. */
weft_status weft_checkpoint_newest(char *path, size_t size, weft_checkpoint_state *state, const char *directory,
                                   const weft_host *host, weft_error *err);

/* Parameters and optimizer state of a checkpoint into an allocated engine. Facts that differ are refused by name, or, with
 * inexact, printed. */
weft_status weft_checkpoint_restore(weft_engine *engine, const char *path, const weft_identities *identities, bool inexact,
                                    weft_error *err);

/* Removes all but the `keep` newest; best_step (0: none) stays too. Temporary directories of a killed run go as well. */
weft_status weft_checkpoint_retain(const char *directory, int64_t keep, uint64_t best_step, weft_error *err);

/* SHA-256 in hex of the fp32 parameters and optimizer state, by name order of declaration: the run's bits. */
weft_status weft_engine_hash(char hex[65], const weft_engine *engine, weft_error *err);

#endif
