/* host/plugin/plugins.c: the plugin registry, see plugin.h. */
#include "plugin/plugin.h"

#include "base/alloc.h"
#include "plugin/load.h"
#include "plugin/search.h"
#include "plugin/trust.h"
#include <stdlib.h>

typedef struct request {
    char *kind, *name;
    const weft_loaded *loaded;
} request;

struct weft_plugins {
    weft_search search;
    char *pins, *list, *list_path; /* or NULL */
    weft_trust trust;
    request *requests;
    size_t n_requests;
};

static char *copy_set(const char *text) {
    return text == NULL || *text == 0 ? NULL : weft_strdup(text);
}

weft_status weft_plugins_create(weft_plugins **out, const weft_plugins_options *options, weft_error *err) {
    weft_plugins *self = weft_alloc(1, sizeof *self);
    weft_status status = weft_pins_check(options->pins, err);
    if (status == WEFT_OK) status = weft_search_open(&self->search, options->path, err);
    self->pins = copy_set(options->pins);
    self->list_path = copy_set(options->pin_list);
    if (status == WEFT_OK && self->list_path != NULL)
        status = weft_pins_read_list(&self->list, self->list_path, options->pinned, err);
    self->trust = (weft_trust){self->pins, self->list, self->list_path, options->pinned};
    if (status == WEFT_OK) *out = self;
    else weft_plugins_destroy(self);
    return status;
}

void weft_plugins_destroy(weft_plugins *self) {
    if (self == NULL) return;
    for (size_t i = 0; i < self->n_requests; i++) {
        free(self->requests[i].kind);
        free(self->requests[i].name);
    }
    weft_search_close(&self->search);
    free(self->requests);
    free(self->pins);
    free(self->list);
    free(self->list_path);
    free(self);
}

const weft_trust *weft_plugins_trust(const weft_plugins *self) {
    return &self->trust;
}

weft_status weft_plugins_find(const weft_plugins *self, char *path, size_t size, const char *kind, const char *id,
                              weft_error *err) {
    if (weft_search_find(&self->search, path, size, kind, id)) return WEFT_OK;
    return weft_search_miss(&self->search, kind, id, err);
}

/* ---- notes of available files ---- */

void weft_plugin_summarize(const weft_plugins *self, weft_plugin_summary *out, const char *id, const char *path) {
    weft_preflight note;
    weft_error why = WEFT_ERROR_INIT;
    memset(out, 0, sizeof *out);
    (void)snprintf(out->id, sizeof out->id, "%s", id);
    (void)snprintf(out->path, sizeof out->path, "%s", path);
    if (weft_plugin_file_note(&note, path, &self->trust, &why) != WEFT_OK) {
        (void)snprintf(out->reason, sizeof out->reason, "%.1000s", why.text);
        return;
    }
    (void)snprintf(out->launch, sizeof out->launch, "%s", note.launch);
    (void)snprintf(out->launched, sizeof out->launched, "%s", note.launched);
}

weft_status weft_plugins_summarize(const weft_plugins *self, weft_plugin_summary **out, size_t *n, const char *kind,
                                   weft_error *err) {
    weft_found *files = NULL;
    weft_plugin_summary *all = NULL;
    size_t n_files = 0, used = 0;
    const weft_status status = weft_search_list(&self->search, &files, &n_files, kind, err);
    if (status != WEFT_OK) return status;
    all = weft_alloc(n_files, sizeof *all);
    for (size_t i = 0; i < n_files; i++) {
        size_t same = 0;
        while (same < used && strcmp(all[same].id, files[i].id) != 0) same++;
        if (same < used || strlen(files[i].id) >= sizeof all->id) continue; /* an earlier directory has it */
        weft_plugin_summarize(self, &all[used++], files[i].id, files[i].path);
    }
    free(files);
    *out = all;
    *n = used;
    return WEFT_OK;
}

/* ---- one plugin ---- */

weft_status weft_plugins_get(weft_plugins *self, const weft_loaded **out, const char *kind, const char *name,
                             weft_error *err) {
    const weft_loaded *loaded = NULL;
    const int by_path = strchr(name, '/') != NULL;
    char path[PATH_MAX];
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < self->n_requests; i++) {
        const request *one = &self->requests[i];
        if (strcmp(one->kind, kind) != 0 || strcmp(one->name, name) != 0) continue;
        *out = one->loaded;
        return WEFT_OK;
    }
    if (weft_kind_interface(kind) < 0)
        return weft_error_set(err, WEFT_E_USER, "there is no plugin kind \"%.100s\"; there are %s.", kind,
                              weft_kind_list());
    if (!by_path) status = weft_plugins_find(self, path, sizeof path, kind, name, err);
    if (status == WEFT_OK)
        status = weft_plugin_load(&loaded, by_path ? name : path, &self->trust, kind, by_path ? NULL : name, err);
    if (status != WEFT_OK) return status;
    weft_trust_warnings_log(loaded, by_path ? name : path);
    self->requests = weft_realloc(self->requests, self->n_requests + 1, sizeof *self->requests);
    self->requests[self->n_requests++] = (request){weft_strdup(kind), weft_strdup(name), loaded};
    *out = loaded;
    return WEFT_OK;
}
