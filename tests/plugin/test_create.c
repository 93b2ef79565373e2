/* A plugin's create may start a library, so the host checks process-wide state after it, as after a load. Runs each
 * kind's create with a prepended action, in a run as opened by the host. */
#include "suite.h"
#include "workshop.h"

#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include "golden.h"
#include "run/engine.h"
#include "plugin/enter.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* the signatures of slots */

/* ---- a run with one replaced create ---- */

static void (*before_create)(void);
static weft_status (*create_fails)(weft_error *err); /* NULL: calls the real one */
static const weft_device_plugin *real_device;
static const weft_optimizer_plugin *real_optimizer;
static const weft_model_plugin *real_model;
static const weft_tokenizer_plugin *real_tokenizer;
static int lives; /* instances that are created and not destroyed */

/* The replaced create of each kind: runs the action first, and counts instances. */
#define MEDDLE(call)                                                                                                   \
    weft_status status;                                                                                                \
    if (before_create != NULL) before_create();                                                                        \
    status = create_fails != NULL ? create_fails(err) : (call);                                                        \
    lives += status == WEFT_OK && create_fails == NULL;                                                                \
    return status

static weft_status device_create(weft_device **out, const weft_host *host, const void *config, int32_t index,
                                 weft_error *err) {
    MEDDLE(real_device->create(out, host, config, index, err));
}
static void device_destroy(weft_device *device) {
    lives--;
    real_device->destroy(device);
}
static weft_status optimizer_create(weft_optimizer **out, const weft_host *host, const void *config, weft_error *err) {
    MEDDLE(real_optimizer->create(out, host, config, err));
}
static void optimizer_destroy(weft_optimizer *optimizer) {
    lives--;
    real_optimizer->destroy(optimizer);
}
static weft_status model_create(weft_model **out, const weft_host *host, const void *config,
                                const weft_model_source *source, weft_error *err) {
    MEDDLE(real_model->create(out, host, config, source, err));
}
static void model_destroy(weft_model *model) {
    lives--;
    real_model->destroy(model);
}
static weft_status tokenizer_create(weft_tokenizer **out, const weft_host *host, const void *config,
                                    const char *directory, weft_error *err) {
    MEDDLE(real_tokenizer->create(out, host, config, directory, err));
}
static void tokenizer_destroy(weft_tokenizer *tokenizer) {
    lives--;
    real_tokenizer->destroy(tokenizer);
}

/* Copies of a loaded plugin and its table, for the modified part. */
static struct {
    weft_loaded loaded;
    weft_plugin plugin;
    weft_device_plugin device;
    weft_optimizer_plugin optimizer;
    weft_model_plugin model;
    weft_tokenizer_plugin tokenizer;
} copy;

#define MEDDLE_WITH(kind)                                                                                              \
    real_##kind = weft_loaded_table(run->parts[part].loaded, kind);                                                    \
    copy.kind = *real_##kind;                                                                                          \
    copy.kind.create = kind##_create;                                                                                  \
    copy.kind.destroy = kind##_destroy;                                                                                \
    copy.plugin.table = &copy.kind

static void meddle_with(weft_run *run, int32_t part) {
    copy.loaded = *run->parts[part].loaded;
    copy.plugin = *copy.loaded.plugin;
    copy.loaded.plugin = &copy.plugin;
    if (part == WEFT_PART_DEVICE) {
        MEDDLE_WITH(device);
    } else if (part == WEFT_PART_OPTIMIZER) {
        MEDDLE_WITH(optimizer);
    } else if (part == WEFT_PART_MODEL) {
        MEDDLE_WITH(model);
    } else {
        MEDDLE_WITH(tokenizer);
    }
    run->parts[part].loaded = &copy.loaded;
}

/* Opens a golden model's run up to the modified part, and closes it again. */
static weft_status open_with(int32_t part, weft_error *err) {
    char path[4096], model[4200], tokenizer[4200];
    const char *overrides[] = {model, "model.plugin=llama", tokenizer};
    const uint32_t needs = WEFT_NEEDS_ALL & ~WEFT_NEEDS(WEFT_PART_DATA);
    weft_run *run = NULL;
    weft_engine *engine = NULL;
    weft_text text = {0};
    weft_status status = WEFT_OK;
    golden_path(path, sizeof path, "llama-tied");
    (void)snprintf(model, sizeof model, "model.path=%s", path);
    golden_path(path, sizeof path, "tokenizer/sp-bpe");
    (void)snprintf(tokenizer, sizeof tokenizer, "tokenizer.path=%s", path);
    ck_assert_msg(weft_run_open(&run, NULL, overrides, 3, needs, err) == WEFT_OK, "%s", err->text);
    meddle_with(run, part);
    status = part == WEFT_PART_TOKENIZER ? weft_text_open(&text, run, err) : weft_engine_open(&engine, run, NULL, err);
    weft_engine_close(engine);
    weft_text_close(&text);
    weft_run_close(run);
    ck_assert_int_eq(lives, 0); /* instances created before the failure are destroyed */
    return status;
}

static const struct {
    int32_t part;
    const char *name;
} kinds[] = {{WEFT_PART_DEVICE, "device:cpu ("},
             {WEFT_PART_OPTIMIZER, "optimizer:adamw ("},
             {WEFT_PART_MODEL, "model:llama ("},
             {WEFT_PART_TOKENIZER, "tokenizer:bpe ("}};

/* ---- actions ---- */

#ifdef __x86_64__
static void flush_small_numbers(void) {
    _mm_setcsr(_mm_getcsr() | 0x8040u);
}
static void round_upward(void) {
    _mm_setcsr(_mm_getcsr() | 0x4000u);
}
#endif
static void take_a_locale(void) {
    ck_assert_ptr_nonnull(setlocale(LC_ALL, "C.UTF-8"));
}
static void open_the_mask(void) {
    (void)umask(0);
}
static void leave_the_directory(void) {
    ck_assert_int_eq(chdir("/"), 0);
}

static const struct {
    void (*act)(void);
    const char *sentence;
} acts[] = {
#ifdef __x86_64__
    {flush_small_numbers, "changed the floating-point mode while its create ran"},
    {flush_small_numbers, "small numbers become zero"},
    {round_upward, "changed the floating-point mode while its create ran"},
#endif
    {take_a_locale, "changed the locale while its create ran"},
    {open_the_mask, "changed the umask while its create ran"},
    {leave_the_directory, "changed the working directory while its create ran"},
};
#define N_ACTS (int)(sizeof acts / sizeof acts[0])

TESTS(what_is_the_hosts_is_put_back_and_the_plugin_refused, N_ACTS) {
    char before[WORKSHOP_STATE], after[WORKSHOP_STATE];
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        weft_error err = WEFT_ERROR_INIT;
        before_create = acts[_i].act;
        workshop_state(before);
        ck_assert_int_eq(open_with(kinds[k].part, &err), WEFT_E_PLUGIN);
        workshop_state(after);
        ck_assert_str_eq(before, after);
        ck_assert_msg(strncmp(err.text, kinds[k].name, strlen(kinds[k].name)) == 0, "%s: %s", kinds[k].name, err.text);
        ck_assert_ptr_nonnull(strstr(err.text, ".so) changed"));
        ck_assert_msg(strstr(err.text, acts[_i].sentence) != NULL, "%s: %s", acts[_i].sentence, err.text);
        before_create = NULL;
        err.text[0] = '\0';
        ck_assert_msg(open_with(kinds[k].part, &err) == WEFT_OK, "%s", err.text);
    }
}

/* ---- signal handlers: restored, and not an error ---- */

static void own_handler(int number) {}
static void take_signals(void) {
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGUSR1, own_handler);
}

TEST(signal_handlers_are_put_back) {
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct sigaction now;
        weft_error err = WEFT_ERROR_INIT;
        (void)signal(SIGTERM, own_handler);
        before_create = take_signals;
        ck_assert_msg(open_with(kinds[k].part, &err) == WEFT_OK, "%s", err.text);
        ck_assert_int_eq(sigaction(SIGTERM, NULL, &now), 0);
        ck_assert(now.sa_handler == own_handler);
        ck_assert_int_eq(sigaction(SIGUSR1, NULL, &now), 0);
        ck_assert(now.sa_handler == SIG_DFL);
    }
}

/* ---- other slots ---- */

typedef struct slots {
    int32_t unused;
    weft_status (*prepare)(int32_t value, weft_error *err);
    int32_t (*hp_size)(int32_t value);
} slots;

static void (*in_call)(void);

static weft_status do_prepare(int32_t value, weft_error *err) {
    in_call();
    return WEFT_OK;
}
static int32_t do_hp_size(int32_t value) {
    in_call();
    return value;
}
static void nothing(void) {}
static void open_the_mask_for_a_moment(void) {
    (void)umask(umask(0));
}

static const struct {
    void (*act)(void);
    const char *changed;
} call_acts[] = {
#ifdef __x86_64__
    {flush_small_numbers, "changed the floating-point mode while its "},
    {round_upward, "changed the floating-point mode while its "},
#endif
    {open_the_mask, "changed the umask while its "},
    {nothing, NULL},
    {open_the_mask_for_a_moment, NULL},
};

/* A call that can fail reports the change; after one that cannot fail, the next one reports it. */
TESTS(other_calls_change_neither_mode_nor_umask, LENGTH(call_acts)) {
    const slots table = {0, do_prepare, do_hp_size};
    const char *changed = call_acts[_i].changed;
    char before[WORKSHOP_STATE], after[WORKSHOP_STATE];
    for (int asks = 0; asks < 2; asks++) {
        weft_error err = WEFT_ERROR_INIT;
        weft_status status = WEFT_OK;
        int32_t answer = 0;
        workshop_state(before);
        in_call = call_acts[_i].act;
        if (asks) WEFT_PLUGIN_QUERY(answer, &table, hp_size, 7);
        else WEFT_PLUGIN_CALL(status, &table, prepare, &err, 7);
        workshop_state(after);
        ck_assert_str_eq(before, after);
        in_call = nothing;
        if (asks) WEFT_PLUGIN_CALL(status, &table, prepare, &err, 7);
        if (asks) ck_assert_int_eq(answer, 7);
        ck_assert_int_eq(status, changed != NULL ? WEFT_E_PLUGIN : WEFT_OK);
        if (changed != NULL) ck_assert_ptr_nonnull(strstr(err.text, changed));
        if (changed != NULL) ck_assert_ptr_nonnull(strstr(err.text, asks ? "hp_size" : "prepare"));
        err.text[0] = '\0';
        WEFT_PLUGIN_CALL(status, &table, prepare, &err, 7);
        ck_assert_int_eq(status, WEFT_OK); /* only once */
    }
}

/* ---- a failing create ---- */

static weft_status fail_silently(weft_error *err) {
    return WEFT_E_SYSTEM;
}
static weft_status fail_loudly(weft_error *err) {
    return weft_error_set(err, WEFT_E_USER, "there is no such thing");
}

static weft_status make_nothing(weft_error *err) {
    return WEFT_OK;
}

/* Its own message comes first, whatever it changed. */
TEST(a_failure_is_told_before_what_was_changed) {
    char before[WORKSHOP_STATE], after[WORKSHOP_STATE];
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        weft_error err = WEFT_ERROR_INIT;
        before_create = open_the_mask;
        create_fails = fail_loudly;
        workshop_state(before);
        ck_assert_int_eq(open_with(kinds[k].part, &err), WEFT_E_USER);
        workshop_state(after);
        ck_assert_str_eq(before, after);
        ck_assert_msg(strstr(err.text, "there is no such thing") != NULL, "%s", err.text);
        ck_assert_ptr_null(strstr(err.text, "umask"));
    }
}

TEST(a_failure_without_a_sentence_gets_one) {
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        weft_error err = WEFT_ERROR_INIT;
        create_fails = fail_silently;
        ck_assert_int_eq(open_with(kinds[k].part, &err), WEFT_E_PLUGIN);
        ck_assert_msg(strstr(err.text, "failed in its create without an error message") != NULL, "%s", err.text);
        ck_assert_msg(strstr(err.text, kinds[k].name) != NULL, "%s", err.text);
    }
}

TEST(a_create_that_makes_nothing_is_named) {
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        weft_error err = WEFT_ERROR_INIT;
        create_fails = make_nothing;
        ck_assert_int_eq(open_with(kinds[k].part, &err), WEFT_E_PLUGIN);
        ck_assert_msg(strncmp(err.text, kinds[k].name, strlen(kinds[k].name)) == 0, "%s", err.text);
        ck_assert_msg(strstr(err.text, "it returned WEFT_OK from its create without an object") != NULL, "%s",
                      err.text);
    }
}

int main(void) {
    TCase *tests = tcase_create("create");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
    return run_tests(tests);
}
