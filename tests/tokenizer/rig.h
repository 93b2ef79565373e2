/* rig.h: loads the tokenizer `bpe` as the host does. Its host counts the plugin's allocations and can fail them. */
#ifndef WEFT_TEST_TOKENIZER_RIG_H
#define WEFT_TEST_TOKENIZER_RIG_H

#include "scratch.h"
#include "suite.h"

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "plugin/plugin.h"
#include "plugin/services.h"
#include "base/text.h"
#include <weft/tokenizer.h>

/* --- the host --- */

static int64_t rig_held __attribute__((unused));    /* current allocations of the plugin */
static int64_t rig_asked __attribute__((unused));   /* total allocations */
static int64_t rig_fail_at __attribute__((unused)); /* the allocation to fail, from 1; 0: no failure */

static inline void *rig_alloc(const weft_host *host, size_t bytes, size_t alignment) {
    void *memory = NULL;
    (void)host;
    if (__atomic_add_fetch(&rig_asked, 1, __ATOMIC_RELAXED) == rig_fail_at) return NULL;
    memory = weft_services()->alloc(weft_services(), bytes, alignment);
    if (memory != NULL) (void)__atomic_add_fetch(&rig_held, 1, __ATOMIC_RELAXED);
    return memory;
}

static inline void rig_release(const weft_host *host, void *memory) {
    (void)host;
    if (memory != NULL) (void)__atomic_sub_fetch(&rig_held, 1, __ATOMIC_RELAXED);
    weft_services()->release(weft_services(), memory);
}

static int64_t rig_loops __attribute__((unused)); /* total calls of parallel_for */

static inline void rig_parallel_for(const weft_host *host, int64_t n, void (*body)(int64_t i, void *context),
                                    void *context) {
    (void)host;
    rig_loops++;
    weft_services()->parallel_for(weft_services(), n, body, context);
}

static inline const weft_host *rig_host(void) {
    static weft_host host;
    host = *weft_services();
    host.alloc = rig_alloc;
    host.release = rig_release;
    host.parallel_for = rig_parallel_for;
    return &host;
}

/* --- the plugin --- */

static const weft_tokenizer_plugin *plugin __attribute__((unused));

static inline void rig_load(void) {
    const weft_plugins_settings options = {.path = NULL};
    weft_plugins *plugins = NULL;
    const weft_loaded *loaded = NULL;
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_msg(weft_plugins_create(&plugins, &options, &err) == WEFT_OK, "%s", err.text);
    ck_assert_msg(weft_plugins_get(plugins, &loaded, "tokenizer", "bpe", &err) == WEFT_OK, "%s", err.text);
    plugin = weft_loaded_table(loaded, tokenizer);
    weft_plugins_destroy(plugins);
    rig_fail_at = 0;
}

static inline weft_tokenizer *rig_open(const char *directory) {
    weft_tokenizer *tokenizer = NULL;
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_msg(plugin->create(&tokenizer, rig_host(), NULL, directory, &err) == WEFT_OK, "%s", err.text);
    return tokenizer;
}

static inline void rig_close(weft_tokenizer *tokenizer) {
    plugin->destroy(tokenizer);
    ck_assert_int_eq(rig_held, 0);
}

static inline weft_tokenizer_info rig_info(const weft_tokenizer *tokenizer) {
    weft_tokenizer_info info = {.struct_size = (uint32_t)sizeof info};
    plugin->info(tokenizer, &info);
    return info;
}

/* --- calls --- */

static inline weft_status rig_put_ids(void *context, const int32_t *ids, size_t n) {
    return weft_bytes_put(context, ids, n * sizeof *ids);
}

static inline weft_status rig_put_text(void *context, const char *bytes, size_t n) {
    return weft_bytes_put(context, bytes, n);
}

static inline weft_status rig_try_encode(const weft_tokenizer *tokenizer, weft_bytes *out, const char *text, size_t n,
                                         uint32_t flags, weft_error *err) {
    const weft_ids_sink sink = {out, rig_put_ids};
    return plugin->encode(tokenizer, &sink, text, n, flags, err);
}

/* Encodes a text to n ids. The caller frees the bytes. */
static inline weft_bytes rig_encode(const weft_tokenizer *tokenizer, const char *text, size_t n, uint32_t flags) {
    weft_bytes out = {NULL, 0, 0};
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_msg(rig_try_encode(tokenizer, &out, text, n, flags, &err) == WEFT_OK, "%s", err.text);
    return out;
}

static inline size_t rig_n(const weft_bytes *ids) {
    return ids->n / sizeof(int32_t);
}

static inline int32_t rig_id(const weft_bytes *ids, size_t i) {
    return ((const int32_t *)(const void *)ids->data)[i];
}

static inline weft_bytes rig_decode(const weft_tokenizer *tokenizer, const weft_bytes *ids, uint32_t flags) {
    weft_bytes out = {NULL, 0, 0};
    const weft_text_sink sink = {&out, rig_put_text};
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_msg(plugin->decode(tokenizer, &sink, (const int32_t *)(const void *)ids->data, rig_n(ids), flags, &err) ==
                      WEFT_OK,
                  "%s", err.text);
    return out;
}

/* --- files --- */

static inline void rig_enter(void) {
    scratch_make();
    rig_load();
}

static inline void rig_write_json(const char *name, const json_t *json) {
    char *text = json_dumps(json, JSON_COMPACT);
    ck_assert_ptr_nonnull(text);
    write_text(scratch_path(name), text);
    free(text);
}

static inline void rig_remove(const char *name) {
    (void)unlink(scratch_path(name));
}

static inline void rig_golden(char path[512], const char *name) {
    ck_assert_ptr_nonnull(getenv("WEFT_SOURCE"));
    (void)snprintf(path, 512, "%s/tests/golden/%s", getenv("WEFT_SOURCE"), name);
}

static inline json_t *rig_load_json(const char *path) {
    json_error_t why;
    json_t *json = json_load_file(path, JSON_ALLOW_NUL, &why);
    ck_assert_msg(json != NULL, "%s: %s", path, why.text);
    return json;
}

static inline size_t rig_utf8(char out[4], int32_t c) {
    const size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(n == 1 ? c : c | (0xf00 >> n & 0xff));
    return n;
}

/* --- random numbers, the same in every run --- */

static inline uint32_t rig_chance(uint64_t *state, uint32_t below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

/* --- the main thread encodes a long text in parallel ranges --- */

typedef struct rig_thread {
    const weft_tokenizer *tokenizer;
    const weft_bytes *text;
    weft_bytes ids;
} rig_thread;

static inline void *rig_encode_apart(void *argument) {
    rig_thread *self = argument;
    self->ids = rig_encode(self->tokenizer, self->text->data, self->text->n, 0);
    return NULL;
}

/* Returns true if the main thread divides a random text of `bytes`. Its ids must equal those of another thread, which
 * does not divide it. */
static inline bool rig_is_divided(const weft_tokenizer *tokenizer, size_t bytes, uint64_t seed) {
    /* text around possible cuts: white space, line ends, digits, apostrophes, special tokens, multi-byte characters */
    static const char *const between[] = {"\n",         " ",          "\n\n", " \n",           "\n ",
                                          "\r\n",       "'s\n",       ".\n",  "1\n2",          "</s>",
                                          "  a ",       "\xC3\xA9\n", "\t",   "<|endoftext|>", "\xE2\x96\x81",
                                          "e\xCC\x81\n"};
    weft_bytes text = {NULL, 0, 0}, ids;
    rig_thread other = {.tokenizer = tokenizer, .text = &text};
    pthread_t thread;
    int64_t before = rig_loops, loops = 0;
    while (text.n < bytes) {
        const char *word = between[rig_chance(&seed, sizeof between / sizeof *between)];
        char letters[8];
        const size_t n = 1 + rig_chance(&seed, 6);
        for (size_t k = 0; k < n; k++)
            letters[k] = (char)((k > 0 ? 'a' : rig_chance(&seed, 2) ? 'A' : 'a') + (char)rig_chance(&seed, 26));
        ck_assert_int_eq(weft_bytes_put(&text, letters, n), WEFT_OK);
        ck_assert_int_eq(weft_bytes_put(&text, word, strlen(word)), WEFT_OK);
    }
    ids = rig_encode(tokenizer, text.data, text.n, 0);
    loops = rig_loops;
    ck_assert_int_eq(pthread_create(&thread, NULL, rig_encode_apart, &other), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(rig_loops, loops);
    ck_assert_uint_eq(ids.n, other.ids.n);
    ck_assert_int_eq(memcmp(ids.data, other.ids.data, ids.n), 0);
    weft_bytes_free(&ids);
    weft_bytes_free(&other.ids);
    weft_bytes_free(&text);
    return loops > before;
}

#endif
