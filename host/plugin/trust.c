/* host/plugin/trust.c: see load.h. */
#include "plugin/load.h"

#include "base/alloc.h"
#include "base/file.h"
#include "plugin/services.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files that others can change ---- */

enum { MOST_LINKS = 40 }; /* the kernel's limit */

typedef struct walk {
    char *out; /* the warning about the entry that is nearest to the file */
    bool found;
    int links;
} walk;

static void keep(walk *self, const char *what, const char *who, const char *how, const char *fix, const char *path) {
    self->found = true;
    (void)snprintf(self->out, WEFT_WARNING_BYTES, "can be %s by %s, who %s %.*s: %s %.*s", what, who, how, PATH_MAX,
                   path, fix, PATH_MAX, path);
}

static void check_owner(walk *self, const char *what, const char *path, uid_t user) {
    char who[48];
    if (user == 0 || user == geteuid()) return;
    (void)snprintf(who, sizeof who, "user %lu", (unsigned long)user);
    keep(self, what, who, "owns", "use a copy in a directory of your own, or chown", path);
}

static void walk_path(walk *self, const char *path);

static void check_entry(walk *self, const char *path) {
    const int directory = (int)(strrchr(path, '/') - path) + 1;
    char who[48], target[PATH_MAX], complete[PATH_MAX];
    struct stat is;
    if (lstat(path, &is) != 0) return;
    if (S_ISLNK(is.st_mode)) { /* its target is relative to the directory that contains it */
        const ssize_t n = readlink(path, target, sizeof target - 1);
        check_owner(self, "replaced", path, is.st_uid);
        if (n <= 0 || self->links++ >= MOST_LINKS) return;
        target[n] = '\0';
        if (snprintf(complete, sizeof complete, "%.*s%s", target[0] == '/' ? 0 : directory, path, target) <
            (int)sizeof complete)
            walk_path(self, complete);
        return;
    }
    const char *what = S_ISDIR(is.st_mode) ? "replaced" : "changed";
    check_owner(self, what, path, is.st_uid);
    if (S_ISDIR(is.st_mode) && (is.st_mode & S_ISVTX) != 0) return;
    if ((is.st_mode & S_IWGRP) != 0 && is.st_gid != 0 && is.st_gid != getegid()) {
        (void)snprintf(who, sizeof who, "all of group %lu", (unsigned long)is.st_gid);
        keep(self, what, who, "may write to", "chmod g-w", path);
    }
    if ((is.st_mode & S_IWOTH) != 0) keep(self, what, "every user of this machine", "may write to", "chmod o-w", path);
}

/* Walks from the root to the file, so that the last finding is nearest to it. */
static void walk_path(walk *self, const char *path) {
    char part[PATH_MAX] = "/";
    check_entry(self, part);
    for (const char *end = path + 1; *end != '\0';) {
        end += strcspn(end, "/");
        (void)snprintf(part, sizeof part, "%.*s", (int)(end - path), path);
        check_entry(self, part);
        end += strspn(end, "/");
    }
}

/* Returns true if another user can change the file, with user, path and fix in `out`. Checks the path as given and its
 * link targets, and skips unreadable entries. */
static bool is_writable_by_others(char *out, const char *path) {
    char complete[PATH_MAX], here[PATH_MAX] = "";
    walk self = {out, false, 0};
    int length = 0;
    if (path[0] != '/' && getcwd(here, sizeof here) == NULL) return false;
    length = snprintf(complete, sizeof complete, "%s%s%s", here, path[0] == '/' ? "" : "/", path);
    if (length <= 0 || (size_t)length >= sizeof complete) return false;
    walk_path(&self, complete);
    return self.found;
}

/* ---- pins ---- */

typedef struct pin {
    const char *text, *hash; /* "kind:id", and 64 digits after the = */
    size_t name;             /* bytes of kind:id */
} pin;

/* Reads the next "kind:id=hash" of a valid list with commas; false at its end. */
static bool next_pin(const char **list, pin *out) {
    const char *at = *list;
    if (at == NULL || *at == '\0') return false;
    *out = (pin){at, at + strcspn(at, "="), strcspn(at, "=")};
    out->hash += *out->hash == '=';
    *list = at + strcspn(at, ",");
    *list += **list == ',';
    return true;
}

/* Reads the next line that is neither empty nor a comment, from its first character; NULL at the end. */
static const char *next_line(const char **list, int *number) {
    while (*list != NULL && **list != '\0') {
        const char *at = *list;
        const size_t blank = strspn(at, " \t\r"), n = strcspn(at, "\n");
        *list = at + n + (at[n] != '\0');
        ++*number;
        if (blank < n && at[blank] != '#') return at + blank;
    }
    return NULL;
}

enum { LIST_BYTES = 1 << 20 };

static weft_status check_list(const char *list, size_t n, const char *path, weft_error *err) {
    const char *line = NULL;
    int number = 0;
    if (n > LIST_BYTES)
        return weft_error_set(err, WEFT_E_USER, "[plugins] pin_list: %s is longer than %d bytes", path, LIST_BYTES);
    if (memchr(list, 0, n) != NULL) return weft_error_set(err, WEFT_E_USER, "[plugins] pin_list: %s is no text", path);
    while ((line = next_line(&list, &number)) != NULL)
        if (strspn(line, "0123456789abcdefABCDEF") != 64 || strchr(" \t\r\n", line[64]) == NULL) /* also at its end */
            return weft_error_set(err, WEFT_E_USER,
                                  "[plugins] pin_list: line %d of %s is no line of sha256sum: write 64 hexadecimal "
                                  "digits, two spaces and the file's name; comments begin with #",
                                  number, path);
    return WEFT_OK;
}

weft_status weft_pins_read_list(char **out, const char *path, bool pinned, weft_error *err) {
    char *text = NULL, why[WEFT_WARNING_BYTES];
    FILE *file = NULL;
    size_t n = 0;
    weft_status status = WEFT_OK;
    if (pinned && is_writable_by_others(why, path))
        return weft_error_set(err, WEFT_E_USER,
                              "[plugins] pin_list: %.600s %.1200s. Under [plugins] trust = pinned a list that others "
                              "can change is not allowed.",
                              path, why);
    text = weft_alloc(LIST_BYTES + 2, 1);
    file = fopen(path, "re");
    if (file != NULL) n = fread(text, 1, LIST_BYTES + 1, file);
    if (file == NULL || ferror(file) != 0)
        status = weft_error_set(err, WEFT_E_USER, "[plugins] pin_list: %s cannot be read: %s", path, strerror(errno));
    else status = check_list(text, n, path, err);
    if (file != NULL) (void)fclose(file);
    if (status == WEFT_OK) *out = text;
    else free(text);
    return status;
}

bool weft_trust_holds(const weft_trust *trust, const char sha256[65]) {
    const char *pins = trust->pins, *list = trust->list, *line = NULL;
    int number = 0;
    pin one;
    while (next_pin(&pins, &one))
        if (strncasecmp(one.hash, sha256, 64) == 0) return true;
    while ((line = next_line(&list, &number)) != NULL)
        if (strncasecmp(line, sha256, 64) == 0) return true;
    return false;
}

weft_status weft_trust_check(const weft_trust *trust, const weft_preflight *note, const char sha256[65],
                             const char *path, weft_error *err) {
    const weft_note_plugin *first = &note->plugins[0];
    if (trust == NULL) return WEFT_OK;
    for (uint32_t i = 0; i < note->n_plugins; i++) {
        const char *pins = trust->pins;
        char name[96];
        const size_t n = (size_t)snprintf(name, sizeof name, "%s:%s", note->plugins[i].kind, note->plugins[i].id);
        pin one = {.hash = sha256};
        while (next_pin(&pins, &one)) { /* the first pin of the plugin counts */
            if (one.name == n && memcmp(one.text, name, n) == 0) break;
            one.hash = sha256;
        }
        if (strncasecmp(one.hash, sha256, 64) != 0)
            return weft_error_set(err, WEFT_E_USER,
                                  "has the SHA-256 %s, but [plugins] pin has %.64s for %s. It is another build. Fix: "
                                  "check its source, then change the pin or the file.",
                                  sha256, one.hash, name);
    }
    if (!trust->pinned || weft_trust_holds(trust, sha256)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "is not pinned, and [plugins] trust = pinned only allows pinned files. Its SHA-256 is %s. "
                          "Fix: if you trust its source, set [plugins] pin = %s:%s=%s, or append what `sha256sum %s` "
                          "prints to %s.",
                          sha256, first->kind, first->id, sha256, path,
                          trust->list_path != NULL ? trust->list_path : "a file that [plugins] pin_list names");
}

/* ---- warnings ---- */

void weft_trust_warnings_find(weft_trust_warnings *out, const char *path, const char *given, bool fast_math,
                              const char *kind, const char *id) {
    char builtin[PATH_MAX];
    struct stat mine, theirs;
    out->n = 0;
    if (is_writable_by_others(out->text[0], given) || is_writable_by_others(out->text[0], path)) out->n++;
    if (weft_plugin_builtin(builtin, sizeof builtin, kind, id) && stat(path, &mine) == 0 &&
        stat(builtin, &theirs) == 0 && (mine.st_dev != theirs.st_dev || mine.st_ino != theirs.st_ino) &&
        !weft_files_are_equal(path, builtin))
        (void)snprintf(out->text[out->n++], WEFT_WARNING_BYTES,
                       "takes the id of one that is installed, %s, and is used instead of it", builtin);
    if (fast_math)
        (void)snprintf(out->text[out->n++], WEFT_WARNING_BYTES,
                       "was compiled with -ffast-math or a part of it: the order of its sums may differ between "
                       "builds, and so may its results; build it with the SDK's flags");
}

void weft_trust_warnings_log(const weft_loaded *loaded, const char *given) {
    static const weft_loaded *logged[256];
    static size_t n_logged;
    weft_trust_warnings all;
    char line[4 * PATH_MAX];
    for (size_t i = 0; i < n_logged; i++)
        if (logged[i] == loaded) return;
    if (n_logged < sizeof logged / sizeof *logged) logged[n_logged++] = loaded;
    weft_trust_warnings_find(&all, loaded->path, given, loaded->fast_math != 0, loaded->plugin->kind,
                             loaded->plugin->id);
    for (int i = 0; i < all.n; i++) {
        (void)snprintf(line, sizeof line, "%s:%s (%.1500s) %s", loaded->plugin->kind, loaded->plugin->id, loaded->path,
                       all.text[i]);
        weft_services()->log(weft_services(), WEFT_LOG_WARN, line);
    }
}
