/* host/graph/lowering.c: writes a pass: storages, operands, calls. See lower.h. */
#include "graph/lower.h"

#include "base/sizes.h"
#include "graph/record.h"

#include <stdlib.h>

weft_status weft_lowering_init(weft_lowering *out, weft_graph *graph, int32_t kind, weft_error *err) {
    weft_pass *pass = &graph->passes[kind];
    const weft_lowering lowering = {.graph = graph, .pass = pass, .kind = kind, .node = -1, .err = err};
    const size_t values = (size_t)graph->n_values, reads = (size_t)graph->n_reads + 1,
                 nodes = (size_t)graph->n_nodes + 1;
    *out = lowering;
    out->storage_of = calloc(values, sizeof *out->storage_of);
    out->gradient_of = calloc(values, sizeof *out->gradient_of);
    out->last_reader = calloc(values, sizeof *out->last_reader);
    out->parameter_of = calloc(reads, sizeof *out->parameter_of);
    out->weight_gradient_of = calloc(reads, sizeof *out->weight_gradient_of);
    out->needed = calloc(nodes, sizeof *out->needed);
    if (out->storage_of == NULL || out->gradient_of == NULL || out->last_reader == NULL || out->parameter_of == NULL ||
        out->weight_gradient_of == NULL || out->needed == NULL) {
        weft_lowering_free(out);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory to plan a segment of %d nodes", graph->n_nodes);
    }
    (void)weft_lower_storage(out, WEFT_HOME_NONE, 0, 0, 0); /* storage 0: absent */
    return out->status;
}

void weft_lowering_free(weft_lowering *lowering) {
    free(lowering->storage_of);
    free(lowering->gradient_of);
    free(lowering->last_reader);
    free(lowering->parameter_of);
    free(lowering->weight_gradient_of);
    free(lowering->needed);
}

void weft_pass_free(weft_pass *pass) {
    free(pass->calls);
    free(pass->operands);
    free(pass->storages);
}

int32_t weft_lower_storage(weft_lowering *lowering, int32_t home, int32_t index, int64_t offset, int64_t bytes) {
    weft_pass *pass = lowering->pass;
    const weft_storage storage = {
        .home = home, .index = index, .offset = offset, .bytes = bytes, .first = -1, .last = -1};
    if (lowering->status != WEFT_OK) return 0;
    lowering->status = weft_array_reserve((void **)&pass->storages, pass->n_storages, &pass->storages_capacity,
                                          sizeof *pass->storages, "storages", lowering->err);
    if (lowering->status != WEFT_OK) return 0;
    pass->storages[pass->n_storages] = storage;
    return pass->n_storages++;
}

int32_t weft_lower_work(weft_lowering *lowering, int64_t bytes) {
    return weft_lower_storage(lowering, WEFT_HOME_WORK, 0, 0, bytes);
}

int32_t weft_lower_value(weft_lowering *lowering, weft_value value) {
    weft_value_record *record = weft_graph_value(lowering->graph, value);
    int32_t *storage = &lowering->storage_of[value.id];
    if (*storage != 0 || lowering->status != WEFT_OK) return *storage;
    if (record->node < 0) *storage = weft_lower_storage(lowering, record->home, 0, 0, weft_value_bytes(record));
    else if (lowering->kind == WEFT_PASS_BACKWARD) {
        record->kept = true; /* its tape offset is known after the complete backward is written */
        *storage = weft_lower_storage(lowering, WEFT_HOME_TAPE, 0, 0, weft_value_bytes(record));
    }
    return *storage;
}

int32_t weft_lower_parameter(weft_lowering *lowering, int32_t parameter) {
    const weft_graph *graph = lowering->graph;
    const weft_parameter *p = &graph->declared->parameters[parameter];
    const int32_t dtype = weft_graph_read_dtype(graph, parameter);
    int32_t *storage = &lowering->parameter_of[weft_graph_read_index(graph, parameter)];
    if (*storage == 0)
        *storage = weft_lower_storage(lowering, WEFT_HOME_PARAMETER, parameter, 0, weft_dtype_span(dtype, p->numel));
    return *storage;
}

int32_t weft_lower_table(weft_lowering *lowering, const weft_table *table, int64_t rows) {
    return weft_lower_storage(lowering, WEFT_HOME_TABLE, table->index, 0,
                              rows * table->width * weft_dtype_bytes(WEFT_F32));
}

int32_t weft_lower_micro_batch(weft_lowering *lowering, int32_t home) {
    return weft_lower_storage(lowering, home, 0, 0, weft_graph_places(lowering->graph) * WEFT_PLACE_BYTES);
}

void weft_lower_begin(weft_lowering *lowering, const weft_kernel *kernel, const void *args, size_t n) {
    weft_pass *pass = lowering->pass;
    weft_call *call = NULL;
    if (lowering->status != WEFT_OK) return;
    lowering->status = weft_array_reserve((void **)&pass->calls, pass->n_calls, &pass->calls_capacity,
                                          sizeof *pass->calls, "calls", lowering->err);
    if (lowering->status != WEFT_OK) return;
    call = &pass->calls[pass->n_calls++];
    memset(call, 0, sizeof *call);
    memcpy(&call->args, args, n);
    call->kernel = kernel;
    call->node = lowering->node;
    call->pass = lowering->kind;
    call->operand = pass->n_operands;
}

void weft_lower_bind_part(weft_lowering *lowering, const char *name, size_t field, int32_t storage, int64_t offset,
                          int64_t bytes) {
    weft_pass *pass = lowering->pass;
    const weft_operand operand = {
        .name = name, .storage = storage, .field = (uint32_t)field, .offset = offset, .bytes = bytes};
    weft_storage *touched = NULL;
    if (storage == 0 || lowering->status != WEFT_OK) return;
    lowering->status = weft_array_reserve((void **)&pass->operands, pass->n_operands, &pass->operands_capacity,
                                          sizeof *pass->operands, "operands", lowering->err);
    if (lowering->status != WEFT_OK) return;
    pass->operands[pass->n_operands++] = operand;
    pass->calls[pass->n_calls - 1].n_operands++;
    touched = &pass->storages[storage];
    if (touched->last < 0) touched->first = pass->n_calls - 1;
    touched->last = pass->n_calls - 1;
}

void weft_lower_bind(weft_lowering *lowering, const char *name, size_t field, int32_t storage) {
    weft_lower_bind_part(lowering, name, field, storage, 0, lowering->pass->storages[storage].bytes);
}

void weft_lower_dtype(weft_lowering *lowering, size_t field) {
    if (lowering->status != WEFT_OK) return;
    lowering->pass->operands[lowering->pass->n_operands - 1].dtype_field = (uint32_t)field;
}

static double operand_bytes(const weft_pass *pass, const weft_call *call) {
    double sum = 0.0;
    for (int32_t i = 0; i < call->n_operands; i++) sum += (double)pass->operands[call->operand + i].bytes;
    return sum;
}

void weft_lower_end(weft_lowering *lowering) {
    const weft_graph_spec *spec = &lowering->graph->spec;
    const weft_kernel_run run = {.kernels = spec->kernels, .device = spec->device};
    weft_pass *pass = lowering->pass;
    weft_call *call = NULL;
    int64_t bytes = 0;
    if (lowering->status != WEFT_OK) return;
    call = &pass->calls[pass->n_calls - 1];
    call->flops = weft_kernel_operations(call->kernel, &call->args);
    if (call->flops > 0.0) call->bytes = 0.0;
    else if (call->kernel->traffic != NULL) call->bytes = call->kernel->traffic(&call->args);
    else call->bytes = operand_bytes(pass, call);
    pass->flops += call->flops;
    pass->bytes += call->bytes;
    if (call->kernel->workspace == NULL) return;
    bytes = call->kernel->workspace(&run, &call->args);
    if (bytes > 0)
        weft_lower_bind(lowering, "workspace", call->kernel->workspace_field, weft_lower_work(lowering, bytes));
}

void weft_lower_copy(weft_lowering *lowering, int32_t to, int32_t from) {
    const weft_copy_args args = {.bytes = lowering->pass->storages[to].bytes};
    weft_lower_begin(lowering, &weft_kernel_copy, &args, sizeof args);
    WEFT_BIND(lowering, weft_copy_args, to, to);
    WEFT_BIND(lowering, weft_copy_args, from, from);
    weft_lower_end(lowering);
}

void weft_lower_zero(weft_lowering *lowering, int32_t to) {
    const weft_zero_args args = {.words = lowering->pass->storages[to].bytes / WEFT_WORD};
    weft_lower_begin(lowering, &weft_kernel_zero, &args, sizeof args);
    WEFT_BIND(lowering, weft_zero_args, to, to);
    weft_lower_end(lowering);
}

void weft_lower_add(weft_lowering *lowering, int32_t y, int32_t a, int32_t b, int64_t n, int32_t dtype) {
    const weft_add args = {.struct_size = (uint32_t)sizeof args, .n = n, .dtype = dtype};
    weft_lower_begin(lowering, &weft_kernel_add, &args, sizeof args);
    WEFT_BIND(lowering, weft_add, a, a);
    WEFT_BIND(lowering, weft_add, b, b);
    WEFT_BIND(lowering, weft_add, y, y);
    weft_lower_end(lowering);
}

/* The live range of its operands ends with the removed call. The next call has the same number and uses them again. */
bool weft_lower_take_add(weft_lowering *lowering, int32_t y, int32_t *a, int32_t *b) {
    weft_pass *pass = lowering->pass;
    const weft_call *last = pass->n_calls > 0 ? &pass->calls[pass->n_calls - 1] : NULL;
    const weft_operand *operands = last == NULL ? NULL : &pass->operands[last->operand]; /* a, b, y */
    if (lowering->status != WEFT_OK || last == NULL || last->kernel != &weft_kernel_add || operands[2].storage != y)
        return false;
    *a = operands[0].storage;
    *b = operands[1].storage;
    pass->bytes -= last->bytes;
    pass->n_operands -= last->n_operands;
    pass->n_calls--;
    return true;
}
