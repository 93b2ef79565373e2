/* host/plugin/load.c: see load.h. The table of files is global to the process, like the dynamic loader's own. */
#include "plugin/load.h"

#include "plugin/enter.h"
#include "plugin/kinds.h"
#include "plugin/libraries.h"
#include "plugin/process.h"
#include "plugin/producer.h"
#include "plugin/services.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct file_entry {
    weft_plugin_file file;
    struct file_entry *next;
    char path[PATH_MAX];
    char doing[PATH_MAX + 32]; /* for the crash record */
    int descriptor;
    struct stat stat;
    weft_status verdict; /* result after its code ran */
    weft_error why;
} file_entry;

static file_entry *first_file;

/* --- reading and hashing --- */

static weft_status system_error(weft_error *err, const char *what) {
    return weft_error_set(err, WEFT_E_SYSTEM, "%s: %s.", what, strerror(errno));
}

/* Reads the complete file through its descriptor. The caller frees *out. */
static weft_status read_whole_file(unsigned char **out, int descriptor, size_t size, weft_error *err) {
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

static weft_status hash_bytes(char out[65], const unsigned char *bytes, size_t size, weft_error *err) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n = 0, i;
    if (EVP_Digest(bytes, size, digest, &n, EVP_sha256(), NULL) != 1 || n != 32) {
        return weft_error_set(err, WEFT_E_SYSTEM, "cannot be hashed: libcrypto gives no SHA-256.");
    }
    for (i = 0; i < n; i++) (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return WEFT_OK;
}

/* --- identity of the mapped file and the read file --- */

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
    if (!known)
        return weft_error_set(err, WEFT_E_SYSTEM, "is loaded, but /proc/self/maps does not say from which file.");
    if (strcmp(ours, theirs) != 0) {
        return weft_error_set(
            err, WEFT_E_USER,
            "is not the file that this process has loaded under that name: it was replaced meanwhile. "
            "Start the command again.");
    }
    if (fstat(entry->descriptor, &now) != 0) return system_error(err, "cannot be examined");
    if (now.st_size != entry->stat.st_size || now.st_mtim.tv_sec != entry->stat.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != entry->stat.st_mtim.tv_nsec) {
        return weft_error_set(err, WEFT_E_USER, "was written to while it was loaded; start the command again.");
    }
    return WEFT_OK;
}

/* --- running its code --- */

static weft_doing begin_loading(const file_entry *entry) {
    const weft_doing now = {.sha256 = entry->file.sha256, .what = entry->doing};
    return now;
}

static weft_status map_file(file_entry *entry, void **handle, weft_error *err) {
    weft_status status;
    weft_process saved;
    weft_doing before;
    weft_process_save(&saved);
    before = weft_crash_doing(begin_loading(entry));
    *handle = dlopen(entry->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    (void)weft_crash_doing(before);
    status = weft_process_restore(&saved, "it was loaded", err);
    if (*handle == NULL) {
        return weft_error_set(err, WEFT_E_SYSTEM, "cannot be loaded: %s (it needs %s).", dlerror(),
                              entry->file.note.needed);
    }
    return status;
}

static weft_status call_entry(file_entry *entry, const weft_plugin_list **list, void *symbol, weft_error *err) {
    weft_plugin_entry_fn *function = NULL;
    weft_status status;
    weft_process saved;
    weft_doing before;
    weft_error said = WEFT_ERROR_INIT;
    memcpy(&function, &symbol, sizeof function);
    weft_process_save(&saved);
    before = weft_crash_doing(begin_loading(entry));
    *list = function(weft_services(), &said);
    (void)weft_crash_doing(before);
    status = weft_process_restore(&saved, "its entry ran", err);
    if (status == WEFT_OK && *list == NULL) {
        status =
            weft_error_set(err, said.code == WEFT_OK ? WEFT_E_PLUGIN : (weft_status)said.code, "cannot work here: %s",
                           said.text[0] != 0 ? said.text : "its entry failed and does not say why, a defect of it.");
    }
    return status;
}

static weft_status fill_plugins(file_entry *entry, const weft_plugin_list *list, weft_error *err) {
    uint32_t i;
    for (i = 0; i < list->n_plugins; i++) {
        weft_loaded *out = &entry->file.plugins[i];
        out->plugin = (const weft_plugin *)(const void *)((const char *)list->plugins + (size_t)i * list->stride);
        out->path = entry->file.path;
        out->sha256 = entry->file.sha256;
        out->note = entry->file.note.note;
        out->sdk = entry->file.note.sdk;
        out->min_sdk = entry->file.note.min_sdk;
        out->needed = entry->file.note.needed;
        if (!weft_plugin_own(out)) return weft_error_set(err, WEFT_E_MEMORY, "no memory for its plugins.");
    }
    return WEFT_OK;
}

/* Runs the plugin's code for the first time. */
static weft_status run_file(file_entry *entry, weft_error *err) {
    const weft_plugin_list *list = NULL;
    void *handle = NULL, *note = NULL, *symbol = NULL;
    weft_status status = map_file(entry, &handle, err);
    if (status != WEFT_OK) return status;
    note = dlsym(handle, "weft_plugin_note");
    symbol = dlsym(handle, "weft_plugin_entry");
    if (note == NULL || symbol == NULL) {
        return weft_error_set(err, WEFT_E_PLUGIN, "lost its exports between the check and the load.");
    }
    weft_crash_add(entry->file.sha256, note);
    status = check_identity(entry, note, err);
    if (status == WEFT_OK) status = call_entry(entry, &list, symbol, err);
    if (status == WEFT_OK) status = weft_list_check(list, &entry->file.note, err);
    return status == WEFT_OK ? fill_plugins(entry, list, err) : status;
}

/* --- loading a file --- */

static file_entry *find_entry(const struct stat *stat) {
    file_entry *entry = first_file;
    while (entry != NULL && (entry->stat.st_dev != stat->st_dev || entry->stat.st_ino != stat->st_ino))
        entry = entry->next;
    return entry;
}

/* Opens and validates a file; *known is the entry of a file that was loaded before. */
static weft_status open_file(file_entry *out, file_entry **known, const char *path, weft_error *err) {
    const char *slash = NULL;
    if (realpath(path, out->path) == NULL) return system_error(err, "cannot be found");
    slash = strrchr(out->path, '/');
    out->file.path = out->path;
    out->file.name = slash == NULL ? out->path : slash + 1;
    (void)snprintf(out->doing, sizeof out->doing, "the load of %s", out->path);
    out->descriptor = open(out->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (out->descriptor < 0) return system_error(err, "cannot be opened");
    if (fstat(out->descriptor, &out->stat) != 0) return system_error(err, "cannot be examined");
    if (!S_ISREG(out->stat.st_mode)) return weft_error_set(err, WEFT_E_USER, "is not a regular file.");
    *known = find_entry(&out->stat);
    if (*known != NULL &&
        ((*known)->stat.st_size != out->stat.st_size || (*known)->stat.st_mtim.tv_sec != out->stat.st_mtim.tv_sec ||
         (*known)->stat.st_mtim.tv_nsec != out->stat.st_mtim.tv_nsec)) {
        return weft_error_set(err, WEFT_E_USER, "was written to after it was loaded; start the command again.");
    }
    return WEFT_OK;
}

static weft_status judge_file(file_entry *entry, const weft_trust *trust, weft_error *err) {
    unsigned char *bytes = NULL;
    const size_t size = (size_t)entry->stat.st_size;
    weft_status status = read_whole_file(&bytes, entry->descriptor, size, err);
    if (status == WEFT_OK) status = hash_bytes(entry->file.sha256, bytes, size, err);
    if (status == WEFT_OK) status = weft_preflight_read(&entry->file.note, bytes, size, err);
    if (status == WEFT_OK && weft_producer_reorders(bytes, size)) entry->file.note.fast_math = 1;
    if (status == WEFT_OK) status = weft_trust_judge(trust, &entry->file.note, entry->file.sha256, entry->path, err);
    if (status == WEFT_OK) status = weft_libraries_judge(trust, bytes, size, entry->path, err);
    free(bytes);
    return status;
}

static weft_status verdict_of(const file_entry *entry, const weft_trust *trust, weft_error *err) {
    if (entry->verdict != WEFT_OK) return weft_error_set(err, entry->verdict, "%s", entry->why.text);
    return weft_trust_judge(trust, &entry->file.note, entry->file.sha256, entry->path, err);
}

weft_status weft_plugin_file_load(const weft_plugin_file **out, const char *path, const weft_trust *trust,
                                  weft_error *err) {
    file_entry *entry = calloc(1, sizeof *entry), *known = NULL;
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (entry == NULL) return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory to load it.", path);
    entry->descriptor = -1;
    status = open_file(entry, &known, path, &why);
    if (status == WEFT_OK && known != NULL) {
        status = verdict_of(known, trust, &why);
        if (status == WEFT_OK) *out = &known->file;
    } else if (status == WEFT_OK) {
        status = judge_file(entry, trust, &why);
        if (status == WEFT_OK) {
            entry->why = why;
            entry->verdict = run_file(entry, &entry->why);
            entry->next = first_file;
            first_file = entry;
            status = verdict_of(entry, NULL, &why);
            if (status == WEFT_OK) *out = &entry->file;
            entry = NULL; /* its code ran: keep it */
        }
    }
    if (status != WEFT_OK) (void)weft_error_set(err, status, "%s %s", path, why.text);
    if (entry != NULL && entry->descriptor >= 0) (void)close(entry->descriptor);
    free(entry);
    return status;
}

weft_status weft_plugin_file_note(weft_preflight *out, const char *path, const weft_trust *trust, weft_error *err) {
    file_entry *entry = calloc(1, sizeof *entry), *known = NULL;
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (entry == NULL) return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory to read it.", path);
    entry->descriptor = -1;
    status = open_file(entry, &known, path, &why);
    if (status == WEFT_OK) status = known != NULL ? verdict_of(known, trust, &why) : judge_file(entry, trust, &why);
    if (status == WEFT_OK) *out = known != NULL ? known->file.note : entry->file.note;
    if (status != WEFT_OK) (void)weft_error_set(err, status, "%s %s", path, why.text);
    if (entry->descriptor >= 0) (void)close(entry->descriptor);
    free(entry);
    return status;
}

weft_status weft_plugin_file_choose(const weft_loaded **out, const weft_plugin_file *file, const char *kind,
                                    const char *id, weft_error *err) {
    const weft_loaded *found = NULL;
    char held[512] = "";
    size_t used = 0;
    uint32_t i, n = 0;
    for (i = 0; i < file->note.n_plugins; i++) {
        const weft_note_plugin *plugin = &file->note.plugins[i];
        if (used < sizeof held) {
            used += (size_t)snprintf(held + used, sizeof held - used, "%s%s:%s", i == 0 ? "" : ", ", plugin->kind,
                                     plugin->id);
        }
        if (strcmp(plugin->kind, kind) != 0 || (id != NULL && strcmp(plugin->id, id) != 0)) continue;
        found = &file->plugins[i];
        n++;
    }
    if (n > 1) {
        return weft_error_set(err, WEFT_E_USER,
                              "%s holds several plugins of kind %s (%s). Ask for one by its id: name the file "
                              "weft-%s-<id>.so (or link it under that name) in a directory of [plugins] path.",
                              file->path, kind, held, kind);
    }
    if (n == 0 && id == NULL) {
        return weft_error_set(err, WEFT_E_USER, "%s holds %s, and no plugin of kind %s.", file->path, held, kind);
    }
    if (n == 0) {
        return weft_error_set(err, WEFT_E_PLUGIN, "%s holds %s, and not the %s:%s of its name.", file->path, held, kind,
                              id);
    }
    *out = found;
    return WEFT_OK;
}
