/* Retention of checkpoints, and failures of the disk or the device during a save. */
#include "rig.h"

#include "run/staging.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

/* Replaces the C library's function: optionally simulates a file system that cannot exchange names. */
static bool no_exchange;
int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned int flags) {
    if (no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
}

/* Optionally simulates a file system with this many free bytes. */
static int64_t bytes_left = -1;
int statvfs(const char *path, struct statvfs *about) {
    int (*real_one)(const char *, struct statvfs *) = NULL;
    *(void **)&real_one = dlsym(RTLD_NEXT, "statvfs");
    if (real_one(path, about) != 0) return -1;
    if (bytes_left >= 0) {
        about->f_frsize = 1;
        about->f_bavail = (fsblkcnt_t)bytes_left;
    }
    return 0;
}

/* Returns the sorted names in a directory except . and .. , each followed by a blank. */
static const char *names_in(const char *path) {
    static char text[2048];
    struct dirent **found = NULL;
    const int n = scandir(path, &found, NULL, alphasort);
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (strcmp(found[i]->d_name, ".") != 0 && strcmp(found[i]->d_name, "..") != 0) {
            strcat(text, found[i]->d_name);
            strcat(text, " ");
        }
        free(found[i]);
    }
    free(found);
    return text;
}

static void save_as(rig *run, uint64_t step) {
    run->state.step = step;
    rig_save(run);
}

static void retain(uint64_t step, int64_t keep, uint64_t best) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(weft_checkpoint_retain(rig_directory(), step, keep, best, NULL, &err), err);
}

TEST(the_newest_and_the_best_stay) {
    rig run;
    rig_start(&run, NULL);
    for (uint64_t step = 8; step <= 12; step++) save_as(&run, step);
    retain(12, 9, 0);
    ck_assert_str_eq(names_in(rig_directory()), "step-10 step-11 step-12 step-8 step-9 ");
    retain(12, 3, 9);
    ck_assert_str_eq(names_in(rig_directory()), "step-10 step-11 step-12 step-9 ");
    retain(12, 2, 9);
    ck_assert_str_eq(names_in(rig_directory()), "step-11 step-12 step-9 ");
    retain(12, 1, 12);
    ck_assert_str_eq(names_in(rig_directory()), "step-12 ");
    retain(12, 1, 0);
    ck_assert_str_eq(names_in(rig_directory()), "step-12 ");
    rig_close(&run);
}

TEST(broken_ones_do_not_push_whole_ones_out) {
    rig run;
    rig_start(&run, NULL);
    for (uint64_t step = 1; step <= 4; step++) save_as(&run, step);
    save_as(&run, 20);
    ck_assert_int_eq(unlink(rig_file(4, "manifest.json")), 0);
    ck_assert_int_eq(truncate(rig_file(3, "model.safetensors"), 99), 0);
    retain(4, 2, 0);
    ck_assert_str_eq(names_in(rig_directory()), "step-1 step-2 step-20 step-3 step-4 ");
    retain(4, 1, 0); /* 20 is ahead of the run: a resume skipped it */
    ck_assert_str_eq(names_in(rig_directory()), "step-2 step-20 step-3 step-4 ");
    retain(20, 1, 0);
    ck_assert_str_eq(names_in(rig_directory()), "step-20 ");
    rig_close(&run);
}

TEST(only_checkpoints_are_removed) {
    rig run;
    rig_start(&run, NULL);
    save_as(&run, 1);
    save_as(&run, 2);
    write_bytes(scratch_path("out/checkpoints/notes.txt"), "x", 1);
    ck_assert_int_eq(mkdir(scratch_path("out/checkpoints/step-one"), 0777), 0);
    ck_assert_int_eq(mkdir(scratch_path("out/checkpoints/.step-one.tmp"), 0777), 0);
    ck_assert_int_eq(mkdir(scratch_path("out/checkpoints/.step-3.tmp"), 0777), 0);
    ck_assert_int_eq(symlink(rig_file(2, ""), scratch_path("out/checkpoints/.step-5.tmp")), 0);
    retain(2, 1, 0);
    ck_assert_str_eq(names_in(rig_directory()), ".step-one.tmp notes.txt step-2 step-one ");
    ck_assert_uint_eq(rig_newest(), 2); /* links are removed, not followed */
    rig_close(&run);
}

/* Check writes at each assertion, so no assertion may run under the limit. */
static bool limit_files(rlim_t bytes) {
    struct rlimit limit;
    (void)signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    limit.rlim_cur = bytes;
    return setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

/* Size of all files in a directory tree. */
static int64_t total;
static int count_file(const char *path, const struct stat *about, int kind, struct FTW *where) {
    if (kind == FTW_F) total += about->st_size;
    return 0;
}

static int64_t model_alone(const rig *run) {
    weft_error err = WEFT_ERROR_INIT;
    bytes_left = -1;
    total = 0;
    ck_assert_ok(rig_try_save_model(run, scratch_path("out/model"), &run->session->text, &err), err);
    ck_assert_int_eq(nftw(scratch_path("out/model"), count_file, 8, FTW_PHYS), 0);
    return total;
}

TEST(too_little_space_is_reported_before_any_write) {
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_start(&run, "checkpoint.dtype=bf16", NULL);
    save_as(&run, 2);
    ck_assert_int_eq(nftw(rig_file(2, ""), count_file, 8, FTW_PHYS), 0);
    bytes_left = total; /* the size of such a checkpoint, without the safety margin */
    run.state.step = 4;
    ck_assert_int_eq(rig_try_save(&run, &err), WEFT_E_SYSTEM);
    ck_assert_says(err, "step-4 needs ");
    bytes_left = 1000;
    ck_assert_int_eq(rig_try_save_model(&run, scratch_path("out/model"), &run.session->text, &err), WEFT_E_SYSTEM);
    ck_assert_says(err, "model needs ");
    ck_assert_str_eq(names_in(rig_directory()), "step-2 ");
    ck_assert_str_eq(names_in(scratch_path("out")), "checkpoints ");
    bytes_left = total + (128 << 10); /* the margin is not much larger */
    rig_save(&run);
    bytes_left = model_alone(&run) + (64 << 10);
    ck_assert_ok(rig_try_save_model(&run, scratch_path("out/model"), &run.session->text, &err), err);
    bytes_left = -1;
    rig_close(&run);
    ck_assert_int_eq(weft_space_check(scratch, "step-50", INT64_C(1) << 60, &err), WEFT_E_SYSTEM);
    ck_assert_says(err, "step-50 needs 1048576");
    ck_assert_says(err, " are free. Fix: free some space");
    ck_assert_ok(weft_space_check(scratch, "step-50", 4096, &err), err);
    ck_assert_int_eq(weft_space_check(scratch_path("nowhere"), "step-50", 1, &err), WEFT_E_SYSTEM);
    ck_assert_says(err, "nowhere");
}

/* A device that fails at its n-th read. */
static weft_device_plugin failing;
static const weft_device_plugin *real;
static int reads_left;

static weft_status failing_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes,
                                weft_error *err) {
    if (reads_left-- == 0) return weft_error_set(err, WEFT_E_DEVICE, "the device is gone");
    return real->read(device, s, to, from, bytes, err);
}

TESTS(a_device_that_fails_leaves_what_was_saved, 4) {
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_start(&run, "checkpoint.dtype=bf16", NULL);
    save_as(&run, 2);
    real = run.session->engine->kernels;
    failing = *real;
    failing.host_view = NULL;
    failing.read = failing_read;
    run.session->engine->kernels = &failing;
    reads_left = _i * 17;
    run.state.step = 4;
    ck_assert_int_eq(rig_try_save(&run, &err), WEFT_E_DEVICE);
    ck_assert_says(err, "the device is gone");
    run.session->engine->kernels = real;
    ck_assert_str_eq(names_in(rig_directory()), "step-2 ");
    ck_assert_uint_eq(rig_newest(), 2);
    rig_close(&run);
}

TEST(a_file_in_the_way_is_a_sentence) {
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    ck_assert_int_eq(mkdir(scratch_path("out"), 0777), 0);
    write_bytes(scratch_path("out/checkpoints"), "x", 1);
    rig_start(&run, NULL);
    ck_assert_int_eq(rig_try_save(&run, &err), WEFT_E_SYSTEM);
    ck_assert_says(err, "a file of that name exists");
    ck_assert_int_eq(rig_try_save_model(&run, "", &run.session->text, &err), WEFT_E_USER);
    rig_close(&run);
}

/* Without a system call that exchanges names, a crash can leave only the old model, under this name. */
TEST(a_model_that_was_moved_aside_comes_back_first) {
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_start(&run, NULL);
    ck_assert_ok(rig_try_save_model(&run, scratch_path("out/model"), &run.session->text, &err), err);
    ck_assert_int_eq(rename(scratch_path("out/model"), scratch_path("out/.model.old")), 0);
    limit_files(1000);
    ck_assert_int_eq(rig_try_save_model(&run, scratch_path("out/model"), &run.session->text, &err), WEFT_E_SYSTEM);
    limit_files(RLIM_INFINITY);
    ck_assert_str_eq(names_in(scratch_path("out")), "model ");
    ck_assert_int_eq(mkdir(scratch_path("out/.model.old"), 0777), 0);
    ck_assert_ok(rig_try_save_model(&run, scratch_path("out/model"), &run.session->text, &err), err);
    ck_assert_str_eq(names_in(scratch_path("out")), "model ");
    rig_close(&run);
}

/* Names are exchanged, or moved where the file system cannot exchange them. */
TESTS(a_step_that_is_saved_again_replaces_the_old_one, 2) {
    char hash[65];
    rig run;
    rig_start(&run, NULL);
    rig_train(&run, 1);
    save_as(&run, 2);
    no_exchange = _i == 1;
    rig_train(&run, 4);
    save_as(&run, 2);
    strcpy(hash, rig_hash(&run));
    ck_assert_str_eq(names_in(rig_directory()), "step-2 ");
    rig_resume(&run);
    ck_assert_str_eq(rig_hash(&run), hash);
    rig_close(&run);
}

static const char *leading_away(const weft_tokenizer *tokenizer, uint32_t i) {
    return i == 0 ? "../run.ini" : NULL;
}

TEST(a_tokenizer_cannot_name_files_elsewhere) {
    weft_tokenizer_plugin plugin;
    weft_text text;
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_start(&run, NULL);
    plugin = *run.session->text.plugin;
    plugin.file = leading_away;
    text = run.session->text;
    text.plugin = &plugin;
    ck_assert_int_eq(rig_try_save_model(&run, scratch_path("out/model"), &text, &err), WEFT_E_PLUGIN);
    ck_assert_says(err, "'../run.ini', which is not a plain name");
    plugin.file = NULL;
    ck_assert_ok(rig_try_save_model(&run, scratch_path("out/model"), &text, &err), err);
    ck_assert_str_eq(names_in(scratch_path("out/model")), "config.json model.safetensors ");
    rig_close(&run);
}

static const char *configuration(const weft_tokenizer *tokenizer, uint32_t i) {
    return i == 0 ? "config.json" : NULL;
}

TEST(a_tokenizer_does_not_replace_what_the_weights_brought) {
    weft_tokenizer_plugin plugin;
    weft_text text;
    char *json = NULL;
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_start(&run, "checkpoint.dtype=bf16", NULL);
    plugin = *run.session->text.plugin;
    plugin.file = configuration;
    text = run.session->text;
    text.plugin = &plugin;
    ck_assert_ok(rig_try_save_model(&run, scratch_path("out/model"), &text, &err), err);
    json = read_bytes(scratch_path("out/model/config.json"), NULL);
    ck_assert_ptr_nonnull(strstr(json, "\"bfloat16\""));
    free(json);
    rig_close(&run);
}

int main(void) {
    return run_tests(test_case("disk", 300, rig_make, scratch_remove));
}
