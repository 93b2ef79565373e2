/* host/plugin/load.c: see load.h. The table of files is global to the process, like the dynamic loader's own. */
#include "plugin/load.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/text.h"
#include "plugin/enter.h"
#include "plugin/services.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- libraries of a pinned plugin ----
 *
 * Checks every file that the dynamic loader could select for a plugin, not only the one that it will select, so that a
 * later search order cannot open an unchecked one. */

enum { MOST_DEPTH = 12, MOST_SEEN = 256, MOST_LIST = 3 * PATH_MAX, CAPABILITIES = 4 };

typedef struct walk {
    const weft_trust *trust;
    struct {
        dev_t device;
        ino_t inode;
    } seen[MOST_SEEN]; /* checked files */
    size_t n_seen;
} walk;

/* A shared object and its search directories: its own, and those of the objects that need it. */
typedef struct object {
    const struct object *needed_by; /* NULL: the plugin */
    weft_elf elf;
    const char *path;
    int32_t depth;
} object;

static weft_status check_object(walk *w, const object *self, weft_error *err);

static bool is_systems(const char *path) {
    static const char *const roots[] = {"/usr/lib/", "/usr/lib32/", "/usr/lib64/", "/lib/", "/lib32/", "/lib64/"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        if (strncmp(path, roots[i], strlen(roots[i])) == 0) return true;
    return false;
}

/* Returns true if the file was seen before, and marks it as seen. */
static bool note_seen(walk *w, const struct stat *about) {
    for (size_t i = 0; i < w->n_seen; i++)
        if (w->seen[i].device == about->st_dev && w->seen[i].inode == about->st_ino) return true;
    if (w->n_seen < MOST_SEEN) {
        w->seen[w->n_seen].device = about->st_dev;
        w->seen[w->n_seen++].inode = about->st_ino;
    }
    return false;
}

/* Checks one file. The loader cannot open a missing file either, and rejects one that is no shared object. */
static weft_status check_library(walk *w, const object *of, const char *path, weft_error *err) {
    char real[PATH_MAX], hex[65];
    object self = {.needed_by = of, .path = real, .depth = of->depth + 1};
    struct stat about;
    unsigned char *image = NULL;
    int descriptor;
    weft_status status = WEFT_OK;
    if (realpath(path, real) == NULL || is_systems(real)) return WEFT_OK;
    if (stat(real, &about) == 0 && note_seen(w, &about)) return WEFT_OK;
    descriptor = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return weft_error_set(err, WEFT_E_SYSTEM, "needs the library %s: %s.", real, strerror(errno));
    if (fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode))
        status = weft_error_set(err, WEFT_E_USER, "needs the library %s, which is no regular file.", real);
    else if (read_file(&image, descriptor, (size_t)about.st_size, err) != WEFT_OK)
        status = weft_error_prefix(err, "needs the library %s, which ", real);
    (void)close(descriptor);
    if (status == WEFT_OK) status = weft_hash_text(hex, image, (size_t)about.st_size, err);
    if (status == WEFT_OK && !weft_trust_holds(w->trust, hex))
        status =
            weft_error_set(err, WEFT_E_USER,
                           "needs the library %s, whose SHA-256 %s is not pinned, and [plugins] trust = pinned only "
                           "allows pinned files. Fix: if you trust its source, append what `sha256sum %s` prints "
                           "to %s.",
                           real, hex, real,
                           w->trust->list_path != NULL ? w->trust->list_path : "a file that [plugins] pin_list names");
    if (status == WEFT_OK && weft_elf_open(&self.elf, image, (size_t)about.st_size, NULL) == WEFT_OK)
        status = check_object(w, &self, err);
    free(image);
    return status;
}

/* Checks a directory and its subdirectories for processor capabilities, which the loader prefers. */
static weft_status check_directory(walk *w, const object *of, const char *directory, const char *name, int32_t depth,
                                   weft_error *err) {
    static const char *const below[] = {"glibc-hwcaps", "x86-64-v4", "x86-64-v3", "x86-64-v2", "tls",
                                        "haswell",      "avx512_1",  "x86_64",    "power9",    "power10"};
    char path[PATH_MAX];
    struct stat about;
    weft_status status = WEFT_OK;
    if (snprintf(path, sizeof path, "%s/%s", directory, name) < (int)sizeof path)
        status = check_library(w, of, path, err);
    for (size_t i = 0; i < sizeof below / sizeof *below && depth < CAPABILITIES && status == WEFT_OK; i++) {
        const int n = snprintf(path, sizeof path, "%s/%s", directory, below[i]);
        if (n < (int)sizeof path && stat(path, &about) == 0 && S_ISDIR(about.st_mode))
            status = check_directory(w, of, path, name, depth + 1, err);
    }
    return status;
}

/* Writes the list with $ORIGIN replaced. Returns false if it has another variable, or is too long. */
static bool expand_origin(char *out, size_t size, const char *list, const char *path) {
    static const char *const names[] = {"$ORIGIN", "${ORIGIN}"};
    const int origin = (int)(strrchr(path, '/') - path);
    size_t n = 0;
    while (*list != '\0') {
        size_t skip = 0;
        for (size_t i = 0; i < 2; i++)
            if (strncmp(list, names[i], strlen(names[i])) == 0) skip = strlen(names[i]);
        if ((*list == '$' && skip == 0) || n + (size_t)origin + 2 > size) return false;
        if (skip > 0) n += (size_t)snprintf(out + n, size - n, "%.*s", origin, path);
        else out[n++] = *list;
        list += skip > 0 ? skip : 1;
    }
    out[n] = '\0';
    return true;
}

static weft_status check_list(walk *w, const object *of, const char *list, const char *owner, const char *name,
                              weft_error *err) {
    char expanded[MOST_LIST];
    char *rest = expanded, *directory;
    weft_status status = WEFT_OK;
    if (!expand_origin(expanded, sizeof expanded, list, owner))
        return weft_error_set(
            err, WEFT_E_USER,
            "searches libraries in %.200s, which [plugins] trust = pinned cannot follow: link it with "
            "a run path of plain directories and $ORIGIN.",
            list);
    while (status == WEFT_OK && (directory = strsep(&rest, ":")) != NULL)
        status = check_directory(w, of, directory[0] == '\0' ? "." : directory, name, 0, err);
    return status;
}

static weft_status check_name(walk *w, const object *self, const char *name, weft_error *err) {
    const char *list = NULL;
    weft_status status = WEFT_OK;
    if (strchr(name, '/') != NULL) {
        char path[PATH_MAX];
        if (!expand_origin(path, sizeof path, name, self->path))
            return weft_error_set(err, WEFT_E_USER,
                                  "needs the library %.200s, a path that [plugins] trust = pinned cannot follow.",
                                  name);
        return check_library(w, self, path, err);
    }
    for (const object *at = self; at != NULL && status == WEFT_OK; at = at->needed_by)
        for (uint64_t i = 0; status == WEFT_OK && (list = weft_elf_text(&at->elf, WEFT_ELF_RUNPATHS, i)) != NULL; i++)
            status = check_list(w, self, list, at->path, name, err);
    return status;
}

static weft_status check_object(walk *w, const object *self, weft_error *err) {
    const char *name = NULL;
    weft_status status = WEFT_OK;
    if (self->depth > MOST_DEPTH)
        return weft_error_set(err, WEFT_E_USER,
                              "needs libraries that need one another %d levels deep, too deep for "
                              "[plugins] trust = pinned.",
                              MOST_DEPTH);
    for (uint64_t i = 0; status == WEFT_OK && (name = weft_elf_text(&self->elf, WEFT_ELF_OPENED, i)) != NULL; i++)
        status = check_name(w, self, name, err);
    return status;
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
    if (status == WEFT_OK) status = weft_trust_check(trust, note, entry->sha256, entry->path, err);
    if (status == WEFT_OK && trust != NULL && trust->pinned) {
        object plugin = {.path = entry->path};
        walk w = {.trust = trust};
        status = weft_elf_open(&plugin.elf, bytes, size, err);
        if (status == WEFT_OK) status = check_object(&w, &plugin, err);
    }
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
                                           : weft_trust_check(trust, &known->note, known->sha256, known->path, &why);
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
