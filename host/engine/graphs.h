/* host/engine/graphs.h: the graphs of all segments for one mode and each leaf length, and the job that follows from
 * them. */
#ifndef WEFT_HOST_ENGINE_GRAPHS_H
#define WEFT_HOST_ENGINE_GRAPHS_H

#include "model/layout.h"
#include "program/program.h"
#include "tensor/graph.h"
#include <weft/data.h>

typedef struct weft_graph_set {
    int32_t mode, rows, n_segments, n_lengths;
    int32_t lengths[WEFT_MAX_LENGTHS]; /* ascending */
    weft_graph **graphs;               /* [n_lengths][n_segments] */
} weft_graph_set;

typedef struct weft_graph_set_spec {
    int32_t mode, dtype, rows, cache_rows;
    int32_t n_lengths;
    int32_t lengths[WEFT_MAX_LENGTHS];
} weft_graph_set_spec;

weft_status weft_graph_set_create(weft_graph_set **out, const weft_declared *declared,
                                  const weft_device_plugin *kernels, weft_device *device,
                                  const weft_graph_set_spec *spec, weft_error *err);
void weft_graph_set_destroy(weft_graph_set *set); /* NULL is fine */

/* The graph of a segment for leaves of this length. */
const weft_graph *weft_graph_set_at(const weft_graph_set *set, int32_t length, int32_t segment);

/* A job and the arrays that it points to. */
typedef struct weft_job {
    weft_job_spec spec;
    weft_unit_view *unit_views;
    weft_segment_view *segment_views;
    int32_t *segment_units; /* storage of segment_views[].units */
    weft_segment_sizes *segments;
    weft_unit_sizes *units;
} weft_job;

/* leaves: A. state_bytes: of optimizer state per trainable element. */
weft_status weft_job_create(weft_job **out, const weft_graph_set *set, const weft_declared *declared,
                            const weft_layout *layout, int32_t leaves, int64_t state_bytes,
                            bool activation_checkpointing, weft_error *err);
void weft_job_destroy(weft_job *job); /* NULL is fine */

/* Bytes of a leaf on the device, and where its parts begin: ids, targets, weights, starts, positions. */
#define WEFT_LEAF_PARTS 5
int64_t weft_leaf_part_offset(int32_t rows, int32_t length, int part);
int64_t weft_leaf_bytes(int32_t rows, int32_t length);

#endif
