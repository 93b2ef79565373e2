/* host/adapter/tensors.c: see adapter.h. */
#include "adapter/adapter.h"

#include "base/alloc.h"
#include "plugin/enter.h"

#include <stdlib.h>

static bool is_table(const weft_adapter_tensor *t, const weft_parameter *p) {
    return t->rank == 2 && p->rank == 2 && !t->transposed && t->dims[0] == p->dims[0] && t->dims[1] > p->dims[1];
}

static bool can_be(const weft_adapter_tensor *t, const weft_parameter *p) {
    int64_t numel = 1;
    if (t->rank < 1 || t->rank > 3 || memchr(t->name, 0, sizeof t->name) == NULL || (t->transposed && t->rank != 2))
        return false;
    for (int32_t d = 0; d < t->rank; d++) {
        if (t->dims[d] < 1 || t->dims[d] > INT64_MAX / numel) return false;
        numel *= t->dims[d];
    }
    if (is_table(t, p)) return t->column >= 0 && t->column <= t->dims[1] - p->dims[1];
    return numel == p->numel && t->column == 0;
}

/* Fills the entry for a name in the model: the parameter's own, or an alias. by: adapter that owns the file. */
static weft_status query_adapter(weft_adapter_entry *entry, const weft_joined_adapter *by, const weft_parameter *p,
                                 const char *name, weft_error *err) {
    const weft_adapter_plugin *plugin = by->plugin;
    weft_status status = WEFT_OK;
    entry->tensor = (weft_adapter_tensor){.struct_size = (uint32_t)sizeof entry->tensor,
                                          .dims = {p->dims[0], p->dims[1]},
                                          .rank = p->rank};
    (void)snprintf(entry->tensor.name, sizeof entry->tensor.name, WEFT_ADAPTER_PREFIX "%s", name);
    if (!WEFT_HAS(plugin, tensor) || plugin->tensor == NULL) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, plugin, tensor, err, by->adapter, name, &entry->tensor);
    if (status != WEFT_OK) return status;
    entry->is_moved = entry->tensor.transposed || is_table(&entry->tensor, p);
    if (!can_be(&entry->tensor, p))
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "the adapter plugin returns for '%s' an invalid name or shape of its tensor in files",
                                name);
    return weft_plugin_blame(plugin, status, err);
}

/* ---- tables ---- */

/* True if the parts of the entry's tensor cover all its columns exactly once. */
static bool is_whole(const weft_adapter_list *list, const weft_declared *declared, const weft_adapter_entry *entry) {
    const int64_t own = declared->parameters[entry->parameter].dims[1], first = entry->tensor.column;
    int64_t columns = own;
    for (int32_t i = 0; i < list->n; i++) {
        const weft_adapter_entry *other = &list->entries[i];
        const int64_t others = declared->parameters[other->parameter].dims[1], second = other->tensor.column;
        if (other == entry || other->at != entry->at) continue;
        if (!other->is_moved || memcmp(entry->tensor.dims, other->tensor.dims, sizeof entry->tensor.dims) != 0 ||
            (first + own > second && second + others > first))
            return false;
        columns += others;
    }
    return entry->tensor.transposed || columns == entry->tensor.dims[1];
}

static weft_status add_entry(weft_adapter_list *out, const weft_declared *declared, int32_t p, const char *alias,
                             weft_error *err) {
    weft_adapter_entry *entry = &out->entries[out->n++];
    weft_status status = WEFT_OK;
    entry->parameter = p;
    entry->alias = alias;
    status = query_adapter(entry, out->by, &declared->parameters[p],
                           alias != NULL ? alias : declared->parameters[p].name, err);
    entry->at = out->n_tensors; /* a new file tensor, or that of an earlier part of the same table */
    for (int32_t i = 0; entry->is_moved && i + 1 < out->n; i++)
        if (strcmp(out->entries[i].tensor.name, entry->tensor.name) == 0) entry->at = out->entries[i].at;
    if (entry->at == out->n_tensors) out->n_tensors++;
    return status;
}

weft_status weft_adapter_list_make(weft_adapter_list *out, const weft_declared *declared, int32_t adapter,
                                   bool own_alone, weft_error *err) {
    int32_t names = declared->n_parameters;
    weft_status status = WEFT_OK;
    for (int32_t p = 0; p < declared->n_parameters; p++) names += declared->parameters[p].n_aliases;
    *out = (weft_adapter_list){.entries = weft_alloc(names, sizeof *out->entries), .by = &declared->adapters[adapter]};
    for (int32_t p = 0; p < declared->n_parameters && status == WEFT_OK; p++) {
        const weft_parameter *parameter = &declared->parameters[p];
        if (parameter->added != 0 ? parameter->added != adapter + 1 : own_alone || !parameter->trainable) continue;
        status = add_entry(out, declared, p, NULL, err);
        for (int32_t i = 0; !parameter->added && i < parameter->n_aliases && status == WEFT_OK; i++)
            status = add_entry(out, declared, p, parameter->aliases[i], err);
    }
    for (int32_t i = 0; i < out->n && status == WEFT_OK; i++) {
        const weft_adapter_entry *entry = &out->entries[i];
        if (!entry->is_moved || is_whole(out, declared, entry)) continue;
        status =
            weft_error_set(err, WEFT_E_PLUGIN,
                           "the adapter plugin stores '%s' in a table '%s' of files, but its parameters do not fill "
                           "each column once",
                           declared->parameters[entry->parameter].name, entry->tensor.name);
        status = weft_plugin_blame(out->by->plugin, status, err);
    }
    return status;
}

weft_tensor_spec weft_adapter_spec(const weft_adapter_entry *entry, int32_t dtype) {
    weft_tensor_spec spec = {.name = entry->tensor.name, .dtype = dtype, .rank = entry->tensor.rank};
    memcpy(spec.dims, entry->tensor.dims, sizeof entry->tensor.dims);
    return spec;
}

/* Finds a base parameter by the name after the prefix. */
static int32_t find_behind(const weft_declared *declared, const char *name, const char *prefix) {
    static const char wrapped[] = ".base_layer.";
    const size_t n = strlen(prefix);
    const char *layer = strstr(name, wrapped);
    char plain[sizeof((weft_adapter_tensor *)NULL)->name];
    int32_t p = -1;
    if (strncmp(name, prefix, n) != 0 || strlen(name) >= sizeof plain) return -1;
    if (layer == NULL) (void)snprintf(plain, sizeof plain, "%s", name + n);
    else
        (void)snprintf(plain, sizeof plain, "%.*s.%s", (int)(layer - name - (ptrdiff_t)n), name + n,
                       layer + sizeof wrapped - 1);
    p = weft_declared_find(declared, plain);
    return p >= 0 && !declared->parameters[p].added ? p : -1;
}

/* Finds a base parameter by the plugin's own name for it. */
static int32_t find_renamed(const weft_declared *declared, int32_t adapter, const char *name) {
    const weft_joined_adapter *by = &declared->adapters[adapter];
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        const weft_parameter *parameter = &declared->parameters[p];
        weft_adapter_entry entry;
        memset(&entry, 0, sizeof entry);
        if (parameter->added || query_adapter(&entry, by, parameter, parameter->name, NULL) != WEFT_OK) continue;
        if (!entry.is_moved && strcmp(entry.tensor.name, name) == 0) return p;
    }
    return -1;
}

int32_t weft_adapter_base_parameter(const weft_declared *declared, int32_t adapter, const char *name) {
    int32_t p = find_behind(declared, name, WEFT_ADAPTER_PREFIX);
    if (p < 0) p = find_behind(declared, name, "base_model.");
    return p < 0 ? find_renamed(declared, adapter, name) : p;
}

weft_status weft_adapter_check_whole(const weft_declared *declared, weft_error *err) {
    for (int32_t i = 0; i < declared->n_weights; i++) {
        const weft_weight *weight = declared->weights[i];
        const weft_parameter *matrix = &declared->parameters[weight->parameter];
        const weft_parameter *bias = weight->bias < 0 ? NULL : &declared->parameters[weight->bias];
        if (matrix->added || bias == NULL || matrix->trainable == bias->trainable) continue;
        return weft_error_set(err, WEFT_E_USER,
                              "'%s' is trained and '%s' is not, and PEFT saves complete modules with an adapter. Fix: "
                              "add both to [train] trainable, or neither",
                              matrix->trainable ? matrix->name : bias->name,
                              matrix->trainable ? bias->name : matrix->name);
    }
    /* PEFT does not adapt completely trained modules, so it would build a different model from such files. */
    for (int32_t i = 0; i < declared->n_sites; i++) {
        const weft_declared_site *site = &declared->sites[i];
        const weft_weight *weight = site->view.weight;
        const weft_adapter_plugin *plugin = site->claimed == 0 ? NULL : declared->adapters[site->claimed - 1].plugin;
        if (plugin == NULL || weight == NULL || (plugin->flags & WEFT_ADAPTER_PEFT) == 0 ||
            !declared->parameters[weight->parameter].trainable)
            continue;
        return weft_error_set(err, WEFT_E_USER,
                              "'%s' is trained, and the adapter also changes the output of '%s', where PEFT would omit "
                              "the adapter. Fix: remove it from [train] trainable, or from the adapter's targets",
                              declared->parameters[weight->parameter].name, site->view.path);
    }
    return WEFT_OK;
}
