/* host/program/graphs.h: the graphs of all segments for one mode and each micro-batch length. */
#ifndef WEFT_HOST_PROGRAM_GRAPHS_H
#define WEFT_HOST_PROGRAM_GRAPHS_H

#include "graph/graph.h"
#include <weft/data.h>

typedef struct weft_graph_set {
    int32_t mode, rows, n_segments, n_lengths;
    int32_t lengths[WEFT_MAX_LENGTHS]; /* ascending */
    weft_graph **graphs;               /* [n_lengths][n_segments] */
} weft_graph_set;

/* spec: length and carry_gradient are not read. lengths: [n_lengths], ascending. */
weft_status weft_graph_set_create(weft_graph_set **out, const weft_declared *declared, const weft_graph_spec *spec,
                                  const int32_t *lengths, int32_t n_lengths, weft_error *err);
void weft_graph_set_destroy(weft_graph_set *set); /* NULL is fine */

/* Returns the parameters that a segment reads, which are the same for all lengths. */
const weft_graph_read *weft_graph_set_reads(const weft_graph_set *set, int32_t segment, int32_t *n);
bool weft_graph_set_reads_parameter(const weft_graph_set *set, int32_t segment, int32_t parameter);

/* Returns the graph of a segment for micro-batches of this length. */
const weft_graph *weft_graph_set_at(const weft_graph_set *set, int32_t length, int32_t segment);

/* Return bytes and offsets of a micro-batch on the device: ids, targets, weights, starts, positions. */
#define WEFT_MICRO_BATCH_PARTS 5
int64_t weft_micro_batch_part_bytes(int32_t rows, int32_t length);
int64_t weft_micro_batch_part_offset(int32_t rows, int32_t length, int part);
int64_t weft_micro_batch_bytes(int32_t rows, int32_t length);
/* Binds the arrays of a micro-batch of this shape to its slot, which may be larger. */
void weft_micro_batch_bind(weft_graph_binding *out, weft_slot_ref micro_batch, int32_t rows, int32_t length);

#endif
