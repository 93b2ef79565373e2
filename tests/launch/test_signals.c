/* Effects of the first signal of each kind on a process. */
#include "suite.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "launch/signals.h"
#include "plugin/crash.h"

static const int kinds[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGALRM, SIGXCPU};
enum { KINDS = sizeof kinds / sizeof *kinds };

static bool is_default(int number) {
    struct sigaction action;
    ck_assert_int_eq(sigaction(number, NULL, &action), 0);
    return action.sa_handler == SIG_DFL;
}

TESTS(the_first_asks_to_stop_and_the_second_is_the_systems, 2) {
    weft_signals_install("step and saving");
    ck_assert(!is_default(SIGINT) && !is_default(SIGTERM));
    ck_assert(!weft_signals_stop());
    ck_assert_int_eq(raise(kinds[_i]), 0);
    ck_assert(weft_signals_stop());
    ck_assert(is_default(SIGINT) && is_default(SIGTERM));
}

/* A closed terminal and a closed pipe can cause several signals. */
TEST_RANGE(those_that_repeat_themselves_only_ask, 2, KINDS) {
    weft_signals_install("step and saving");
    ck_assert_int_eq(raise(kinds[_i]), 0);
    ck_assert(weft_signals_stop());
    ck_assert_int_eq(raise(kinds[_i]), 0); /* kills a process with the default action */
    ck_assert(!is_default(SIGINT) && !is_default(SIGTERM));
    ck_assert_int_eq(raise(SIGTERM), 0);
    ck_assert(is_default(SIGINT) && is_default(SIGTERM) && !is_default(kinds[_i]));
}

TEST_RANGE(what_nohup_ignores_stays_ignored, 2, KINDS) {
    (void)signal(kinds[_i], SIG_IGN);
    weft_signals_install("step and saving");
    ck_assert_int_eq(raise(kinds[_i]), 0);
    ck_assert(!weft_signals_stop());
}

/* The handler may run between a failing call and the check of errno; its output has no reader. */
TESTS(errno_stays, KINDS) {
    weft_signals_install("step and saving");
    ck_assert_int_eq(close(STDERR_FILENO), 0);
    errno = ERANGE;
    ck_assert_int_eq(raise(kinds[_i]), 0);
    ck_assert_int_eq(errno, ERANGE);
}

/* ---- library code that uses the stack pointer for other purposes ---- */

/* A thread on a stack visible to the test, which makes no calls while it spins: only the signal handler changes bytes
 * below its frame. */
enum { STACK = 1 << 20, FRAME = 512 };
static _Alignas(4096) unsigned char at_hand[STACK], before[STACK];
static _Atomic(unsigned char *) frame; /* of spin; NULL: not running yet */
static atomic_bool released;

static __attribute__((noinline)) void spin(void) {
    atomic_store(&frame, (unsigned char *)__builtin_frame_address(0));
    while (!atomic_load(&released)) {
    }
}

/* Runs weft's main setup, then the work. Restores the alternate stack that it found: a sanitizer unmaps the one of a
 * thread at its end, and the crash handler's stack must not be unmapped. */
static void *run_on_that_stack(void *unused) {
    stack_t found;
    (void)unused;
    if (sigaltstack(NULL, &found) != 0) return NULL;
    weft_crash_install(STDERR_FILENO);
    weft_signals_install("step and saving");
    spin();
    (void)sigaltstack(&found, NULL);
    return NULL;
}

TESTS(the_stack_at_hand_is_not_touched, KINDS) {
    size_t below = 0;
    pthread_t thread;
    pthread_attr_t attributes;
    ck_assert_int_eq(pthread_attr_init(&attributes), 0);
    ck_assert_int_eq(pthread_attr_setstack(&attributes, at_hand, sizeof at_hand), 0);
    ck_assert_int_eq(pthread_create(&thread, &attributes, run_on_that_stack, NULL), 0);
    while (atomic_load(&frame) == NULL) (void)usleep(1000);
    ck_assert(atomic_load(&frame) > at_hand + FRAME && atomic_load(&frame) < at_hand + sizeof at_hand);
    below = (size_t)(atomic_load(&frame) - FRAME - at_hand);
    memcpy(before, at_hand, below);
    ck_assert_int_eq(pthread_kill(thread, kinds[_i]), 0);
    while (!weft_signals_stop()) (void)usleep(1000);
    ck_assert_mem_eq(before, at_hand, below);
    atomic_store(&released, true);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)pthread_attr_destroy(&attributes);
}

/* The kernel saves the processor's registers there; those of AVX-512 and AMX need 11 KiB. */
TEST(the_handlers_stack_has_room) {
    stack_t stack;
    weft_crash_install(STDERR_FILENO);
    ck_assert_int_eq(sigaltstack(NULL, &stack), 0);
    ck_assert_int_eq(stack.ss_flags & SS_DISABLE, 0);
    ck_assert_uint_ge(stack.ss_size, 32768);
}

int main(void) {
    return run_tests(tcase_create("signals"));
}
