/* An incomplete checkpoint is never used: with any damage the previous one is found, and the reason is logged. A
 * process killed during a save micro-batches either the old or the new state. */
#include "rig.h"

#include <signal.h>
#include <sys/wait.h>

static char two[65], four[65]; /* hashes of steps 2 and 4 */

static void setup(void) {
    rig_make();
    rig_two(two, four);
}

/* Flips a bit of the byte at a fraction of the file's length. */
static void flip(const char *path, double where) {
    size_t n = 0;
    char *bytes = read_bytes(path, &n);
    bytes[(size_t)(where * (double)(n - 1))] ^= 0x10;
    write_bytes(path, bytes, n);
    free(bytes);
}

static void cut(const char *path, long left) {
    struct stat about;
    ck_assert_int_eq(stat(path, &about), 0);
    ck_assert_int_eq(truncate(path, left >= 0 ? left : about.st_size + left), 0);
}

static void replace(const char *path, const char *from, const char *to) {
    const size_t from_bytes = strlen(from), to_bytes = strlen(to);
    size_t n = 0;
    char *bytes = read_bytes(path, &n), *at = memmem(bytes, n, from, from_bytes), *out = NULL;
    ck_assert_msg(at != NULL, "%s has no %s", path, from);
    out = malloc(n + to_bytes);
    memcpy(out, bytes, (size_t)(at - bytes));
    memcpy(out + (at - bytes), to, to_bytes);
    memcpy(out + (at - bytes) + to_bytes, at + from_bytes, n - from_bytes - (size_t)(at - bytes));
    write_bytes(path, out, n - from_bytes + to_bytes);
    free(out);
    free(bytes);
}

typedef enum how { FLIP, CUT, REMOVE, REPLACE, DIRECTORY } how;

static const struct {
    const char *file;
    how how;
    double where; /* of FLIP; bytes of CUT: negative from the end */
    const char *from, *to, *says;
} damages[] = {
    {"model.safetensors", FLIP, 0.7, 0, 0, "model.safetensors: tensor 'model."},
    {"model.safetensors", FLIP, 1.0, 0, 0, "SHA-256 differs"},
    {"model.safetensors", FLIP, 0.0, 0, 0, "model.safetensors: "},
    {"model.safetensors", CUT, -1, 0, 0, "model.safetensors: has"},
    {"model.safetensors", CUT, 0, 0, 0, "model.safetensors: has 0 bytes"},
    {"model.safetensors", REMOVE, 0, 0, 0, "model.safetensors: is missing"},
    {"model.safetensors", REPLACE, 0, "model.norm.weight", "model.norm.weighs", "model.safetensors: "},
    {"model.safetensors", REPLACE, 0, "\"pt\"", "\"pu\"", "model.safetensors: is not the file that was saved"},
    {"model.safetensors", DIRECTORY, 0, 0, 0, "model.safetensors: "},
    {"state/exp_avg.safetensors", FLIP, 0.9, 0, 0, "state/exp_avg.safetensors: tensor 'model."},
    {"state/exp_avg_sq.safetensors", CUT, -4, 0, 0, "state/exp_avg_sq.safetensors: has"},
    {"state/exp_avg_sq.safetensors", REMOVE, 0, 0, 0, "state/exp_avg_sq.safetensors: is missing"},
    {"state/run.json", FLIP, 0.5, 0, 0, "state/run.json: is not the file that was saved"},
    {"state/run.json", REPLACE, 0, "\"step\": 4", "\"step\": 3", "state/run.json: is not the file that was saved"},
    {"state/config.ini", FLIP, 0.5, 0, 0, "state/config.ini: is not the file that was saved"},
    {"config.json", FLIP, 0.3, 0, 0, "config.json: is not the file that was saved"},
    {"tokenizer.json", CUT, 100, 0, 0, "tokenizer.json: has 100 bytes"},
    {"manifest.json", REMOVE, 0, 0, 0, "manifest.json: cannot be opened"},
    {"manifest.json", CUT, -20, 0, 0, "manifest.json:"},
    {"manifest.json", CUT, 0, 0, 0, "is not JSON"},
    {"manifest.json", REPLACE, 0, "\"state/run.json\"", "\"state/run.yaml\"", "state/run.yaml: is missing"},
    {"manifest.json", REPLACE, 0, "\"state/run.json\"", "\"../run.json\"", "names a file outside"},
    {"manifest.json", REPLACE, 0, "\"step\": 4", "\"step\": 2", "is of step 2, in the directory of step 4"},
    {"manifest.json", REPLACE, 0, "\"format\": 1", "\"format\": 2", "is of format 2"},
    {"manifest.json", REPLACE, 0, "\"grid\": ", "\"grid\": -", "has no grid"},
    {"manifest.json", REPLACE, 0, "\"grid\": ", "\"grid\": 1", "SHA-256 differs"},
    {"manifest.json", REPLACE, 0, "\"files\"", "\"fills\"", "no list of files"},
};

static void damage(uint64_t step, int i) {
    const char *path = rig_file(step, damages[i].file);
    switch (damages[i].how) {
    case FLIP: flip(path, damages[i].where); break;
    case CUT: cut(path, (long)damages[i].where); break;
    case REPLACE: replace(path, damages[i].from, damages[i].to); break;
    case REMOVE:
    case DIRECTORY:
        ck_assert_int_eq(unlink(path), 0);
        if (damages[i].how == DIRECTORY) ck_assert_int_eq(mkdir(path, 0777), 0);
        break;
    }
}

TESTS(a_damaged_checkpoint_is_passed_over_by_name, LENGTH(damages)) {
    rig run;
    ck_assert_uint_eq(rig_newest(), 4);
    damage(4, _i);
    fixture_log[0] = '\0';
    rig_reopen(&run, NULL);
    ck_assert_uint_eq(run.state.step, 2);
    ck_assert_str_eq(rig_hash(&run), two);
    ck_assert_logged("step-4 is skipped: ");
    ck_assert_logged(damages[_i].says);
    /* The run reaches the same step again and replaces the damaged checkpoint. */
    rig_train(&run, 4);
    ck_assert_str_eq(rig_hash(&run), four);
    rig_save(&run);
    rig_close(&run);
    ck_assert_uint_eq(rig_newest(), 4);
}

/* Valid when found, but damaged when read: the error does not suggest another model. */
TEST(reports_damage_found_while_reading) {
    weft_error err = WEFT_ERROR_INIT;
    char path[4096];
    rig run;
    rig_open(&run, NULL);
    ck_assert_ok(rig_try_newest(&run, path, &err), err);
    cut(rig_file(4, "model.safetensors"), 99);
    ck_assert_int_eq(weft_checkpoint_restore(run.session->engine, path, &run.identities, false, &err), WEFT_E_DATA);
    ck_assert_says(err, "model.safetensors");
    ck_assert_ptr_null(strstr(err.text, "another model"));
    rig_close(&run);
}

/* Every byte of the files with numbers counts, and every byte of the run's description. */
TESTS(each_byte_counts, 4) {
    static const char *const files[] = {"model.safetensors", "state/exp_avg.safetensors", "state/run.json",
                                        "config.json"};
    size_t n = 0;
    char *bytes = read_bytes(rig_file(4, files[_i]), &n), path[512];
    strcpy(path, rig_file(4, files[_i]));
    for (size_t at = 0; at < n; at += 1 + n / 97) {
        bytes[at] ^= 1;
        write_bytes(path, bytes, n);
        ck_assert_msg(rig_newest() == 2, "byte %zu of %s", at, path);
        bytes[at] ^= 1;
        fixture_log[0] = '\0';
    }
    write_bytes(path, bytes, n);
    ck_assert_uint_eq(rig_newest(), 4);
    free(bytes);
}

TEST(reports_that_no_checkpoint_is_valid) {
    weft_checkpoint_state state = {.step = 77};
    char path[4096];
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_int_eq(unlink(rig_file(2, "manifest.json")), 0);
    ck_assert_int_eq(unlink(rig_file(4, "manifest.json")), 0);
    ck_assert_int_eq(weft_checkpoint_newest(path, &state, rig_directory(), NULL, &fixture_host, &err), WEFT_E_USER);
    ck_assert_says(err, "all 2 are broken");
    ck_assert_int_eq(weft_checkpoint_newest(path, &state, scratch_path("nowhere"), NULL, &fixture_host, &err),
                     WEFT_E_USER);
    ck_assert_says(err, "contains no checkpoint to resume from");
    ck_assert_uint_eq(state.step, 77);
}

TEST(other_names_are_no_checkpoints) {
    static const char *const names[] = {"step-",       "step-05",    "step-9x", "Step-9",
                                        ".step-9.tmp", "step-9.old", "step--9"};
    char name[64];
    for (size_t i = 0; i < LENGTH(names); i++) {
        (void)snprintf(name, sizeof name, "out/checkpoints/%s", names[i]);
        ck_assert_int_eq(rename(rig_file(4, ""), scratch_path(name)), 0);
        ck_assert_msg(rig_newest() == 2, "%s", name);
        (void)snprintf(name, sizeof name, "out/checkpoints/%s", names[i]);
        ck_assert_int_eq(rename(scratch_path(name), rig_file(4, "")), 0);
    }
    ck_assert_uint_eq(rig_newest(), 4);
}

/* On file systems that cannot exchange two names, a crash can leave only the old directory, under its temporary
 * name. */
TEST(restores_a_directory_that_was_moved_aside) {
    ck_assert_int_eq(rename(rig_file(4, ""), scratch_path("out/checkpoints/.step-4.old")), 0);
    ck_assert_uint_eq(rig_newest(), 4);
    ck_assert(!rig_exists(scratch_path("out/checkpoints/.step-4.old")));
    ck_assert_int_eq(mkdir(scratch_path("out/checkpoints/.step-4.old"), 0777), 0); /* removed: its successor exists */
    ck_assert_uint_eq(rig_newest(), 4);
    ck_assert(!rig_exists(scratch_path("out/checkpoints/.step-4.old")));
}

/* Saves the numbers of step 4 repeatedly, under two names, until it is killed. */
static void save_for_ever(int ready) {
    rig run;
    rig_reopen(&run, NULL);
    (void)!write(ready, "x", 1);
    for (uint64_t step = 4;; step = 10 - step) { /* 4, 6, 4, 6, ... */
        run.state.step = step;
        rig_save(&run);
    }
}

/* Starts it, waits until it saves, and a little longer. */
static void kill_one(int milliseconds) {
    int ready[2], ended = 0;
    char byte = 0;
    pid_t child = 0;
    ck_assert_int_eq(pipe(ready), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        save_for_ever(ready[1]);
        _exit(1);
    }
    (void)close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    usleep((useconds_t)milliseconds * 1000);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, &ended, 0), child);
    ck_assert_msg(WIFSIGNALED(ended), "the child ended by itself: %d", ended);
}

TEST(a_killed_save_leaves_the_old_state_or_the_new_one) {
    static const char *const halves[] = {"out/checkpoints/.step-4.tmp", "out/checkpoints/.step-6.tmp"};
    int halfway = 0;
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    for (int i = 0; i < 12; i++) {
        kill_one(7 * i);
        halfway += rig_exists(scratch_path(halves[0])) || rig_exists(scratch_path(halves[1]));
        fixture_log[0] = '\0';
        rig_reopen(&run, NULL);
        ck_assert_str_eq(rig_hash(&run), four);
        ck_assert_msg(fixture_log[0] == '\0', "%s", fixture_log); /* no damaged directory had a checkpoint's name */
        rig_close(&run);
    }
    ck_assert_int_gt(halfway, 0);
    ck_assert_int_eq(mkdir(scratch_path("out/checkpoints/.step-9.tmp"), 0777), 0);
    ck_assert_ok(weft_checkpoint_retain(rig_directory(), 6, 3, 0, NULL, &err), err);
    ck_assert(!rig_exists(scratch_path(halves[0])));
    ck_assert(!rig_exists(scratch_path(halves[1])));
    ck_assert(!rig_exists(scratch_path("out/checkpoints/.step-9.tmp")));
}

int main(void) {
    return run_tests(test_case("damage", 300, setup, scratch_remove));
}
