/* The CUDA emulator: correct programs have the same result under any seed and in any mode. Each planted bug is detected
 * under one of a few seeds, with a message if the emulator can detect it directly. */
#include "suite.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft_emulator.h>

#include "cuda/cases.h"

enum { SEEDS = 8 };
static const char *const modes[] = {"last", "any", "soon"};

typedef struct row {
    const char *name;
    cuda_case *run;
    const char *says; /* NULL: correct; "": the result differs; else a part of the message */
} row;
#define RIGHT(name)                                                                                                    \
    { #name, case_##name, NULL }
/* Errors that the sanitizers detect themselves. */
#if defined(__SANITIZE_ADDRESS__)
#define SEEN_BEFORE(says) "runtime error"
#else
#define SEEN_BEFORE(says) says
#endif
#define WRONG(name, says)                                                                                              \
    { #name, case_##name, says }

/* clang-format off */
#define CORRECT(C) \
    C(block_sum) C(sums) C(votes) C(late_copy) C(blocks_independent) C(too_much_shared) C(warp_sum) C(shuffles) \
    C(short_warp) C(meeting) C(grid) C(freed_twice) C(copy_too_long) C(too_large) C(order) C(event) \
    C(first_stream) C(destroyed) C(graph) C(graph_of_two_streams) C(graph_allocates) C(graph_waits) \
    C(graph_pageable) C(graph_foreign_event) C(planted) C(no_card) C(no_driver)
/* clang-format on */
#define RIGHT_ROW(name) RIGHT(name),

static const row rows[] = {
    CORRECT(RIGHT_ROW) WRONG(block_sum_without_barrier, ""),
    WRONG(block_sum_reused, ""),
    WRONG(sums_run_ahead, ""),
    WRONG(barrier_left_out_by_one, "waits at __syncthreads"),
    WRONG(blocks_race, ""),
    WRONG(first_block_waits, ", block (0,0,0), thread "),
    WRONG(second_block_waits, ", block (1,0,0), thread "),
    WRONG(two_barriers, "meet at __syncthreads"),
    WRONG(shared_not_written, ""),
    WRONG(shared_too_far, SEEN_BEFORE("behind the end of the shared array value of 256 bytes")),
    WRONG(dynamic_too_far, "reaches out of shared memory"),
    WRONG(late_copy_without_wait, ""),
    WRONG(stack_full, "a thread's stack is full"),
    WRONG(shuffle_not_by_all, "thread (9,0,0) waits at __syncthreads"),
    WRONG(shuffle_by_the_gone, "thread (9,0,0) has ended without coming there"),
    WRONG(shuffle_masks_differ, "__shfl_sync"),
    WRONG(syncwarp_left_out, ""),
    WRONG(past_the_end,
          "kernel put, block (0,0,0), thread (0,0,0): touches 0 bytes behind the end of an allocation of 4096"),
    WRONG(before_the_start, "touches 4 bytes before an allocation of 4096 bytes"),
    WRONG(just_past_the_end, "byte 0 behind the end of an allocation of 4092 bytes was written"),
    WRONG(after_free, "byte 12 of an allocation of 256 bytes that was freed"),
    WRONG(not_written, ""),
    WRONG(host_reads, "the host touches device memory, byte 8 of an allocation of 256 bytes"),
    WRONG(host_writes, "the host touches device memory"),
    WRONG(kernel_reads_host, "which is not the device's"),
    WRONG(null_pointer, SEEN_BEFORE("which is not the device's")),
    WRONG(misaligned, SEEN_BEFORE("thread (0,0,0): ")),
    WRONG(event_left_out, ""),
    WRONG(host_does_not_wait, ""),
    WRONG(read_early, ""),
    WRONG(source_reused, ""),
    WRONG(pinned_reused, ""),
    WRONG(not_blocking, ""),
    WRONG(copy_is_staged, ""),
    WRONG(graph_fork_left_out, ""),
    WRONG(graph_not_joined, "cudaStreamEndCapture"),
};

/* Runs the case in a separate process. Returns 0, or its output on stderr. */
static int run_case(const row *r, uint64_t seed, const char *mode, char *text, size_t room) {
    int ends[2] = {0, 0}, status = 0;
    size_t n = 0;
    pid_t child = 0;
    ck_assert(pipe(ends) == 0);
    child = fork();
    ck_assert(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        emulator_seed(seed);
        (void)emulator_mode(mode);
        _exit(r->run());
    }
    (void)close(ends[1]);
    for (ssize_t got = 1; got > 0 && n<room - 1; n += got> 0 ? (size_t)got : 0)
        got = read(ends[0], text + n, room - 1 - n);
    text[n] = 0;
    (void)close(ends[0]);
    ck_assert(waitpid(child, &status, 0) == child);
    return status;
}

TESTS(case_has_its_result, LENGTH(rows)) {
    const row *r = &rows[_i];
    char text[8192];
    int noticed = 0, runs = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
            const int status = run_case(r, seed, modes[m], text, sizeof text);
            if (r->says == NULL) ck_assert_msg(status == 0, "%s, seed %d, %s:\n%s", r->name, (int)seed, modes[m], text);
            if (status != 0 && r->says != NULL && r->says[0] != 0)
                ck_assert_msg(strstr(text, r->says) != NULL, "%s does not say \"%s\":\n%s", r->name, r->says, text);
            noticed += status != 0;
            runs++;
        }
    }
    if (r->says != NULL) ck_assert_msg(noticed > 0, "%s is not noticed in %d runs", r->name, runs);
}

TEST(algorithms_of_a_matmul_differ) {
    const row once = RIGHT(products_differ);
    char text[8192];
    ck_assert_msg(run_case(&once, 1, "any", text, sizeof text) == 0, "%s", text);
}

/* Cases for the mode that runs nothing early. */
TESTS(nothing_runs_early, 4) {
    static const row late[] = {RIGHT(query), RIGHT(bad_launches), RIGHT(step_allocates), RIGHT(planted_kernel)};
    char text[8192];
    ck_assert_msg(run_case(&late[_i], 1, "last", text, sizeof text) == 0, "%s", text);
}

int main(void) {
    return run_tests_in_one_process(tcase_create("cases"));
}
