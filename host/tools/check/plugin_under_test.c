/* host/tools/check/plugin_under_test.c: see plugin_under_test.h. */
#include "tools/check/plugin_under_test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "config/settings.h"
#include "config/store.h"
#include "plugin/enter.h"
#include "plugin/load.h"
#include "plugin/services.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/random.h>

enum { JUNK = 5000, MOST_RIGHT = 1 << 26 };

const char *weft_wrong_name(weft_wrong wrong) {
    static const char *const names[] = {"a file that is not there", "a directory", "an empty file", "a file of junk",
                                        "a truncated file"};
    return names[wrong];
}

bool weft_wrong_is_nothing(weft_wrong wrong) {
    return wrong <= WEFT_WRONG_EMPTY;
}

static weft_status make_junk(const char *path, weft_error *err) {
    char junk[JUNK];
    for (uint32_t i = 0; i < JUNK; i++) junk[i] = (char)(unsigned char)weft_random(3, WEFT_RANDOM_SAMPLE, 4, i).v[0];
    return weft_file_replace(path, junk, sizeof junk, err);
}

static weft_status make_cut(const char *path, const char *right, weft_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    weft_status status = weft_text_read(&text, &bytes, right, MOST_RIGHT, err);
    if (status == WEFT_OK) status = weft_file_replace(path, text, bytes / 3 * 2, err);
    free(text);
    return status;
}

weft_status weft_wrong_make(const char *path, weft_wrong wrong, const char *right, weft_error *err) {
    (void)unlink(path);
    (void)rmdir(path);
    switch (wrong) {
    case WEFT_WRONG_MISSING: return WEFT_OK;
    case WEFT_WRONG_DIRECTORY:
        if (mkdir(path, 0700) == 0) return WEFT_OK;
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be created: %s", path, strerror(errno));
    case WEFT_WRONG_EMPTY: return weft_file_replace(path, "", 0, err);
    case WEFT_WRONG_JUNK: return make_junk(path, err);
    default: return make_cut(path, right, err);
    }
}

/* ---- host with memory accounting ---- */

static atomic_int_fast64_t pieces;

static void *poisoned(size_t bytes, size_t alignment, int poison) {
    const weft_host *services = weft_services();
    void *memory = services->alloc(services, bytes, alignment);
    if (memory == NULL) return NULL;
    memset(memory, poison, bytes);
    atomic_fetch_add(&pieces, 1);
    return memory;
}

static void *alloc_one(const weft_host *host, size_t bytes, size_t alignment) {
    (void)host;
    return poisoned(bytes, alignment, WEFT_POISON_ONE);
}

static void *alloc_two(const weft_host *host, size_t bytes, size_t alignment) {
    (void)host;
    return poisoned(bytes, alignment, WEFT_POISON_TWO);
}

static void release(const weft_host *host, void *memory) {
    const weft_host *services = weft_services();
    (void)host;
    if (memory == NULL) return;
    atomic_fetch_sub(&pieces, 1);
    services->release(services, memory);
}

/* ---- guard pages ---- */

/* Header before a guarded allocation. */
typedef struct fence {
    void *map;
    size_t bytes;
} fence;

static void *alloc_guarded(const weft_host *host, size_t bytes, size_t alignment) {
    const int64_t page = sysconf(_SC_PAGESIZE), unit = (int64_t)(alignment < sizeof(fence) ? sizeof(fence) : alignment);
    const int64_t piece = weft_round_up((int64_t)(bytes < 1 ? 1 : bytes), (int64_t)alignment);
    const int64_t whole = weft_round_up(piece + unit, page);
    fence front = {NULL, (size_t)(whole + page)};
    char *memory;
    (void)host;
    front.map = mmap(NULL, front.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (front.map == MAP_FAILED) return NULL;
    memory = (char *)front.map + whole - piece;
    if (mprotect((char *)front.map + whole, (size_t)page, PROT_NONE) != 0) {
        (void)munmap(front.map, front.bytes);
        return NULL;
    }
    memset(memory, WEFT_POISON_ONE, (size_t)piece);
    memcpy(memory - sizeof front, &front, sizeof front);
    atomic_fetch_add(&pieces, 1);
    return memory;
}

static void release_guarded(const weft_host *host, void *memory) {
    fence front;
    (void)host;
    if (memory == NULL) return;
    memcpy(&front, (char *)memory - sizeof front, sizeof front);
    atomic_fetch_sub(&pieces, 1);
    (void)munmap(front.map, front.bytes);
}

/* ---- other services ---- */

static void run_upwards(const weft_host *host, int64_t n, void (*body)(int64_t i, void *context), void *context) {
    (void)host;
    for (int64_t i = 0; i < n; i++) body(i, context);
}

static void run_downwards(const weft_host *host, int64_t n, void (*body)(int64_t i, void *context), void *context) {
    (void)host;
    for (int64_t i = n; i > 0; i--) body(i - 1, context);
}

/* Plugins that the plugin under test wraps, with default keys. Each is opened once per process, which runs one rule. */
typedef struct lent {
    struct lent *next;
    char *kind, *id;
    weft_plugin_under_test tested;
} lent;

static weft_status lend(const weft_host *host, const char *kind, const char *id, const struct weft_plugin **plugin,
                        const void **config, weft_error *err) {
    static lent *all;
    lent *one = all;
    (void)host;
    while (one != NULL && (strcmp(one->kind, kind) != 0 || strcmp(one->id, id) != 0)) one = one->next;
    if (one == NULL) {
        weft_plugin_under_test opened;
        const weft_status status = weft_plugin_under_test_open_own(&opened, kind, id, err);
        if (status != WEFT_OK) {
            weft_plugin_under_test_close(&opened);
            return status;
        }
        one = weft_alloc(1, sizeof *one);
        *one = (lent){all, weft_strdup(kind), weft_strdup(id), opened};
        all = one;
    }
    *plugin = one->tested.loaded->plugin;
    *config = one->tested.config;
    return WEFT_OK;
}

static const void *extension(const weft_host *host, const char *id) {
    static const weft_host_plugins table = {(uint32_t)sizeof table, 0, lend};
    if (strcmp(id, WEFT_HOST_PLUGINS) == 0) return &table;
    return weft_services()->extension(host, id);
}

const weft_host *weft_plugin_under_test_host(uint8_t poison) {
    static weft_host hosts[2];
    const int is_two = poison == WEFT_POISON_TWO;
    weft_host *host = &hosts[is_two];
    *host = *weft_services();
    host->alloc = is_two ? alloc_two : alloc_one;
    host->release = release;
    host->extension = extension;
    host->parallel_for = is_two ? run_downwards : run_upwards;
    return host;
}

int64_t weft_plugin_under_test_pieces(void) {
    return (int64_t)atomic_load(&pieces);
}

const weft_host *weft_plugin_under_test_guarded_host(void) {
    static weft_host host;
    host = *weft_plugin_under_test_host(WEFT_POISON_ONE);
    host.alloc = alloc_guarded;
    host.release = release_guarded;
    return &host;
}

/* ---- leaks ---- */

/* Freed memory stays in glibc's thread cache, which holds seven chunks per size and counts as in use. calloc does not
 * take from it, so the cache must be full before heap usage is meaningful. Some sizes fill slowly: if usage grew in
 * every round, more rounds follow. */
enum { WARM_ROUNDS = 32, ROUNDS = 8, MOST_ROUNDS = 48 };

weft_status weft_plugin_under_test_refused(weft_status status, const void *made, const char *what, weft_error *err) {
    if (status == WEFT_OK) return WEFT_OK;
    if (made != NULL)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "it rejects %s and returns an instance: a failed call must leave its outputs unchanged",
                              what);
    if (weft_plugin_under_test_pieces() == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "it rejects %s, and %lld allocations of host->alloc are never released",
                          what, (long long)weft_plugin_under_test_pieces());
}

static int64_t open_descriptors(void) {
    DIR *list = opendir("/proc/self/fd");
    int64_t n = 0;
    while (list != NULL && readdir(list) != NULL) n++;
    if (list != NULL) (void)closedir(list);
    return n;
}

static int64_t heap_bytes(void) {
    const struct mallinfo2 info = mallinfo2();
    return (int64_t)(info.uordblks + info.hblkhd);
}

weft_status weft_plugin_under_test_releases(weft_plugin_under_test *tested,
                                            weft_status (*once)(weft_plugin_under_test *tested, weft_error *err),
                                            weft_error *err) {
    int64_t descriptors = 0, heap = 0, grown = 0;
    int64_t kept = weft_plugin_under_test_pieces(); /* an open instance may keep more after its first call */
    int32_t files = 0, growths = 0;
    for (int32_t i = 0; i < WARM_ROUNDS + MOST_ROUNDS; i++) {
        const weft_status status = once(tested, err);
        const int64_t now = open_descriptors(), held = heap_bytes();
        if (status != WEFT_OK) return status;
        if (kept != 0 && i < WARM_ROUNDS) kept = weft_larger(weft_plugin_under_test_pieces(), 1);
        if (weft_plugin_under_test_pieces() > kept)
            return weft_error_set(err, WEFT_E_PLUGIN, "%lld allocations of host->alloc are never released",
                                  (long long)(weft_plugin_under_test_pieces() - kept));
        if (i >= WARM_ROUNDS) {
            files += now > descriptors;
            growths += held > heap;
            grown += held - heap;
        }
        descriptors = now;
        heap = held;
        if (i + 1 >= WARM_ROUNDS + ROUNDS && files <= i - WARM_ROUNDS && growths <= i - WARM_ROUNDS) return WEFT_OK;
    }
    if (files == MOST_ROUNDS)
        return weft_error_set(err, WEFT_E_PLUGIN, "each create leaks one descriptor: a close or fclose is missing");
    return weft_error_set(err, WEFT_E_PLUGIN, "each create leaks %lld bytes of the heap: memory of malloc is not freed",
                          (long long)(grown / MOST_ROUNDS));
}

/* ---- current query ---- */

enum { MOST_QUESTION = 256 };

typedef struct shared {
    char question[MOST_QUESTION];
    weft_crumb call;
} shared;

/* Returns a page shared with child processes; NULL: queries are not recorded. */
static shared *shared_page(void) {
    static shared *page;
    if (page == NULL) page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? NULL : page;
}

void weft_plugin_under_test_asks(const char *format, ...) {
    shared *page = shared_page();
    va_list args;
    if (page == NULL) return;
    va_start(args, format);
    (void)vsnprintf(page->question, MOST_QUESTION, format, args);
    va_end(args);
}

const char *weft_plugin_under_test_asked(void) {
    const shared *page = shared_page();
    return page == NULL ? "" : page->question;
}

weft_crumb *weft_plugin_under_test_call(void) {
    shared *page = shared_page();
    return page == NULL ? NULL : &page->call;
}

/* ---- plugin ---- */

/* Validates the user's sections and keys as a run does. */
static weft_status check_names(weft_plugin_under_test *self, weft_error *err) {
    const weft_plugin *plugin = self->loaded->plugin;
    weft_settings_declare(self->parsed);
    weft_config_declare(self->parsed, plugin->kind, plugin->keys, plugin->n_keys, plugin->key_stride);
    return weft_config_unknown(self->parsed, plugin->kind, err);
}

const weft_key *weft_plugin_under_test_key_at(const weft_plugin_under_test *self, uint64_t i) {
    const weft_plugin *plugin = self->loaded->plugin;
    return i < plugin->n_keys ? weft_key_row(plugin->keys, i, plugin->key_stride) : NULL;
}

static bool lacks_key(const weft_plugin_under_test *self) {
    const char *kind = self->loaded->plugin->kind;
    const weft_key *key = NULL;
    for (uint64_t i = 0; (key = weft_plugin_under_test_key_at(self, i)) != NULL; i++)
        if (key->fallback == NULL && !weft_config_has_key(self->parsed, kind, key->name)) return true;
    return false;
}

/* Fills the keys. A missing key means that the plugin cannot be tested without it; any other error is a user error. */
static weft_status fill_keys(weft_plugin_under_test *self, weft_error *err) {
    const weft_plugin *plugin = self->loaded->plugin;
    weft_status status = WEFT_OK;
    bool is_known = false;
    self->config = weft_alloc(1, plugin->config_size + 8);
    status = weft_config_load(&self->parsed, NULL, self->options == NULL ? NULL : self->options->overrides,
                              self->options == NULL ? 0 : self->options->n_overrides, err);
    if (status == WEFT_OK) status = check_names(self, err);
    is_known = status == WEFT_OK;
    if (status == WEFT_OK)
        status = weft_config_fill(self->parsed, self->config, plugin->kind, plugin->keys, plugin->n_keys,
                                  plugin->key_stride, err);
    if (status != WEFT_E_USER) return status;
    if (is_known && lacks_key(self)) return WEFT_E_UNSUPPORTED;
    self->refused = self->options != NULL && self->options->is_given;
    return status;
}

static weft_status validate(weft_plugin_under_test *self, weft_error *err) {
    const weft_plugin *plugin = self->loaded->plugin;
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    if (plugin->validate == NULL) return WEFT_OK;
    weft_plugin_call_begin(&call, self->loaded, "validate");
    status = plugin->validate(self->config, err);
    status = weft_plugin_call_end(&call, status, err);
    self->refused = status == WEFT_E_USER && self->options != NULL && self->options->is_given;
    return status;
}

weft_status weft_plugin_under_test_open(weft_plugin_under_test *self, const weft_plugin_under_test_options *options,
                                        weft_error *err) {
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->options = options;
    status = weft_plugin_load(&self->loaded, options->file, NULL, options->kind, options->id, err);
    if (status == WEFT_OK) status = fill_keys(self, err);
    return status == WEFT_OK ? validate(self, err) : status;
}

weft_status weft_plugin_under_test_open_own(weft_plugin_under_test *self, const char *kind, const char *id,
                                            weft_error *err) {
    const weft_plugins_settings none = {0};
    weft_plugins *plugins = NULL;
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    status = weft_plugins_create(&plugins, &none, err);
    if (status == WEFT_OK) status = weft_plugins_get(plugins, &self->loaded, kind, id, err);
    weft_plugins_destroy(plugins);
    if (status == WEFT_E_USER) return WEFT_E_UNSUPPORTED;
    if (status == WEFT_OK) status = fill_keys(self, err);
    return status == WEFT_OK ? validate(self, err) : status;
}

void weft_plugin_under_test_close(weft_plugin_under_test *self) {
    weft_config_free(self->parsed);
    free(self->config);
    memset(self, 0, sizeof *self);
}

/* ---- keys ---- */

const weft_key *weft_plugin_under_test_key(const weft_plugin_under_test *self, const char *name, int32_t type) {
    const weft_key *key = NULL;
    uint64_t i = 0;
    while ((key = weft_plugin_under_test_key_at(self, i++)) != NULL &&
           (key->type != type || strcmp(key->name, name) != 0)) {
    }
    return key;
}

void *weft_plugin_under_test_value(const weft_plugin_under_test *self, const weft_key *key) {
    return (char *)self->config + key->offset;
}

weft_status weft_plugin_under_test_open_word(weft_plugin_under_test_other *out, const weft_plugin_under_test *from,
                                             const char *key, const char *value, weft_error *err) {
    const size_t n = from->options->n_overrides;
    memset(out, 0, sizeof *out);
    out->options = *from->options;
    out->overrides = weft_alloc(n + 1, sizeof *out->overrides);
    if (n > 0) memcpy(out->overrides, from->options->overrides, n * sizeof *out->overrides);
    (void)snprintf(out->text, sizeof out->text, "%s.%s=%s", from->options->kind, key, value);
    out->overrides[n] = out->text; /* the last override of a key wins */
    out->options.overrides = out->overrides;
    out->options.n_overrides = n + 1;
    return weft_plugin_under_test_open(&out->tested, &out->options, err);
}

weft_status weft_plugin_under_test_open_other(weft_plugin_under_test_other *out, const weft_plugin_under_test *from,
                                              const char *key, double value, weft_error *err) {
    char text[32];
    (void)snprintf(text, sizeof text, "%.17g", value);
    return weft_plugin_under_test_open_word(out, from, key, text, err);
}

void weft_plugin_under_test_close_other(weft_plugin_under_test_other *out) {
    weft_plugin_under_test_close(&out->tested);
    free(out->overrides);
    out->overrides = NULL;
}
