/* host/train/engine.h: model, layout, device, programs and buffers of one run, ready to execute.
 *
 * The engine is what `weft plan` prints and `weft train` runs: the same object, so a plan cannot drift from the run.
 * It is made in two steps: `prepare` decides everything and takes no memory of the device; `allocate` takes exactly
 * that. */
#ifndef WEFT_HOST_TRAIN_ENGINE_H
#define WEFT_HOST_TRAIN_ENGINE_H

#include "memory/account.h"
#include "program/execute.h"
#include "train/graphs.h"
#include "train/run.h"

/* Small numbers that live on the device, in one buffer of FIXED memory. */
typedef struct weft_scalars {
    weft_slot_ref buffer;
    weft_ref losses;      /* fp64 per leaf of an optimizer step */
    weft_ref square_sums; /* fp64 per trained parameter */
    weft_ref count;       /* fp64 */
    weft_ref norm;        /* fp64 */
    weft_ref coefficient; /* fp32 */
    weft_ref skip;        /* int32 */
    weft_ref hp;          /* the optimizer's struct */
} weft_scalars;

/* What the engine takes from the device, to the byte. */
typedef struct weft_engine_bytes {
    int64_t line[WEFT_N_ACCOUNT_LINES];
    int64_t total;
    int64_t category[WEFT_N_MEMORY_CATEGORIES]; /* at the highest moment; with `spare` they add up to total */
    int64_t spare;                              /* gaps of the arena at that moment */
} weft_engine_bytes;

typedef struct weft_engine_spec {
    bool training;         /* a training program, gradients, optimizer state */
    int32_t evaluate_rows; /* leaves of evaluation; 0: no evaluation program */
    int32_t leaves;        /* A */
    int32_t rows;          /* micro_batch */
    int32_t n_lengths;
    int32_t lengths[WEFT_MAX_LENGTHS];
    /* Generation instead of the two above: rows is 1, and the graphs are made by host/train/generate.c. */
    int32_t cache_rows;  /* places of the key-value state; 0: no generation */
    int32_t prompt_rows; /* places of the longest FORWARD of generation */
} weft_engine_spec;

/* A mode's graphs, job and placed program. */
typedef struct weft_stage {
    weft_graph_set *graphs;
    weft_job *job;
    weft_program *program;
    weft_price price;
} weft_stage;

typedef struct weft_engine {
    const weft_run *run;
    weft_engine_spec spec;
    int32_t dtype; /* weft_dtype that the model computes in: [train] precision */
    weft_declared *declared;
    weft_layout *layout;
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_device_info device_info;
    const weft_optimizer_plugin *optimizer_plugin;
    weft_optimizer *optimizer;
    const weft_state_slot *states;
    int64_t n_states;

    weft_stage train, evaluate, generate; /* program NULL: not asked for */
    weft_engine_bytes bytes;              /* the plan */

    weft_account account;
    weft_slot_ref parameters, gradients; /* flat regions; gradients: sums over leaves of the trainable part */
    weft_slot_ref state[WEFT_MAX_STATES];
    weft_slot_ref *tables;    /* [declared->n_tables] */
    weft_slot_ref ranges;     /* weft_range rows of all trainable groups */
    int64_t *group_ranges;    /* [n_trainable_groups + 1]: first row of each group */
    weft_slot_ref key_values; /* generation */
    weft_slot_ref logits;     /* generation: a row of the vocabulary */
    weft_scalars scalars;
    weft_slot_ref arena;
    weft_slot_ref compute;    /* the compute copy (host/train/compute.h); empty in fp32 */
    weft_ref *parameter_refs; /* [n_parameters] masters, fp32 */
    weft_ref *compute_refs;   /* [n_parameters] what the graphs read: the copy of a matrix, or the master */
    uint64_t updates; /* that the optimizer has made: steps without those that were skipped. Belongs to its states: set
                             by load, by weft_checkpoint_restore and by each step. */
    int32_t stored_dtype; /* weft_dtype of the files that the parameters first came from; fp32 for a fresh start. What
                             [checkpoint] dtype = auto saves. Set by load and by weft_checkpoint_restore. */
} weft_engine;

/* Model, layout and device; graphs and programs by `spec` later. Enough for weft_model_info and names. */
weft_status weft_engine_open(weft_engine **out, const weft_run *run, weft_error *err);
/* Graphs, programs (checked, placed, priced) and the plan of bytes. */
weft_status weft_engine_prepare(weft_engine *engine, const weft_engine_spec *spec, weft_error *err);
/* Takes the planned memory and fills the fixed part of it. */
weft_status weft_engine_allocate(weft_engine *engine, weft_error *err);
/* Parameters from [model] path, or freshly initialised, as the configuration says, the compute copy of them, and
 * optimizer states of zeros. */
weft_status weft_engine_load(weft_engine *engine, weft_error *err);
void weft_engine_close(weft_engine *engine); /* NULL is fine */

/* Rows of the position tables: the longest leaf or the cache. */
int64_t weft_engine_table_rows(const weft_engine_spec *spec);

/* A planned slot of a program's event as the graphs take it; slot -1 gives an empty one. */
weft_slot_ref weft_engine_slot(const weft_engine *engine, const weft_program *program, int32_t slot);
/* Part of a region: `offset` bytes further. */
weft_ref weft_ref_at(weft_ref ref, int64_t offset);

#endif
