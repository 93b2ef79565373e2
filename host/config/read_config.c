/* host/config/read_config.c: reads the file and the overrides, and stores them with their sources. fill.c validates the
 * values. */
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "config/brought.h"
#include "config/ini.h"
#include "config/path.h"
#include "config/store.h"

#define LARGEST_FILE (1u << 20)
#define MOST_ITEMS   4096u

/* Grows *array, where array is a pointer to the array's pointer. Capacity doubles at powers of two. */
bool weft_config_grow(void *array, size_t n, size_t element) {
    void *old = NULL;
    void *grown = NULL;
    if ((n & (n - 1)) != 0) return true;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, (n == 0 ? 1 : 2 * n) * element);
    if (grown == NULL) return false;
    memcpy(array, &grown, sizeof grown);
    return true;
}

weft_status weft_config_no_memory(weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "no memory left for the configuration");
}

static bool is_item(const weft_item *item, const char *section, const char *key) {
    return !item->passed_over && strcmp(item->section, section) == 0 && strcmp(item->key, key) == 0;
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
    for (size_t i = 0; i < self->n_keys; i++) {
        if (strcmp(self->keys[i].section, section) == 0 && strcmp(self->keys[i].row->name, key) == 0) return true;
    }
    return false;
}

void weft_config_pass_over(weft_config *self, const char *section, const char *key, const char *value) {
    for (size_t i = 0; i < self->n_items; i++) {
        weft_item *item = &self->items[i];
        if (is_item(item, section, key) && strcmp(item->value, value) == 0) item->claimed = item->passed_over = true;
    }
}

weft_status weft_config_claim(weft_config *self, const char *section, const weft_key *row, weft_error *err) {
    weft_declared_key key = {NULL, row};
    for (size_t i = 0; i < self->n_items; i++) {
        if (is_item(&self->items[i], section, row->name)) self->items[i].claimed = true;
    }
    if ((row->flags & WEFT_REMOVED) != 0 || weft_config_is_declared(self, section, row->name)) return WEFT_OK;
    if (!weft_config_grow(&self->keys, self->n_keys, sizeof key)) return weft_config_no_memory(err);
    key.section = strdup(section);
    if (key.section == NULL) return weft_config_no_memory(err);
    self->keys[self->n_keys++] = key;
    return WEFT_OK;
}

static weft_status add_mention(weft_config *self, const char *section, const char *source, weft_error *err) {
    weft_mention mention = {NULL, NULL, false, false};
    if (weft_config_has_section(self, section)) return WEFT_OK;
    if (!weft_config_grow(&self->mentions, self->n_mentions, sizeof mention)) return weft_config_no_memory(err);
    mention.section = strdup(section);
    mention.source = strdup(source);
    self->mentions[self->n_mentions++] = mention;
    return mention.section == NULL || mention.source == NULL ? weft_config_no_memory(err) : WEFT_OK;
}

static weft_status add_item(weft_config *self, const weft_item *given, weft_error *err) {
    weft_item item = {NULL, NULL, NULL, NULL, given->directory, false, false};
    if (self->n_items >= MOST_ITEMS) {
        return weft_error_set(err, WEFT_E_USER, "more than %u keys: this is no configuration", MOST_ITEMS);
    }
    if (!weft_config_grow(&self->items, self->n_items, sizeof item)) return weft_config_no_memory(err);
    item.section = strdup(given->section);
    item.key = strdup(given->key);
    item.value = strdup(given->value);
    item.source = strdup(given->source);
    self->items[self->n_items++] = item;
    return item.section == NULL || item.key == NULL || item.value == NULL || item.source == NULL
               ? weft_config_no_memory(err)
               : WEFT_OK;
}

static weft_status take_section(void *context, const char *section, long line, weft_error *err) {
    weft_config *self = context;
    char source[400];
    (void)snprintf(source, sizeof source, "%.360s:%ld", self->name, line);
    return add_mention(self, section, source, err);
}

static weft_status take_item(void *context, const char *section, const char *key, const char *value, long line,
                             weft_error *err) {
    weft_config *self = context;
    const weft_item *before = weft_config_item(self, section, key);
    char source[400];
    weft_item item = {(char *)section, (char *)key, (char *)value, source, self->home, false, false};
    if (before != NULL) {
        return weft_error_set(err, WEFT_E_USER, "[%s] %s is set twice, in line %s and in line %ld: keep one of them",
                              section, key, strrchr(before->source, ':') + 1, line);
    }
    (void)snprintf(source, sizeof source, "%.360s:%ld", self->name, line);
    return add_item(self, &item, err);
}

/* Accepts regular files and /dev/null, which is an empty configuration for command-line-only use. */
static bool can_be_read(const struct stat *about) {
    return S_ISREG(about->st_mode) || (S_ISCHR(about->st_mode) && about->st_rdev == makedev(1, 3));
}

static FILE *open_readable(const char *path, weft_error *err) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* rejects a pipe instead of waiting for
                                                                           * it */
    struct stat about;
    FILE *file = NULL;
    if (descriptor < 0 || fstat(descriptor, &about) != 0)
        (void)weft_error_set(err, WEFT_E_USER, "%s: cannot be opened: %s", path, strerror(errno));
    else if (can_be_read(&about)) file = fdopen(descriptor, "rb");
    else
        (void)weft_error_set(err, WEFT_E_USER, "%s: cannot be read: %s", path,
                             S_ISDIR(about.st_mode) ? strerror(EISDIR) : "it is not a regular file");
    if (file == NULL && descriptor >= 0) (void)close(descriptor);
    return file;
}

/* Reads a file completely; the caller frees *out. */
static weft_status read_whole_file(char **out, size_t *n, const char *path, weft_error *err) {
    FILE *file = open_readable(path, err);
    char *text = malloc(LARGEST_FILE + 1);
    weft_status status = WEFT_OK;
    if (text == NULL) {
        status = weft_config_no_memory(err);
    } else if (file == NULL) {
        status = WEFT_E_USER;
    } else {
        errno = 0;
        *n = fread(text, 1, LARGEST_FILE + 1, file);
        if (ferror(file)) {
            status = weft_error_set(err, WEFT_E_USER, "%s: cannot be read: %s", path, strerror(errno));
        } else if (*n > LARGEST_FILE) {
            status = weft_error_set(err, WEFT_E_USER, "%s: larger than 1 MiB: this is no configuration", path);
        }
    }
    if (file != NULL) (void)fclose(file);
    if (status == WEFT_OK) *out = text;
    else free(text);
    return status;
}

static weft_status load_file(weft_config *self, const char *path, weft_error *err) {
    const weft_ini_visitor visitor = {self, take_section, take_item};
    char *text = NULL;
    size_t n = 0;
    weft_status status = read_whole_file(&text, &n, path, err);
    if (status != WEFT_OK) return status;
    self->home = weft_path_home(path);
    if (self->home == NULL) {
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: its directory cannot be found: %s", path, strerror(errno));
    } else {
        status = weft_ini_parse(&visitor, self->name, text, n, err);
    }
    free(text);
    return status;
}

static void free_item(weft_item *item) {
    free(item->section);
    free(item->key);
    free(item->value);
    free(item->source);
}

static void free_mention(weft_mention *mention) {
    free(mention->section);
    free(mention->source);
}

/* Discards the section's values. The section remains mentioned, but its plugins' sections do not, because these plugins
 * are not requested any more. */
static void forget_section(weft_config *self, const char *section) {
    size_t kept = 0;
    for (size_t i = 0; i < self->n_items; i++) {
        weft_item *item = &self->items[i];
        if (strcmp(item->section, section) == 0 || weft_section_id(item->section, section) != NULL) free_item(item);
        else self->items[kept++] = *item;
    }
    self->n_items = kept;
    kept = 0;
    for (size_t i = 0; i < self->n_mentions; i++) {
        if (weft_section_id(self->mentions[i].section, section) != NULL) free_mention(&self->mentions[i]);
        else self->mentions[kept++] = self->mentions[i];
    }
    self->n_mentions = kept;
}

/* Parses "section.key=value". A plugin's section contains a dot itself, a key never does. */
static weft_status add_override(weft_config *self, const char *text, weft_error *err) {
    const char *equals = strchr(text, '=');
    char *head = equals == NULL ? NULL : strndup(text, (size_t)(equals - text));
    char *dot = head == NULL ? NULL : strrchr(head, '.');
    weft_item item = {head, NULL, NULL, (char *)"command line", self->here, false, false};
    weft_status status = WEFT_OK;
    if (equals != NULL && head == NULL) return weft_config_no_memory(err);
    if (!weft_text_is_clean(text, strlen(text))) {
        status =
            weft_error_set(err, WEFT_E_USER, "command line: an override holds a control character or is not UTF-8");
    } else if (dot == NULL || dot == head || dot[1] == '\0') {
        status = weft_error_set(err, WEFT_E_USER, "command line: '%.80s' is not section.key=value", text);
    } else {
        *dot = '\0';
        item.key = dot + 1;
        item.value = (char *)equals + 1;
        status = add_mention(self, head, item.source, err);
        if (status == WEFT_OK) status = add_item(self, &item, err);
    }
    free(head);
    return status;
}

weft_status weft_config_load(weft_config **out, const char *path, const char *const *overrides, size_t n_overrides,
                             weft_error *err) {
    weft_config *self = calloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    if (self == NULL) return weft_config_no_memory(err);
    self->name = strdup(path == NULL ? "command line" : path);
    self->here = weft_path_home(NULL);
    if (self->name == NULL || self->here == NULL) {
        status = weft_error_set(err, WEFT_E_SYSTEM, "the working directory cannot be found: %s", strerror(errno));
    }
    if (status == WEFT_OK && path != NULL) status = load_file(self, path, err);
    for (size_t i = 0; status == WEFT_OK && i < n_overrides; i++) {
        if (overrides[i][0] == '!' && strchr(overrides[i], '=') == NULL) forget_section(self, overrides[i] + 1);
        else status = add_override(self, overrides[i], err);
    }
    if (status == WEFT_OK) status = weft_brought_check(self, path, err);
    if (status == WEFT_OK) *out = self;
    else weft_config_free(self);
    return status;
}

void weft_config_free(weft_config *self) {
    if (self == NULL) return;
    for (size_t i = 0; i < self->n_items; i++) free_item(&self->items[i]);
    for (size_t i = 0; i < self->n_mentions; i++) free_mention(&self->mentions[i]);
    for (size_t i = 0; i < self->n_entries; i++) {
        free(self->entries[i].section);
        weft_value_free(&self->entries[i].value);
    }
    for (size_t i = 0; i < self->n_idle; i++) weft_value_free(&self->idle[i].value);
    for (size_t i = 0; i < self->n_lent; i++) weft_value_free(&self->lent[i]);
    free(self->lent);
    for (size_t i = 0; i < self->n_owners; i++) {
        free(self->owners[i].section);
        free(self->owners[i].own);
    }
    for (size_t i = 0; i < self->n_keys; i++) free(self->keys[i].section);
    free(self->items);
    free(self->mentions);
    free(self->keys);
    free(self->entries);
    free(self->idle);
    free(self->owners);
    free(self->name);
    free(self->home);
    free(self->here);
    free(self);
}

bool weft_config_has_section(const weft_config *self, const char *section) {
    for (size_t i = 0; i < self->n_mentions; i++) {
        if (strcmp(self->mentions[i].section, section) == 0) return true;
    }
    return false;
}

const char *weft_config_name(const weft_config *self) {
    return self->name;
}
