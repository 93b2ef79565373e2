/* Plugins that fail during a run: without an error message, and by ending the process. The error must name the called
 * plugin, not one that ran before. */
#include "plugin/workshop.h"
#include "suite.h"

#include "plugin/crash.h"
#include "run/session.h"

#include <sys/mman.h>
#include <sys/wait.h>

/* Runs one step with the model of the project; optimizer: an id or a file. */
static weft_status take_step(const char *optimizer, weft_error *err) {
    char model[PATH_MAX], data[PATH_MAX], plugin[PATH_MAX + 30];
    const char *overrides[] = {model,
                               data,
                               plugin,
                               "model.plugin=llama",
                               "data.document=line",
                               "data.context=16",
                               "train.steps=1",
                               "train.global_batch=2"};
    weft_session *session = NULL;
    weft_step_result result;
    weft_status status = WEFT_OK;
    (void)snprintf(model, sizeof model, "model.path=%s/configs/chess/base", workshop_source());
    (void)snprintf(data, sizeof data, "data.path=%s/configs/chess/heldout.txt", workshop_source());
    (void)snprintf(plugin, sizeof plugin, "optimizer.plugin=%s", optimizer);
    status = weft_session_open(&session, NULL, overrides, LENGTH(overrides), WEFT_SESSION_PROFILE, NULL, err);
    if (status == WEFT_OK) status = weft_session_start(session, err);
    if (status == WEFT_OK) status = weft_engine_load(session->engine, err);
    if (status == WEFT_OK) status = weft_stepper_train(session->stepper, &result, 1, 0.01, 1.0, err);
    weft_session_close(session);
    return status;
}

/* ---- failure without a message ---- */

static weft_status fail_silently(void) {
    return WEFT_E_DEVICE;
}

/* Stores the function at `function` in a slot of a plugin's table, which is in write-protected memory. Slots replaced
 * by fail_silently return a weft_status; their arguments do not matter. */
static void break_slot(const char *kind, const char *id, size_t offset, const void *function) {
    const weft_plugins_settings none = {.path = NULL};
    weft_plugins *plugins = NULL;
    const weft_loaded *loaded = NULL;
    weft_error err = WEFT_ERROR_INIT;
    uintptr_t slot = 0, page = 0;
    ck_assert_int_eq(weft_plugins_create(&plugins, &none, &err), WEFT_OK);
    ck_assert_ok(weft_plugins_get(plugins, &loaded, kind, id, &err), err);
    weft_plugins_destroy(plugins);
    slot = (uintptr_t)loaded->plugin->table + offset;
    page = slot & ~(uintptr_t)4095;
    ck_assert_int_eq(mprotect((void *)page, slot + sizeof(void *) - page, PROT_READ | PROT_WRITE), 0);
    memcpy((void *)slot, function, sizeof(void *));
}

static weft_status fail_alloc(weft_device *device, weft_buffer **out, int64_t bytes, weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "There is no more.");
}

#define BROKEN(kind, id, slot)                                                                                         \
    { #kind, id, #slot, offsetof(weft_##kind##_plugin, slot) }
static const struct {
    const char *kind, *id, *slot;
    size_t offset;
} broken[] = {
    BROKEN(data, "text", create),       BROKEN(data, "text", shape),         BROKEN(data, "text", micro_batch),
    BROKEN(device, "cpu", alloc),       BROKEN(device, "cpu", write),        BROKEN(device, "cpu", fill),
    BROKEN(device, "cpu", matmul),      BROKEN(device, "cpu", attention),    BROKEN(device, "cpu", add),
    BROKEN(device, "cpu", square_sum),  BROKEN(device, "cpu", clip),         BROKEN(device, "cpu", update),
    BROKEN(device, "cpu", read),        BROKEN(optimizer, "adamw", prepare), BROKEN(tokenizer, "bpe", encode),
    BROKEN(model, "llama", create),     BROKEN(model, "llama", declare),     BROKEN(policy, "block", units),
    BROKEN(strategy, "single", compile)};

/* True for slots called only in training, which the message mentions. */
static bool is_of_a_mode(const char *slot) {
    static const char *const others[] = {"create", "declare", "units", "alloc", "write", "fill", "read", "encode"};
    for (size_t i = 0; i < LENGTH(others); i++)
        if (strcmp(slot, others[i]) == 0) return false;
    return true;
}

TESTS(a_failure_without_a_sentence_names_the_plugin, LENGTH(broken)) {
    weft_error err = WEFT_ERROR_INIT;
    const char *const of = strcmp(broken[_i].slot, "update") == 0 ? " of optimizer:adamw (" : "";
    char name[60], slot[120], file[80];
    weft_status (*const function)(void) = fail_silently;
    break_slot(broken[_i].kind, broken[_i].id, broken[_i].offset, &function);
    ck_assert_int_eq(take_step("adamw", &err), WEFT_E_PLUGIN);
    ck_assert_int_eq(err.code, WEFT_E_PLUGIN);
    (void)snprintf(name, sizeof name, "%s:%s (", broken[_i].kind, broken[_i].id);
    (void)snprintf(file, sizeof file, "/weft-%s-%s.so)%s: it ", broken[_i].kind, broken[_i].id,
                   is_of_a_mode(broken[_i].slot) ? ", in training" : "");
    (void)snprintf(slot, sizeof slot, "it failed in its %s%s", broken[_i].slot, of);
    ck_assert_msg(strstr(err.text, name) != NULL && strstr(err.text, slot) != NULL, "%s", err.text);
    ck_assert_says(err, " without an error message, which is a defect of it");
    ck_assert_msg(is_of_a_mode(broken[_i].slot) ? strstr(err.text, file) != NULL : strstr(err.text, ".so)") != NULL,
                  "%s", err.text);
}

TEST(an_undamaged_run_succeeds) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(take_step("adamw", &err), err);
}

TEST(too_little_memory_says_what_to_lower) {
    weft_status (*const function)(weft_device *, weft_buffer **, int64_t, weft_error *) = fail_alloc;
    weft_error err = WEFT_ERROR_INIT;
    break_slot("device", "cpu", offsetof(weft_device_plugin, alloc), &function);
    ck_assert_int_eq(take_step("adamw", &err), WEFT_E_MEMORY);
    ck_assert_str_eq(err.text, "memory for parameters: There is no more. Fix: lower [train] micro_batch (1 now) or "
                               "[data] context, or set [train] "
                               "activation_checkpointing = yes; weft plan shows the memory.");
}

/* ---- end of the process ---- */

static int take_one_step(const char *path) {
    return take_step(path, NULL) == WEFT_OK ? 0 : 3;
}

/* Reads stderr of a child that runs a step with the sample optimizer. */
static void child_says(char *out, size_t n, int *wait_status, const char *flags) {
    workshop_child(out, n, wait_status, flags, take_one_step);
}

TEST(an_abort_in_a_step_names_the_plugin_that_was_called) {
    char text[4096];
    int status = 0;
    child_says(text, sizeof text, &status, "-DIN_PREPARE='abort()'");
    ck_assert_msg(strstr(text, "weft: signal 6 (abort) in libc.so.6, in optimizer:sample prepare (sha256 ") != NULL,
                  "%s", text);
    ck_assert_msg(strstr(text, "), in training, step 1\n") != NULL, "%s", text);
    ck_assert_ptr_null(strstr(text, "device")); /* its kernels ran before */
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "wait status %x", (unsigned)status);
}

/* A plugin's own thread has no recorded call, so its crash is attributed to the main thread's call. */
TEST(a_thread_counts_as_doing_what_the_main_thread_does) {
    char text[4096];
    int status = 0;
    child_says(text, sizeof text, &status,
               "-pthread -include pthread.h -DIN_PREPARE='pthread_t t; "
               "pthread_create(&t, 0, (void *(*)(void *))abort, 0); pthread_join(t, 0)'");
    ck_assert_msg(strstr(text, ", in optimizer:sample prepare (sha256 ") != NULL, "%s", text);
}

/* Runs the program with a plugin that exits with status 0. */
TEST(a_plugin_that_calls_exit_does_not_end_a_run_well) {
    static const struct {
        const char *flags, *sentence;
    } rows[] = {{"-DIN_PREPARE='exit(0)'", ".so) ended the process in its prepare, in training, at step 1: its"},
                {"-DIN_CREATE='exit(0)'", ".so) ended the process in its create: its work is not"},
                {"-DIN_ENTRY='exit(0)'", ".so ended the process: its work is not done"},
                {"-pthread -include pthread.h -DIN_PREPARE='pthread_exit(0)'",
                 ".so) ended the main thread in its prepare, in training, at step 1: its"},
                {"-include sys/syscall.h -include unistd.h -DIN_PREPARE='syscall(SYS_exit, 0)'",
                 ".so) ended the main thread in its prepare, in training, at step 1: its"}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        char name[64], command[4 * PATH_MAX], text[4096] = "";
        FILE *said = NULL;
        int status = 0;
#if defined(__SANITIZE_ADDRESS__)
        /* Unwinding the main thread does not clear AddressSanitizer's stack poisoning, which then causes false
         * reports. */
        if (strstr(rows[i].flags, "pthread_exit") != NULL) continue;
#endif
        (void)snprintf(name, sizeof name, "exit-%zu.so", i);
        (void)snprintf(
            command, sizeof command,
            "%s/weft train /dev/null model.plugin=llama model.path=%s/configs/chess/base optimizer.plugin=%s "
            "data.path=%s/configs/chess/heldout.txt data.context=16 data.document=line train.steps=1 "
            "run.out=%s/out-%zu 2>&1 >%s/log",
            getenv("WEFT_BUILD"), workshop_source(), workshop_build(name, rows[i].flags, NULL), workshop_source(),
            scratch, i, scratch);
        said = popen(command, "r");
        ck_assert_ptr_nonnull(said);
        (void)fread(text, 1, sizeof text - 1, said);
        status = pclose(said);
        ck_assert_msg(strstr(text, rows[i].sentence) != NULL, "%s", text);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 1, "wait status %x: %s", (unsigned)status, text);
    }
}

int main(void) {
    return run_tests(test_case("fault", 120, scratch_make, scratch_remove));
}
