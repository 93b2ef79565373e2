/* host/report/rates.h: how fast this machine is at what a step consists of, measured in some seconds.
 *
 * Measured are the segments of the model at the shape of a leaf, with buffers of their own and numbers that mean
 * nothing; what is done with parameters and gradients element by element; and exchanges of a few sizes. All ranks
 * measure at once, and rank 0 once more while the others wait: what a piece of work takes depends on what else goes on
 * in the machine. Nothing is loaded, nothing is trained. */
#ifndef WEFT_HOST_REPORT_RATES_H
#define WEFT_HOST_REPORT_RATES_H

#include "run/state.h"
#include "program/timeline.h"

/* Work on flat regions, in seconds per element. */
typedef enum weft_rate_kind {
    WEFT_RATE_ADD = 0,     /* fp32: a term joins a sum */
    WEFT_RATE_COPY = 1,    /* fp32: the first term */
    WEFT_RATE_CONVERT = 2, /* fp32 to bf16 */
    WEFT_RATE_SQUARES = 3, /* of the norm */
    WEFT_RATE_UPDATE = 4,  /* of the optimizer */
    WEFT_N_RATES = 5
} weft_rate_kind;

typedef enum weft_rate_exchange {
    WEFT_RATE_ALL_GATHER = 0,
    WEFT_RATE_ALL_TO_ALL = 1,
    WEFT_RATE_REDUCE_SCATTER = 2,
    WEFT_RATE_SEND = 3,
    WEFT_N_RATE_EXCHANGES = 4
} weft_rate_exchange;

enum { WEFT_RATE_SIZES = 5 };

const char *weft_rate_name(int32_t kind);          /* "add" */
const char *weft_rate_exchange_name(int32_t kind); /* "all_gather" */

/* Seconds of a segment for one leaf of the largest shape. */
typedef struct weft_segment_rate {
    char name[128];
    weft_work forward, backward;
} weft_segment_rate;

typedef struct weft_rates {
    int32_t ranks, ranks_per_node; /* that measured */
    int32_t processors, threads;   /* of a machine; of a rank */
    int32_t rows, places;          /* of the leaf */
    char device[128], comm[64];    /* comm "": one rank, and no exchange was measured */
    char precision[16];            /* "fp32" */
    char optimizer[64];            /* its plugin's id */
    char *trainable;               /* as [train] has it */
    bool own_progress;             /* weft_comm_progress */
    bool own_processors;           /* the device computes by itself, on none of the machine's (a GPU) */
    weft_segment_rate *segments;
    int32_t n_segments;
    weft_work elements[WEFT_N_RATES];
    double bytes[WEFT_RATE_SIZES]; /* that a rank sends to the others together, ascending */
    double exchanges[WEFT_N_RATE_EXCHANGES][WEFT_RATE_SIZES];
} weft_rates;

/* Of an engine that is prepared for training and not allocated, in its world: with more than one rank a real one. The
 * same figures on all ranks. To be freed also after a failure. [collective] */
weft_status weft_rates_measure(weft_rates *out, weft_engine *engine, weft_error *err);
void weft_rates_free(weft_rates *self);

bool weft_rates_own_processors(const weft_engine *engine);

/* Ranks of a machine that can work at once and share no processor; 1 or more. */
int32_t weft_rates_room(const weft_rates *self);

/* Seconds that so many bytes take, sent by each rank, in between of the sizes that were measured; 0 where none was. */
double weft_rates_exchange(const weft_rates *self, int32_t kind, double bytes);

#endif
