/* The program from outside: exit statuses, output streams, and the configuration commands. */
#include "scratch.h"
#include "suite.h"

#include <check.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char out[1 << 16], err[1 << 14]; /* output of the last run */

static void read_back(char *text, size_t size, const char *name) {
    FILE *file = fopen(name, "rb");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    (void)fclose(file);
}

/* Runs `weft words` in the shell and returns its exit status. */
static int weft(const char *words) {
    char command[1024];
    int status = 0;
    ck_assert_ptr_nonnull(getenv("WEFT_BUILD"));
    (void)snprintf(command, sizeof command, "{ %s/weft %s; } >out 2>err", getenv("WEFT_BUILD"), words);
    status = system(command);
    ck_assert(WIFEXITED(status));
    read_back(out, sizeof out, "out");
    read_back(err, sizeof err, "err");
    return WEXITSTATUS(status);
}

static const char run_ini[] = "[model]\nplugin = llama\npath = m\n[data]\nplugin = text\npath = story.txt\n"
                              "[optimizer]\nplugin = adamw\nlr = 1e-3\n[train]\nsteps = 10\n[run]\nout = o\n";

static void enter(void) {
    scratch_enter();
    write_text("run.ini", run_ini);
}

#define ck_assert_has(text, part) ck_assert_msg(strstr(text, part) != NULL, "\"%s\" does not have \"%s\"", text, part)

TEST(wrong_usage_is_status_2_on_stderr) {
    static const struct {
        const char *words, *says;
    } rows[] = {{"", "usage: weft COMMAND"},
                {"confgi", "there is no command confgi; did you mean config?"},
                {"config", "weft config: the command is missing"},
                {"config chekc", "there is no command config chekc"},
                {"config check", "the configuration file is missing"},
                {"config check run.ini --jsno", "there is no flag --jsno"},
                {"config explain run.ini --jsno", "did you mean --json?"},
                {"config check run.ini two.ini", "one argument too many"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_msg(weft(rows[i].words) == 2, "%s", rows[i].words);
        ck_assert_has(err, rows[i].says);
        ck_assert_str_eq(out, "");
    }
}

TEST(mistakes_in_the_configuration_are_status_1) {
    static const struct {
        const char *words, *says;
    } rows[] = {{"none.ini", "none.ini: cannot be opened: No such file"},
                {"run.ini train.clip=-1", "command line: [train] clip = -1 is outside (0,inf) | none"},
                {"run.ini optimizer.beta1=1", "command line: [optimizer] beta1 = 1 is outside"},
                {"run.ini optimizer.lrr=1", "command line: [optimizer] has no key lrr; did you mean lr?"},
                {"run.ini optimizer.plugin=lion", "command line: [optimizer] plugin = lion cannot be used: "},
                {"run.ini modle.x=1", "command line: there is no section [modle]; did you mean model?"},
                {"run.ini train.steps=none", "set [train] steps or epochs"},
                {"run.ini data.path= model.plugin=", "[model] plugin = \"\" is empty"},
                {"run.ini data.validation=0", "check: command line: [data] validation = 0 is not possible: give none"},
                {"run.ini data.path=", "check: command line: [data] path is empty"},
                {"run.ini optimizer.plugin=sgd optimizer.nesterov=yes",
                 "check: command line: [optimizer] nesterov = yes needs momentum above 0"},
                {"held.ini", "check: held.ini:7: [data] validation = 1.5 is not possible"},
                {"head.ini", "head.ini:1: there is no section [Model]; did you mean model?"},
                {"lama.ini", "lama.ini:2: [model] plugin = lama cannot be used: "},
                {"run.ini optimizer.plugin=adamx train.steps=x", "[optimizer] plugin = adamx cannot be used: "},
                {"path.ini", "path.ini: [model] path is missing and has no default"}};
    write_text("head.ini", "[Model]\nplugin = llama\n");
    write_text("lama.ini", "[model]\nplugin = lama\n");
    write_text("path.ini", "[model]\nplugin = llama\n");
    write_text("held.ini", "[model]\nplugin = llama\npath = m\n[data]\nplugin = text\npath = story.txt\n"
                           "validation = 1.5\n[train]\nsteps = 10\n[run]\nout = o\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char words[256];
        (void)snprintf(words, sizeof words, "config check %s", rows[i].words);
        ck_assert_msg(weft(words) == 1, "%s: %s", words, err);
        ck_assert_has(err, rows[i].says);
        ck_assert_str_eq(out, "");
    }
}

TEST(a_good_configuration_is_status_0) {
    char base[1024];
    ck_assert_ptr_nonnull(getenv("WEFT_SOURCE"));
    (void)snprintf(base, sizeof base, "%s/configs/chess/base", getenv("WEFT_SOURCE"));
    ck_assert_int_eq(symlink(base, "m"), 0);
    write_text("story.txt", "once");
    ck_assert_msg(weft("config check run.ini") == 0, "%s", err);
    ck_assert_str_eq(out, "run.ini: fine for weft train\n");
    ck_assert_str_eq(err, "");
    /* Without [train] a file is valid for generation; the missing keys for training are reported. */
    write_text("text.ini", "[model]\nplugin = llama\npath = m\n");
    ck_assert_msg(weft("config check text.ini") == 0, "%s", err);
    ck_assert_has(out, "text.ini: fine for weft generate; for weft train something is missing: text.ini: [data] path");
    ck_assert_int_eq(weft("config check text.ini data.path=story.txt"), 0);
    ck_assert_has(out, "text.ini: [train] steps = none (its default) leaves the run without a length");
}

TEST(describe_prints_the_hosts_keys) {
    ck_assert_int_eq(weft("config describe"), 0);
    ck_assert_has(out, "[train]\n");
    ck_assert_has(out, "global_batch");
    ck_assert_int_eq(weft("config describe checkpoint"), 0);
    ck_assert_has(out, "keep_best");
    ck_assert_ptr_null(strstr(out, "global_batch"));
    ck_assert_has(out, " none | N steps | N%\n");
    ck_assert_int_eq(weft("config describe eval"), 0);
    ck_assert_has(out, "  every  none  none | N steps | N%\n");
    ck_assert_int_eq(weft("config describe data"), 1);
    ck_assert_has(err, "weft plugins describe");
}

TEST(a_full_disk_is_not_silent) {
    ck_assert_int_eq(weft("config describe >/dev/full"), 1);
    ck_assert_has(err, "cannot be written: No space left");
}

int main(void) {
    TCase *tests = tcase_create("program");
    tcase_add_checked_fixture(tests, enter, scratch_leave);
    tcase_set_timeout(tests, 120);
    return run_tests(tests);
}
