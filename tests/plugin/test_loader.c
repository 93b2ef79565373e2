/* Plugin files that the loader rejects, with their messages, and files that it accepts: plugins with one error each. */
#include "suite.h"
#include "workshop.h"

#include "plugin/enter.h"
#include "plugin/load.h"
#include "plugin/subprocess_probe.h"
#include "plugin/services.h"
#include "tools/common/plugins.h"
#include <elf.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <sys/wait.h>
#include <weft/optimizer.h>

static weft_error err = WEFT_ERROR_INIT;

static void expect_refusal(weft_status status, const char *fragment) {
    ck_assert_msg(status != WEFT_OK, "accepted, where the sentence should hold \"%s\"", fragment);
    ck_assert_msg(err.code == (int32_t)status, "status %d, but the error says %d", (int)status, (int)err.code);
    ck_assert_msg(strstr(err.text, fragment) != NULL, "\"%s\" is not in: %s", fragment, err.text);
    err.code = WEFT_OK;
}

static void expect_file_refused(const char *path, const char *fragment) {
    const weft_loaded *loaded = NULL;
    expect_refusal(weft_plugin_load(&loaded, path, NULL, "optimizer", NULL, &err), fragment);
    ck_assert_msg(strncmp(err.text, path, strlen(path)) == 0, "the file is not named first: %s", err.text);
    ck_assert_ptr_null(loaded);
}

static const weft_loaded *expect_file_taken(const char *path) {
    const weft_loaded *loaded = NULL;
    ck_assert_msg(weft_plugin_load(&loaded, path, NULL, "optimizer", NULL, &err) == WEFT_OK, "%s", err.text);
    return loaded;
}

/* ---- rejected files ---- */

typedef struct broken {
    const char *flags;    /* of the compiler */
    const char *fragment; /* of the message */
} broken;

/* clang-format off */
#define NOTE(text) "-DSAMPLE_NOTE='" text "'"
#define LR(row) "-D'SAMPLE_LR(R)=R(" row ")'"
static const broken broken_files[] = {
    /* content of the note */
    {NOTE("\"weft-plugin/2\\nsdk=1000\\n\""), "starts with \"weft-plugin/2\"; this host reads weft-plugin/1"},
    {NOTE("\"weft-plugin/1\\nsdk=2000\\nmin_sdk=2000\\nplugin=optimizer/1 sample 1.0\\n\""),
     "is built for SDK 2, and this host has SDK 1.0"},
    {NOTE("\"weft-plugin/1\\nsdk=1007\\nmin_sdk=1007\\nplugin=optimizer/1 sample 1.0\\n\""),
     "needs at least SDK 1.7, and this host has SDK 1.0"},
    {NOTE("\"weft-plugin/1\\nsdk=1000\\nplugin=optimizer/1 sample 1.0\\n\""), "without its min_sdk= line"},
    {NOTE("\"weft-plugin/1\\nsdk=one\\nmin_sdk=1000\\nplugin=optimizer/1 sample 1.0\\n\""), "\"sdk=one\" names no SDK"},
    {NOTE("WEFT_NOTE"), "without its plugin= line"},
    {NOTE("WEFT_NOTE \"plugin=optimizer sample\\n\""), "is not <kind>/<interface> <id> <version>"},
    {NOTE("WEFT_NOTE \"plugin=optimizer/1 Sample 1.0\\n\""), "with an id of [a-z0-9_-]"},
    {NOTE("WEFT_NOTE \"plugin=optimizer/2 sample 1.0\\n\""), "for interface optimizer/2; this host has optimizer/1"},
    {NOTE("WEFT_NOTE \"plugin=painter/1 sample 1.0\\n\""), "\"painter\"; this host supports model, optimizer, data"},
    {NOTE("WEFT_NOTE \"plugin=strategy/0 sample 1.0\\n\""), "for interface strategy/0; this host has strategy/1"},
    {NOTE("\"\\001\\002\""), "with bytes that are no plain text"},
    {NOTE("\"\""), "without its sdk= line"},
    {NOTE("WEFT_NOTE \"launch=mpiexec -n {ranks}\\n\""), "\"launch=mpiexec -n {ranks}\" is not the one command"},
    {NOTE("WEFT_NOTE \"launch=/usr/bin/mpiexec -n 4\\n\""), "and {ranks} once among what follows it"},
    {NOTE("WEFT_NOTE \"launch=/m {ranks} {ranks}\\n\""), "and {ranks} once among what follows it"},
    {NOTE("WEFT_NOTE \"launch=/m {ranks}\\nlaunch=/m {ranks}\\n\""), "is not the one command that starts ranks"},
    {NOTE("WEFT_NOTE \"launched=A_RANK\\n\""), "\"launched=A_RANK\" is not a single list of pairs"},
    {NOTE("WEFT_NOTE \"launched=A_RANK  A_SIZE\\n\""), "separated by one space"},
    {NOTE("WEFT_NOTE \"launched=A_RANK 4\\n\""), "is not a single list of pairs"},
    {NOTE("WEFT_NOTE \"launched=\\n\""), "is not a single list of pairs"},
    {NOTE("WEFT_NOTE \"launched=A B\\nlaunched=A B\\n\""), "is not a single list of pairs"},
    /* note and entry disagree */
    {"-DSAMPLE_ID='\"other\"'", "has a note with optimizer/1 sample 1.0, and its entry returns optimizer/1 other 1.0"},
    {"-DSAMPLE_KIND='\"model\"'", "its entry returns model/1 sample"},
    {"-DSAMPLE_KIND=NULL", "its entry returns (nothing)/1 sample"},
    {"-DSAMPLE_N=2", "has a note with 1 plugins, and its entry returns 2"},
    /* the entry */
    {"-DIN_ENTRY='return NULL'", "without an error message, a defect of it"},
    {"-DIN_ENTRY='weft_error_set(err, WEFT_E_DEVICE, \"No lamp is lit.\"); return NULL'", "cannot work here: No lamp"},
    /* of an SDK before 1.0 */
    {"-DSAMPLE_STRIDE=80", "80 bytes per plugin): it was built against other headers than"},
    {"-DSAMPLE_TABLE_SIZE=16", "slot destroy: it was built against other headers than"},
    /* the table */
    {"-DSAMPLE_PREPARE=NULL", "leaves the required slot prepare of optimizer:sample empty"},
    {"-DSAMPLE_TABLE_SIZE=16", "a table of 16 bytes for optimizer:sample, which ends before its slot destroy"},
    /* invalid key tables */
    {LR("64, WEFT_KEY_F64, \"lr\", \"1e-3\", \"[0,1]\", \"Step size.\""), "invalid key table for optimizer:sample"},
    {LR("8, WEFT_KEY_F64, \"lr\", \"1e-3\", \"[0,1]\", \"Step size.\""), "has an invalid key table"},
    {LR("4, WEFT_KEY_F64, \"lr\", \"1e-3\", \"[0,1]\", \"Step size.\""), "has an invalid key table"},
    {LR("0, 99, \"lr\", \"1e-3\", \"[0,1]\", \"Step size.\""), "has an invalid key table"},
    {LR("0, WEFT_KEY_F64, \"way\", \"1e-3\", \"[0,1]\", \"Step size.\""), "has an invalid key table"},
    {LR("0, WEFT_KEY_F64, NULL, \"1e-3\", \"[0,1]\", \"Step size.\""), "has an invalid key table"},
    {LR("0, WEFT_KEY_F64, \"Learning Rate\", \"1e-3\", \"[0,1]\", \"Step size.\""), "has an invalid key table"},
    {LR("0, WEFT_KEY_F64, \"lr\", \"often\", \"[0,1]\", \"Step size.\""), "has an invalid key table"},
    {LR("0, WEFT_KEY_F64, \"lr\", \"7\", \"[0,1]\", \"Step size.\""), "has an invalid key table"},
    {LR("0, WEFT_KEY_F64, \"lr\", \"1e-3\", \"[1,0]\", \"Step size.\""), "has an invalid key table"},
    {LR("0, WEFT_KEY_F64, \"lr\", \"1e-3\", \"[0,1]\", NULL"), "has an invalid key table"},
    {LR("0, WEFT_KEY_F64, \"lr\", \"1e-3\", \"[0,1]\", \"\""), "has an invalid key table"},
    {"-DSAMPLE_N_KEYS=1000000000000", "has an invalid key table"},
    /* process state */
    {"-DAT_LOAD='_mm_setcsr(_mm_getcsr() | 0x8040)'", "changed the floating-point mode while it was loaded"},
    {"-Ofast", "small numbers become zero"},
    {"-DIN_ENTRY='_mm_setcsr(_mm_getcsr() | 0x2000)'", "changed the floating-point mode while its entry ran"},
    {"-DAT_LOAD='if (chdir(\"/\") != 0) abort()'", "changed the working directory while it was loaded"},
    {"-DIN_ENTRY='umask(0777)'", "changed the umask while its entry ran"},
    {"-DAT_LOAD='setlocale(LC_ALL, \"C.UTF-8\")'", "changed the locale while it was loaded"},
    /* exports */
    {"-DEXTRA_EXPORT -Wl,--export-dynamic-symbol=sample_extra", NULL},
};
/* clang-format on */
#define N_BROKEN (int)(sizeof broken_files / sizeof broken_files[0])

TESTS(one_broken_rule_is_refused_by_its_sentence, N_BROKEN) {
    const broken *b = &broken_files[_i];
    const char *path = workshop_build("weft-optimizer-sample.so", b->flags, NULL);
    if (b->fragment == NULL) { /* the SDK's version script hides symbols marked visible */
        (void)expect_file_taken(path);
    } else {
        expect_file_refused(path, b->fragment);
        expect_file_refused(path, b->fragment); /* not run again, and still rejected */
    }
}

TEST(a_note_says_how_ranks_are_started) {
    const char *flags = "-include $WEFT_SOURCE/sdk/include/weft/comm.h " NOTE(
        "WEFT_NOTE WEFT_NOTE_PLUGIN(optimizer, 1, \"sample\", \"1.0\") WEFT_NOTE_LAUNCH(\"/bin/mpiexec -n {ranks} "
        "-x\") "
        "WEFT_NOTE_LAUNCHED(\"A_RANK A_SIZE B_RANK B_SIZE\")");
    static weft_preflight note;
    const char *path = workshop_build("weft-optimizer-sample.so", flags, NULL);
    ck_assert_msg(weft_plugin_file_note(&note, path, NULL, &err) == WEFT_OK, "%s", err.text);
    ck_assert_str_eq(note.launch, "/bin/mpiexec -n {ranks} -x");
    ck_assert_str_eq(note.launched, "A_RANK A_SIZE B_RANK B_SIZE");
    path = workshop_build("plain.so", "", NULL);
    ck_assert_msg(weft_plugin_file_note(&note, path, NULL, &err) == WEFT_OK, "%s", err.text);
    ck_assert_str_eq(note.launch, "");
    ck_assert_str_eq(note.launched, "");
}

TEST(exports_are_counted) {
    const char *map = scratch_path("map");
#define MAP(text) write_text(map, text)
    MAP("{ global: weft_plugin_entry; local: *; };");
    expect_file_refused(workshop_build("a.so", "", map), "lacks the export weft_plugin_note");
    MAP("{ global: weft_plugin_note; local: *; };");
    expect_file_refused(workshop_build("b.so", "", map), "lacks the export weft_plugin_entry");
    MAP("{ local: *; };");
    expect_file_refused(workshop_build("c.so", "", map), "so it is no Weft plugin");
    MAP("{ global: weft_plugin_note; weft_plugin_entry; sample_extra; local: *; };");
    expect_file_refused(workshop_build("d.so", "-DEXTRA_EXPORT", map), "exports sample_extra; a plugin exports");
    expect_file_taken(workshop_build("e.so", "-Wl,--hash-style=sysv", NULL));
    expect_file_taken(workshop_build("f.so", "-s -Wl,--gc-sections -ffunction-sections -fdata-sections", NULL));
    expect_file_taken(workshop_build("g.so", "-flto", NULL));
}

TESTS(process_state_is_restored_after_a_load, 2) {
    static const char *const flags[] = {
        "-DAT_LOAD='setlocale(LC_ALL, \"C.UTF-8\"); umask(0); if (chdir(\"/\")) abort()'",
        "-DAT_LOAD='_mm_setcsr(_mm_getcsr() | 0x8040)'"};
    char before[WORKSHOP_STATE], after[WORKSHOP_STATE];
    (void)umask(027);
    workshop_state(before);
#ifndef __x86_64__
    if (_i == 1) return;
#endif
    expect_file_refused(workshop_build("a.so", flags[_i], NULL), "changed the");
    workshop_state(after);
    ck_assert_str_eq(before, after);
}

static void own_handler(int number) {
    (void)number;
}

TEST(signal_handlers_are_put_back) {
    struct sigaction now;
    (void)signal(SIGSEGV, own_handler);
    (void)signal(SIGUSR1, own_handler);
    (void)expect_file_taken(workshop_build("a.so",
                                           "-DAT_LOAD='signal(SIGSEGV, SIG_IGN); signal(SIGUSR2, SIG_IGN)' "
                                           "-DIN_ENTRY='signal(SIGUSR1, SIG_DFL)'",
                                           NULL));
    ck_assert_int_eq(sigaction(SIGSEGV, NULL, &now), 0);
    ck_assert(now.sa_handler == own_handler);
    ck_assert_int_eq(sigaction(SIGUSR1, NULL, &now), 0);
    ck_assert(now.sa_handler == own_handler);
    ck_assert_int_eq(sigaction(SIGUSR2, NULL, &now), 0);
    ck_assert(now.sa_handler == SIG_DFL);
}

/* ---- damaged files ---- */

static void patch(const char *path, const char *copy, size_t at, const void *bytes, size_t n_bytes) {
    size_t n = 0;
    unsigned char *image = (unsigned char *)read_bytes(path, &n);
    ck_assert_uint_le(at + n_bytes, n);
    memcpy(image + at, bytes, n_bytes);
    write_bytes(copy, image, n);
    free(image);
}

TEST(headers_of_other_machines_are_named) {
    const char *path = workshop_build("good.so", "", NULL);
    const uint16_t arm = EM_AARCH64, intel = EM_X86_64, executable = ET_EXEC;
    const unsigned char class32 = ELFCLASS32, big = ELFDATA2MSB;
    const char *copy = scratch_path("patched.so");
#ifdef __aarch64__
    patch(path, copy, offsetof(Elf64_Ehdr, e_machine), &intel, 2);
    expect_file_refused(copy, "is built for x86-64; this machine is AArch64");
    (void)arm;
#else
    patch(path, copy, offsetof(Elf64_Ehdr, e_machine), &arm, 2);
    expect_file_refused(copy, "is built for AArch64; this machine is");
    (void)intel;
#endif
    patch(path, copy, EI_CLASS, &class32, 1);
    expect_file_refused(copy, "is a 32-bit file");
    patch(path, copy, EI_DATA, &big, 1);
    expect_file_refused(copy, "has the other byte order");
    patch(path, copy, offsetof(Elf64_Ehdr, e_type), &executable, 2);
    expect_file_refused(copy, "is no shared object");
}

TEST(truncated_files_are_refused_at_every_length) {
    const char *path = workshop_build("good.so", "", NULL);
    size_t n = 0, length;
    unsigned char *image = (unsigned char *)read_bytes(path, &n);
    weft_preflight note;
    for (length = 0; length < n; length++) {
        unsigned char *cut =
            malloc(length > 0 ? length : 1); /* a separate block, so that a sanitizer detects reads beyond it */
        memcpy(cut, image, length);
        expect_refusal(weft_preflight_read(&note, cut, length, &err),
                       length < 4 ? "is not an ELF file" : "is truncated");
        free(cut);
    }
    ck_assert_int_eq(weft_preflight_read(&note, image, n, NULL), WEFT_OK);
    write_bytes(path, image, n / 2);
    expect_file_refused(path, "is truncated");
    free(image);
}

TEST(rejects_files_that_are_not_shared_objects) {
    const char *path = scratch_path("text.so");
    write_bytes(path, "not a library\n", 14);
    expect_file_refused(path, "is not an ELF file, so it is no plugin");
    write_bytes(path, "", 0);
    expect_file_refused(path, "is not an ELF file, so it is no plugin");
    expect_file_refused(scratch, "is not a regular file");
    path = scratch_path("absent.so");
    expect_file_refused(path, "cannot be found: No such file or directory");
    ck_assert_int_eq(symlink("/nowhere/at/all.so", path), 0);
    expect_file_refused(path, "cannot be found: No such file or directory");
}

/* Replaces a text in the file by another one of the same length. */
static void replace_text(const char *path, const char *copy, const char *old, const char *new) {
    size_t n = 0, i, found = 0;
    unsigned char *image = (unsigned char *)read_bytes(path, &n);
    for (i = 0; i + strlen(old) < n; i++) {
        if (memcmp(image + i, old, strlen(old) + 1) != 0) continue;
        memcpy(image + i, new, strlen(new));
        found++;
    }
    ck_assert_uint_gt(found, 0);
    write_bytes(copy, image, n);
    free(image);
}

TEST(a_newer_c_library_is_named) {
    const char *path = workshop_build("good.so", "-DAT_LOAD='if (getppid() < 0) abort()'", NULL);
    const char *copy = scratch_path("patched.so");
    replace_text(path, copy, "GLIBC_2.2.5", "GLIBC_9.8.7");
    expect_file_refused(copy, "needs GLIBC_9.8, and this system has ");
}

TEST(a_missing_library_is_named) {
    char command[1024], flags[512];
    (void)snprintf(command, sizeof command,
                   "echo 'int lamp(void); int lamp(void) { return 1; }' | cc -x c - -shared -fPIC "
                   "-o %s/liblamp.so",
                   scratch);
    workshop_run(command);
    (void)snprintf(flags, sizeof flags, "-Wl,--no-as-needed -L%s -llamp", scratch);
    (void)workshop_build("weft-optimizer-sample.so", flags, NULL);
    ck_assert_int_eq(unlink(scratch_path("liblamp.so")), 0);
    expect_file_refused(scratch_path("weft-optimizer-sample.so"),
                        "cannot be loaded: liblamp.so: cannot open shared object file");
}

/* ---- search ---- */

static weft_plugins *registry(const char *path, const char *pins) {
    const weft_plugins_options options = {.path = path, .pins = pins};
    weft_plugins *made = NULL;
    ck_assert_msg(weft_plugins_create(&made, &options, &err) == WEFT_OK, "%s", err.text);
    return made;
}

static void expect_get_refused(weft_plugins *plugins, const char *kind, const char *name, const char *fragment) {
    const weft_loaded *loaded = NULL;
    expect_refusal(weft_plugins_get(plugins, &loaded, kind, name, &err), fragment);
    ck_assert_ptr_null(loaded);
}

static const weft_loaded *expect_get(weft_plugins *plugins, const char *kind, const char *name) {
    const weft_loaded *loaded = NULL;
    ck_assert_msg(weft_plugins_get(plugins, &loaded, kind, name, &err) == WEFT_OK, "%s", err.text);
    return loaded;
}

TEST(a_plugin_is_found_by_id_and_by_path) {
    const char *path = workshop_build("weft-optimizer-sample.so", "", NULL);
    weft_plugins *plugins = registry(scratch, NULL);
    const weft_loaded *loaded = expect_get(plugins, "optimizer", "sample");
    static weft_preflight note;
    weft_optimizer *optimizer = NULL;
    const int64_t bytes = weft_services_bytes();
    ck_assert_str_eq(loaded->path, path);
    ck_assert_uint_eq(strlen(loaded->sha256), 64);
    ck_assert_int_eq(weft_plugin_file_note(&note, path, NULL, NULL), WEFT_OK);
    ck_assert_uint_eq(note.sdk, 1000);
    ck_assert_uint_eq(note.min_sdk, 1000);
    ck_assert_str_eq(loaded->plugin->id, "sample");
    ck_assert_ptr_eq(expect_get(plugins, "optimizer", "sample"), loaded);
    ck_assert_ptr_eq(expect_get(plugins, "optimizer", path), loaded);
    ck_assert_int_eq(weft_loaded_table(loaded, optimizer)->create(&optimizer, weft_services(), NULL, NULL), WEFT_OK);
    ck_assert_int_gt(weft_services_bytes(), bytes);
    weft_loaded_table(loaded, optimizer)->destroy(optimizer);
    ck_assert_int_eq(weft_services_bytes(), bytes);
    weft_plugins_destroy(plugins);
    ck_assert_str_eq(loaded->plugin->id, "sample"); /* it outlives the registry */
}

TEST(the_order_of_the_search_holds) {
    char first[512], second[512], third[600], home[512], command[4096];
    weft_plugins *plugins = NULL;
    (void)workshop_build("weft-optimizer-sample.so", "", NULL);
    (void)snprintf(first, sizeof first, "%s/first", scratch);
    (void)snprintf(second, sizeof second, "%s/second", scratch);
    (void)snprintf(home, sizeof home, "%s/data", scratch);
    (void)snprintf(third, sizeof third, "%s/weft/plugins", home);
    (void)snprintf(command, sizeof command,
                   "cd %s && mkdir -p %s %s %s && for d in %s %s %s; do "
                   "cp weft-optimizer-sample.so $d; done",
                   scratch, first, second, third, first, second, third);
    workshop_run(command);
    (void)setenv("WEFT_PLUGIN_PATH", second, 1);
    (void)setenv("XDG_DATA_HOME", home, 1);
    ck_assert_int_eq(chdir(scratch), 0); /* the working directory also contains one, but is not searched */
    plugins = registry(first, NULL);
    ck_assert_int_eq(strncmp(expect_get(plugins, "optimizer", "sample")->path, first, strlen(first)), 0);
    weft_plugins_destroy(plugins);
    plugins = registry(NULL, NULL);
    ck_assert_int_eq(strncmp(expect_get(plugins, "optimizer", "sample")->path, second, strlen(second)), 0);
    weft_plugins_destroy(plugins);
    (void)unsetenv("WEFT_PLUGIN_PATH");
    plugins = registry(NULL, NULL);
    ck_assert_int_eq(strncmp(expect_get(plugins, "optimizer", "sample")->path, third, strlen(third)), 0);
    weft_plugins_destroy(plugins);
    (void)setenv("XDG_DATA_HOME", first, 1);
    plugins = registry(NULL, NULL);
    expect_get_refused(plugins, "optimizer", "sample", "there is no optimizer plugin \"sample\"");
    weft_plugins_destroy(plugins);
}

TEST(what_is_not_found_is_told_with_paths_and_the_nearest_name) {
    char tried[600];
    weft_plugins *plugins = NULL;
    (void)workshop_build("weft-optimizer-sample.so", "", NULL);
    plugins = registry(scratch, NULL);
    expect_get_refused(plugins, "optimizer", "sampel", "did you mean sample?");
    (void)snprintf(tried, sizeof tried, "Tried:\n  %s/weft-optimizer-sampel.so\n", scratch);
    expect_get_refused(plugins, "optimizer", "sampel", tried);
    expect_get_refused(plugins, "optimizer", "mine.so", "A file is written with a slash in it: ./mine.so. There are:");
    expect_get_refused(plugins, "optimizr", "sample", "no plugin kind \"optimizr\"; there are model, optimizer");
    weft_plugins_destroy(plugins);
}

TEST(a_hit_that_cannot_be_loaded_ends_the_search) {
    char first[512], path[600], both[1200];
    weft_plugins *plugins = NULL;
    (void)workshop_build("weft-optimizer-sample.so", "", NULL);
    (void)snprintf(first, sizeof first, "%s/first", scratch);
    (void)snprintf(path, sizeof path, "%s/weft-optimizer-sample.so", first);
    (void)snprintf(both, sizeof both, "%s:%s", first, scratch);
    ck_assert_int_eq(mkdir(first, 0755), 0);
    write_bytes(path, "text", 4);
    plugins = registry(both, NULL);
    expect_get_refused(plugins, "optimizer", "sample", "is not an ELF file");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("/nowhere.so", path), 0);
    expect_get_refused(plugins, "optimizer", "sample", "cannot be found");
    weft_plugins_destroy(plugins);
}

TEST(relative_directories_are_refused) {
    weft_plugins_options options = {.path = "plugins"};
    weft_plugins *plugins = NULL;
    expect_refusal(weft_plugins_create(&plugins, &options, &err),
                   "[plugins] path contains the directory plugins, which");
    options.path = NULL;
    (void)setenv("WEFT_PLUGIN_PATH", "/opt:.", 1);
    expect_refusal(weft_plugins_create(&plugins, &options, &err), "WEFT_PLUGIN_PATH contains the directory ., which");
}

TEST(a_file_name_must_tell_the_truth) {
    weft_plugins *plugins = NULL;
    (void)workshop_build("weft-optimizer-other.so", "", NULL);
    (void)workshop_build("weft-model-sample.so", "-O1", NULL);
    plugins = registry(scratch, NULL);
    expect_get_refused(plugins, "optimizer", "other",
                       "contains optimizer:sample, and not the optimizer:other of its name");
    expect_get_refused(plugins, "model", "sample", "contains optimizer:sample, and not the model:sample of its name");
    weft_plugins_destroy(plugins);
}

#define TWO                                                                                                            \
    "WEFT_NOTE WEFT_NOTE_PLUGIN(optimizer, 1, \"sample\", \"1.0\") WEFT_NOTE_PLUGIN(optimizer, 1, \"second\", "        \
    "\"2.0\")"
TEST(one_file_may_hold_several_plugins) {
    const char *path = workshop_build("weft-optimizer-sample.so", "-DSAMPLE_N=2 " NOTE(TWO), NULL);
    const weft_loaded *first = NULL, *second = NULL;
    weft_plugins *plugins = registry(scratch, NULL);
    ck_assert_int_eq(symlink("weft-optimizer-sample.so", scratch_path("weft-optimizer-second.so")), 0);
    first = expect_get(plugins, "optimizer", "sample");
    second = expect_get(plugins, "optimizer", "second");
    ck_assert_str_eq(first->plugin->id, "sample");
    ck_assert_str_eq(second->plugin->id, "second");
    ck_assert_str_eq(second->plugin->version, "2.0");
    ck_assert_str_eq(first->path, second->path);
    expect_get_refused(plugins, "optimizer", path,
                       "several plugins of kind optimizer (optimizer:sample, optimizer:second)");
    expect_get_refused(plugins, "model", path, "and no plugin of kind model");
    weft_plugins_destroy(plugins);
}

/* ---- pins ---- */

TEST(a_pin_holds_the_file) {
    const char *path = workshop_build("weft-optimizer-sample.so", "-DAT_LOAD='syscall(SYS_exit_group, 77)'", NULL);
    char pin[256], wrong[65];
    weft_plugins *plugins = NULL;
    const weft_loaded *loaded = NULL;
    memset(wrong, 'a', 64);
    wrong[64] = 0;
    (void)snprintf(pin, sizeof pin, "optimizer:sample=%s", wrong);
    plugins = registry(scratch, pin);
    expect_get_refused(plugins, "optimizer", "sample", "but [plugins] pin has aaaa"); /* and its code did not run */
    expect_get_refused(plugins, "optimizer", path, "but [plugins] pin has aaaa");
    weft_plugins_destroy(plugins);
    path = workshop_build("weft-optimizer-sample.so", "", NULL);
    plugins = registry(scratch, NULL);
    loaded = expect_get(plugins, "optimizer", "sample");
    weft_plugins_destroy(plugins);
    (void)snprintf(pin, sizeof pin, "model:sample=%s,optimizer:sample=%s", wrong, loaded->sha256);
    plugins = registry(scratch, pin);
    ck_assert_ptr_eq(expect_get(plugins, "optimizer", "sample"), loaded);
    weft_plugins_destroy(plugins);
    (void)snprintf(pin, sizeof pin, "optimizer:sample=%s", wrong);
    plugins = registry(scratch, pin); /* a file already loaded by another registry is checked, too */
    expect_get_refused(plugins, "optimizer", path, "but [plugins] pin has aaaa");
    weft_plugins_destroy(plugins);
}

TEST(the_hash_is_that_of_sha256sum) {
    const char *path = workshop_build("weft-optimizer-sample.so", "", NULL);
    const weft_loaded *loaded = expect_file_taken(path);
    char command[600], digits[65] = "";
    FILE *output = NULL;
    (void)snprintf(command, sizeof command, "sha256sum %s", path);
    output = popen(command, "r");
    ck_assert_ptr_nonnull(output);
    ck_assert_int_eq(fscanf(output, "%64s", digits), 1);
    (void)pclose(output);
    ck_assert_str_eq(digits, loaded->sha256);
}

TEST(a_file_that_changed_after_its_load_is_refused) {
    const char *path = workshop_build("weft-optimizer-sample.so", "", NULL);
    const struct timespec times[2] = {{1000000000, 0}, {1000000000, 0}};
    const weft_loaded *loaded = expect_file_taken(path);
    ck_assert_ptr_eq(expect_file_taken(path), loaded);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    expect_file_refused(path, "was written to after it was loaded");
    /* another file of the same name, for which the dynamic loader returns the old one */
    ck_assert_int_eq(unlink(path), 0);
    (void)workshop_build("weft-optimizer-sample.so", "-O1", NULL);
    expect_file_refused(path, "is not the file that this process has loaded under that name");
}

/* ---- crashes ---- */

static int load_and_create(const char *path) {
    weft_optimizer *optimizer = NULL;
    const weft_loaded *loaded = NULL;
    if (weft_plugin_load(&loaded, path, NULL, "optimizer", NULL, NULL) != WEFT_OK) return 3;
    atomic_store(&weft_crash_where.step, 1204);
    WEFT_PLUGIN_NOTIFY(weft_loaded_table(loaded, optimizer), create, &optimizer, weft_services(), NULL, NULL);
    return 4;
}

/* Simulates a call that corrupted memory used only later. */
static int create_and_crash(const char *path) {
    volatile uintptr_t nowhere = 8;
    (void)load_and_create(path);
    *(volatile int *)nowhere = 1;
    return 5;
}

/* The start of each hash is followed by twelve digits and its end. */
static void check_hash(const char *text) {
    const char *hash = strstr(text, "(sha256 ");
    ck_assert_msg(hash != NULL, "%s", text);
    hash += strlen("(sha256 ");
    ck_assert_msg(strspn(hash, "0123456789abcdef") == 12 && (hash[12] == ')' || strncmp(hash + 12, " of /", 5) == 0),
                  "%s", text);
}

static const struct {
    const char *flags;
    int (*body)(const char *path);
    const char *says[3];
    int signal;
} crashes[] = {
    {"-DIN_CREATE='*(volatile int *)8 = 1'",
     load_and_create,
     {"weft: signal 11 (segmentation fault) in weft-optimizer-sample.so (sha256 ",
      "), in optimizer:sample create, step 1204\n"},
     SIGSEGV},
    {"-DIN_CREATE='abort()'",
     load_and_create,
     {"weft: signal 6 (abort) in libc.so.6, in optimizer:sample create (sha256 "},
     SIGABRT},
    /* after the call */
    {"",
     create_and_crash,
     {"weft: signal 11 (segmentation fault) in ", ", after optimizer:sample create (sha256 ",
      "may have broken this process's memory, step 1204\n"},
     SIGSEGV},
    {"-DAT_LOAD='*(volatile int *)8 = 1'",
     load_and_create,
     {"signal 11 (segmentation fault)", "in the load of ", "/weft-optimizer-sample.so (sha256 "},
     SIGSEGV},
};

TESTS(a_crash_names_the_plugin, LENGTH(crashes)) {
    char text[4096];
    int status = 0;
    workshop_child(text, sizeof text, &status, crashes[_i].flags, crashes[_i].body);
    for (int i = 0; i < 3 && crashes[_i].says[i] != NULL; i++)
        ck_assert_msg(strstr(text, crashes[_i].says[i]) != NULL, "%s", text);
    check_hash(text);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == crashes[_i].signal, "wait status %x", (unsigned)status);
}

/* ---- list ---- */

static const char *listed(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text == NULL ? "" : text;
}

TEST(the_list_survives_every_plugin) {
    static const char *const rows[][4] = {
        /* id, compiler flags, status, part of the reason */
        {"crash", "-DAT_LOAD='abort()'", "failed", "crashes while it is loaded: signal 6"},
        {"end", "-DAT_LOAD='syscall(SYS_exit_group, 9)'", "failed", "(exit status 9)"},
        {"hang", "-DAT_LOAD='for (;;) pause()'", "failed", "within 1 s and was ended"},
        {"mute", "-DIN_ENTRY='for (int i = 0; i < 99; i++) close(i); pause()'", "failed", "within 1 s and was ended"},
        {"other", "", "failed", "contains optimizer:sample, and not the optimizer:other"},
        {"sample", "-DIN_WORKS='(void)err; return WEFT_OK'", "ok", ""},
        {"unlit",
         "-DSAMPLE_ID='\"unlit\"' -DSAMPLE_NOTE='WEFT_NOTE WEFT_NOTE_PLUGIN(optimizer, 1, \"unlit\", \"1.0\")' "
         "-DIN_WORKS='return weft_error_set(err, WEFT_E_DEVICE, \"No lamp is lit.\")'",
         "unusable", "No lamp is lit."}};
    weft_plugins *plugins = NULL;
    json_t *out = json_array();
    char name[64], later[300], command[1024];
    size_t i;
    for (i = 0; i < 7; i++) {
        (void)snprintf(name, sizeof name, "weft-optimizer-%s.so", rows[i][0]);
        (void)workshop_build(name, rows[i][1], NULL);
    }
    (void)snprintf(later, sizeof later, "%s/later", scratch);
    (void)snprintf(command, sizeof command, "mkdir %s && cp %s/weft-optimizer-sample.so %s", later, scratch, later);
    workshop_run(command);
    (void)setenv("WEFT_PLUGIN_PATH", later, 1);
    ck_assert_int_eq(weft_plugins_create(&plugins, &(const weft_plugins_options){.path = scratch}, &err), WEFT_OK);
    ck_assert_msg(weft_plugins_scan(out, plugins, 1, &err) == WEFT_OK, "%s", err.text);
    ck_assert_uint_ge(json_array_size(out), 8);
    for (i = 0; i < 7; i++) {
        const json_t *row = json_array_get(out, i);
        ck_assert_str_eq(listed(row, "id"), rows[i][0]);
        ck_assert_str_eq(listed(row, "status"), rows[i][2]);
        ck_assert_msg(strstr(listed(row, "reason"), rows[i][3]) != NULL, "%s: %s", rows[i][0], listed(row, "reason"));
    }
    ck_assert_str_eq(listed(json_array_get(out, 5), "version"), "1.0");
    ck_assert_uint_eq(strlen(listed(json_array_get(out, 5), "sha256")), 64);
    ck_assert_str_eq(listed(json_array_get(out, 6), "version"), "1.0");
    ck_assert_str_eq(listed(json_array_get(out, 7), "id"), "sample");
    ck_assert_str_eq(listed(json_array_get(out, 7), "status"), "hidden");
    ck_assert_ptr_nonnull(strstr(listed(json_array_get(out, 7), "reason"), "weft-optimizer-sample.so comes first"));
    weft_plugins_destroy(plugins);
    json_decref(out);
}

/* ---- services ---- */

TEST(memory_is_aligned_and_counted) {
    const weft_host *host = weft_services();
    const int64_t before = weft_services_bytes();
    void *memory[12];
    size_t i;
    for (i = 0; i < 12; i++) {
        const size_t alignment = (size_t)8 << i;
        memory[i] = host->alloc(host, 1000 + i, alignment);
        ck_assert_ptr_nonnull(memory[i]);
        ck_assert_uint_eq((uintptr_t)memory[i] % alignment, 0);
        memset(memory[i], 0xab, 1000 + i);
    }
    ck_assert_int_ge(weft_services_bytes() - before, 12000);
    for (i = 0; i < 12; i++) host->release(host, memory[i]);
    host->release(host, NULL);
    ck_assert_int_eq(weft_services_bytes(), before);
    ck_assert_ptr_null(host->alloc(host, 8, 24)); /* not a power of two */
    ck_assert_ptr_null(host->alloc(host, SIZE_MAX - 8, 8));
    ck_assert_ptr_null(host->extension(host, "weft.host.none/1"));
}

static void mark_one(int64_t i, void *context) {
    ((int *)context)[i] += (int)i;
}

TEST(parallel_for_runs_each_index_once) {
    static int seen[10007];
    int64_t i;
    weft_services()->parallel_for(weft_services(), 10007, mark_one, seen);
    for (i = 0; i < 10007; i++) ck_assert_int_eq(seen[i], i);
}

int main(void) {
    TCase *tests = tcase_create("files");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
    return run_tests(tests);
}
