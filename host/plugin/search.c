/* host/plugin/search.c: see search.h. */
#include "plugin/search.h"

#include "base/alloc.h"
#include "base/file.h"
#include "config/nearest.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- directories ---- */

static weft_status add_directory(weft_search *self, const char *from, const char *path, size_t n, weft_error *err) {
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0) return WEFT_OK;
    if (path[0] != '/') {
        return weft_error_set(
            err, WEFT_E_USER,
            "%s contains the directory %.*s, which is not absolute. Plugins are never searched relative to "
            "the working directory; write the complete path.",
            from, (int)(n > 500 ? 500 : n), path);
    }
    for (size_t i = 0; i < self->n; i++)
        if (strlen(self->directories[i]) == n && memcmp(self->directories[i], path, n) == 0) return WEFT_OK;
    if (self->n == WEFT_SEARCH_DIRECTORIES)
        return weft_error_set(err, WEFT_E_USER, "%s: more than %d plugin directories.", from, WEFT_SEARCH_DIRECTORIES);
    self->directories[self->n++] = weft_text_of("%.*s", (int)n, path);
    return WEFT_OK;
}

static weft_status add_list(weft_search *self, const char *from, const char *list, weft_error *err) {
    weft_status status = WEFT_OK;
    const char *at = list == NULL ? "" : list;
    while (*at != 0 && status == WEFT_OK) {
        const size_t n = strcspn(at, ":");
        status = add_directory(self, from, at, n, err);
        at += at[n] != 0 ? n + 1 : n;
    }
    return status;
}

/* Adds "base/below" if the base is an absolute path. */
static weft_status add_below(weft_search *self, const char *from, const char *base, const char *below,
                             weft_error *err) {
    char path[PATH_MAX];
    const int n = base == NULL || base[0] != '/' ? -1 : snprintf(path, sizeof path, "%s/%s", base, below);
    if (n < 0 || (size_t)n >= sizeof path) return WEFT_OK; /* this user has no home directory */
    return add_directory(self, from, path, (size_t)n, err);
}

/* Adds the installation's directories: next to the program, as in a build tree; relative to the program, for a moved
 * installation; and the configured path. */
static weft_status add_installed(weft_search *self, weft_error *err) {
    static const char *const relative[] = {"plugins", WEFT_RELATIVE_PLUGIN_DIR};
    char path[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < sizeof relative / sizeof *relative && status == WEFT_OK; i++)
        if (weft_find_beside_program(path, relative[i]))
            status = add_directory(self, "The directory of the program", path, strlen(path), err);
    if (status != WEFT_OK) return status;
    return add_directory(self, "The install directory", WEFT_INSTALL_PLUGIN_DIR, strlen(WEFT_INSTALL_PLUGIN_DIR), err);
}

weft_status weft_search_open(weft_search *out, const char *path, weft_error *err) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    const bool has_data = data != NULL && data[0] == '/';
    weft_search made = {{NULL}, 0};
    weft_status status = add_list(&made, "[plugins] path", path, err);
    if (status == WEFT_OK) status = add_list(&made, "WEFT_PLUGIN_PATH", getenv("WEFT_PLUGIN_PATH"), err);
    if (status == WEFT_OK)
        status = add_below(&made, "The user's directory", has_data ? data : home,
                           has_data ? "weft/plugins" : ".local/share/weft/plugins", err);
    /* ~/.local, a prefix like /usr/local, independent of this program's own prefix */
    if (status == WEFT_OK) status = add_below(&made, "The user's prefix", home, ".local/" WEFT_PLUGIN_DIR, err);
    if (status == WEFT_OK) status = add_installed(&made, err);
    if (status == WEFT_OK) *out = made;
    else weft_search_close(&made);
    return status;
}

void weft_search_close(weft_search *self) {
    for (size_t i = 0; i < self->n; i++) free(self->directories[i]);
    self->n = 0;
}

/* ---- one plugin ---- */

int weft_search_find(const weft_search *self, char *out, size_t n, const char *kind, const char *id) {
    for (size_t i = 0; i < self->n; i++) {
        struct stat stat;
        const int length = snprintf(out, n, "%s/weft-%s-%s.so", self->directories[i], kind, id);
        /* lstat: a broken link counts as a hit, and its load fails with the reason */
        if (length > 0 && (size_t)length < n && lstat(out, &stat) == 0) return 1;
    }
    return 0;
}

int weft_search_builtin(char *out, size_t n, const char *kind, const char *id) {
    weft_search installed = {{NULL}, 0};
    const int found = add_installed(&installed, NULL) == WEFT_OK && weft_search_find(&installed, out, n, kind, id);
    weft_search_close(&installed);
    return found;
}

const char *weft_search_built_by(const char *kind, const char *id) {
    if (strcmp(kind, "device") == 0 && strcmp(id, "cuda") == 0)
        return " It is built where the CUDA Toolkit and cuDNN are: `sh configs/packages.sh cuda` installs them, then "
               "build again.";
    if (strcmp(kind, "comm") == 0 && strcmp(id, "nccl") == 0)
        return " It is built where the CUDA Toolkit, cuDNN and NCCL are: `sh configs/packages.sh cuda` installs them, "
               "then build again.";
    return "";
}

weft_status weft_search_miss(const weft_search *self, const char *kind, const char *id, weft_error *err) {
    char hint[128] = "", file[160] = "", known[512] = "", tried[1400] = "";
    weft_nearest near = {id, "", 0};
    weft_found *all = NULL;
    size_t n = 0;
    (void)weft_search_list(self, &all, &n, kind, NULL);
    for (size_t i = 0; i < n; i++) {
        weft_nearest_offer(&near, all[i].id, strlen(all[i].id));
        if (strlen(known) + strlen(all[i].id) + 3 < sizeof known)
            weft_words_append(known, sizeof known, "%s%s", known[0] == 0 ? "" : ", ", all[i].id);
    }
    free(all);
    weft_nearest_print(&near, hint, sizeof hint);
    if (strlen(id) > 3 && weft_words_end(id, ".so"))
        (void)snprintf(file, sizeof file, " A file is written with a slash in it: ./%.90s.", id);
    for (size_t i = 0; i < self->n; i++)
        weft_words_append(tried, sizeof tried, "\n  %s/weft-%s-%s.so", self->directories[i], kind, id);
    return weft_error_set(err, WEFT_E_USER, "there is no %s plugin \"%.100s\"%s%s%s %s%s%s Tried:%s%s", kind, id,
                          hint[0] == 0 ? "." : hint, file, weft_search_built_by(kind, id),
                          known[0] == 0 ? "None of this kind was found." : "There are: ", known,
                          known[0] == 0 ? "" : ".", tried, self->n == 0 ? " nothing." : "");
}

/* ---- all files ---- */

static int is_plugin_name(const struct dirent *entry) {
    return strncmp(entry->d_name, "weft-", 5) == 0 && weft_words_end(entry->d_name, ".so");
}

/* Splits "weft-<kind>-<id>.so". Returns false for other names. */
static bool split_name(weft_found *out, const char *directory, const char *file) {
    const char *name = file + 5;
    const size_t n = strcspn(name, "-"), all = strlen(name) < 3 ? 0 : strlen(name) - 3;
    if (n >= sizeof out->kind || n + 1 >= all || all - n - 1 >= sizeof out->id) return false;
    (void)snprintf(out->kind, sizeof out->kind, "%.*s", (int)n, name);
    (void)snprintf(out->id, sizeof out->id, "%.*s", (int)(all - n - 1), name + n + 1);
    return (size_t)snprintf(out->path, sizeof out->path, "%s/%s", directory, file) < sizeof out->path;
}

weft_status weft_search_list(const weft_search *self, weft_found **out, size_t *n, const char *kind, weft_error *err) {
    *out = NULL;
    *n = 0;
    for (size_t i = 0; i < self->n; i++) {
        struct dirent **names = NULL;
        const int found = scandir(self->directories[i], &names, is_plugin_name, alphasort);
        if (found < 0 && errno != ENOENT && errno != ENOTDIR) {
            free(*out);
            *out = NULL;
            *n = 0;
            return weft_error_set(err, WEFT_E_SYSTEM, "The plugin directory %s cannot be read: %s.",
                                  self->directories[i], strerror(errno));
        }
        if (found > 0) *out = weft_realloc(*out, *n + (size_t)found, sizeof **out);
        for (int at = 0; at < found; at++) {
            weft_found *next = *out + *n;
            *n += split_name(next, self->directories[i], names[at]->d_name) &&
                  (kind == NULL || strcmp(next->kind, kind) == 0);
            free(names[at]);
        }
        free(names);
    }
    return WEFT_OK;
}
