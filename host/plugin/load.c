/* host/plugin/load.c: see load.h. The table of files is global to the process, like the dynamic loader's own. */
#include "plugin/load.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "config/number.h"
#include "plugin/enter.h"
#include "plugin/services.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/mman.h>
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

/* Returns true if `pins` or the list contains the hash. */
static bool is_pinned(const weft_trust *trust, const char sha256[65]) {
    const char *pins = trust->pins, *list = trust->list, *one = NULL;
    size_t n = 0;
    int number = 0;
    while (weft_part_next(&pins, ',', &one, &n))
        if (strncasecmp(one + n - 64, sha256, 64) == 0) return true;
    while ((one = next_line(&list, &number)) != NULL)
        if (strncasecmp(one, sha256, 64) == 0) return true;
    return false;
}

/* Fails with WEFT_E_USER if a plugin of the note is pinned to another hash, or if the file must be pinned and is not.
 * trust: NULL trusts all. */
static weft_status check_trust(const weft_trust *trust, const weft_preflight *note, const char sha256[65],
                               const char *path, weft_error *err) {
    const weft_note_plugin *first = &note->plugins[0];
    if (trust == NULL) return WEFT_OK;
    for (uint32_t i = 0; i < note->n_plugins; i++) {
        const char *pins = trust->pins, *one = NULL;
        char name[96];
        const size_t length = (size_t)snprintf(name, sizeof name, "%s:%s=", note->plugins[i].kind, note->plugins[i].id);
        size_t n = 0;
        while (weft_part_next(&pins, ',', &one, &n)) {
            if (n != length + 64 || memcmp(one, name, length) != 0) continue;
            if (strncasecmp(one + length, sha256, 64) == 0) break; /* the first pin of the plugin counts */
            return weft_error_set(err, WEFT_E_USER,
                                  "has the SHA-256 %s, but [plugins] pin has %.64s for %.*s. It is another build. Fix: "
                                  "check its source, then change the pin or the file.",
                                  sha256, one + length, (int)length - 1, name);
        }
    }
    if (!trust->pinned || is_pinned(trust, sha256)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "is not pinned, and [plugins] trust = pinned only allows pinned files. Its SHA-256 is %s. "
                          "Fix: if you trust its source, set [plugins] pin = %s:%s=%s, or append what `sha256sum %s` "
                          "prints to %s.",
                          sha256, first->kind, first->id, sha256, path,
                          trust->list_path != NULL ? trust->list_path : "a file that [plugins] pin_list names");
}

static weft_status system_error(weft_error *err, const char *what) {
    return weft_error_set(err, WEFT_E_SYSTEM, "%s: %s.", what, strerror(errno));
}

/* Reads the complete file through its descriptor. The caller frees *out. */
static weft_status read_file(unsigned char **out, int descriptor, size_t size, weft_error *err) {
    unsigned char *bytes = malloc(size > 0 ? size : 1);
    size_t done = 0;
    if (bytes == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to read its %zu bytes.", size);
    while (done < size) {
        const ssize_t n = pread(descriptor, bytes + done, size - done, (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            free(bytes);
            return n < 0 ? system_error(err, "cannot be read")
                         : weft_error_set(err, WEFT_E_SYSTEM, "became shorter while it was read; try again.");
        }
        done += (size_t)n;
    }
    *out = bytes;
    return WEFT_OK;
}

/* ---- one file ---- */

typedef struct file_entry {
    struct file_entry *next;
    char path[PATH_MAX]; /* canonical */
    char sha256[65];
    weft_preflight note;
    weft_loaded plugins[WEFT_FILE_PLUGINS]; /* note.n_plugins of them */
    char doing[PATH_MAX + 32];              /* for the crash record */
    int descriptor;
    struct stat stat;
    weft_status verdict; /* result after its code ran */
    weft_error why;
} file_entry;

static file_entry *first_file;

/* Returns true if the file's debug information (DWARF's DW_AT_producer, as gcc writes it) contains a flag that allows
 * reordering sums: strings like "GNU C17 12.2.0 -mtune=generic -O2 -ffast-math". */
static bool producer_reorders(const void *image, size_t size) {
    static const char *const flags[] = {" -ffast-math", " -Ofast", " -funsafe-math-optimizations",
                                        " -fassociative-math"};
    const char *at = image, *end = at + size;
    while ((at = memmem(at, (size_t)(end - at), "GNU C", 5)) != NULL) {
        const size_t n = strnlen(at, (size_t)(end - at));
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            if (memmem(at, n, flags[i], strlen(flags[i])) != NULL) return true;
        at += n;
    }
    return false;
}

static bool is_unchanged(const struct stat *a, const struct stat *b) {
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Reads "dev inode" of the mapping that contains address, in the kernel's format. */
static int mapping_of(char *out, size_t n, const void *address) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[PATH_MAX + 128];
    int found = 0;
    if (maps == NULL) return 0;
    while (!found && fgets(line, sizeof line, maps) != NULL) {
        unsigned long from = 0, to = 0, inode = 0;
        char device[32] = "";
        if (sscanf(line, "%lx-%lx %*s %*s %31s %lu", &from, &to, device, &inode) != 4) continue;
        if ((uintptr_t)address < from || (uintptr_t)address >= to) continue;
        (void)snprintf(out, n, "%s %lu", device, inode);
        found = inode != 0;
    }
    (void)fclose(maps);
    return found;
}

/* Maps the descriptor as well and compares the kernel's data of both mappings. On some file systems a mapping has
 * another device number than stat returns, so stat cannot be compared. */
static weft_status check_identity(const file_entry *entry, const void *mapped, weft_error *err) {
    char ours[96] = "", theirs[96] = "";
    struct stat now;
    void *view = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, entry->descriptor, 0);
    int known;
    if (view == MAP_FAILED) return system_error(err, "cannot be mapped");
    known = mapping_of(ours, sizeof ours, view) && mapping_of(theirs, sizeof theirs, mapped);
    (void)munmap(view, 1);
    if (!known) return weft_error_set(err, WEFT_E_SYSTEM, "is loaded, but /proc/self/maps does not name its file.");
    if (strcmp(ours, theirs) != 0)
        return weft_error_set(
            err, WEFT_E_USER,
            "is not the file that this process has loaded under that name: it was replaced meanwhile. "
            "Start the command again.");
    if (fstat(entry->descriptor, &now) != 0) return system_error(err, "cannot be examined");
    if (is_unchanged(&now, &entry->stat)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "was written to while it was loaded; start the command again.");
}

/* ---- running its code ---- */

/* Runs the file's code between these two. */
static weft_call_record begin_code(file_entry *entry, weft_process *saved) {
    weft_process_save(saved);
    return weft_crash_set_call((weft_call_record){.sha256 = entry->sha256, .what = entry->doing});
}

static weft_status end_code(weft_call_record before, const weft_process *saved, const char *when, weft_error *err) {
    (void)weft_crash_set_call(before);
    return weft_process_restore(saved, when, err);
}

/* Runs the plugin's code for the first time. */
static weft_status run_file(file_entry *entry, weft_error *err) {
    const weft_plugin_list *list = NULL;
    weft_plugin_entry_fn *function = NULL;
    void *handle = NULL, *note = NULL, *symbol = NULL;
    weft_error said = WEFT_ERROR_INIT;
    weft_process saved;
    weft_call_record before = begin_code(entry, &saved);
    weft_status status = WEFT_OK;
    handle = dlopen(entry->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    status = end_code(before, &saved, "it was loaded", err);
    if (handle == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "cannot be loaded: %s (it needs %s).", dlerror(), entry->note.needed);
    if (status != WEFT_OK) return status;
    note = dlsym(handle, "weft_plugin_note");
    symbol = dlsym(handle, "weft_plugin_entry");
    if (note == NULL || symbol == NULL)
        return weft_error_set(err, WEFT_E_PLUGIN, "lost its exports between the check and the load.");
    weft_crash_add(entry->sha256, note);
    status = check_identity(entry, note, err);
    if (status != WEFT_OK) return status;
    memcpy(&function, &symbol, sizeof function);
    before = begin_code(entry, &saved);
    list = function(weft_services(), &said);
    status = end_code(before, &saved, "its entry ran", err);
    if (status == WEFT_OK && list == NULL)
        status = weft_error_set(err, said.code == WEFT_OK ? WEFT_E_PLUGIN : (weft_status)said.code,
                                "cannot work here: %s",
                                said.text[0] != 0 ? said.text
                                                  : "its entry failed without an error message, a defect of it.");
    if (status == WEFT_OK) status = weft_list_check(list, &entry->note, err);
    for (uint32_t i = 0; status == WEFT_OK && i < list->n_plugins; i++) {
        const char *plugin = (const char *)list->plugins + (size_t)i * list->stride;
        entry->plugins[i] = (weft_loaded){.plugin = (const weft_plugin *)(const void *)plugin,
                                          .path = entry->path,
                                          .sha256 = entry->sha256,
                                          .note = entry->note.note,
                                          .fast_math = entry->note.fast_math};
        weft_plugin_own(&entry->plugins[i]);
    }
    return status;
}

/* ---- libraries of a pinned plugin ---- */

enum { LIST_SECONDS = 10 };

static weft_status check_library(const weft_trust *trust, const char *path, weft_error *err) {
    static const char *const systems[] = {"/usr/lib/", "/usr/lib32/", "/usr/lib64/", "/lib/", "/lib32/", "/lib64/"};
    char real[PATH_MAX], hex[65];
    int descriptor = -1;
    weft_status status = WEFT_OK;
    if (realpath(path, real) == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "needs the library %s: %s.", path, strerror(errno));
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        if (strncmp(real, systems[i], strlen(systems[i])) == 0) return WEFT_OK;
    descriptor = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return weft_error_set(err, WEFT_E_SYSTEM, "needs the library %s: %s.", real, strerror(errno));
    status = weft_hash_file(hex, descriptor, real, err);
    (void)close(descriptor);
    if (status != WEFT_OK) return weft_error_prefix(err, "needs the library ");
    if (is_pinned(trust, hex)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "needs the library %s, whose SHA-256 %s is not pinned, and [plugins] trust = pinned only "
                          "allows pinned files. Fix: if you trust its source, append what `sha256sum %s` prints to %s.",
                          real, hex, real,
                          trust->list_path != NULL ? trust->list_path : "a file that [plugins] pin_list names");
}

/* Lists the libraries of the file at path `context`, in a child process. The dynamic loader finds them as in dlopen and
 * runs none of their code. LD_LIBRARY_PATH and the system's cache, which the user and the administrator set, are not
 * used: their files need no pin. */
static void list_libraries(int end, void *context) {
    char lists[] = "LD_TRACE_LOADED_OBJECTS=1", *const environment[] = {lists, NULL};
    Dl_info loader;
    if (dladdr(dlsym(RTLD_DEFAULT, "_r_debug"), &loader) != 0 && dup2(end, STDOUT_FILENO) >= 0)
        (void)execle(loader.dli_fname, "ld.so", "--inhibit-cache", (const char *)context, NULL, environment);
    _exit(127);
}

/* Checks the libraries outside of the system's directories, of lines such as "\tliba.so => /home/you/liba.so (0x7f12)",
 * "\t/home/you/liba.so (0x7f12)", "\tliba.so => not found" and "\tlinux-vdso.so.1 (0x7f12)". */
static weft_status check_libraries(const file_entry *entry, const weft_trust *trust, weft_error *err) {
    weft_child child;
    char *rest = NULL, *line = NULL;
    weft_status status =
        weft_child_run(&child, list_libraries, (void *)(uintptr_t)entry->path, LIST_BYTES, LIST_SECONDS, err);
    if (status == WEFT_OK && (!child.in_time || child.status != 0))
        status = weft_error_set(err, WEFT_E_SYSTEM,
                                "needs libraries that the dynamic loader cannot list, which [plugins] trust = pinned "
                                "requires. Fix: see the error of `ldd %s`.",
                                entry->path);
    rest = child.text;
    while (status == WEFT_OK && (line = strsep(&rest, "\n")) != NULL) {
        char *arrow = strstr(line, " => "), *path = arrow != NULL ? arrow + 4 : line + strspn(line, "\t");
        char *end = strrchr(path, ' ');
        if (strchr(path, '/') == NULL) continue;
        if (end != NULL) *end = '\0';
        status = check_library(trust, path, err);
    }
    free(child.text);
    return status;
}

/* ---- loading a file ---- */

/* Opens a file; *known is the entry of a file that was loaded before. */
static weft_status open_file(file_entry *out, file_entry **known, const char *path, weft_error *err) {
    if (realpath(path, out->path) == NULL) return system_error(err, "cannot be found");
    (void)snprintf(out->doing, sizeof out->doing, "the load of %s", out->path);
    out->descriptor = open(out->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (out->descriptor < 0) return system_error(err, "cannot be opened");
    if (fstat(out->descriptor, &out->stat) != 0) return system_error(err, "cannot be examined");
    if (!S_ISREG(out->stat.st_mode)) return weft_error_set(err, WEFT_E_USER, "is not a regular file.");
    *known = first_file;
    while (*known != NULL && ((*known)->stat.st_dev != out->stat.st_dev || (*known)->stat.st_ino != out->stat.st_ino))
        *known = (*known)->next;
    if (*known != NULL && !is_unchanged(&(*known)->stat, &out->stat))
        return weft_error_set(err, WEFT_E_USER, "was written to after it was loaded; start the command again.");
    return WEFT_OK;
}

/* Validates a file whose code has not run. */
static weft_status check_file(file_entry *entry, const weft_trust *trust, weft_error *err) {
    unsigned char *bytes = NULL;
    const size_t size = (size_t)entry->stat.st_size;
    weft_preflight *note = &entry->note;
    weft_status status = read_file(&bytes, entry->descriptor, size, err);
    if (status == WEFT_OK) status = weft_hash_text(entry->sha256, bytes, size, err);
    if (status == WEFT_OK) status = weft_preflight_read(note, bytes, size, err);
    if (status == WEFT_OK && producer_reorders(bytes, size)) note->fast_math = 1;
    if (status == WEFT_OK) status = check_trust(trust, note, entry->sha256, entry->path, err);
    if (status == WEFT_OK && trust != NULL && trust->pinned) status = check_libraries(entry, trust, err);
    free(bytes);
    return status;
}

/* Finds, or opens and validates, the file at path. Runs its code if `runs`; then *out lives as long as the process, and
 * else the caller releases *owned. */
static weft_status get_file(const file_entry **out, file_entry **owned, const char *path, const weft_trust *trust,
                            bool runs, weft_error *err) {
    file_entry *entry = weft_alloc(1, sizeof *entry), *known = NULL;
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    entry->descriptor = -1;
    *owned = entry;
    status = open_file(entry, &known, path, &why);
    if (status == WEFT_OK && known == NULL) {
        status = check_file(entry, trust, &why);
        if (status == WEFT_OK && runs) {
            known = entry;
            entry->why = why;
            entry->verdict = run_file(entry, &entry->why);
            entry->next = first_file;
            first_file = entry;
            *owned = NULL; /* its code ran: keep it */
        }
    }
    if (status == WEFT_OK && known != NULL) {
        status = known->verdict != WEFT_OK ? weft_error_set(&why, known->verdict, "%s", known->why.text)
                                           : check_trust(trust, &known->note, known->sha256, known->path, &why);
    }
    *out = known != NULL ? known : entry;
    if (status != WEFT_OK) (void)weft_error_set(err, status, "%s %s", path, why.text);
    return status;
}

static void release_file(file_entry *entry) {
    if (entry != NULL && entry->descriptor >= 0) (void)close(entry->descriptor);
    free(entry);
}

weft_status weft_plugin_file_note(weft_preflight *out, const char *path, const weft_trust *trust, weft_error *err) {
    const file_entry *found = NULL;
    file_entry *owned = NULL;
    const weft_status status = get_file(&found, &owned, path, trust, false, err);
    if (status == WEFT_OK) *out = found->note;
    release_file(owned);
    return status;
}

static weft_status choose_plugin(const weft_loaded **out, const file_entry *file, const char *kind, const char *id,
                                 weft_error *err) {
    const weft_loaded *found = NULL;
    char held[512] = "";
    int n = 0;
    for (uint32_t i = 0; i < file->note.n_plugins; i++) {
        const weft_note_plugin *plugin = &file->note.plugins[i];
        weft_words_append(held, sizeof held, "%s%s:%s", i == 0 ? "" : ", ", plugin->kind, plugin->id);
        if (strcmp(plugin->kind, kind) != 0 || (id != NULL && strcmp(plugin->id, id) != 0)) continue;
        found = &file->plugins[i];
        n++;
    }
    if (n > 1)
        return weft_error_set(err, WEFT_E_USER,
                              "%s contains several plugins of kind %s (%s). Fix: select one by its id: name the file "
                              "weft-%s-<id>.so (or link it under that name) in a directory of [plugins] path.",
                              file->path, kind, held, kind);
    if (n == 0 && id == NULL)
        return weft_error_set(err, WEFT_E_USER, "%s contains %s, and no plugin of kind %s.", file->path, held, kind);
    if (n == 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "%s contains %s, and not the %s:%s of its name.", file->path, held,
                              kind, id);
    *out = found;
    return WEFT_OK;
}

weft_status weft_plugin_load(const weft_loaded **out, const char *path, const weft_trust *trust, const char *kind,
                             const char *id, weft_error *err) {
    const file_entry *found = NULL;
    file_entry *owned = NULL;
    weft_status status = get_file(&found, &owned, path, trust, true, err);
    if (status == WEFT_OK) status = choose_plugin(out, found, kind, id, err);
    release_file(owned);
    return status;
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
