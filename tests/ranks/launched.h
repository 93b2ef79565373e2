/* tests/ranks/launched.h: tests that launch their own program as ranks under MPICH. */
#ifndef WEFT_TESTS_RANKS_LAUNCHED_H
#define WEFT_TESTS_RANKS_LAUNCHED_H

#include "launch/find.h"
#include "suite.h"

static char self_path[4096]; /* of the program; set by run_launcher */

/* False: the calling test is skipped. */
static inline bool has_mpich(void) {
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/plugins/weft-comm-mpi-mpich.so", getenv("WEFT_BUILD"));
    if (access(path, R_OK) == 0 && system("command -v mpiexec.mpich >/dev/null") == 0) return true;
    printf("skipped: there is no MPICH here\n");
    return false;
}

/* Runs a command. Appends its output to said, except what follows `mark` in a line, which goes to `take`. Returns true
 * if it succeeded. */
static inline bool run_command(const char *command, char *said, size_t size, const char *mark,
                               void (*take)(void *context, const char *line), void *context) {
    char line[1000];
    FILE *from = popen(command, "r");
    ck_assert_ptr_nonnull(from);
    said[0] = '\0';
    while (fgets(line, sizeof line, from) != NULL) {
        const char *found = strstr(line, mark); /* after the rank prefix */
        if (found != NULL) take(context, found + strlen(mark));
        else (void)snprintf(said + strlen(said), size - strlen(said), "%s", line);
    }
    return pclose(from) == 0;
}

/* Runs this test alone as one rank of a launch. */
static inline int run_rank(const TTest *rank) {
    Suite *suite = suite_create("rank");
    TCase *tcase = tcase_create("rank");
    weft_launch_want(WEFT_RANKS_TRAINED, 0);
    tcase_add_test(tcase, rank);
    suite_add_tcase(suite, tcase);
    return run_rank_suite(suite);
}

static inline int run_launcher(TCase *tests) {
    return readlink("/proc/self/exe", self_path, sizeof self_path - 1) < 0 ? 1 : run_tests(tests);
}

#endif
