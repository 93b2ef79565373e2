/* host/plugin/libraries.c: see libraries.h. Follows the files that the dynamic loader may open for a plugin. It checks
 * every file that the loader could select, not only the one that it will select, so that a later search order cannot
 * open an unchecked one. */
#include "plugin/libraries.h"

#include "base/hash.h"
#include "plugin/elf.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

static weft_status judge_object(walk *w, const object *self, weft_error *err);

static bool is_systems(const char *path) {
    static const char *const roots[] = {"/usr/lib/", "/usr/lib32/", "/usr/lib64/", "/lib/", "/lib32/", "/lib64/"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        if (strncmp(path, roots[i], strlen(roots[i])) == 0) return true;
    return false;
}

/* ---- one library ---- */

static weft_status map_library(void **image, size_t *size, char hex[65], int descriptor, const char *path,
                               weft_error *err) {
    struct stat about;
    if (fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode))
        return weft_error_set(err, WEFT_E_USER, "needs the library %s, which is no regular file.", path);
    *size = (size_t)about.st_size;
    *image = *size == 0 ? MAP_FAILED : mmap(NULL, *size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (*image == MAP_FAILED)
        return weft_error_set(err, WEFT_E_SYSTEM, "needs the library %s, which cannot be read: %s.", path,
                              *size == 0 ? "it is empty" : strerror(errno));
    return weft_hash_text(hex, *image, *size, err);
}

static weft_status judge_image(walk *w, const object *of, const void *image, size_t size, const char hex[65],
                               const char *path, weft_error *err) {
    object self = {.needed_by = of, .path = path, .depth = of->depth + 1};
    if (!weft_trust_holds(w->trust, hex))
        return weft_error_set(err, WEFT_E_USER,
                              "needs the library %s, whose SHA-256 %s is not pinned, and [plugins] trust = pinned runs "
                              "nothing else. If you know where it comes from, append what `sha256sum %s` prints to %s.",
                              path, hex, path,
                              w->trust->list_path != NULL ? w->trust->list_path
                                                          : "a file that [plugins] pin_list names");
    if (weft_elf_open(&self.elf, image, size, NULL) != WEFT_OK) return WEFT_OK; /* the loader rejects it, too */
    return judge_object(w, &self, err);
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

/* Checks one file. The loader cannot open a missing file either. */
static weft_status judge_library(walk *w, const object *of, const char *path, weft_error *err) {
    char real[PATH_MAX], hex[65];
    struct stat about;
    void *image = MAP_FAILED;
    size_t size = 0;
    int descriptor;
    weft_status status;
    if (realpath(path, real) == NULL || is_systems(real)) return WEFT_OK;
    if (stat(real, &about) == 0 && note_seen(w, &about)) return WEFT_OK;
    descriptor = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return weft_error_set(err, WEFT_E_SYSTEM, "needs the library %s: %s.", real, strerror(errno));
    status = map_library(&image, &size, hex, descriptor, real, err);
    if (status == WEFT_OK) status = judge_image(w, of, image, size, hex, real, err);
    if (image != MAP_FAILED) (void)munmap(image, size);
    (void)close(descriptor);
    return status;
}

/* ---- search directories ---- */

/* Checks a directory and its subdirectories for processor capabilities, which the loader prefers. */
static weft_status judge_directory(walk *w, const object *of, const char *directory, const char *name, int32_t depth,
                                   weft_error *err) {
    static const char *const below[] = {"glibc-hwcaps", "x86-64-v4", "x86-64-v3", "x86-64-v2", "tls",
                                        "haswell",      "avx512_1",  "x86_64",    "power9",    "power10"};
    char path[PATH_MAX];
    struct stat about;
    weft_status status = WEFT_OK;
    if (snprintf(path, sizeof path, "%s/%s", directory, name) < (int)sizeof path)
        status = judge_library(w, of, path, err);
    for (size_t i = 0; i < sizeof below / sizeof *below && depth < CAPABILITIES && status == WEFT_OK; i++) {
        const int n = snprintf(path, sizeof path, "%s/%s", directory, below[i]);
        if (n < (int)sizeof path && stat(path, &about) == 0 && S_ISDIR(about.st_mode))
            status = judge_directory(w, of, path, name, depth + 1, err);
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

static weft_status judge_list(walk *w, const object *of, const char *list, const char *owner, const char *name,
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
        status = judge_directory(w, of, directory[0] == '\0' ? "." : directory, name, 0, err);
    return status;
}

static weft_status judge_name(walk *w, const object *self, const char *name, weft_error *err) {
    const char *list = NULL;
    weft_status status = WEFT_OK;
    if (strchr(name, '/') != NULL) {
        char path[PATH_MAX];
        if (!expand_origin(path, sizeof path, name, self->path))
            return weft_error_set(err, WEFT_E_USER,
                                  "needs the library %.200s, a path that [plugins] trust = pinned cannot follow.",
                                  name);
        return judge_library(w, self, path, err);
    }
    for (const object *at = self; at != NULL && status == WEFT_OK; at = at->needed_by)
        for (uint64_t i = 0; status == WEFT_OK && (list = weft_elf_runpath(&at->elf, i)) != NULL; i++)
            status = judge_list(w, self, list, at->path, name, err);
    return status;
}

static weft_status judge_object(walk *w, const object *self, weft_error *err) {
    const char *name = NULL;
    weft_status status = WEFT_OK;
    if (self->depth > MOST_DEPTH)
        return weft_error_set(err, WEFT_E_USER,
                              "needs libraries that need one another %d levels deep, too deep for "
                              "[plugins] trust = pinned.",
                              MOST_DEPTH);
    for (uint64_t i = 0; status == WEFT_OK && (name = weft_elf_opened(&self->elf, i)) != NULL; i++)
        status = judge_name(w, self, name, err);
    return status;
}

weft_status weft_libraries_judge(const weft_trust *trust, const void *image, size_t size, const char *path,
                                 weft_error *err) {
    object plugin = {.path = path};
    walk *w = NULL;
    weft_status status = WEFT_OK;
    if (trust == NULL || !trust->pinned) return WEFT_OK;
    status = weft_elf_open(&plugin.elf, image, size, err);
    if (status != WEFT_OK) return status;
    w = calloc(1, sizeof *w);
    if (w == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for its libraries.");
    w->trust = trust;
    status = judge_object(w, &plugin, err);
    free(w);
    return status;
}
