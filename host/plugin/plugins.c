/* host/plugin/plugins.c: the plugin registry, see plugin.h. */
#include "plugin/plugin.h"

#include "plugin/trust_warnings.h"
#include "plugin/kinds.h"
#include "plugin/load.h"
#include "plugin/pins.h"
#include "plugin/search.h"
#include <limits.h>
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
    const weft_loaded **given; /* without duplicates */
    size_t n_given;
};

/* Copies the text, if set. Returns false without memory. */
static int keep_text(char **out, const char *text) {
    if (text == NULL || *text == 0) return 1;
    *out = strdup(text);
    return *out != NULL;
}

static weft_status set_trust(weft_plugins *self, const weft_plugins_options *options, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!keep_text(&self->pins, options->pins) || !keep_text(&self->list_path, options->pin_list))
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the plugin registry.");
    if (self->list_path != NULL && options->pinned) status = weft_pins_guard_list(self->list_path, err);
    if (self->list_path != NULL && status == WEFT_OK) status = weft_pins_read_list(&self->list, self->list_path, err);
    self->trust = (weft_trust){self->pins, self->list, self->list_path, options->pinned};
    return status;
}

weft_status weft_plugins_create(weft_plugins **out, const weft_plugins_options *options, weft_error *err) {
    weft_plugins *self = NULL;
    weft_status status = weft_pins_check(options->pins, err);
    if (status != WEFT_OK) return status;
    self = calloc(1, sizeof *self);
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the plugin registry.");
    status = weft_search_open(&self->search, options->path, err);
    if (status == WEFT_OK) status = set_trust(self, options, err);
    if (status == WEFT_OK) {
        *out = self;
    } else {
        weft_plugins_destroy(self);
    }
    return status;
}

void weft_plugins_destroy(weft_plugins *self) {
    size_t i;
    if (self == NULL) return;
    for (i = 0; i < self->n_requests; i++) {
        free(self->requests[i].kind);
        free(self->requests[i].name);
    }
    weft_search_close(&self->search);
    free(self->requests);
    free((void *)self->given);
    free(self->pins);
    free(self->list);
    free(self->list_path);
    free(self);
}

const weft_loaded *weft_plugins_at(const weft_plugins *self, size_t i) {
    return i < self->n_given ? self->given[i] : NULL;
}

const char *weft_plugins_directory(const weft_plugins *self, size_t i) {
    return i < self->search.n ? self->search.directories[i] : NULL;
}

const weft_trust *weft_plugins_trust(const weft_plugins *self) {
    return &self->trust;
}

weft_status weft_plugins_find(const weft_plugins *self, char *path, size_t size, const char *kind, const char *id,
                              weft_error *err) {
    if (weft_search_find(&self->search, path, size, kind, id)) return WEFT_OK;
    return weft_search_miss(&self->search, kind, id, err);
}

int weft_plugin_kind_known(const char *kind) {
    return weft_kind_interface(kind) >= 0;
}

/* --- available files --- */

typedef struct collection {
    const weft_plugins *plugins;
    const char *kind;
    weft_noted *all;
    size_t n;
    weft_status status;
} collection;

void weft_plugin_noted(const weft_plugins *self, weft_noted *out, const char *id, const char *path) {
    weft_preflight *note = calloc(1, sizeof *note);
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_E_MEMORY;
    memset(out, 0, sizeof *out);
    (void)snprintf(out->id, sizeof out->id, "%s", id);
    (void)snprintf(out->path, sizeof out->path, "%s", path);
    if (note != NULL) status = weft_plugin_file_note(note, path, &self->trust, &why);
    if (status == WEFT_OK) {
        (void)snprintf(out->launch, sizeof out->launch, "%s", note->launch);
        (void)snprintf(out->launched, sizeof out->launched, "%s", note->launched);
    } else {
        (void)snprintf(out->reason, sizeof out->reason, "%.1000s", note == NULL ? "no memory" : why.text);
    }
    free(note);
}

/* Collects a file. Skips one with the name of a file in an earlier directory, which a search never finds. */
static void collect_found(void *context, const char *path) {
    collection *self = context;
    const char *name = strrchr(path, '/') + 1;
    char prefix[64], id[64];
    weft_noted *grown = NULL;
    size_t i, n;
    (void)snprintf(prefix, sizeof prefix, "weft-%s-", self->kind);
    n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || strlen(name) - n - 3 >= sizeof id) return;
    (void)snprintf(id, sizeof id, "%.*s", (int)(strlen(name) - n - 3), name + n);
    for (i = 0; i < self->n; i++)
        if (strcmp(self->all[i].id, id) == 0) return;
    grown = realloc(self->all, (self->n + 1) * sizeof *grown);
    if (grown == NULL) {
        self->status = WEFT_E_MEMORY;
        return;
    }
    self->all = grown;
    weft_plugin_noted(self->plugins, &self->all[self->n++], id, path);
}

weft_status weft_plugins_noted(const weft_plugins *self, weft_noted **out, size_t *n, const char *kind,
                               weft_error *err) {
    collection all = {self, kind, NULL, 0, WEFT_OK};
    weft_status status = weft_search_walk(&self->search, collect_found, &all, err);
    if (status == WEFT_OK && all.status != WEFT_OK)
        status = weft_error_set(err, all.status, "no memory for the list of %s plugins.", kind);
    if (status == WEFT_OK) {
        *out = all.all;
        *n = all.n;
    } else {
        free(all.all);
    }
    return status;
}

/* --- one plugin --- */

static const weft_loaded *find_request(const weft_plugins *self, const char *kind, const char *name) {
    size_t i;
    for (i = 0; i < self->n_requests; i++) {
        const request *r = &self->requests[i];
        if (strcmp(r->kind, kind) == 0 && strcmp(r->name, name) == 0) return r->loaded;
    }
    return NULL;
}

static weft_status remember_request(weft_plugins *self, const weft_loaded *loaded, const char *kind, const char *name,
                                    weft_error *err) {
    request *requests = realloc(self->requests, (self->n_requests + 1) * sizeof *requests);
    const weft_loaded **given = realloc((void *)self->given, (self->n_given + 1) * sizeof *given);
    request made = {strdup(kind), strdup(name), loaded};
    size_t i;
    if (requests != NULL) self->requests = requests;
    if (given != NULL) self->given = given;
    if (requests == NULL || given == NULL || made.kind == NULL || made.name == NULL) {
        free(made.kind);
        free(made.name);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the plugin registry.");
    }
    self->requests[self->n_requests++] = made;
    for (i = 0; i < self->n_given; i++) {
        if (self->given[i] == loaded) return WEFT_OK;
    }
    self->given[self->n_given++] = loaded;
    return WEFT_OK;
}

weft_status weft_plugins_get(weft_plugins *self, const weft_loaded **out, const char *kind, const char *name,
                             weft_error *err) {
    const weft_loaded *loaded = find_request(self, kind, name);
    const weft_plugin_file *file = NULL;
    const int by_path = strchr(name, '/') != NULL;
    char path[PATH_MAX];
    weft_status status = WEFT_OK;
    if (loaded == NULL) {
        if (!weft_plugin_kind_known(kind)) {
            return weft_error_set(err, WEFT_E_USER, "there is no plugin kind \"%.100s\"; there are %s.", kind,
                                  weft_kind_list());
        }
        if (!by_path && !weft_search_find(&self->search, path, sizeof path, kind, name)) {
            return weft_search_miss(&self->search, kind, name, err);
        }
        status = weft_plugin_file_load(&file, by_path ? name : path, &self->trust, err);
        if (status == WEFT_OK) status = weft_plugin_file_choose(&loaded, file, kind, by_path ? NULL : name, err);
        if (status == WEFT_OK) weft_trust_warnings_log(file, loaded, by_path ? name : path);
        if (status == WEFT_OK) status = remember_request(self, loaded, kind, name, err);
    }
    if (status == WEFT_OK) *out = loaded;
    return status;
}
