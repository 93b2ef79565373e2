/* host/graph/lowering.c: writes a pass: storages, operands, calls, gradients of values. See record.h. */
#include "base/alloc.h"
#include "base/units.h"
#include "graph/record.h"

#include <stdlib.h>

/* ---- offsets of scratch storages ----
 *
 * Storages that are live at the same call must not overlap. The largest storage is assigned first; each one gets the
 * lowest offset without a collision. Ties are resolved by number, so the result depends only on the pass. */

static int larger_first(const void *left, const void *right) {
    const weft_storage *a = *(weft_storage *const *)left, *b = *(weft_storage *const *)right;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a < b ? -1 : 1;
}

static bool storages_collide(const weft_storage *a, const weft_storage *b) {
    const bool in_time = a->first <= b->last && b->first <= a->last;
    return in_time && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Moves all[n] up until it collides with no earlier storage. */
static void place_one(weft_storage **all, int32_t n) {
    weft_storage *storage = all[n];
    bool moved = true;
    storage->offset = 0;
    while (moved) {
        moved = false;
        for (int32_t i = 0; i < n; i++) {
            if (!storages_collide(storage, all[i])) continue;
            storage->offset = weft_cache_lines(all[i]->offset + all[i]->bytes);
            moved = true;
        }
    }
}

static void place_work(weft_pass *pass) {
    int32_t n = 0;
    weft_storage **all = weft_alloc(pass->n_storages, sizeof *all);
    for (int32_t i = 0; i < pass->n_storages; i++)
        if (pass->storages[i].home == WEFT_HOME_WORK && pass->storages[i].last >= 0) all[n++] = &pass->storages[i];
    qsort(all, (size_t)n, sizeof *all, larger_first);
    for (int32_t i = 0; i < n; i++) {
        place_one(all, i);
        pass->work = weft_larger(pass->work, all[i]->offset + all[i]->bytes);
    }
    free(all);
}

weft_lowering weft_lowering_begin(weft_graph *graph, int32_t kind) {
    weft_lowering out = {.graph = graph, .pass = &graph->passes[kind], .kind = kind, .node = -1};
    out.storage_of = weft_alloc(graph->n_values, sizeof *out.storage_of);
    out.gradient_of = weft_alloc(graph->n_values, sizeof *out.gradient_of);
    out.last_reader = weft_alloc(graph->n_values, sizeof *out.last_reader);
    out.parameter_of = weft_alloc(graph->n_reads, sizeof *out.parameter_of);
    out.weight_gradient_of = weft_alloc(graph->n_reads, sizeof *out.weight_gradient_of);
    out.needed = weft_alloc(graph->n_nodes, sizeof *out.needed);
    (void)weft_lower_storage(&out, WEFT_HOME_NONE, 0, 0, 0); /* storage 0: absent */
    return out;
}

void weft_lowering_end(weft_lowering *lowering) {
    free(lowering->storage_of);
    free(lowering->gradient_of);
    free(lowering->last_reader);
    free(lowering->parameter_of);
    free(lowering->weight_gradient_of);
    free(lowering->needed);
    place_work(lowering->pass);
}

int32_t weft_lower_storage(weft_lowering *lowering, int32_t home, int32_t index, int64_t offset, int64_t bytes) {
    weft_pass *pass = lowering->pass;
    const weft_storage storage = {
        .home = home, .index = index, .offset = offset, .bytes = bytes, .first = -1, .last = -1};
    pass->storages = weft_grow(pass->storages, pass->n_storages);
    pass->storages[pass->n_storages] = storage;
    return pass->n_storages++;
}

int32_t weft_lower_work(weft_lowering *lowering, int64_t bytes) {
    return weft_lower_storage(lowering, WEFT_HOME_WORK, 0, 0, bytes);
}

int32_t weft_lower_value(weft_lowering *lowering, weft_value value) {
    weft_value_record *record = weft_graph_value(lowering->graph, value);
    int32_t *storage = &lowering->storage_of[value.id];
    if (value.id == 0 || *storage != 0) return *storage;
    if (record->node < 0) *storage = weft_lower_storage(lowering, record->home, 0, 0, weft_value_bytes(record));
    else if (lowering->kind == WEFT_PASS_BACKWARD) {
        record->kept = true; /* its tape offset is known after the complete backward is written */
        *storage = weft_lower_storage(lowering, WEFT_HOME_TAPE, 0, 0, weft_value_bytes(record));
    }
    return *storage;
}

int32_t weft_lower_parameter(weft_lowering *lowering, int32_t parameter) {
    const weft_graph *graph = lowering->graph;
    int32_t *storage = NULL;
    if (parameter < 0) return 0;
    storage = &lowering->parameter_of[weft_graph_read_index(graph, parameter)];
    if (*storage == 0)
        *storage = weft_lower_storage(lowering, WEFT_HOME_PARAMETER, parameter, 0,
                                      weft_dtype_span(weft_graph_read_dtype(graph, parameter),
                                                      graph->declared->parameters[parameter].numel));
    return *storage;
}

int32_t weft_lower_table(weft_lowering *lowering, const weft_table *table, int64_t rows) {
    return weft_lower_storage(lowering, WEFT_HOME_TABLE, table->index, 0,
                              rows * table->width * weft_dtype_bytes(WEFT_F32));
}

/* Adds an operand to the last call. Storage 0 leaves the field empty. */
static void add_operand(weft_pass *pass, weft_operand operand) {
    weft_storage *storage = &pass->storages[operand.storage];
    if (operand.storage == 0) return;
    if (operand.bytes < 0) operand.bytes = storage->bytes;
    pass->operands = weft_grow(pass->operands, pass->n_operands);
    pass->operands[pass->n_operands++] = operand;
    pass->calls[pass->n_calls - 1].n_operands++;
    if (storage->last < 0) storage->first = pass->n_calls - 1;
    storage->last = pass->n_calls - 1;
}

void weft_lower_call(weft_lowering *lowering, const weft_kernel *kernel, const void *args, size_t size,
                     const weft_operand *operands, size_t n) {
    const weft_graph_spec *spec = &lowering->graph->spec;
    const weft_kernel_run run = {.kernels = spec->kernels, .device = spec->device};
    weft_pass *pass = lowering->pass;
    weft_call *call = NULL;
    size_t field = 0;
    int64_t workspace = 0;
    double traffic = 0.0;
    pass->calls = weft_grow(pass->calls, pass->n_calls);
    call = &pass->calls[pass->n_calls++];
    memset(call, 0, sizeof *call);
    call->kernel = kernel;
    call->node = lowering->node;
    call->pass = lowering->kind;
    call->operand = pass->n_operands;
    memcpy(&call->args, args, size);
    if (kernel->slot < WEFT_SLOT_copy) call->args.add.struct_size = (uint32_t)size;
    for (size_t i = 0; i < n; i++) add_operand(pass, operands[i]);
    call->flops = weft_kernel_operations(kernel, &call->args);
    for (int32_t i = 0; i < call->n_operands; i++) call->bytes += (double)pass->operands[call->operand + i].bytes;
    traffic = weft_kernel_traffic(kernel, &call->args);
    if (traffic > 0.0) call->bytes = traffic;
    pass->flops += call->flops;
    workspace = weft_kernel_workspace(kernel, &run, &call->args, &field);
    if (workspace > 0)
        add_operand(pass, (weft_operand){"workspace", weft_lower_work(lowering, workspace), (uint32_t)field, 0, -1});
}

void weft_lower_copy(weft_lowering *lowering, int32_t to, int32_t from, int64_t bytes) {
    const weft_copy_args args = {.bytes = bytes};
    WEFT_CALL(lowering, &weft_kernel_copy, args, WEFT_AT(to, to), WEFT_AT(from, from));
}

void weft_lower_zero(weft_lowering *lowering, int32_t to) {
    const weft_zero_args args = {.words = lowering->pass->storages[to].bytes / WEFT_WORD};
    WEFT_CALL(lowering, &weft_kernel_zero, args, WEFT_AT(to, to));
}

void weft_lower_add(weft_lowering *lowering, int32_t y, int32_t a, int32_t b, int64_t n, int32_t dtype) {
    const weft_add args = {.n = n, .dtype = dtype};
    WEFT_CALL(lowering, &weft_kernel_add, args, WEFT_AT(a, a), WEFT_AT(b, b), WEFT_AT(y, y));
}

/* The live range of its operands ends with the removed call. The next call has the same number and uses them again. */
bool weft_lower_take_add(weft_lowering *lowering, int32_t y, int32_t *a, int32_t *b) {
    weft_pass *pass = lowering->pass;
    const weft_call *last = pass->n_calls > 0 ? &pass->calls[pass->n_calls - 1] : NULL;
    const weft_operand *operands = last == NULL ? NULL : &pass->operands[last->operand]; /* a, b, y */
    if (last == NULL || last->kernel != &weft_kernel_add || operands[2].storage != y) return false;
    *a = operands[0].storage;
    *b = operands[1].storage;
    pass->n_operands -= last->n_operands;
    pass->n_calls--;
    return true;
}

/* ---- gradients of values ---- */

static weft_storage *storage_at(const weft_lowering *l, int32_t storage) {
    return &l->pass->storages[storage];
}

/* Returns separate storage for this value's gradient: the outgoing slot for the carry, else scratch. */
static int32_t own_storage(weft_lowering *l, weft_value value) {
    const int64_t bytes = weft_value_bytes(weft_graph_value(l->graph, value));
    if (value.id == l->graph->carry_in.id) return weft_lower_storage(l, WEFT_HOME_D_CARRY_IN, 0, 0, bytes);
    return weft_lower_work(l, bytes);
}

static void hold_gradient(weft_lowering *l, weft_value value, int32_t storage) {
    l->gradient_of[value.id] = storage;
    storage_at(l, storage)->holders++;
}

/* True if only one value uses the gradient in `storage`, so that it may be modified. */
static bool is_exclusive(const weft_lowering *l, int32_t storage) {
    const weft_storage *s = storage_at(l, storage);
    return s->holders == 1 && s->home == WEFT_HOME_WORK;
}

/* Returns the value's gradient in a storage that may be accumulated into. The carry's gradient is copied to its slot
 * here rather than at the end: the same copy, without scratch. */
static int32_t own_gradient(weft_lowering *l, weft_value value) {
    const int32_t shared = l->gradient_of[value.id];
    const bool is_carry = value.id == l->graph->carry_in.id;
    int32_t own = 0;
    if (storage_at(l, shared)->home == WEFT_HOME_D_CARRY_IN) return shared;
    if (is_exclusive(l, shared) && !is_carry) return shared;
    own = own_storage(l, value);
    weft_lower_copy(l, own, shared, weft_value_bytes(weft_graph_value(l->graph, value)));
    weft_gradient_release(l, value);
    hold_gradient(l, value, own);
    return own;
}

static bool is_wanted(const weft_lowering *l, weft_value value) {
    return weft_graph_value(l->graph, value)->wants_gradient;
}

int32_t weft_gradient_of(const weft_lowering *l, weft_value value) {
    return l->gradient_of[value.id];
}

int32_t weft_gradient_target(weft_lowering *l, weft_value value, int32_t *accumulate) {
    *accumulate = 0;
    if (!is_wanted(l, value)) return 0;
    *accumulate = l->gradient_of[value.id] != 0;
    if (*accumulate) return own_gradient(l, value);
    hold_gradient(l, value, own_storage(l, value));
    return l->gradient_of[value.id];
}

int32_t weft_gradient_target_over(weft_lowering *l, weft_value value, int32_t over, int32_t *accumulate) {
    const bool first = l->gradient_of[value.id] == 0;
    if (!is_wanted(l, value) || !first || value.id == l->graph->carry_in.id || !is_exclusive(l, over))
        return weft_gradient_target(l, value, accumulate);
    *accumulate = 0;
    hold_gradient(l, value, over);
    return over;
}

int32_t weft_gradient_begin(weft_lowering *l, weft_value value) {
    if (!is_wanted(l, value)) return 0;
    if (l->gradient_of[value.id] != 0) return weft_lower_work(l, weft_value_bytes(weft_graph_value(l->graph, value)));
    hold_gradient(l, value, own_storage(l, value));
    return l->gradient_of[value.id];
}

int32_t weft_gradient_begin_always(weft_lowering *l, weft_value value) {
    const int32_t begun = weft_gradient_begin(l, value);
    return begun != 0 ? begun : weft_lower_work(l, weft_value_bytes(weft_graph_value(l->graph, value)));
}

void weft_gradient_end(weft_lowering *l, weft_value value, int32_t begun) {
    if (begun != 0 && l->gradient_of[value.id] != begun) weft_gradient_share(l, value, begun);
}

void weft_gradient_share(weft_lowering *l, weft_value value, int32_t storage) {
    const weft_value_record *record = weft_graph_value(l->graph, value);
    int32_t own = 0;
    if (!is_wanted(l, value)) return;
    if (l->gradient_of[value.id] == 0) {
        hold_gradient(l, value, storage);
        return;
    }
    own = own_gradient(l, value);
    weft_lower_add(l, own, own, storage, record->count, record->dtype);
}

void weft_gradient_release(weft_lowering *l, weft_value value) {
    int32_t *storage = &l->gradient_of[value.id];
    if (*storage != 0) storage_at(l, *storage)->holders--;
    *storage = 0;
}
