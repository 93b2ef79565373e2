/* host/graph/gradient.c: see record.h. */
#include "graph/record.h"

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
