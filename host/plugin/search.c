/* host/plugin/search.c: see search.h. */
#include "plugin/search.h"

#include "base/installed.h"
#include "config/nearest.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the directories --- */

static weft_status add_directory(weft_search *self, const char *from, const char *path, size_t n, weft_error *err) {
    size_t i;
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0) return WEFT_OK;
    if (path[0] != '/') {
        return weft_error_set(
            err, WEFT_E_USER,
            "%s holds the directory %.*s, which is not absolute. Plugins are never searched relative to "
            "the working directory; write the whole path.",
            from, (int)(n > 500 ? 500 : n), path);
    }
    for (i = 0; i < self->n; i++) {
        if (strlen(self->directories[i]) == n && memcmp(self->directories[i], path, n) == 0) return WEFT_OK;
    }
    if (self->n == WEFT_SEARCH_DIRECTORIES) {
        return weft_error_set(err, WEFT_E_USER, "%s: more than %d plugin directories.", from, WEFT_SEARCH_DIRECTORIES);
    }
    self->directories[self->n] = strndup(path, n);
    if (self->directories[self->n] == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a path.");
    self->n++;
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

/* Adds ~/.local, a prefix like /usr/local, independent of this program's own prefix. */
static weft_status add_home(weft_search *self, weft_error *err) {
    const char *home = getenv("HOME");
    char path[PATH_MAX];
    const int n = home == NULL || home[0] != '/' ? -1 : snprintf(path, sizeof path, "%s/.local/" WEFT_PLUGIN_DIR, home);
    if (n < 0 || (size_t)n >= sizeof path) return WEFT_OK;
    return add_directory(self, "The user's prefix", path, (size_t)n, err);
}

static weft_status add_user(weft_search *self, weft_error *err) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    char path[PATH_MAX];
    int n = -1;
    if (data != NULL && data[0] == '/') {
        n = snprintf(path, sizeof path, "%s/weft/plugins", data);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(path, sizeof path, "%s/.local/share/weft/plugins", home);
    }
    if (n < 0 || (size_t)n >= sizeof path) return WEFT_OK; /* this user has no home directory */
    return add_directory(self, "The user's directory", path, (size_t)n, err);
}

/* Adds the installation's directories: next to the program, as in a build tree; relative to the program, for a moved
 * installation; and the configured path. */
static weft_status add_installed(weft_search *self, weft_error *err) {
    static const char *const beside[] = {"plugins", WEFT_RELATIVE_PLUGIN_DIR};
    char path[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < sizeof beside / sizeof beside[0] && status == WEFT_OK; i++)
        if (weft_async_checkpoint_program(path, beside[i]))
            status = add_directory(self, "The directory of the program", path, strlen(path), err);
    if (status != WEFT_OK) return status;
    return add_directory(self, "The install directory", WEFT_INSTALL_PLUGIN_DIR, strlen(WEFT_INSTALL_PLUGIN_DIR), err);
}

weft_status weft_search_open(weft_search *out, const char *path, weft_error *err) {
    weft_search made = {{NULL}, 0};
    weft_status status = add_list(&made, "[plugins] path", path, err);
    if (status == WEFT_OK) status = add_list(&made, "WEFT_PLUGIN_PATH", getenv("WEFT_PLUGIN_PATH"), err);
    if (status == WEFT_OK) status = add_user(&made, err);
    if (status == WEFT_OK) status = add_home(&made, err);
    if (status == WEFT_OK) status = add_installed(&made, err);
    if (status == WEFT_OK) {
        *out = made;
    } else {
        weft_search_close(&made);
    }
    return status;
}

void weft_search_close(weft_search *self) {
    size_t i;
    for (i = 0; i < self->n; i++) free(self->directories[i]);
    self->n = 0;
}

/* --- one plugin --- */

int weft_search_find(const weft_search *self, char *out, size_t n, const char *kind, const char *id) {
    size_t i;
    for (i = 0; i < self->n; i++) {
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

typedef struct ids {
    const char *prefix; /* "weft-optimizer-" */
    weft_nearest near;
    char known[512];
    size_t used;
} ids;

static void offer_id(void *context, const char *path) {
    ids *all = context;
    const char *name = strrchr(path, '/') + 1;
    const size_t prefix = strlen(all->prefix);
    char id[96], marked[100];
    size_t n;
    if (strncmp(name, all->prefix, prefix) != 0) return;
    n = strlen(name + prefix) - 3; /* ".so" */
    if (n == 0 || n >= sizeof id) return;
    memcpy(id, name + prefix, n);
    id[n] = 0;
    weft_nearest_offer(&all->near, id, n);
    (void)snprintf(marked, sizeof marked, "%s%s", all->used == 0 ? "" : ", ", id);
    if (strlen(marked) < sizeof all->known - all->used) {
        (void)strcpy(all->known + all->used, marked);
        all->used += strlen(marked);
    }
}

/* Returns the build option for a built-in plugin that is omitted without its libraries: "" for all others. */
const char *weft_search_built_by(const char *kind, const char *id) {
    if (strcmp(kind, "device") == 0 && strcmp(id, "cuda") == 0)
        return " It is built where the CUDA Toolkit and cuDNN are: `sh configs/packages.sh cuda` installs them, then "
               "build again.";
    if (strcmp(kind, "comm") == 0 && strcmp(id, "nccl") == 0)
        return " It is built where the CUDA Toolkit, cuDNN and NCCL are: `sh configs/packages.sh cuda` installs them, "
               "then build again.";
    return "";
}

/* Explains an id that is a file name: "" for all others. */
static void note_file(const char *id, char *out, size_t size) {
    const size_t n = strlen(id);
    if (n > 3 && strcmp(id + n - 3, ".so") == 0)
        (void)snprintf(out, size, " A file is written with a slash in it: ./%.90s.", id);
}

weft_status weft_search_miss(const weft_search *self, const char *kind, const char *id, weft_error *err) {
    char prefix[64], hint[128] = "", file[160] = "", tried[1400] = "";
    ids all = {prefix, {id, "", 0}, "", 0};
    size_t used = 0, i;
    (void)snprintf(prefix, sizeof prefix, "weft-%s-", kind);
    (void)weft_search_walk(self, offer_id, &all, NULL);
    weft_nearest_print(&all.near, hint, sizeof hint);
    note_file(id, file, sizeof file);
    for (i = 0; i < self->n && used < sizeof tried; i++) {
        const int n =
            snprintf(tried + used, sizeof tried - used, "\n  %s/weft-%s-%s.so", self->directories[i], kind, id);
        used += n < 0 ? 0 : (size_t)n;
    }
    return weft_error_set(err, WEFT_E_USER, "there is no %s plugin \"%.100s\"%s%s%s %s%s%s Tried:%s%s", kind, id,
                          hint[0] == 0 ? "." : hint, file, weft_search_built_by(kind, id),
                          all.used == 0 ? "None of this kind was found." : "There are: ", all.known,
                          all.used == 0 ? "" : ".", tried, self->n == 0 ? " nothing." : "");
}

/* --- all files --- */

static int is_plugin_name(const struct dirent *entry) {
    const size_t n = strlen(entry->d_name);
    return n > 8 && strncmp(entry->d_name, "weft-", 5) == 0 && strcmp(entry->d_name + n - 3, ".so") == 0;
}

weft_status weft_search_walk(const weft_search *self, void (*visit)(void *context, const char *path), void *context,
                             weft_error *err) {
    size_t i;
    for (i = 0; i < self->n; i++) {
        struct dirent **names = NULL;
        const int n = scandir(self->directories[i], &names, is_plugin_name, alphasort);
        int at;
        if (n < 0 && errno != ENOENT && errno != ENOTDIR) {
            return weft_error_set(err, WEFT_E_SYSTEM, "The plugin directory %s cannot be read: %s.",
                                  self->directories[i], strerror(errno));
        }
        for (at = 0; at < n; at++) {
            char path[PATH_MAX];
            const int length = snprintf(path, sizeof path, "%s/%s", self->directories[i], names[at]->d_name);
            if (length > 0 && (size_t)length < sizeof path) visit(context, path);
            free(names[at]);
        }
        free(names);
    }
    return WEFT_OK;
}
