/* tests/common/suite.c: see suite.h. */
#include "suite.h"

static struct registered {
    const TTest **test;
    void (*range)(int *first, int *end);
} registered[256];
static size_t n_registered;

void register_test(const TTest **test, void (*range)(int *first, int *end)) {
    if (n_registered == sizeof registered / sizeof *registered) abort();
    registered[n_registered++] = (struct registered){test, range};
}

void add_registered_tests(TCase *to) {
    for (size_t i = 0; i < n_registered; i++) {
        int first = 0, end = 0;
        registered[i].range(&first, &end);
        tcase_add_loop_test(to, *registered[i].test, first, end);
    }
}
