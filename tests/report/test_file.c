/* A file appears complete or not at all. */
#include "scratch.h"
#include "suite.h"

#include <check.h>
#include <stdbool.h>
#include <dirent.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include "base/file.h"

static weft_error err;

static void enter(void) {
    const weft_error none = WEFT_ERROR_INIT;
    err = none;
    scratch_enter();
}

static size_t count_files(void) {
    DIR *dir = opendir(".");
    size_t n = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) n += entry->d_name[0] != '.';
    (void)closedir(dir);
    return n;
}

static void holds(const char *name, const char *text) {
    char *bytes = read_bytes(name, NULL);
    ck_assert_str_eq(bytes, text);
    free(bytes);
}

TEST(replaces_the_old_content) {
    struct stat info;
    const mode_t mask = umask(027);
    ck_assert_int_eq(weft_file_replace("a", "one", 3, &err), WEFT_OK);
    holds("a", "one");
    ck_assert_int_eq(weft_file_replace("a", "second", 6, &err), WEFT_OK);
    holds("a", "second");
    ck_assert_int_eq(weft_file_replace("empty", "", 0, &err), WEFT_OK);
    holds("empty", "");
    ck_assert_uint_eq(count_files(), 2);
    ck_assert_int_eq(stat("a", &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0640); /* the user's umask applies */
    (void)umask(mask);
}

TEST(nothing_is_there_before_commit_and_after_cancel) {
    weft_file file;
    FILE *stream = weft_file_begin(&file, "a", &err);
    ck_assert_ptr_nonnull(stream);
    fprintf(stream, "half");
    ck_assert_int_ne(access("a", F_OK), 0);
    weft_file_cancel(&file);
    weft_file_cancel(&file);
    ck_assert_uint_eq(count_files(), 0);
}

TEST(a_missing_directory_is_said) {
    ck_assert_int_eq(weft_file_replace("no/such/a", "x", 1, &err), WEFT_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.text, "no/such/a"));
    ck_assert_ptr_nonnull(strstr(err.text, "No such file"));
    ck_assert_int_eq(weft_directory_sync("no/such", &err), WEFT_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.text, "no/such: "));
}

/* A file size limit fails a write like a full disk. */
TEST(a_write_that_fails_keeps_the_old_content) {
    const struct rlimit limit = {1000, RLIM_INFINITY};
    struct rlimit before;
    char bytes[5000] = "";
    weft_status status = WEFT_OK;
    bool limited = false;
    ck_assert_int_eq(weft_file_replace("a", "one", 3, &err), WEFT_OK);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    limited = setrlimit(RLIMIT_FSIZE, &limit) == 0; /* no assertions until it is reset: Check writes files */
    status = weft_file_replace("a", bytes, sizeof bytes, &err);
    (void)setrlimit(RLIMIT_FSIZE, &before);
    ck_assert(limited);
    ck_assert_int_eq(status, WEFT_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.text, "a: cannot be written: File too large; the previous file is unchanged"));
    holds("a", "one");
    ck_assert_uint_eq(count_files(), 1);
}

TEST(a_directory_is_not_replaced) {
    ck_assert_int_eq(mkdir("d", 0777), 0);
    ck_assert_int_eq(weft_file_replace("d", "x", 1, &err), WEFT_E_SYSTEM);
    ck_assert_uint_eq(count_files(), 1);
}

int main(void) {
    TCase *tests = tcase_create("whole files");
    tcase_add_checked_fixture(tests, enter, scratch_leave);
    return run_tests(tests);
}
