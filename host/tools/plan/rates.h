/* host/tools/plan/rates.h: measures in some seconds the speed of this machine for the parts of a step.
 *
 * The measurements cover the segments of the model at the shape of a micro-batch, with separate buffers and arbitrary
 * numbers; elementwise work on parameters and gradients; and collectives of a few sizes. All ranks measure at once, and
 * rank 0 once more while the others wait, because the time depends on the load of the machine. No weights are loaded,
 * and no training happens. */
#ifndef WEFT_HOST_TOOLS_PLAN_RATES_H
#define WEFT_HOST_TOOLS_PLAN_RATES_H

#include "tools/plan/timeline.h"
#include "run/engine.h"

#include <jansson.h>

/* Work on flat regions, in seconds per element. */
typedef enum weft_rate_kind {
    WEFT_RATE_ADD = 0,     /* fp32: accumulate a term */
    WEFT_RATE_COPY = 1,    /* fp32: the first term */
    WEFT_RATE_CONVERT = 2, /* fp32 to bf16 */
    WEFT_RATE_SQUARES = 3, /* for the gradient norm */
    WEFT_RATE_UPDATE = 4,  /* optimizer update */
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

/* Seconds of a segment for one micro-batch of the largest shape. */
typedef struct weft_segment_rate {
    char name[128];
    weft_work forward, backward;
} weft_segment_rate;

typedef struct weft_rates {
    int32_t ranks, ranks_per_node; /* of the measurement */
    int32_t processors, threads;   /* of a machine; of a rank */
    int32_t rows, places;          /* of the micro-batch */
    char device[128], comm[64];    /* comm "": one rank, no collectives measured */
    char precision[16];            /* "fp32" */
    char optimizer[64];            /* its plugin's id */
    char *trainable;               /* as [train] has it */
    bool own_progress;             /* weft_comm_progress */
    bool own_processors;           /* the device has its own processors (a GPU) */
    weft_segment_rate *segments;
    int32_t n_segments;
    weft_work elements[WEFT_N_RATES];
    double bytes[WEFT_RATE_SIZES]; /* total bytes that a rank sends to the others, ascending */
    double exchanges[WEFT_N_RATE_EXCHANGES][WEFT_RATE_SIZES];
} weft_rates;

/* Measures with an engine that is prepared for training and not allocated, in its world, which must be running. All
 * ranks receive the same figures. Free out also after a failure. [collective] */
weft_status weft_rates_measure(weft_rates *out, weft_engine *engine, weft_error *err);
void weft_rates_free(weft_rates *self);

json_t *weft_rates_object(const weft_rates *rates);

/* Reads the object `rates` from a file of `weft plan --time --json`. Rejects rates of another model, micro-batch,
 * precision, optimizer, trainable or number of threads than the engine's. Free out also after a failure. */
weft_status weft_rates_read(weft_rates *out, const char *path, const weft_engine *engine, weft_error *err);

/* Returns the number of ranks of a machine that can run at once without sharing a processor; at least 1. */
int32_t weft_rates_room(const weft_rates *self);

/* Returns the seconds for sending so many bytes from each rank, interpolated between the measured sizes; 0 if
 * unmeasured. */
double weft_rates_exchange(const weft_rates *self, int32_t kind, double bytes);

#endif
