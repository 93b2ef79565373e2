/* host/tools/profile/profile.h: times optimizer steps per device call, and sums the times by kind of work.
 *
 * A profile is attached to a stepper. The timed step is unmodified, except for two clock readings per call. */
#ifndef WEFT_HOST_TOOLS_PROFILE_PROFILE_H
#define WEFT_HOST_TOOLS_PROFILE_PROFILE_H

#include "run/session.h"
#include "run/stepper.h"

enum { WEFT_PROFILE_ROWS = 64, WEFT_PROFILE_PRODUCTS = 64 };

/* One kind of work in a step. */
typedef struct weft_profile_row {
    const char *operation; /* "linear"; "reduce", "norm", "optimizer", "data"; "rest" is time outside all other rows */
    const char *part;      /* "input gradient"; empty if the operation has no parts */
    int64_t calls;
    double seconds;
    double flops; /* of matmuls and attention (half for causal attention); else 0 */
    double bytes; /* read and written: each operand once; 0: unknown */
    bool recompute;
} weft_profile_row;

typedef struct weft_profile_step {
    double seconds; /* of the complete step; the sum of its rows */
    weft_step_result result;
    double flops, recompute_flops; /* sums over rows: of the step itself; of recomputation */
    int32_t n_rows;
    weft_profile_row rows[WEFT_PROFILE_ROWS]; /* in order of first appearance; further kinds count as "rest" */
} weft_profile_step;

/* A matmul of the kept steps, without recomputation. */
typedef struct weft_profile_product {
    const char *operation, *part; /* as in its row */
    weft_product_shape shape;
    int64_t calls;
} weft_profile_product;

/* The strings live as long as the program, or as the plugin that owns the operator. */
typedef struct weft_call_info {
    const char *operation; /* "linear"; the call's own name if it belongs to no operator: "add" */
    const char *part;      /* "forward", "recompute", "backward", "input gradient", "weight gradient" */
    const char *label;     /* "q_proj", or empty; owned by the graph */
    bool recompute;        /* the call recomputes activations (activation checkpointing) */
    double flops;          /* matmuls and attention (causal counted by half); else 0 */
    double bytes;          /* memory traffic: each operand once */
    int32_t n_products;
    weft_product_shape products[WEFT_CALL_PRODUCTS]; /* matmuls by the matrix library, without those inside attention */
} weft_call_info;

void weft_call_describe(weft_call_info *out, const weft_graph *graph, const weft_call *call);

typedef struct weft_profile {
    weft_stepper *stepper;
    weft_call_sink sink;
    weft_profile_step *steps; /* [capacity + 1]: n_steps kept ones, then the current one */
    int64_t n_steps, capacity;
    weft_profile_product products[WEFT_PROFILE_PRODUCTS];
    int32_t n_products;
    bool keep; /* keep the current step */
} weft_profile;

/* keep: maximum number of kept steps. The stepper must outlive the profile. */
weft_profile *weft_profile_create(weft_stepper *stepper, int64_t keep);
void weft_profile_destroy(weft_profile *profile); /* NULL is valid */

/* Runs weft_stepper_train with timing. keep: false for a warm-up step. */
weft_status weft_profile_train(weft_profile *profile, uint64_t step, double lr, double clip, bool keep,
                               weft_error *err);

/* Returns the step of median time, the faster of the two middle ones. At least one step must be kept. */
const weft_profile_step *weft_profile_median(const weft_profile *profile);

/* Measures a run's weight loading, and whether the weights are resident afterwards.
 *
 * Counts every page from which the first step reads weights. An absent page costs that step a page fault, which a
 * measurement of loading only would miss. */

typedef struct weft_arrival {
    double seconds;      /* from `begin` to the end of loading */
    double load_seconds; /* of which weft_engine_load: weights, compute copy, zeroed states */
    int64_t pages;       /* of masters and compute copy; 0: memory not visible to the host */
    int64_t absent;      /* of these, not resident after loading */
} weft_arrival;

/* Counts the pages of masters and compute copy, and the absent ones. Both are 0 if the host cannot see them. */
weft_status weft_weight_pages(int64_t *pages, int64_t *absent, const weft_engine *engine, weft_error *err);

/* Runs weft_session_start and weft_engine_load with timing. begin: weft_clock_seconds at the start of the process. */
weft_status weft_arrival_measure(weft_arrival *out, weft_session *session, double begin, weft_error *err);

/* Roofline of the machine: peak rates, and rates of a profiled step's matmuls. */

typedef struct weft_roofline_row {
    const char *operation, *part; /* as in a profile's row */
    weft_product_shape shape;
    int64_t calls;  /* in all kept steps */
    double flops;   /* per call */
    double seconds; /* per call, with the library's fastest kernel */
} weft_roofline_row;

typedef struct weft_roofline {
    double peak;      /* FLOP/s */
    double bandwidth; /* bytes per second */
    /* FLOP/s with all matmuls at the library's fastest rate: total operations / total time. 0: not measured. */
    double products;
    int32_t n_rows;
    weft_roofline_row rows[WEFT_PROFILE_PRODUCTS];
} weft_roofline;

/* Measures for some seconds. WEFT_E_UNSUPPORTED: the device has no roofline extension; the error names it. */
weft_status weft_roofline_measure(weft_roofline *out, const weft_engine *engine, const weft_profile *profile,
                                  weft_error *err);

typedef struct weft_profile_report {
    const weft_session *session;
    const weft_arrival *start;
    const weft_profile *profile;   /* with at least one step */
    const weft_roofline *roofline; /* NULL: not measured */
    int64_t resident_peak;         /* bytes, during the steps; excludes the roofline measurement */
} weft_profile_report;

void weft_profile_print(const weft_profile_report *report, FILE *to);
weft_status weft_profile_print_json(const weft_profile_report *report, FILE *to, weft_error *err);

#endif
