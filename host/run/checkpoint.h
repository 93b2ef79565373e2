/* host/run/checkpoint.h: saves and resumes a run.
 *
 * out/checkpoints/step-N/ is itself a directory that transformers loads: config.json, safetensors, tokenizer files.
 * In addition it has the state for a resume:
 *
 *     state/<slot>.safetensors      the optimizer's states by parameter name: "exp_avg.safetensors"
 *     state/master.safetensors      fp32 masters, if the saved weights are narrower: of trained parameters, and of
 *                                   frozen ones if they would lose bits too
 *     state/run.json                step, counters, best loss, the facts of the run and their changes
 *     state/config.ini              the resolved configuration
 *     manifest.json                 written last: sizes and SHA-256 of every file; of tensors one root over grid cells
 *
 * A checkpoint is written under a temporary name, synced, given its manifest, synced again and renamed: a directory
 * named step-N with a manifest that verifies is complete. */
#ifndef WEFT_HOST_RUN_CHECKPOINT_H
#define WEFT_HOST_RUN_CHECKPOINT_H

#include "base/text.h"
#include "run/engine.h"
#include "run/text.h"

#define WEFT_BEST_NAME "best" /* a link to the checkpoint of the lowest evaluation loss */

typedef struct weft_checkpoint_state {
    uint64_t step;    /* optimizer steps done */
    uint64_t tokens;  /* targets trained on so far */
    double eval_loss; /* at this step; NaN: not measured */
    double best_loss; /* lowest so far; NaN: none */
    uint64_t best_step;
} weft_checkpoint_state;

/* A fact that determines a run's numbers: batch, context, grid, reduce, data, device, plugins and their files'
 * SHA-256, ... A resume requires the same. Noted facts may change, such as learning rate, schedule or strategy: a
 * change is logged. Values that are too long end in their SHA-256. */
typedef struct weft_identity {
    char name[64]; /* "[train] micro_batch" */
    char value[512];
    bool noted;
} weft_identity;

/* A fact that changed at a resume; all later checkpoints of the run have it. */
typedef struct weft_change {
    uint64_t step;
    char name[64], from[512], to[512];
    bool noted; /* of one that this resume has found */
} weft_change;

typedef struct weft_identities {
    weft_identity *items;
    int32_t n;
    weft_change *changes; /* oldest first */
    int32_t n_changes;
} weft_identities;

/* Collects all facts. data_fingerprint: of weft_data_info. weft_identities_clear afterwards, also after a failure. */
weft_status weft_identities_collect(weft_identities *out, const weft_engine *engine, uint64_t data_fingerprint,
                                    weft_error *err);
void weft_identities_clear(weft_identities *identities);

/* The content of state/master.safetensors. */
typedef enum weft_masters { WEFT_MASTERS_NONE = 0, WEFT_MASTERS_TRAINABLE = 1, WEFT_MASTERS_ALL = 2 } weft_masters;

typedef struct weft_record {
    weft_checkpoint_state state;
    weft_identities identities; /* of the run that saved */
    uint64_t updates;           /* of the optimizer (weft_engine) */
    weft_loss_scale scale;      /* in fp16; its scale is 0 in other runs */
    int32_t stored_dtype;       /* weft_dtype of the base's files (weft_engine) */
    weft_masters masters;
    weft_choices choices; /* of devices; none in old checkpoints */
} weft_record;

weft_status weft_record_save(const weft_record *record, const char *path, weft_error *err);

/* weft_record_clear afterwards, also on failure. */
weft_status weft_record_load(weft_record *out, const char *path, weft_error *err);

void weft_record_clear(weft_record *record); /* of one that was loaded */

/* Saves into directory/step-N, replacing one of the same step. files: of the tokenizer; may be NULL. The
 * available space is checked first; after any failure the directory is unchanged, and all ranks fail. [collective] */
weft_status weft_checkpoint_save(const weft_engine *engine, const char *directory, const weft_checkpoint_state *state,
                                 const weft_identities *identities, const weft_text_files *files, weft_error *err);
/* Saves the same files without state/ and manifest: out/model. Replaces it in one step. [collective] */
weft_status weft_model_save(const weft_engine *engine, const char *directory, const weft_text_files *files,
                            weft_error *err);

/* Checkpoints that are written while training continues.
 *
 *     weft_async_checkpoint_create(&save, engine, &err);                                      once: allocates the copy
 *     weft_async_checkpoint_begin(save, directory, &state, &identities, &files, ..., &err);   copies the state
 *     ... optimizer steps; after each: weft_async_checkpoint_look(save, false, &result, &err) ...
 *     weft_async_checkpoint_look(save, true, &result, &err);                                  waits for the end
 *
 * A thread writes the copy with the code of a synchronous save, which reads regions and a process group: here copies
 * and a relay. It uses files and host memory only: the main threads exchange the ranks' data for it after each step.
 *
 * The copy of this rank's state is in pinned memory (weft/transfer.h) if the device has its own memory. If the host
 * sees the device's memory, the copy is a device buffer, and frozen parameters are read in place. The plan counts it
 * (program/budget.h). */
typedef struct weft_async_checkpoint weft_async_checkpoint;

typedef struct weft_async_result {
    bool ended; /* the same on all ranks */
    weft_checkpoint_state state;
    double seconds; /* of the thread, including waits for steps to end */
} weft_async_result;

/* Allocates the copy. The plan must have asynchronous saves. */
weft_status weft_async_checkpoint_create(weft_async_checkpoint **out, weft_engine *engine, weft_error *err);
/* Aborts a save that has not ended; a single rank completes it. NULL is fine. */
void weft_async_checkpoint_destroy(weft_async_checkpoint *self);

/* Copies the current state and starts writing it. One at a time. After a failure, which all ranks share, no save has
 * started. first: called on rank 0 by the thread before the manifest is written; syncs what must precede it.
 * [collective] */
weft_status weft_async_checkpoint_begin(weft_async_checkpoint *self, const char *directory,
                                        const weft_checkpoint_state *state, const weft_identities *identities,
                                        const weft_text_files *files,
                                        weft_status (*first)(void *context, weft_error *err), void *context,
                                        weft_error *err);

/* Serves the threads of all ranks, if a save is in progress; waits: until they have ended. With out->ended, status and
 * message are the save's; before, the communicator's. [collective] */
weft_status weft_async_checkpoint_look(weft_async_checkpoint *self, bool waits, weft_async_result *out,
                                       weft_error *err);

/* Returns path and state of the newest checkpoint whose manifest verifies. Broken ones are skipped with a warning;
 * one that cannot be read is an error. WEFT_E_USER: there is none. peers: share the work; NULL: a single rank.
 * [collective] */
weft_status weft_checkpoint_newest(char path[WEFT_PATH_BYTES], weft_checkpoint_state *state, const char *directory,
                                   const weft_process_group *peers, const weft_host *host, weft_error *err);

/* Checks model and facts as weft_checkpoint_restore does, before memory is allocated. [collective] */
weft_status weft_checkpoint_check(const weft_engine *engine, const char *path, const weft_identities *identities,
                                  bool inexact, weft_error *err);
/* Loads parameters and optimizer state into an allocated engine. Fixed facts that differ are an error, or, with
 * inexact, logged; the changes, and those of the checkpoint, are added to identities->changes. Each rank reads its
 * shards. [collective] */
weft_status weft_checkpoint_restore(weft_engine *engine, const char *path, weft_identities *identities, bool inexact,
                                    weft_error *err);

/* Removes checkpoints older than the `keep` newest complete ones up to `step`, which was just saved. best_step (0:
 * none) stays, and so do those with foreign files, with a warning. Later steps, which a resume skipped as broken,
 * are neither counted nor touched. Also removes temporary directories of a killed run. */
weft_status weft_checkpoint_retain(const char *directory, uint64_t step, int64_t keep, uint64_t best_step,
                                   const weft_host *host, weft_error *err);
/* Points directory/best, a link, to step-BEST_STEP in one step. Removes the link if that checkpoint does not exist
 * (keep_best = no, or best_step 0: nothing was evaluated). A file system without links causes a warning; so does
 * another file of that name, which stays. */
weft_status weft_best_point(const char *directory, uint64_t best_step, const weft_host *host, weft_error *err);

/* manifest.json lists the files of a complete checkpoint:
 *
 *     {"format": 1, "step": 50, "grid": 64, "files": {
 *          "config.json":       {"bytes": 612, "sha256": "..."},
 *          "model.safetensors": {"bytes": 1041000, "header_sha256": "...", "tensors": {"norm.weight": "...", ...}}}}
 *
 * A tensor's hash is SHA-256 over the SHA-256 of each of its grid cells in order; a cell has `grid` elements (the
 * last one fewer). A cell has one owner for every number of ranks: each rank hashes what it writes, before it writes
 * it. Files other than safetensors have one hash. Verification hashes the content of the file system and compares. */
#define WEFT_MANIFEST_NAME "manifest.json"

/* Lists all files in the directory and below. roots: {"model.safetensors": {"tensor": root, ...}, ...} of its
 * safetensors files; tensors of other files are hashed here. */
weft_status weft_manifest_write(const char *directory, uint64_t step, int64_t grid, const json_t *roots,
                                weft_error *err);
/* WEFT_E_DATA with file and reason if something is missing or different; other files are ignored. The ranks share
 * the work and the result. [collective] */
weft_status weft_manifest_verify(const char *directory, uint64_t step, const weft_process_group *peers,
                                 weft_error *err);
/* Checks names and sizes only, on this rank. */
weft_status weft_manifest_glance(const char *directory, uint64_t step, weft_error *err);

#endif
