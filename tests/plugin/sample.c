/* A small optimizer that test_loader.c compiles repeatedly, each time with another -D that breaks one rule. Written
 * without WEFT_PLUGIN where that would not permit it. */
#include <weft/optimizer.h>

#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

/* ---- keys, valid by default ---- */
typedef struct sample_config {
    double lr;
    int64_t way;
} sample_config;

#ifndef SAMPLE_LR /* offset, type, name, default, range, help of the first row */
#define SAMPLE_LR(row) row(0, WEFT_KEY_F64, "lr", "1e-3", "[0,1]", "Step size.")
#endif
#ifndef SAMPLE_N_KEYS
#define SAMPLE_N_KEYS 2
#endif
#define ROW(offset, type, name, fallback, range, help)                                                                 \
    { (uint32_t)sizeof(weft_key), 0, type, offset, name, fallback, range, "", help }
static const weft_key sample_keys[] = {SAMPLE_LR(ROW), ROW(8, WEFT_KEY_ENUM, "way", "up", "up,down", "Direction.")};

/* ---- table ---- */
struct weft_optimizer {
    const weft_host *host;
};

WEFT_HP(sample_hp, float lr;)
WEFT_ELEMENTWISE(sample_update, sample_hp, 0, w -= hp->lr * g;)

static weft_status sample_create(weft_optimizer **out, const weft_host *host, const void *config, weft_error *err) {
#ifdef IN_CREATE
    IN_CREATE;
#endif
    *out = host->alloc(host, sizeof **out, 8);
    (*out)->host = host;
    return WEFT_OK;
}

static void sample_destroy(weft_optimizer *optimizer) {
    optimizer->host->release(optimizer->host, optimizer);
}

static const weft_state_slot *sample_states(const weft_optimizer *optimizer, int64_t *n_states, uint32_t *stride) {
    *n_states = 0;
    *stride = sizeof(weft_state_slot);
    return NULL;
}

static int64_t sample_hp_size(const weft_optimizer *optimizer) {
    return (int64_t)sizeof(sample_hp);
}

static weft_status sample_prepare(weft_optimizer *optimizer, void *hp, const weft_step_info *step, weft_error *err) {
#ifdef IN_PREPARE
    IN_PREPARE;
#endif
    ((sample_hp *)hp)->lr = (float)step->lr;
    return WEFT_OK;
}

static const weft_elementwise *sample_kernel(const weft_optimizer *optimizer) {
    return &sample_update;
}

#ifndef SAMPLE_PREPARE
#define SAMPLE_PREPARE sample_prepare
#endif
#ifndef SAMPLE_TABLE_SIZE
#define SAMPLE_TABLE_SIZE sizeof(weft_optimizer_plugin)
#endif
static const weft_optimizer_plugin sample_table = {(uint32_t)SAMPLE_TABLE_SIZE,
                                                   0,
                                                   sample_create,
                                                   sample_destroy,
                                                   sample_states,
                                                   sample_hp_size,
                                                   SAMPLE_PREPARE,
                                                   sample_kernel,
                                                   NULL};
weft_status (*const sample_keep)(weft_optimizer *, void *, const weft_step_info *, weft_error *) = sample_prepare;

/* ---- works ---- */
#ifdef IN_WORKS
static weft_status sample_works(const weft_host *host, weft_error *err) {
    IN_WORKS;
}
#define SAMPLE_WORKS sample_works
#else
#define SAMPLE_WORKS NULL
#endif

/* ---- the two exports ---- */
#ifndef SAMPLE_NOTE
#define SAMPLE_NOTE WEFT_NOTE WEFT_NOTE_PLUGIN(optimizer, 1, "sample", "1.0")
#endif
#ifndef SAMPLE_KIND
#define SAMPLE_KIND "optimizer"
#endif
#ifndef SAMPLE_ID
#define SAMPLE_ID "sample"
#endif
#ifndef SAMPLE_N
#define SAMPLE_N 1
#endif

#ifndef SAMPLE_STRIDE
#define SAMPLE_STRIDE sizeof(weft_plugin)
#endif

WEFT_EXPORT extern const char weft_plugin_note[];
const char weft_plugin_note[] = SAMPLE_NOTE;

WEFT_EXPORT weft_plugin_entry_fn weft_plugin_entry;
const weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) {
    static const weft_plugin plugins[] = {
        {(uint32_t)sizeof(weft_plugin), 0, SAMPLE_KIND, SAMPLE_ID, "1.0", "A sample.", 1, (uint32_t)sizeof(weft_key),
         SAMPLE_N_KEYS, sample_keys, sizeof(sample_config), NULL, &sample_table, SAMPLE_WORKS},
        {(uint32_t)sizeof(weft_plugin), 0, "optimizer", "second", "2.0", "Another sample.", 1,
         (uint32_t)sizeof(weft_key), 2, sample_keys, sizeof(sample_config), NULL, &sample_table, NULL}};
    static const weft_plugin_list list = {(uint32_t)sizeof(weft_plugin_list), 0, SAMPLE_N, (uint32_t)SAMPLE_STRIDE,
                                          plugins};
#ifdef IN_ENTRY
    IN_ENTRY;
#endif
    return &list;
}

#ifdef AT_LOAD
__attribute__((constructor)) static void at_load(void) {
    AT_LOAD;
}
#endif

#ifdef EXTRA_EXPORT
WEFT_EXPORT extern int sample_extra;
int sample_extra = 7;
#endif
