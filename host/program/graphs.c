/* host/program/graphs.c: see job.h. */
#include "program/job.h"

#include "base/alloc.h"
#include "base/units.h"

#include <stdlib.h>

static weft_graph **graph_slot(const weft_graph_set *set, int32_t length_index, int32_t segment) {
    return &set->graphs[(int64_t)length_index * set->n_segments + segment];
}

const weft_graph_read *weft_graph_set_reads(const weft_graph_set *set, int32_t segment, int32_t *n) {
    return weft_graph_reads(*graph_slot(set, 0, segment), n);
}

bool weft_graph_set_reads_parameter(const weft_graph_set *set, int32_t segment, int32_t parameter) {
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_set_reads(set, segment, &n);
    for (int32_t i = 0; i < n; i++)
        if (reads[i].parameter == parameter) return true;
    return false;
}

static bool reads_trained(weft_graph *graph, const weft_declared *declared) {
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads(graph, &n);
    for (int32_t i = 0; i < n; i++)
        if (declared->parameters[reads[i].parameter].trainable) return true;
    return false;
}

/* The reads of a segment determine placement and communication of the complete run, so they must not depend on
 * lengths. */
static weft_status check_same_reads(const weft_graph_set *set, int32_t length_index, const weft_declared *declared,
                                    int32_t segment, weft_error *err) {
    int32_t n = 0, n_first = 0;
    const weft_graph_read *reads = weft_graph_reads(*graph_slot(set, length_index, segment), &n);
    const weft_graph_read *first = weft_graph_set_reads(set, segment, &n_first);
    bool same = n == n_first;
    for (int32_t i = 0; i < n && same; i++) same = reads[i].parameter == first[i].parameter;
    if (same) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_PLUGIN,
        "the model reads other parameters in segment %s for micro-batches of length %d than of length %d: the "
        "parameters that a segment reads, and their order, must not depend on the length",
        declared->segments[segment].name, (int)set->lengths[length_index], (int)set->lengths[0]);
}

/* BACKWARD runs from the last segment down: the first one overwrites a parameter's gradient, later ones accumulate. */
static void mark_reads_that_add(weft_graph_set *set, int32_t length_index, int32_t n_parameters) {
    bool *written = weft_alloc(n_parameters, sizeof *written);
    for (int32_t s = set->n_segments - 1; s >= 0; s--) {
        int32_t n = 0;
        weft_graph_read *reads = weft_graph_reads(*graph_slot(set, length_index, s), &n);
        for (int32_t i = 0; i < n; i++) {
            reads[i].adds = written[reads[i].parameter];
            written[reads[i].parameter] = true;
        }
    }
    free(written);
}

static weft_status record_graphs_of_length(weft_graph_set *set, int32_t length_index, const weft_declared *declared,
                                           weft_graph_spec *spec, weft_error *err) {
    weft_status status = WEFT_OK;
    spec->length = set->lengths[length_index];
    spec->carry_gradient = false;
    for (int32_t s = 0; s < set->n_segments && status == WEFT_OK; s++) {
        weft_graph **graph = graph_slot(set, length_index, s);
        status = weft_graph_record(graph, declared, s, spec, err);
        if (status == WEFT_OK) status = check_same_reads(set, length_index, declared, s, err);
        if (status == WEFT_OK && spec->mode == WEFT_MODE_TRAIN && reads_trained(*graph, declared))
            spec->carry_gradient = true; /* for the segments above this one */
    }
    if (status == WEFT_OK) mark_reads_that_add(set, length_index, declared->n_parameters);
    for (int32_t s = 0; s < set->n_segments && status == WEFT_OK; s++)
        weft_graph_plan(*graph_slot(set, length_index, s));
    return status;
}

weft_status weft_graph_set_create(weft_graph_set **out, const weft_declared *declared, const weft_graph_spec *spec,
                                  const int32_t *lengths, int32_t n_lengths, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_graph_spec graph_spec = *spec;
    weft_graph_set *set = weft_alloc(1, sizeof *set);
    set->mode = spec->mode;
    set->rows = spec->rows;
    set->n_segments = declared->n_segments;
    set->n_lengths = n_lengths;
    memcpy(set->lengths, lengths, (size_t)n_lengths * sizeof *lengths);
    set->graphs = weft_alloc((int64_t)n_lengths * declared->n_segments, sizeof *set->graphs);
    for (int32_t i = 0; i < set->n_lengths && status == WEFT_OK; i++)
        status = record_graphs_of_length(set, i, declared, &graph_spec, err);
    if (status == WEFT_OK) *out = set;
    else weft_graph_set_destroy(set);
    return status;
}

void weft_graph_set_destroy(weft_graph_set *set) {
    if (set == NULL) return;
    for (int32_t i = 0; i < set->n_lengths * set->n_segments; i++) weft_graph_destroy(set->graphs[i]);
    free(set->graphs);
    free(set);
}

const weft_graph *weft_graph_set_at(const weft_graph_set *set, int32_t length, int32_t segment) {
    for (int32_t i = 0; i < set->n_lengths; i++)
        if (set->lengths[i] == length) return *graph_slot(set, i, segment);
    return NULL;
}

int64_t weft_micro_batch_part_bytes(int32_t rows, int32_t length) {
    return (int64_t)rows * length * WEFT_PLACE_BYTES;
}

int64_t weft_micro_batch_part_offset(int32_t rows, int32_t length, int part) {
    return weft_cache_lines(weft_micro_batch_part_bytes(rows, length)) * part;
}

int64_t weft_micro_batch_bytes(int32_t rows, int32_t length) {
    return weft_micro_batch_part_offset(rows, length, WEFT_MICRO_BATCH_PARTS);
}

void weft_micro_batch_bind(weft_graph_binding *out, weft_slot_ref micro_batch, int32_t rows, int32_t length) {
    weft_slot_ref *const parts[WEFT_MICRO_BATCH_PARTS] = {&out->ids, &out->targets, &out->weights, &out->starts,
                                                          &out->positions};
    for (int part = 0; part < WEFT_MICRO_BATCH_PARTS; part++) {
        *parts[part] = micro_batch;
        parts[part]->start = weft_micro_batch_part_offset(rows, length, part);
        parts[part]->ref = weft_ref_at(micro_batch.ref, parts[part]->start);
        parts[part]->bytes = weft_micro_batch_part_bytes(rows, length);
        if (parts[part]->start + parts[part]->bytes > micro_batch.bytes)
            parts[part]->bytes = micro_batch.bytes - parts[part]->start;
    }
}
