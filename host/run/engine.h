/* host/run/engine.h: a run's engine: the plan (program/plan.h), device, ranks, and the memory that the plan names.
 *
 *     weft_engine_open        the ranks of a rank span, the declared model, the optimizer
 *     weft_engine_prepare     the plan, without device memory
 *     weft_engine_allocate    exactly the planned memory
 *     weft_engine_load        the weights
 *
 * Each step compares what must be identical on all ranks before it returns. */
#ifndef WEFT_HOST_RUN_ENGINE_H
#define WEFT_HOST_RUN_ENGINE_H

#include "model/region.h"
#include "program/plan.h"
#include "run/ranks.h"

#include <weft/choices.h>

/* Kernel algorithms that devices select at run time (weft/choices.h), selected by rank 0 for all. */
typedef struct weft_choices {
    weft_device_choice *items; /* those of rank 0 in order, then those that only other ranks have */
    int32_t n;
} weft_choices;

void weft_choices_add(weft_choices *self, const weft_device_choice *choice);
void weft_choices_clear(weft_choices *self); /* a zeroed one is fine */

/* Every byte that the host allocates on a device, by line of the plan, so plan and run can be compared to the byte. A
 * run allocates one buffer for each line and divides it into the planned parts, because a device may round each buffer
 * up to megabytes. */
typedef struct weft_account {
    const weft_device_plugin *kernels;
    weft_device *device;
    int64_t taken[WEFT_N_ACCOUNT_LINES]; /* current bytes */
    int64_t most;                        /* high-water mark of all lines together */
    struct {
        weft_slot_ref whole;
        int64_t cut; /* bytes of it that have a use */
    } lines[WEFT_N_ACCOUNT_LINES];
} weft_account;

/* Allocates a buffer in addition to those of the lines; bytes 0: an empty ref. */
weft_status weft_account_alloc(weft_account *account, weft_slot_ref *out, int64_t bytes, weft_account_line line,
                               weft_error *err);
/* Releases and empties the ref; an empty one is fine. */
void weft_account_free(weft_account *account, weft_slot_ref *slot, weft_account_line line);
int64_t weft_account_total(const weft_account *account);
/* Bytes that the device's context and libraries hold now, which no line has; 0: none, or it is the machine's memory. */
int64_t weft_account_held(const weft_account *account);

/* The factor of losses before backward in fp16, which has no numbers between 0 and 2^-24, where most gradients of
 * activations are, and none above 65504. The clip divides the gradient by it. A step whose gradient norm is not finite
 * makes no update, and the scale is multiplied by `backoff`. After `every` consecutive steps with a finite norm it is
 * multiplied by `growth`, unless fp32 would overflow: the rules of PyTorch's GradScaler (torch/amp/grad_scaler.py). The
 * norm is identical on all ranks, and so is the scale. */
typedef struct weft_loss_scale {
    float scale;
    int64_t good;    /* steps in a row whose gradients were finite, since the last change of the scale */
    int64_t skipped; /* steps of the run without an update */
} weft_loss_scale;

/* Scalars on the device, in one buffer of FIXED memory. */
typedef struct weft_scalars {
    weft_slot_ref buffer;
    weft_ref losses;      /* fp64 per micro-batch whose loss this rank computes, in order */
    weft_ref all_losses;  /* [world][largest number of one rank] of every rank; on a single rank the same as losses */
    weft_ref nodes;       /* fp64 per grid cell of a unit's gradient, of all units; empty if nothing is sharded */
    weft_ref square_sums; /* fp64 per trained parameter */
    weft_ref count;       /* fp64 */
    weft_ref seed;        /* fp32, after the count: in fp16 the factor of the losses */
    weft_ref norm;        /* fp64 */
    weft_ref coefficient; /* fp32 */
    weft_ref skip;        /* int32 */
    weft_ref hp;          /* the optimizer's struct */
    weft_ref first;       /* int64 per micro-batch of a training step: its first sequence; for models with dropout */
    weft_ref past;        /* generation: int64 positions in the key-value cache */
} weft_scalars;

/* The kernels of NORM in order, and the rows of engine->extents that each reads. */
enum {
    WEFT_NORM_OWN_CELLS, /* this rank's shards: a sum per grid cell */
    WEFT_NORM_OWNED,     /* tensors whose gradients this rank owns */
    WEFT_NORM_NODES,     /* the sums of all ranks, to one sum per tensor */
    WEFT_NORM_WHOLE,     /* tensors that every rank has completely */
    WEFT_N_NORM_TABLES
};

typedef struct weft_norm_table {
    int64_t first, n;
    int64_t elements; /* of all rows together */
} weft_norm_table;

/* The context of a region's callbacks. */
typedef struct weft_fetcher {
    struct weft_engine *engine;
    int what; /* WEFT_HOLD_PARAMETERS, or WEFT_HOLD_STATES + the state */
} weft_fetcher;

typedef struct weft_engine {
    weft_plan plan;
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_device_info device_info;
    weft_choices choices; /* of all ranks' devices */
    const weft_optimizer_plugin *optimizer_plugin;
    weft_optimizer *optimizer;

    weft_process_context *own_process_context; /* NULL: the rank span belongs to another one */
    weft_ranks ranks;
    weft_process_group peers; /* the same ranks, for files and failures */
    weft_control_channel channel;
    bool failed; /* a failure occurred while ranks may have waited for each other */

    weft_account account;
    weft_slot_ref parameters, gradients; /* this rank's shards of the parameters and of the gradient sums */
    weft_slot_ref partials;              /* pending sums (weft_unit_sum) */
    weft_fetcher fetchers[WEFT_N_HOLDS];
    weft_slot_ref state[WEFT_MAX_STATES];
    weft_slot_ref *tables;       /* [declared->n_tables] */
    weft_slot_ref ranges;        /* weft_range rows of all trainable groups */
    weft_update_region *regions; /* [n_regions] parts of groups that this rank updates, in order */
    int32_t n_regions;
    weft_slot_ref extents; /* weft_extent rows (run/engine.c) */
    weft_norm_table norm_tables[WEFT_N_NORM_TABLES];
    weft_slot_ref key_values; /* generation */
    weft_slot_ref logits;     /* generation: a row of the vocabulary */
    weft_scalars scalars;
    weft_slot_ref arena;
    weft_slot_ref compute;    /* the compute copy (program/budget.h); empty in fp32 */
    weft_ref *parameter_refs; /* [n_parameters] as stored: masters, or packed or trained without one */
    weft_ref *compute_refs;   /* [n_parameters] inputs of the graphs: the compute copy of a matrix, or the master */
    int32_t *compute_dtypes;  /* [n_parameters] weft_dtype of it */
    uint64_t updates;         /* by the optimizer: steps that were not skipped. Set by load, restore and each step. */
    weft_loss_scale scale;    /* in fp16. Set by load, restore and each step. */
    int32_t stored_dtype;     /* weft_dtype of the files that the parameters were first loaded from, which [checkpoint]
                                 dtype = auto saves; fp32 for a fresh start. Set by load and restore. */
} weft_engine;

/* Opens model, layout and device in a rank span of a process context, which must outlive the engine. NULL: in its own
 * process context, whose watchdogs are started and whose ranks compare run and device. [collective] */
weft_status weft_engine_open(weft_engine **out, const weft_run *run, const weft_rank_span *rank_span, weft_error *err);
void weft_engine_close(weft_engine *engine); /* NULL is fine */
/* After a failure while ranks may wait for each other: the device stops waiting for them. Before the users of the
 * engine are closed. NULL is fine. */
void weft_engine_abandon(weft_engine *engine);

/* Plans once: graphs, programs (checked, placed, priced), bytes. With its own process context the ranks then compare
 * the programs, create their groups and channels, and select kernel algorithms. [collective] if own_process_context */
weft_status weft_engine_prepare(weft_engine *engine, const weft_plan_spec *spec, weft_error *err);

/* Allocates the planned memory and fills its fixed part. In a rank span of another process context the ranks create
 * their groups and select kernel algorithms here. [collective] */
weft_status weft_engine_allocate(weft_engine *engine, weft_error *err);
/* The same without other ranks, for a dry run. */
weft_status weft_engine_take_memory(weft_engine *engine, weft_error *err);
void weft_engine_release(weft_engine *engine); /* frees the memory of allocate */

/* Loads parameters from [model] path, or initializes them, as configured; makes the compute copy and clears the
 * optimizer states. */
weft_status weft_engine_load(weft_engine *engine, weft_error *err);
/* Rounds the masters into the compute copy: all, or those whose copy a step's update makes stale. */
weft_status weft_engine_refresh_copy(const weft_engine *engine, bool after_step, weft_error *err);

/* Connects the ranks that the programs send to, if the communicator needs it. [collective] (communication.c) */
weft_status weft_engine_connect(const weft_engine *engine, weft_error *err);
/* The peers of an engine with its own process context; NULL: it shares one. */
const weft_process_group *weft_engine_peers(const weft_engine *engine);
/* Takes the values of `kept` for the engine's choices. WEFT_E_UNSUPPORTED: this device does not support a value; the
 * engine keeps its own from that one on. */
weft_status weft_engine_take_choices(weft_engine *engine, const weft_choices *kept, weft_error *err);
/* The optimizer's step size before the schedule; false: there is none. */
bool weft_engine_lr(const weft_engine *engine, double *out);
/* Returns a planned slot of a program for the graphs; slot -1: an empty one. */
weft_slot_ref weft_engine_slot(const weft_engine *engine, const weft_program *program, int32_t slot);
/* Reads device memory after all queued work. */
weft_status weft_engine_read(const weft_engine *engine, void *to, weft_ref from, int64_t bytes, weft_error *err);
/* Gathers a struct of each rank. out: [world], which the caller frees, also after a failure. Rank 0 receives all of
 * them, the others have only their own. [collective] */
weft_status weft_engine_gather(const weft_engine *engine, void **out, const void *own, size_t bytes, weft_error *err);
/* This rank's parameters, or an optimizer state, as a region of an allocated engine. what: of weft_fetcher. Reading
 * another rank's shards is [collective]. */
weft_region weft_engine_region(const weft_engine *engine, int what);

#endif
