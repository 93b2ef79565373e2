/* What the first signal of either kind does to a process, and what it leaves alone. */
#include "suite.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "launch/signals.h"
#include "plugin/crash.h"

static const int kinds[] = {SIGINT, SIGTERM};

static bool is_default(int number) {
    struct sigaction action;
    ck_assert_int_eq(sigaction(number, NULL, &action), 0);
    return action.sa_handler == SIG_DFL;
}

START_TEST(the_first_asks_to_stop_and_the_second_is_the_systems) {
    weft_signals_install();
    ck_assert(!is_default(SIGINT) && !is_default(SIGTERM));
    ck_assert(!weft_signals_stop());
    ck_assert_int_eq(raise(kinds[_i]), 0);
    ck_assert(weft_signals_stop());
    ck_assert(is_default(SIGINT) && is_default(SIGTERM));
}
END_TEST

/* It may come between a call that fails and the look at why; nobody is there to read what it says. */
START_TEST(errno_stays) {
    weft_signals_install();
    ck_assert_int_eq(close(STDERR_FILENO), 0);
    errno = ERANGE;
    ck_assert_int_eq(raise(kinds[_i]), 0);
    ck_assert_int_eq(errno, ERANGE);
}
END_TEST

/* A library's code may use the stack pointer for something else meanwhile. */
START_TEST(the_stack_at_hand_is_not_touched) {
    struct sigaction action;
    stack_t stack;
    weft_crash_install();
    weft_signals_install();
    ck_assert_int_eq(sigaction(kinds[_i], NULL, &action), 0);
    ck_assert((action.sa_flags & SA_ONSTACK) != 0);
    ck_assert_int_eq(sigaltstack(NULL, &stack), 0);
    ck_assert_int_eq(stack.ss_flags & SS_DISABLE, 0);
    ck_assert_uint_ge(stack.ss_size, 32768);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("signals");
    TCase *tcase = tcase_create("signals");
    tcase_add_loop_test(tcase, the_first_asks_to_stop_and_the_second_is_the_systems, 0, 2);
    tcase_add_loop_test(tcase, errno_stays, 0, 2);
    tcase_add_loop_test(tcase, the_stack_at_hand_is_not_touched, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
