/* workshop.h: compiles sample.c into the scratch directory with a test's errors. */
#ifndef WEFT_TEST_PLUGIN_WORKSHOP_H
#define WEFT_TEST_PLUGIN_WORKSHOP_H

#include "scratch.h"
#include "suite.h"

#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include "plugin/crash.h"
#include "plugin/plugin.h"

static inline const char *workshop_source(void) {
    const char *source = getenv("WEFT_SOURCE");
    ck_assert_msg(source != NULL, "WEFT_SOURCE must name the source directory; ctest sets it");
    return source;
}

static inline void workshop_run(const char *command) {
    ck_assert_msg(system(command) == 0, "this command failed: %s", command);
}

enum { WORKSHOP_STATE = PATH_MAX + 100 };

/* Describes all state of the process that a plugin must not change. */
static inline void workshop_state(char out[WORKSHOP_STATE]) {
    char directory[PATH_MAX];
    const mode_t mask = umask(0);
    unsigned mode = 0;
    (void)umask(mask);
#ifdef __x86_64__
    mode = _mm_getcsr() & ~0x3fu;
#endif
    ck_assert_ptr_nonnull(getcwd(directory, sizeof directory));
    (void)snprintf(out, WORKSHOP_STATE, "%x %o %s %s", mode, mask, setlocale(LC_ALL, NULL), directory);
}

/* Compiles sample.c into scratch/name with the given compiler flags; map: the version script, NULL: the SDK's. Returns
 * the path; four results are valid at a time. */
static inline const char *workshop_build(const char *name, const char *flags, const char *map) {
    static char paths[4][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 4], command[8192], script[PATH_MAX];
    const char *compiler = getenv("CC");
    (void)snprintf(script, sizeof script, "%s/sdk/cmake/weft-plugin.map", workshop_source());
    (void)snprintf(path, PATH_MAX, "%s/%s", scratch, name);
    (void)snprintf(command, sizeof command,
                   "%s -std=c11 -D_GNU_SOURCE -O2 -fno-math-errno -ffp-contract=off -fPIC -shared -fvisibility=hidden "
                   "-I%s/sdk/include -Wl,--version-script=%s %s %s/tests/plugin/sample.c -o %s -lm",
                   compiler == NULL ? "cc" : compiler, workshop_source(), map == NULL ? script : map, flags,
                   workshop_source(), path);
    workshop_run(command);
    return path;
}

/* Builds the sample with these flags and runs `body` with it in a child. The result is the child's exit status. Returns
 * the child's stderr and wait status. */
static inline void workshop_child(char *out, size_t n, int *wait_status, const char *flags,
                                  int (*body)(const char *path)) {
    const char *path = workshop_build("weft-optimizer-sample.so", flags, NULL);
    int ends[2];
    pid_t child;
    size_t used = 0;
    ssize_t got;
    ck_assert_int_eq(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        weft_crash_install(STDERR_FILENO);
        _exit(body(path));
    }
    (void)close(ends[1]);
    while (used + 1 < n && (got = read(ends[0], out + used, n - 1 - used)) > 0) used += (size_t)got;
    out[used] = 0;
    (void)close(ends[0]);
    ck_assert_int_eq(waitpid(child, wait_status, 0), child);
}

#endif
