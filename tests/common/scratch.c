/* tests/common/scratch.c: see scratch.h. */
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char scratch[128];

void scratch_make(void) {
    const char *base = getenv("TMPDIR");
    char *real = realpath(base == NULL ? "/tmp" : base, NULL);
    ck_assert_msg(real != NULL, "TMPDIR is no directory");
    ck_assert_int_lt(snprintf(scratch, sizeof scratch, "%s/weft-test-XXXXXX", real), (int)sizeof scratch);
    free(real);
    ck_assert_ptr_nonnull(mkdtemp(scratch));
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk) {
    (void)about;
    (void)kind;
    (void)walk;
    return remove(path);
}

void remove_tree(const char *path) {
    ck_assert_msg(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0, "%s: %s", path, strerror(errno));
}

void scratch_remove(void) {
    remove_tree(scratch);
}

void scratch_enter(void) {
    scratch_make();
    ck_assert_int_eq(chdir(scratch), 0);
}

void scratch_leave(void) {
    ck_assert_int_eq(chdir("/"), 0);
    scratch_remove();
}

const char *scratch_path(const char *name) {
    static char paths[4][PATH_MAX];
    static int next;
    next = (next + 1) % 4;
    (void)snprintf(paths[next], sizeof paths[next], "%s/%s", scratch, name);
    return paths[next];
}

void write_bytes(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

void write_text(const char *path, const char *text) {
    write_bytes(path, text, strlen(text));
}

char *read_bytes(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    long size = 0;
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    size = ftell(file);
    ck_assert_int_ge(size, 0);
    rewind(file);
    bytes = malloc((size_t)size + 1);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(fread(bytes, 1, (size_t)size, file), (size_t)size);
    bytes[size] = '\0';
    ck_assert_int_eq(fclose(file), 0);
    if (n != NULL) *n = (size_t)size;
    return bytes;
}

void check_same_file(const char *a, const char *b) {
    size_t n = 0, m = 0;
    char *x = read_bytes(a, &n), *y = read_bytes(b, &m);
    ck_assert_msg(n == m && memcmp(x, y, n) == 0, "%s and %s differ", a, b);
    free(x);
    free(y);
}
