/* host/adapter/tensors.c: see tensors.h. */
#include "adapter/tensors.h"

#include "plugin/enter.h"

#include <stdlib.h>

bool weft_adapter_saves(const weft_declared *declared, int32_t parameter) {
    return declared->parameters[parameter].added || declared->parameters[parameter].trainable;
}

static void fill_entry(weft_adapter_entry *entry, const weft_parameter *p, int32_t parameter) {
    entry->parameter = parameter;
    entry->tensor.struct_size = (uint32_t)sizeof entry->tensor;
    entry->tensor.rank = p->rank;
    memcpy(entry->tensor.dims, p->dims, sizeof p->dims);
    (void)snprintf(entry->tensor.name, sizeof entry->tensor.name, WEFT_ADAPTER_PREFIX "%s", p->name);
}

static weft_status ask_adapter(weft_adapter_entry *entry, const weft_declared *declared, weft_error *err) {
    const weft_parameter *p = &declared->parameters[entry->parameter];
    const weft_joined_adapter *by = p->added != 0 ? &declared->adapters[p->added - 1] : NULL;
    const weft_adapter_plugin *plugin = by == NULL ? NULL : by->plugin;
    const weft_adapter_tensor *t = &entry->tensor;
    weft_status status = WEFT_OK;
    if (by == NULL || !WEFT_HAS(plugin, tensor) || plugin->tensor == NULL) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, plugin, tensor, err, by->adapter, p->name, &entry->tensor);
    if (status != WEFT_OK) return status;
    if (t->rank < 1 || t->rank > 2 || t->dims[0] * (t->rank == 2 ? t->dims[1] : 1) != p->numel ||
        memchr(t->name, 0, sizeof t->name) == NULL || (t->transposed && t->rank != 2))
        return weft_plugin_blame(plugin,
                                 weft_error_set(err, WEFT_E_PLUGIN,
                                                "the adapter plugin gives '%s' a name or a shape in files that it "
                                                "cannot have",
                                                p->name),
                                 err);
    return WEFT_OK;
}

static void add_aliases(weft_adapter_list *out, const weft_parameter *p) {
    const weft_adapter_entry first = out->entries[out->n - 1];
    for (int32_t i = 0; !p->added && i < p->n_aliases; i++) {
        weft_adapter_entry *entry = &out->entries[out->n++];
        *entry = first;
        entry->alias = p->aliases[i];
        (void)snprintf(entry->tensor.name, sizeof entry->tensor.name, WEFT_ADAPTER_PREFIX "%s", entry->alias);
    }
}

static int64_t count_names(const weft_declared *declared) {
    int64_t n = declared->n_parameters;
    for (int32_t p = 0; p < declared->n_parameters; p++) n += declared->parameters[p].n_aliases;
    return n;
}

static bool is_listed(const weft_declared *declared, int32_t p, int32_t adapter, bool own_alone) {
    const weft_parameter *parameter = &declared->parameters[p];
    return parameter->added != 0 ? parameter->added == adapter + 1 : !own_alone && parameter->trainable;
}

weft_status weft_adapter_list_make(weft_adapter_list *out, const weft_declared *declared, int32_t adapter,
                                   bool own_alone, weft_error *err) {
    weft_status status = WEFT_OK;
    out->n = 0;
    out->entries = calloc((size_t)count_names(declared) + 1, sizeof *out->entries);
    if (out->entries == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter's list of tensors");
    for (int32_t p = 0; p < declared->n_parameters && status == WEFT_OK; p++) {
        if (!is_listed(declared, p, adapter, own_alone)) continue;
        fill_entry(&out->entries[out->n], &declared->parameters[p], p);
        status = ask_adapter(&out->entries[out->n++], declared, err);
        add_aliases(out, &declared->parameters[p]);
    }
    return status;
}

void weft_adapter_list_free(weft_adapter_list *list) {
    free(list->entries);
    memset(list, 0, sizeof *list);
}

weft_tensor_spec weft_adapter_spec(const weft_adapter_entry *entry, int32_t dtype) {
    weft_tensor_spec spec = {.name = entry->tensor.name, .dtype = dtype, .rank = entry->tensor.rank};
    memcpy(spec.dims, entry->tensor.dims, sizeof entry->tensor.dims);
    return spec;
}

int32_t weft_adapter_base_parameter(const weft_declared *declared, const char *name) {
    static const char wrapped[] = ".base_layer.";
    const size_t n = strlen(WEFT_ADAPTER_PREFIX);
    const char *layer = strstr(name, wrapped);
    char plain[sizeof((weft_adapter_tensor *)NULL)->name];
    int32_t p = -1;
    if (strncmp(name, WEFT_ADAPTER_PREFIX, n) != 0 || strlen(name) >= sizeof plain) return -1;
    if (layer == NULL) (void)snprintf(plain, sizeof plain, "%s", name + n);
    else
        (void)snprintf(plain, sizeof plain, "%.*s.%s", (int)(layer - name - (ptrdiff_t)n), name + n,
                       layer + sizeof wrapped - 1);
    p = weft_declared_find(declared, plain);
    return p >= 0 && !declared->parameters[p].added ? p : -1;
}

weft_status weft_adapter_check_whole(const weft_declared *declared, weft_error *err) {
    for (int32_t i = 0; i < declared->n_weights; i++) {
        const weft_weight *weight = declared->weights[i];
        const weft_parameter *matrix = &declared->parameters[weight->parameter];
        const weft_parameter *bias = weight->bias < 0 ? NULL : &declared->parameters[weight->bias];
        if (matrix->added || bias == NULL || matrix->trainable == bias->trainable) continue;
        return weft_error_set(
            err, WEFT_E_USER,
            "'%s' is trained and '%s' is not: beside an adapter PEFT saves whole modules; name both or "
            "neither",
            matrix->trainable ? matrix->name : bias->name, matrix->trainable ? bias->name : matrix->name);
    }
    return WEFT_OK;
}
