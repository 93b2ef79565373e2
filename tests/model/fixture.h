/* fixture.h: what the tests of host/model stand on: a host that remembers its log, directories that go away, and a
 * small model plugin made of plain calls. */
#ifndef WEFT_TEST_MODEL_FIXTURE_H
#define WEFT_TEST_MODEL_FIXTURE_H

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/declare.h"

/* ---- a host ---- */

static char fixture_log[4096]; /* all lines since fixture_log[0] = 0 */

static inline void fixture_host_log(const weft_host *host, int32_t level, const char *text) {
    const size_t n = strlen(fixture_log);
    (void)host;
    (void)level;
    (void)snprintf(fixture_log + n, sizeof fixture_log - n, "%s\n", text);
}

static inline void *fixture_host_alloc(const weft_host *host, size_t bytes, size_t alignment) {
    (void)host;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static inline void fixture_host_release(const weft_host *host, void *memory) {
    (void)host;
    free(memory);
}

static inline void fixture_host_parallel_for(const weft_host *host, int64_t n, void (*body)(int64_t, void *),
                                             void *context) {
    (void)host;
    for (int64_t i = n - 1; i >= 0; i--)
        body(i, context); /* backwards: no order may be counted on */
}

static inline void fixture_host_progress(const weft_host *host, const char *what, double done, double total) {
    (void)host;
    (void)what;
    (void)done;
    (void)total;
}

static inline const void *fixture_host_extension(const weft_host *host, const char *id) {
    (void)host;
    (void)id;
    return NULL;
}

static const weft_host fixture_host = {sizeof(weft_host),     0,
                                       WEFT_SDK_HEADERS,      0,
                                       fixture_host_log,      fixture_host_alloc,
                                       fixture_host_release,  fixture_host_parallel_for,
                                       fixture_host_progress, fixture_host_extension};

/* ---- files ---- */

static char fixture_directory[64]; /* of the test that runs */

static inline void fixture_directory_make(void) {
    strcpy(fixture_directory, "/tmp/weft-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(fixture_directory));
}

static inline int fixture_unlink(const char *path, const struct stat *about, int kind, struct FTW *where) {
    (void)about;
    (void)kind;
    (void)where;
    return remove(path);
}

static inline void fixture_directory_remove(void) {
    (void)nftw(fixture_directory, fixture_unlink, 8, FTW_DEPTH | FTW_PHYS);
}

/* The path of `name` in the test's directory; four at a time. */
static inline const char *fixture_path(const char *name) {
    static char paths[4][512];
    static int next;
    next = (next + 1) % 4;
    (void)snprintf(paths[next], sizeof paths[next], "%s/%s", fixture_directory, name);
    return paths[next];
}

static inline void fixture_write(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

static inline char *fixture_read(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    long size = 0;
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    size = ftell(file);
    rewind(file);
    bytes = malloc((size_t)size + 1);
    ck_assert_uint_eq(fread(bytes, 1, (size_t)size, file), (size_t)size);
    bytes[size] = '\0';
    (void)fclose(file);
    if (n != NULL) *n = (size_t)size;
    return bytes;
}

#define ck_assert_text(err, part) ck_assert_msg(strstr((err).text, part) != NULL, "'%s' lacks '%s'", (err).text, part)
#define ck_assert_ok(status, err) ck_assert_msg((status) == WEFT_OK, "%s", (err).text)

#endif
