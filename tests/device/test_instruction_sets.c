/* Runs the kernel tests again on each lower instruction set: oneDNN is limited to it, and the device's own loops
 * follow, which the tests check. The quick suite has AVX2, the full one all sets. */
#include "instruction_set.h"
#include "suite.h"

#include <check.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct set {
    const char *limit, *isa; /* oneDNN's limit; the device's name of the set */
} set;
static const set sets[] = {{"AVX512_CORE", "avx512"}, {"AVX2", "avx2"}, {"SSE41", "base"}};
enum { N_SETS = sizeof sets / sizeof sets[0] };
static const char *const programs[] = {"test_device_products", "test_device_attention",   "test_device_kernels",
                                       "test_device_rows",     "test_device_elementwise", "test_device_head",
                                       "test_device_packed"};
enum { N_PROGRAMS = sizeof programs / sizeof programs[0] };

/* Runs a test program in this one's directory; returns its exit status. */
static int run_beside(const char *name, const set *on) {
    char self[4096] = {0}, path[8192];
    int status = -1;
    pid_t child = 0;
    ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof self - 1), 0);
    (void)snprintf(path, sizeof path, "%s/%s", dirname(self), name);
    child = fork();
    if (child == 0) {
        (void)setenv("DNNL_MAX_CPU_ISA", on->limit, 1);
        (void)setenv("WEFT_TEST_ISA", on->isa, 1);
        (void)execl(path, name, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TESTS(kernels_hold_on_a_lesser_set, N_SETS *N_PROGRAMS) {
    const set *on = &sets[_i / N_PROGRAMS];
    const int program = _i % N_PROGRAMS;
    if (strcmp(on->isa, "avx2") != 0 && !is_full()) return;
    if (!instruction_set_is_here(on->isa)) return;
    ck_assert_msg(run_beside(programs[program], on) == EXIT_SUCCESS, "%s fails on %s", programs[program], on->isa);
}

int main(void) {
    TCase *tests = tcase_create("device.instruction_sets");
    tcase_set_timeout(tests, 600);
    return run_tests(tests);
}
