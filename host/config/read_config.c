/* host/config/read_config.c: reads the file and the overrides, and stores them with their sources. fill.c validates the
 * values. */
#include "base/alloc.h"
#include "base/text.h"
#include "config/config.h"
#include "config/ini.h"
#include "config/number.h"
#include "config/store.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* A run writes its config.ini with absolute paths, so a relative path does not
 * originate from the user's own run. */

static bool is_inside(const char *path, const char *directory) {
    const size_t n = strlen(directory);
    return n > 0 && strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Checks one path of an item, as written and as its link target. model: the model's directory; "": unknown. */
static weft_status check_path(const weft_config *self, const char *model, const weft_item *item, const char *path,
                              weft_error *err) {
    const bool is_relative = path[0] != '/';
    const char *const directories[] = {self->home, model}, *found = is_relative ? self->home : NULL;
    char *whole = weft_path_absolute("/", path), real[PATH_MAX];
    const bool has_real = realpath(whole, real) != NULL;
    for (size_t i = 0; i < 2 && found == NULL; i++)
        if (is_inside(whole, directories[i]) || (has_real && is_inside(real, directories[i]))) found = directories[i];
    free(whole);
    if (found == NULL) return WEFT_OK;
    return weft_config_reject(self, item->section, item->key, err,
                              "%s%s: a run's directory brings no plugins of its own, because their code would run "
                              "unasked. If you trust it, name it on the command line: %s.%s=%s",
                              is_relative ? "is relative to " : "lies in ", found, item->section, item->key,
                              item->value);
}

/* Checks one item. An id names no file; each element of a list is a path. */
static weft_status check_item(const weft_config *self, const char *model, const weft_item *item, weft_error *err) {
    const bool is_list = strcmp(item->section, "plugins") == 0 && strcmp(item->key, "path") == 0;
    const char *rest = is_list && *item->value != '\0' ? item->value : NULL, *part = NULL;
    weft_status status = WEFT_OK;
    size_t n = 0;
    if (strcmp(item->key, "plugin") == 0 && strchr(item->value, '/') != NULL)
        return check_path(self, model, item, item->value, err);
    while (status == WEFT_OK && weft_part_next(&rest, ',', &part, &n)) {
        char *path = weft_text_of("%.*s", (int)n, part);
        status = check_path(self, model, item, path, err);
        free(path);
    }
    return status;
}

/* Checks the configuration. path: the INI file. WEFT_E_USER: it is in a run's directory, and an effective value names a
 * plugin's file or [plugins] path in that directory, in the model's, or by a relative path. */
static weft_status check_brought(const weft_config *self, const char *path, weft_error *err) {
    const weft_item *named = weft_config_item(self, "model", "path");
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    char *whole = NULL, model[PATH_MAX];
    struct stat about;
    bool is_run = false;
    weft_status status = WEFT_OK;
    if (path == NULL || strcmp(slash == NULL ? path : slash + 1, "config.ini") != 0) return WEFT_OK;
    whole = weft_text_of("%s/model", self->home); /* a run has made it */
    is_run = stat(whole, &about) == 0 && S_ISDIR(about.st_mode);
    free(whole);
    whole = named != NULL ? weft_path_absolute(named->directory, named->value) : weft_strdup("");
    if (*whole == '\0' || realpath(whole, model) == NULL) model[0] = '\0';
    free(whole);
    for (size_t i = 0; is_run && i < self->n_items && status == WEFT_OK; i++) {
        const weft_item *item = &self->items[i];
        const bool counts = weft_config_item(self, item->section, item->key) == item;
        if (counts && item->directory == self->home) status = check_item(self, model, item, err);
    }
    return status;
}

#define LARGEST_FILE (1u << 20)
#define MOST_ITEMS   4096u

static bool is_item(const weft_item *item, const char *section, const char *key) {
    return strcmp(item->section, section) == 0 && strcmp(item->key, key) == 0;
}

const weft_item *weft_config_item(const weft_config *self, const char *section, const char *key) {
    const char *own = weft_config_own_section(self, section, key);
    for (size_t i = self->n_items; i > 0; i--) {
        const weft_item *item = &self->items[i - 1];
        if (is_item(item, section, key) || (own != NULL && is_item(item, own, key))) return item;
    }
    return NULL;
}

bool weft_config_has_key(const weft_config *self, const char *section, const char *key) {
    return weft_config_item(self, section, key) != NULL;
}

bool weft_config_is_declared(const weft_config *self, const char *section, const char *key) {
    for (size_t i = 0; i < self->n_keys; i++)
        if (strcmp(self->keys[i].section, section) == 0 && strcmp(self->keys[i].row->name, key) == 0) return true;
    return false;
}

void weft_config_claim(weft_config *self, const char *section, const weft_key *row) {
    for (size_t i = 0; i < self->n_items; i++)
        if (is_item(&self->items[i], section, row->name)) self->items[i].claimed = true;
    if ((row->flags & WEFT_REMOVED) != 0 || weft_config_is_declared(self, section, row->name)) return;
    self->keys = weft_realloc(self->keys, self->n_keys + 1, sizeof *self->keys);
    self->keys[self->n_keys++] = (weft_declared_key){weft_config_keep(self, weft_strdup(section)), row};
}

const char *weft_config_keep(weft_config *self, char *text) {
    self->texts = weft_realloc(self->texts, self->n_texts + 1, sizeof *self->texts);
    return self->texts[self->n_texts++] = text;
}

static void add_mention(weft_config *self, const char *section, const char *source) {
    if (weft_config_has_section(self, section)) return;
    self->mentions = weft_realloc(self->mentions, self->n_mentions + 1, sizeof *self->mentions);
    self->mentions[self->n_mentions++] = (weft_mention){weft_config_keep(self, weft_strdup(section)),
                                                        weft_config_keep(self, weft_strdup(source)), false, false};
}

static weft_status add_item(weft_config *self, const char *section, const char *key, const char *value,
                            const char *source, const char *directory, weft_error *err) {
    if (self->n_items >= MOST_ITEMS)
        return weft_error_set(err, WEFT_E_USER, "more than %u keys: this is no configuration", MOST_ITEMS);
    self->items = weft_realloc(self->items, self->n_items + 1, sizeof *self->items);
    self->items[self->n_items++] = (weft_item){.section = weft_config_keep(self, weft_strdup(section)),
                                               .key = weft_config_keep(self, weft_strdup(key)),
                                               .value = weft_config_keep(self, weft_strdup(value)),
                                               .source = weft_config_keep(self, weft_strdup(source)),
                                               .directory = directory};
    return WEFT_OK;
}

static weft_status take_line(void *context, const char *section, const char *key, const char *value, long line,
                             weft_error *err) {
    weft_config *self = context;
    const weft_item *before = key != NULL ? weft_config_item(self, section, key) : NULL;
    char source[400];
    (void)snprintf(source, sizeof source, "%.360s:%ld", self->name, line);
    if (before != NULL)
        return weft_error_set(err, WEFT_E_USER, "[%s] %s is set twice, in line %s and in line %ld: keep one of them",
                              section, key, strrchr(before->source, ':') + 1, line);
    if (key != NULL) return add_item(self, section, key, value, source, self->home, err);
    add_mention(self, section, source);
    return WEFT_OK;
}

static weft_status load_file(weft_config *self, const char *path, weft_error *err) {
    char *text = NULL;
    size_t n = 0;
    struct stat about;
    weft_status status = WEFT_OK;
    /* /dev/null is an empty configuration, for use with overrides alone */
    const bool is_null = stat(path, &about) == 0 && S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 3);
    if (!is_null && weft_text_read(&text, &n, path, LARGEST_FILE, err) != WEFT_OK) {
        if (err != NULL) err->code = WEFT_E_USER;
        return WEFT_E_USER;
    }
    self->home = weft_config_keep(self, weft_path_home(path));
    if (self->home == NULL)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: its directory cannot be found: %s", path, strerror(errno));
    else if (!is_null) status = weft_ini_parse(take_line, self, self->name, text, n, err);
    free(text);
    return status;
}

/* Discards the section's values. The section remains mentioned, but its plugins' sections do not, because these plugins
 * are not requested any more. */
static void forget_section(weft_config *self, const char *section) {
    size_t kept = 0;
    for (size_t i = 0; i < self->n_items; i++) {
        const weft_item *item = &self->items[i];
        if (strcmp(item->section, section) != 0 && weft_section_id(item->section, section) == NULL)
            self->items[kept++] = *item;
    }
    self->n_items = kept;
    kept = 0;
    for (size_t i = 0; i < self->n_mentions; i++)
        if (weft_section_id(self->mentions[i].section, section) == NULL) self->mentions[kept++] = self->mentions[i];
    self->n_mentions = kept;
}

/* Parses "section.key=value". A plugin's section contains a dot itself, a key never does. */
static weft_status add_override(weft_config *self, const char *text, weft_error *err) {
    static const char source[] = "command line";
    const char *equals = strchr(text, '=');
    char *head = weft_text_of("%.*s", (int)(equals == NULL ? 0 : equals - text), text), *dot = strrchr(head, '.');
    weft_status status = WEFT_OK;
    if (!weft_text_is_clean(text, strlen(text))) {
        status =
            weft_error_set(err, WEFT_E_USER, "command line: an override contains a control character or is not UTF-8");
    } else if (dot == NULL || dot == head || dot[1] == '\0') {
        status = weft_error_set(err, WEFT_E_USER, "command line: '%.80s' is not section.key=value", text);
    } else {
        *dot = '\0';
        add_mention(self, head, source);
        status = add_item(self, head, dot + 1, equals + 1, source, self->here, err);
    }
    free(head);
    return status;
}

weft_status weft_config_load(weft_config **out, const char *path, const char *const *overrides, size_t n_overrides,
                             weft_error *err) {
    weft_config *self = weft_alloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    self->name = weft_config_keep(self, weft_strdup(path == NULL ? "command line" : path));
    self->here = weft_config_keep(self, weft_path_home(NULL));
    if (self->here == NULL)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the working directory cannot be found: %s", strerror(errno));
    if (status == WEFT_OK && path != NULL) status = load_file(self, path, err);
    for (size_t i = 0; status == WEFT_OK && i < n_overrides; i++)
        if (overrides[i][0] == '!' && strchr(overrides[i], '=') == NULL) forget_section(self, overrides[i] + 1);
        else status = add_override(self, overrides[i], err);
    if (status == WEFT_OK) status = check_brought(self, path, err);
    if (status == WEFT_OK) *out = self;
    else weft_config_free(self);
    return status;
}

void weft_config_free(weft_config *self) {
    if (self == NULL) return;
    for (size_t i = 0; i < self->n_texts; i++) free(self->texts[i]);
    free(self->texts);
    free(self->items);
    free(self->mentions);
    free(self->keys);
    free(self->entries);
    free(self->idle);
    free(self->owners);
    free(self);
}

bool weft_config_has_section(const weft_config *self, const char *section) {
    for (size_t i = 0; i < self->n_mentions; i++)
        if (strcmp(self->mentions[i].section, section) == 0) return true;
    return false;
}
