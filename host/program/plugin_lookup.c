/* host/program/plugin_lookup.c: see plugin_lookup.h. */
#include "program/plugin_lookup.h"

#include "launch/world.h"
#include "plugin/call.h"
#include "plugin/services.h"

#include <stdlib.h>

/* A struct that a wrapped plugin's keys fill. */
typedef struct lent_keys {
    struct lent_keys *next;
    uint64_t bytes[]; /* as aligned as any of its members */
} lent_keys;

typedef struct weft_plugin_lookup {
    weft_host host; /* first: it is what plugins know of */
    weft_run *run;  /* NULL: it is closed */
    lent_keys *keys;
    struct weft_plugin_lookup *next;
} weft_plugin_lookup;

static weft_plugin_lookup *all_lenders; /* until the process ends */

/* A family of communicators stands for the one by which this process was started. */
static const char *find_member(const char *kind, const char *id) {
    const weft_world *world = weft_world_get();
    const size_t n = strlen(id);
    const bool is_family = strcmp(kind, "comm") == 0 && strncmp(world->wrapped, id, n) == 0 && world->wrapped[n] == '-';
    return is_family ? world->wrapped : id;
}

static weft_status find(const weft_loaded **out, weft_run *run, const char *kind, const char *id, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (!weft_plugin_kind_known(kind))
        return weft_error_set(err, WEFT_E_PLUGIN, "asks for a %.40s: there is no such kind", kind);
    status = weft_plugins_get(run->plugins, out, kind, find_member(kind, id), &why);
    if (status != WEFT_OK) return weft_error_set(err, status, "the %s %s cannot be wrapped: %s", kind, id, why.text);
    if (*out == run->parts[weft_part_of(kind)].loaded)
        return weft_error_set(err, WEFT_E_USER, "the %s %s would wrap itself: name another", kind, id);
    return WEFT_OK;
}

static weft_status fill(const void **out, weft_plugin_lookup *self, const weft_loaded *loaded, weft_error *err) {
    const weft_plugin *plugin = loaded->plugin;
    lent_keys *keys = calloc(1, sizeof *keys + plugin->config_size + sizeof(uint64_t));
    char section[100];
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    if (keys == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the keys of %s", plugin->id);
    keys->next = self->keys;
    self->keys = keys;
    (void)snprintf(section, sizeof section, "%s.%s", plugin->kind, plugin->id);
    status = weft_config_fill_idle(self->run->config, keys->bytes, section, plugin->keys, plugin->n_keys,
                                   plugin->key_stride, err);
    if (status == WEFT_OK && plugin->validate != NULL) {
        weft_plugin_call_begin(&call, loaded, "validate");
        status = plugin->validate(keys->bytes, err);
        status = weft_plugin_call_end(&call, status, err);
        if (status != WEFT_OK) weft_config_locate_section(self->run->config, section, err);
    }
    *out = keys->bytes;
    return status;
}

static weft_status lend(const weft_host *host, const char *kind, const char *id, const struct weft_plugin **plugin,
                        const void **config, weft_error *err) {
    weft_plugin_lookup *self = (weft_plugin_lookup *)(uintptr_t)host;
    const weft_loaded *loaded = NULL;
    weft_status status = WEFT_OK;
    *plugin = NULL;
    *config = NULL;
    if (self->run == NULL) return weft_error_set(err, WEFT_E_PLUGIN, "asks for a plugin of a run that is over");
    status = find(&loaded, self->run, kind, id, err);
    if (status == WEFT_OK) status = fill(config, self, loaded, err);
    if (status == WEFT_OK) *plugin = loaded->plugin;
    return status;
}

static const void *extension(const weft_host *host, const char *id) {
    static const weft_host_plugins table = {(uint32_t)sizeof table, 0, lend};
    if (strcmp(id, WEFT_HOST_PLUGINS) == 0) return &table;
    return weft_services()->extension(host, id);
}

weft_status weft_plugin_lookup_open(weft_run *run, weft_error *err) {
    weft_plugin_lookup *self = calloc(1, sizeof *self);
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the configuration");
    self->host = *weft_services();
    self->host.extension = extension;
    self->run = run;
    self->next = all_lenders;
    all_lenders = self;
    run->plugin_lookup = self;
    run->host = &self->host;
    return WEFT_OK;
}

void weft_plugin_lookup_close(weft_run *run) {
    weft_plugin_lookup *self = run->plugin_lookup;
    if (self == NULL) return;
    while (self->keys != NULL) {
        lent_keys *next = self->keys->next;
        free(self->keys);
        self->keys = next;
    }
    self->run = NULL;
}
