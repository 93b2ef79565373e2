/* host/plugin/kinds.c: see load.h. A new kind is one line here. A slot added after SDK 1.0 is optional. */
#include "plugin/load.h"
#include "plugin/plugin.h"

#include "config/config.h"
#include <weft/adapter.h>
#include <weft/comm.h>
#include <weft/data.h>
#include <weft/model.h>
#include <weft/policy.h>
#include <weft/strategy.h>
#include <weft/tokenizer.h>

/* A table smaller than in SDK 1.0 was built with pre-1.0 headers. */
#define REBUILD ": it was built against other headers than those of this weft; build it again against these."

typedef struct slot {
    const char *name;
    size_t offset;
} slot;

/* clang-format off */
#define SLOT(kind, name) {#name, offsetof(weft_##kind##_plugin, name)}
#define KERNEL_SLOT(name, type) SLOT(device, name),
#define WORKSPACE_SLOT(name, type) SLOT(device, name##_workspace),
static const slot model_slots[] = {
    SLOT(model, create), SLOT(model, destroy), SLOT(model, info), SLOT(model, declare), SLOT(model, forward)};
static const slot optimizer_slots[] = {
    SLOT(optimizer, create), SLOT(optimizer, destroy), SLOT(optimizer, states), SLOT(optimizer, hp_size),
    SLOT(optimizer, prepare), SLOT(optimizer, update)};
static const slot data_slots[] = {
    SLOT(data, create), SLOT(data, destroy), SLOT(data, info), SLOT(data, split_info), SLOT(data, shape),
    SLOT(data, micro_batch)};
static const slot tokenizer_slots[] = {
    SLOT(tokenizer, create), SLOT(tokenizer, destroy), SLOT(tokenizer, info), SLOT(tokenizer, encode),
    SLOT(tokenizer, decode)};
static const slot device_slots[] = {
    SLOT(device, create), SLOT(device, destroy), SLOT(device, info), SLOT(device, alloc), SLOT(device, release),
    SLOT(device, stream_create), SLOT(device, stream_destroy), SLOT(device, synchronize), SLOT(device, record_event),
    SLOT(device, wait), SLOT(device, write), SLOT(device, read), SLOT(device, copy), SLOT(device, fill),
    SLOT(device, convert),
    WEFT_DEVICE_WORKSPACES(WORKSPACE_SLOT) WEFT_DEVICE_KERNELS(KERNEL_SLOT)};
static const slot strategy_slots[] = {SLOT(strategy, replicas), SLOT(strategy, place), SLOT(strategy, compile)};
static const slot policy_slots[] = {SLOT(policy, units)};
static const slot comm_slots[] = {
    SLOT(comm, create), SLOT(comm, destroy), SLOT(comm, info), SLOT(comm, attach), SLOT(comm, group),
    SLOT(comm, all_gather), SLOT(comm, all_to_all), SLOT(comm, reduce_scatter), SLOT(comm, all_reduce),
    SLOT(comm, broadcast), SLOT(comm, barrier), SLOT(comm, send), SLOT(comm, recv), SLOT(comm, test),
    SLOT(comm, wait)};
static const slot adapter_slots[] = {SLOT(adapter, create), SLOT(adapter, destroy), SLOT(adapter, declare)};

typedef struct kind_row {
    const char *name;
    int32_t interface_major;
    const slot *slots;
    size_t n_slots;
    uint32_t least; /* size of its table in SDK 1.0, in bytes */
} kind_row;

#define KIND(name, interface_major) \
    {#name, interface_major, name##_slots, sizeof name##_slots / sizeof name##_slots[0], \
     WEFT_SIZE_1_0(weft_##name##_plugin)}
static const kind_row kinds[] = {
    KIND(model, 1), KIND(optimizer, 1), KIND(data, 1), KIND(tokenizer, 1), KIND(device, 1),
    KIND(strategy, 1), KIND(policy, 1), KIND(comm, 1), KIND(adapter, 1)};
/* clang-format on */

static const kind_row *find_kind(const char *kind) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, kind) == 0) return &kinds[i];
    return NULL;
}

int32_t weft_kind_interface(const char *kind) {
    const kind_row *row = find_kind(kind);
    return row == NULL ? -1 : row->interface_major;
}

const char *weft_kind_list(void) {
    return "model, optimizer, data, tokenizer, device, strategy, policy, comm, adapter";
}

weft_status weft_kind_fits(const weft_note_plugin *plugin, weft_error *err) {
    const kind_row *row = find_kind(plugin->kind);
    if (row == NULL)
        return weft_error_set(err, WEFT_E_PLUGIN, "contains a plugin of kind \"%s\"; this host supports %s.",
                              plugin->kind, weft_kind_list());
    if ((int64_t)plugin->interface_major == row->interface_major) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "contains %s:%s for interface %s/%u; this host has %s/%d. Build it with this host's headers.",
                          plugin->kind, plugin->id, plugin->kind, plugin->interface_major, row->name,
                          (int)row->interface_major);
}

/* Checks that the table has all of SDK 1.0 and its required slots. Function pointers have the size of data pointers on
 * all platforms with dlsym. */
static weft_status check_slots(const weft_plugin *plugin, const kind_row *row, weft_error *err) {
    uint32_t struct_size;
    if (plugin->table == NULL)
        return weft_error_set(err, WEFT_E_PLUGIN, "has no table for %s:%s.", plugin->kind, plugin->id);
    memcpy(&struct_size, plugin->table, sizeof struct_size);
    for (size_t i = 0; i < row->n_slots; i++) {
        const slot *s = &row->slots[i];
        void *value = NULL;
        if (s->offset >= row->least) continue; /* added after SDK 1.0 */
        if (struct_size < s->offset + sizeof value)
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "has a table of %u bytes for %s:%s, which ends before its slot %s" REBUILD,
                                  struct_size, plugin->kind, plugin->id, s->name);
        memcpy(&value, (const char *)plugin->table + s->offset, sizeof value);
        if (value == NULL)
            return weft_error_set(err, WEFT_E_PLUGIN, "leaves the required slot %s of %s:%s empty.", s->name,
                                  plugin->kind, plugin->id);
    }
    if (struct_size < row->least)
        return weft_error_set(err, WEFT_E_PLUGIN, "has a table of %u bytes for %s:%s; SDK 1.0 has %u" REBUILD,
                              struct_size, plugin->kind, plugin->id, row->least);
    return WEFT_OK;
}

/* Checks one plugin of the list against its line of the note. */
static weft_status check_plugin(const weft_plugin *plugin, const weft_note_plugin *note, weft_error *err) {
    const char *kind, *id, *version;
    if (!WEFT_WHOLE(plugin, weft_plugin))
        return weft_error_set(err, WEFT_E_PLUGIN, "describes %s:%s in %u bytes, fewer than SDK 1.0 has" REBUILD,
                              note->kind, note->id, plugin->struct_size);
    kind = plugin->kind == NULL ? "(nothing)" : plugin->kind;
    id = plugin->id == NULL ? "(nothing)" : plugin->id;
    version = plugin->version == NULL ? "(nothing)" : plugin->version;
    if (strcmp(kind, note->kind) != 0 || strcmp(id, note->id) != 0 || strcmp(version, note->version) != 0 ||
        plugin->interface_major != note->interface_major)
        return weft_error_set(err, WEFT_E_PLUGIN, "has a note with %s/%u %s %s, and its entry returns %s/%u %s %s.",
                              note->kind, note->interface_major, note->id, note->version, kind, plugin->interface_major,
                              id, version);
    if (plugin->help == NULL || plugin->help[0] == 0 || strchr(plugin->help, '\n') != NULL)
        return weft_error_set(err, WEFT_E_PLUGIN, "has no line of help for %s:%s.", note->kind, note->id);
    if (weft_key_table_check(plugin->keys, plugin->n_keys, plugin->key_stride, plugin->config_size, err) != WEFT_OK)
        return weft_error_prefix(err, "has an invalid key table for %s:%s: ", note->kind, note->id);
    return check_slots(plugin, find_kind(note->kind), err);
}

weft_status weft_list_check(const weft_plugin_list *list, const weft_preflight *note, weft_error *err) {
    weft_status status = WEFT_OK;
    uint32_t i;
    if (!WEFT_WHOLE(list, weft_plugin_list) || list->plugins == NULL || list->stride % 8 != 0 ||
        list->stride < WEFT_SIZE_1_0(weft_plugin))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "returns a list of plugins that cannot be read (%u bytes, %u bytes per plugin)" REBUILD,
                              list->struct_size, list->stride);
    if (list->n_plugins != note->n_plugins)
        return weft_error_set(err, WEFT_E_PLUGIN, "has a note with %u plugins, and its entry returns %u.",
                              note->n_plugins, list->n_plugins);
    for (i = 0; i < list->n_plugins && status == WEFT_OK; i++) {
        const char *at = (const char *)list->plugins + (size_t)i * list->stride;
        status = check_plugin((const weft_plugin *)(const void *)at, &note->plugins[i], err);
    }
    return status;
}
