/* The emulated NCCL: processes communicate correctly in every mode; an exited rank and ranks with different calls are
 * detected. */
#include "suite.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft_emulator.h>

#include "cuda/ranks.h"

enum { MOST_RANKS = 4 };
static const char *const modes[] = {"last", "any", "soon"};

typedef struct row {
    const char *name;
    ranks_case *run;
    const char *says; /* NULL: correct; "": some rank fails; else a part of a rank's message */
} row;

static const row rows[] = {
    {"streams", ranks_streams, NULL},
    {"split", ranks_split, NULL},
    {"graph", ranks_graph, NULL},
    {"two on one card", ranks_share, NULL},
    {"host memory", ranks_host_memory, NULL},
    {"the end of a process", ranks_exit, NULL},
    {"ranks that differ", ranks_differ, "ncclAllReduce of 80000 bytes"},
};

static void child(const row *r, int rank, int ranks, const ncclUniqueId *id, const char *mode, int to) {
    (void)dup2(to, STDERR_FILENO);
    emulator_seed((uint64_t)rank + 1);
    (void)emulator_mode(mode);
    _exit(r->run(rank, ranks, id));
}

/* Returns the number of ranks with a nonzero status, and their output. */
static int run_ranks(const row *r, int ranks, const char *mode, char *text, size_t room) {
    ncclUniqueId id;
    int ends[2] = {0, 0}, status = 0, failed = 0;
    size_t n = 0;
    ck_assert(pipe(ends) == 0 && ncclGetUniqueId(&id) == ncclSuccess);
    for (int rank = 0; rank < ranks; rank++)
        if (fork() == 0) child(r, rank, ranks, &id, mode, ends[1]);
    (void)close(ends[1]);
    for (ssize_t got = 1; got > 0 && n<room - 1; n += got> 0 ? (size_t)got : 0)
        got = read(ends[0], text + n, room - 1 - n);
    text[n] = 0;
    (void)close(ends[0]);
    for (int rank = 0; rank < ranks; rank++) {
        ck_assert(wait(&status) > 0);
        failed += status != 0;
    }
    return failed;
}

TESTS(ranks_exchange, LENGTH(rows)) {
    const row *r = &rows[_i];
    char text[8192];
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
            const int failed = run_ranks(r, ranks, modes[m], text, sizeof text);
            if (r->says == NULL || ranks == 1)
                ck_assert_msg(failed == 0, "%s, %d ranks, %s:\n%s", r->name, ranks, modes[m], text);
            else ck_assert_msg(failed > 0 && strstr(text, r->says) != NULL, "%s: %d failed\n%s", r->name, failed, text);
        }
    }
}

TEST(a_rank_that_ends_is_told) {
    const row ends = {"one ends", ranks_one_ends, NULL};
    char text[8192];
    for (int ranks = 2; ranks <= 3; ranks++)
        ck_assert_msg(run_ranks(&ends, ranks, "last", text, sizeof text) == 0, "%s", text);
}

TEST(nothing_comes_before_it_is_waited_for) {
    const row early = {"looks early", ranks_look_early, ""};
    char text[8192];
    ck_assert_int_gt(run_ranks(&early, 2, "last", text, sizeof text), 0);
}

int main(void) {
    TCase *cases = tcase_create("cases");
    (void)setenv("WEFT_EMULATOR_DEVICES", "4", 1); /* one per rank */
    return run_tests_in_one_process(cases);
}
