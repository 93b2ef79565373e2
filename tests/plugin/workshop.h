/* workshop.h: a directory that goes away, and sample.c compiled into it with whatever a test wants to be wrong. */
#ifndef WEFT_TEST_PLUGIN_WORKSHOP_H
#define WEFT_TEST_PLUGIN_WORKSHOP_H

#include <check.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/plugin.h"

static char workshop[256];

static inline int workshop_remove(const char *path, const struct stat *stat, int flag, struct FTW *walk) {
    (void)stat;
    (void)flag;
    (void)walk;
    return remove(path);
}

static inline void workshop_open(void) {
    const char *base = getenv("TMPDIR");
    (void)snprintf(workshop, sizeof workshop, "%s/weft-plugin-XXXXXX", base == NULL ? "/tmp" : base);
    ck_assert_ptr_nonnull(mkdtemp(workshop));
}

static inline void workshop_close(void) {
    (void)nftw(workshop, workshop_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static inline const char *workshop_source(void) {
    const char *source = getenv("WEFT_SOURCE");
    ck_assert_msg(source != NULL, "WEFT_SOURCE must name the source directory; ctest sets it");
    return source;
}

static inline void workshop_run(const char *command) {
    ck_assert_msg(system(command) == 0, "this command failed: %s", command);
}

/* Compiles sample.c into workshop/name with the given compiler flags; map: the version script, NULL: the SDK's. Returns
 * the path, in one of a few buffers. */
static inline const char *workshop_build(const char *name, const char *flags, const char *map) {
    static char paths[4][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 4], command[8192], script[PATH_MAX];
    const char *compiler = getenv("CC");
    (void)snprintf(script, sizeof script, "%s/sdk/cmake/weft-plugin.map", workshop_source());
    (void)snprintf(path, PATH_MAX, "%s/%s", workshop, name);
    (void)snprintf(command, sizeof command,
                   "%s -std=c11 -D_GNU_SOURCE -O2 -fno-math-errno -ffp-contract=off -fPIC -shared -fvisibility=hidden "
                   "-I%s/sdk/include -Wl,--version-script=%s %s %s/tests/plugin/sample.c -o %s -lm",
                   compiler == NULL ? "cc" : compiler, workshop_source(), map == NULL ? script : map, flags,
                   workshop_source(), path);
    workshop_run(command);
    return path;
}

static inline void workshop_write(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

/* The bytes are the caller's to free. */
static inline unsigned char *workshop_read(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    struct stat stat;
    unsigned char *bytes = NULL;
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fstat(fileno(file), &stat), 0);
    *n = (size_t)stat.st_size;
    bytes = malloc(*n);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(fread(bytes, 1, *n, file), *n);
    ck_assert_int_eq(fclose(file), 0);
    return bytes;
}

#endif
