/* host/train/fit.h: computes the memory of all ranks of a plan, checks whether it fits and which changes would make it
 * fit; prints the result. */
#ifndef WEFT_HOST_TRAIN_FIT_H
#define WEFT_HOST_TRAIN_FIT_H

#include "run/session.h"

#include <stdbool.h>
#include <weft/device.h>

/* Memory and programs of every rank of a world, computed by one process. */
typedef struct weft_all_rank_plan {
    weft_plan_bytes *bytes;        /* [world] */
    const weft_program **programs; /* [world] of training */
    int32_t world, nodes, ranks_per_node;
} weft_all_rank_plan;

/* Creates an all-rank plan of a training plan by the functions that plan a run: the program of each rank is compiled,
 * its stored shards are laid out and its program is placed in memory. Ranks with equal programs, except for the numbers
 * of their micro-batches, share one placement. */
weft_status weft_all_rank_plan_create(weft_all_rank_plan **out, const weft_plan *plan, weft_error *err);
void weft_all_rank_plan_destroy(weft_all_rank_plan *all_rank_plan); /* NULL is fine */

/* Available memory for a plan: of a rank's device, or of the machine if the device uses host memory, which all ranks of
 * the machine share. */
typedef struct weft_available_memory {
    int64_t bytes; /* 0: unknown */
    int64_t free;  /* of these, now; -1: unknown */
    int64_t held;  /* in addition, used by the device's own context and libraries */
    bool shared;   /* by all ranks of a machine */
    bool limited;  /* limited by this process's control group */
} weft_available_memory;

/* Returns a rank's memory of that size; 0: queries the device, and the kernel for the machine's memory. */
weft_available_memory weft_available_memory_find(int64_t set, const weft_device_info *info);

/* Returns the owner of the memory, "this machine", to precede an apostrophe or a verb. */
const char *weft_available_memory_owner(const weft_available_memory *room);

/* Required memory of a plan: of its largest rank, or of all ranks of its fullest machine if those share the memory. */
typedef struct weft_required_memory {
    weft_plan_bytes bytes; /* sum over those ranks */
    int64_t preparation;   /* of the data, on the rank that needs most for it */
    int32_t first, ranks;  /* those ranks: a number of them from the first on */
} weft_required_memory;

/* Computes the requirement of a plan of any mode; with several ranks it must be a training plan. */
weft_status weft_required_memory_plan(weft_required_memory *out, const weft_plan *plan,
                                      const weft_available_memory *room, weft_error *err);

/* Returns the required bytes: of training, or of the preparation of the data if that takes more. */
int64_t weft_required_memory_bytes(const weft_required_memory *need);

/* Returns whether the memory is sufficient. Memory of unknown size is unlimited. */
bool weft_required_memory_fits(const weft_required_memory *need, const weft_available_memory *room);

/* The settings that determine a run's memory, each with values that need less than the current one, in order of
 * increasing effect. In output order: settings that do not change the result come first. */
typedef enum weft_fit_axis {
    WEFT_FIT_SAVING = 0,        /* save checkpoints synchronously */
    WEFT_FIT_MICRO = 1,         /* the same batch in smaller micro-batches */
    WEFT_FIT_CHECKPOINTING = 2, /* store less and recompute more */
    WEFT_FIT_SHARDING = 3,      /* fsdp on the same number of ranks */
    WEFT_FIT_FEWER = 4,         /* fewer ranks on one machine, which share its memory */
    WEFT_FIT_MORE = 5,          /* fsdp on more devices, or machines */
    WEFT_FIT_PRECISION = 6,     /* different rounding */
    WEFT_FIT_TRAINABLE = 7,     /* train fewer layers */
    WEFT_N_FIT_AXES = 8
} weft_fit_axis;

/* A session, its inputs, and the available memory. */
typedef struct weft_fit_question {
    const weft_session *session;
    const char *path;
    const char *const *overrides;
    size_t n_overrides;
    weft_available_memory room;
    uint32_t stays; /* settings that must not change: 1u << of each weft_fit_axis above */
} weft_fit_question;

enum { WEFT_TRIAL_KEYS = 7, WEFT_TRIAL_KEY_SIZE = 64, WEFT_FIT_CHANGES = 8 };

/* Settings that are changed together, and the resulting plan. */
typedef struct weft_fit_change {
    char keys[WEFT_TRIAL_KEYS][WEFT_TRIAL_KEY_SIZE]; /* as overrides */
    int32_t n_keys;
    int32_t ranks, nodes; /* of the new world */
    bool moves, grows;    /* the world changes; it needs more devices, or machines */
    weft_required_memory need;
} weft_fit_change;

/* Whether a session fits into the available memory, and otherwise the changes that would make it fit. */
typedef struct weft_fit {
    weft_available_memory room;
    weft_required_memory need;
    int32_t world; /* ranks; `need` is the requirement of the rank or machine with the least remaining memory */
    bool fits;
    bool unprepared; /* one rank's preparation of the data exceeds the memory: no change was tried */
    weft_fit_change fitting[WEFT_FIT_CHANGES]; /* if it does not fit: changes that are sufficient */
    int32_t n;
    weft_fit_change least; /* if n is 0: the planned change with the smallest requirement; need.ranks 0: none */
} weft_fit;

/* Checks a session in this process only. all_rank_plan: of the session, which has several ranks; NULL: it has one. */
void weft_fit_check(weft_fit *out, const weft_fit_question *question, const weft_all_rank_plan *all_rank_plan);

/* Checks a session of running ranks: each passes its own available memory in the question, and the fullest is checked.
 * Fills out on the first rank only. [collective] */
weft_status weft_fit_check_ranks(weft_fit *out, const weft_fit_question *question, weft_error *err);

/* Sets the error for a plan that does not fit. Returns WEFT_E_MEMORY. */
weft_status weft_fit_refuse(const weft_fit *fit, weft_error *err);

/* Warns if a fitting plan needs memory that other processes use now. */
void weft_fit_warn(const weft_fit *fit, const weft_host *host);

/* Prints the available memory and the largest category. width: of the label. */
void weft_fit_print(const weft_fit *fit, int width, FILE *to);
/* Returns the name of the largest category, and its bytes. */
const char *weft_fit_largest(int64_t *bytes, const weft_fit *fit);
/* Appends the command-line words of a change: its keys, and its ranks if they differ. */
void weft_fit_change_append(char *out, size_t size, const weft_fit_change *change);

#endif
