/* host/graph/replay.c: replays a pass with the caller's buffers.
 *
 * Replay allocates no memory and makes no decisions. Before each call it resolves the operands to refs and checks each
 * one against its slot. */
#include "graph/record.h"
#include "base/units.h"
#include "plugin/enter.h"

typedef struct replay {
    const weft_graph *graph;
    const weft_pass *pass;
    const weft_graph_binding *binding;
} replay;

#define HOME(name, field, text) [WEFT_HOME_##name] = {text, offsetof(weft_graph_binding, field)},
static const struct {
    const char *name;
    size_t slot; /* offset of the weft_slot_ref in the binding; 0: see slot_of_storage */
} homes[] = {[WEFT_HOME_NONE] = {"no slot", 0},
             WEFT_HOMES(HOME)[WEFT_HOME_LOSS] = {"the loss", 0},
             [WEFT_HOME_PARAMETER] = {"the parameter", 0},
             [WEFT_HOME_GRADIENT] = {"the parameter's gradient", 0},
             [WEFT_HOME_TABLE] = {"the table", 0}};

/* Returns the binding's slot that contains a storage. Parameters are complete regions without a separate size. */
static weft_slot_ref slot_of_storage(const weft_graph_binding *b, const weft_storage *storage) {
    weft_slot_ref slot = {0};
    switch (storage->home) {
    case WEFT_HOME_LOSS: return (weft_slot_ref){.ref = b->loss, .bytes = weft_dtype_bytes(WEFT_F64)};
    case WEFT_HOME_PARAMETER: return (weft_slot_ref){.ref = b->parameters[storage->index], .bytes = INT64_MAX};
    case WEFT_HOME_GRADIENT: return b->gradients[storage->index];
    case WEFT_HOME_TABLE: return b->tables[storage->index];
    case WEFT_HOME_NONE: return slot;
    default: memcpy(&slot, (const char *)b + homes[storage->home].slot, sizeof slot); return slot;
    }
}

static void name_call(weft_error *err, const replay *run, const weft_call *call) {
    const weft_node *node = call->node < 0 ? NULL : &run->graph->nodes[call->node];
    const char *segment = weft_graph_name(run->graph);
    const bool back = run->pass == &run->graph->passes[WEFT_PASS_BACKWARD];
    if (node == NULL) (void)weft_error_prefix(err, "segment %s, %s of the carry: ", segment, call->kernel->name);
    else
        (void)weft_error_prefix(err, "segment %s, %s%s%s%s: ", segment, node->op->name,
                                node->label[0] == '\0' ? "" : " ", node->label, back ? ", backward" : "");
}

static weft_status resolve_operand(const replay *run, const weft_operand *operand, weft_ref *out, weft_error *err) {
    const weft_storage *storage = &run->pass->storages[operand->storage];
    const weft_slot_ref slot = slot_of_storage(run->binding, storage);
    const int64_t start = storage->offset + operand->offset;
    const int64_t end = start + operand->bytes;
    if (slot.ref.buffer == NULL)
        return weft_error_set(err, WEFT_E_HOST, "`%s` is in %s, which is not bound", operand->name,
                              homes[storage->home].name);
    if (end > slot.bytes)
        return weft_error_set(err, WEFT_E_HOST, "`%s` needs bytes %lld to %lld of %s; only %lld are there",
                              operand->name, (long long)start, (long long)end, homes[storage->home].name,
                              (long long)slot.bytes);
    if (slot.used != NULL && slot.start + end > *slot.used) *slot.used = slot.start + end;
    out->buffer = slot.ref.buffer;
    out->offset = slot.ref.offset + start;
    return WEFT_OK;
}

static weft_status run_call(const replay *run, const weft_call *call, weft_error *err) {
    const weft_kernel_run kernel_run = {.kernels = run->graph->spec.kernels,
                                        .device = run->graph->spec.device,
                                        .stream = run->binding->stream};
    const weft_storage *storages = run->pass->storages;
    const int32_t *dtypes = run->binding->dtypes;
    weft_kernel_args args = call->args;
    weft_call_record before;
    for (int32_t i = 0; i < call->n_operands; i++) {
        const weft_operand *operand = &run->pass->operands[call->operand + i];
        weft_ref ref = {0};
        const weft_status status = resolve_operand(run, operand, &ref, err);
        if (status != WEFT_OK) return status;
        memcpy((char *)&args + operand->field, &ref, sizeof ref);
        if (call->kernel == &weft_kernel_embedding && dtypes != NULL &&
            storages[operand->storage].home == WEFT_HOME_PARAMETER)
            args.embedding.dtype_table = dtypes[storages[operand->storage].index];
    }
    before = call->kernel == &weft_kernel_custom || call->kernel == &weft_kernel_custom_backward
                 ? weft_plugin_enter(run->graph->declared->plugin, call->kernel->name)
                 : weft_plugin_enter(kernel_run.kernels, call->kernel->name);
    return weft_plugin_leave(before, weft_kernel_invoke(call->kernel, &kernel_run, &args, err), err);
}

static weft_status time_call(const replay *run, const weft_call *call, weft_error *err) {
    const weft_graph_spec *spec = &run->graph->spec;
    const weft_call_sink *sink = run->binding->sink;
    const double begin = weft_clock_seconds();
    weft_status status = run_call(run, call, err);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, spec->kernels, synchronize, err, spec->device, run->binding->stream);
    sink->ran(sink->context, run->graph, call, weft_clock_seconds() - begin);
    return status;
}

static weft_status run_pass(const weft_graph *graph, int32_t kind, const weft_graph_binding *binding, weft_error *err) {
    const replay run = {.graph = graph, .pass = &graph->passes[kind], .binding = binding};
    for (int32_t i = 0; i < run.pass->n_calls; i++) {
        weft_error failure = WEFT_ERROR_INIT;
        const weft_call *call = &run.pass->calls[i];
        const weft_status status = binding->sink == NULL ? run_call(&run, call, &failure)
                                                         : time_call(&run, call, &failure);
        if (status == WEFT_OK && binding->between != NULL) binding->between(binding->between_context);
        if (status == WEFT_OK) continue;
        name_call(&failure, &run, call);
        return weft_error_set(err, status, "%s", failure.text);
    }
    return WEFT_OK;
}

weft_status weft_graph_forward(const weft_graph *graph, const weft_graph_binding *binding, bool recompute,
                               weft_error *err) {
    const bool taped = graph->sizes.tape > 0 && binding->tape.ref.buffer != NULL;
    if (recompute) return run_pass(graph, WEFT_PASS_RECOMPUTE, binding, err);
    return run_pass(graph, taped ? WEFT_PASS_FORWARD : WEFT_PASS_UNTAPED, binding, err);
}

weft_status weft_graph_backward(const weft_graph *graph, const weft_graph_binding *binding, weft_error *err) {
    if (!graph->sizes.has_backward)
        return weft_error_set(err, WEFT_E_HOST,
                              "segment %s has no backward: no parameter of it or of an earlier segment is trained",
                              weft_graph_name(graph));
    return run_pass(graph, WEFT_PASS_BACKWARD, binding, err);
}

int64_t weft_graph_hidden_width(const weft_graph *graph) {
    return graph->hidden == 0 ? 0 : weft_graph_value(graph, graph->nodes[graph->head].inputs[0])->width;
}

weft_slot_ref weft_graph_hidden(const weft_graph *graph, const weft_graph_binding *binding) {
    const weft_storage *storage = &graph->passes[WEFT_PASS_UNTAPED].storages[graph->hidden];
    weft_slot_ref out = slot_of_storage(binding, storage);
    out.ref.offset += storage->offset;
    out.start += storage->offset;
    out.bytes = storage->bytes;
    return out;
}
