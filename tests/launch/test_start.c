/* `--ranks N` with processes: this program is the parent, and through launcher.sh its own ranks. Tests the user's view:
 * lines with rank prefixes, one exit status, and a Ctrl-C after which all ranks save. */
#include "fakes.h"

#include "launch/heartbeat.h"
#include "launch/signals.h"
#include "launch/find.h"
#include "plugin/crash.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 300 }; /* timeout of each operation */

/* ---- child processes: "act WHAT DIRECTORY N", followed by the rank if there is one ---- */

static void join_world(bool speaks) {
    const weft_world world = {.rank = atoi(getenv("FAKE_RANK")), .size = atoi(getenv("FAKE_SIZE"))};
    weft_world sized = world;
    sized.local_rank = world.rank;
    sized.local_size = world.size;
    sized.speaks = speaks;
    weft_world_set(&sized);
}

static void say_ready(const char *directory) {
    char path[300], text[32];
    FILE *file = NULL;
    (void)snprintf(path, sizeof path, "%s/ready.%s", directory, getenv("FAKE_RANK"));
    file = fopen(path, "w");
    (void)snprintf(text, sizeof text, "%d", (int)getpid());
    if (file != NULL) (void)fputs(text, file);
    if (file != NULL) (void)fclose(file);
}

static const char *scratch_in(const char *directory, const char *name) {
    static char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void wait_a_little(void) {
    const struct timespec time = {0, 5000000};
    (void)nanosleep(&time, NULL);
}

/* A rank that blocks the others, or one of the others. */
static int act_waiting(const char *what, const char *directory, int rank) {
    if (strcmp(what, "never begins") == 0 && rank == 1) {
        say_ready(directory);
        (void)pause();
    }
    join_world(false);
    weft_heartbeat_patience(1);
    weft_heartbeat_instruction(7, 3, "REDUCE root all micro-batch 0");
    say_ready(directory);
    if (strcmp(what, "all wait") == 0 || rank == 0) weft_heartbeat_wait();
    for (int i = 0; strcmp(what, "one computes for 3 s") != 0 || i < 600; i++) wait_a_little();
    return 0;
}

static int act_rank(const char *what, const char *directory) {
    const int rank = atoi(getenv("FAKE_RANK"));
    if (strcmp(what, "never begins") == 0 || strcmp(what, "all wait") == 0 || strncmp(what, "one computes", 12) == 0)
        return act_waiting(what, directory, rank);
    if (strcmp(what, "ignores signals at the start") == 0 && rank == 1) {
        (void)signal(SIGTERM, SIG_IGN);
        say_ready(directory);
        (void)pause();
    }
    if (strcmp(what, "begins late") == 0 && rank == 1) {
        say_ready(directory);
        while (access(scratch_in(directory, "go"), F_OK) != 0) wait_a_little();
    }
    join_world(strcmp(what, "speak, 2 too") == 0 && rank == 2);
    if (strncmp(what, "speak", 5) == 0) {
        (void)printf("a table");
        (void)fflush(stdout); /* an incomplete line is not printed yet */
        wait_a_little();
        (void)printf(" of %s\nand more\n", getenv("FAKE_SIZE"));
        (void)fprintf(stderr, "weft: a mistake\n");
        (void)fprintf(stderr, "input %d\n", getchar());
        (void)printf("the rest");
        return 0;
    }
    if (strcmp(what, "crash") == 0) {
        weft_crash_install(STDERR_FILENO);
        if (rank == 1) (void)raise(SIGABRT);
        return 0;
    }
    if (strcmp(what, "fail") == 0) return rank == 1 ? 3 : 0;
    if (strcmp(what, "works for 1 s") == 0) (void)signal(SIGHUP, SIG_DFL); /* a launcher may reset it */
    weft_signals_install("step and saving");
    if (strcmp(what, "deaf") == 0) (void)signal(SIGINT, SIG_IGN);
    if (rank != 1 || strcmp(what, "begins late") != 0) say_ready(directory);
    for (int i = 0; strcmp(what, "works for 1 s") == 0 && !weft_signals_stop(); i++, wait_a_little())
        if (i == 200) return 0;
    while (!weft_signals_stop()) wait_a_little();
    return 75;
}

static int act_parent(const char *launcher, const char *n) {
    weft_error err = WEFT_ERROR_INIT;
    weft_launch ranks = {.must_launch = true};
    int status = -1;
    ranks.world.size = atoi(n);
    (void)snprintf(ranks.launch, sizeof ranks.launch, "%s -n {ranks}", launcher);
    if (weft_launch_start(&status, &ranks, &err) == WEFT_OK) return status;
    (void)fprintf(stderr, "%s\n", err.text);
    return 99;
}

/* ---- test side ---- */

typedef struct run {
    pid_t pid;
    char *log; /* output of both streams */
    int status;
} run;

/* Signals that end a run, and the message of rank 0. */
static const struct {
    int number;
    const char *said;
} signals[] = {{SIGINT, "[0] weft: stopping after this step and saving; again to stop at once\n"},
               {SIGTERM, "[0] weft: stopping after this step and saving; again to stop at once\n"},
               {SIGHUP, "[0] weft: hung up: stopping after this step and saving\n"},
               {SIGUSR1, "[0] weft: time limit: stopping after this step and saving\n"},
               {SIGALRM, "[0] weft: time limit: stopping after this step and saving\n"},
               {SIGXCPU, "[0] weft: time limit: stopping after this step and saving\n"}};
enum { N_SIGNALS = sizeof signals / sizeof signals[0] };

/* ignored: a signal. */
static void run_begin_in_scratch(run *self, const char *launcher, const char *what, int ranks, int ignored) {
    char n[16];
    (void)snprintf(n, sizeof n, "%d", ranks);
    self->pid = fork();
    ck_assert_int_ge(self->pid, 0);
    if (self->pid == 0) {
        const int out = open(scratch_path("log"), O_WRONLY | O_CREAT | O_APPEND, 0600);
        (void)dup2(out, STDOUT_FILENO);
        (void)dup2(out, STDERR_FILENO);
        for (size_t i = 0; i < N_SIGNALS; i++) /* nohup, or a script's background process, ignores some of them */
            (void)signal(signals[i].number, SIG_DFL);
        if (ignored != SIGCHLD) (void)signal(ignored, SIG_IGN);
        (void)execl("/proc/self/exe", "test", "act", what, scratch, n, launcher, (char *)NULL);
        _exit(98);
    }
}

static void run_begin_by(run *self, const char *launcher, const char *what, int ranks) {
    scratch_make();
    run_begin_in_scratch(self, launcher, what, ranks, SIGCHLD);
}

static void run_begin_ignoring(run *self, const char *what, int ranks, int ignored) {
    char launcher[600];
    (void)snprintf(launcher, sizeof launcher, "%s/tests/launch/launcher.sh", fakes_source());
    scratch_make();
    run_begin_in_scratch(self, launcher, what, ranks, ignored);
}

static void run_begin(run *self, const char *what, int ranks) {
    run_begin_ignoring(self, what, ranks, SIGCHLD);
}

static void run_end(run *self) {
    int ended = 0;
    ck_assert_int_eq(waitpid(self->pid, &ended, 0), self->pid);
    self->status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 1000 + WTERMSIG(ended);
    self->log = read_bytes(scratch_path("log"), NULL);
    scratch_remove();
}

/* Waits until rank r is ready; returns its process. */
static pid_t ready(int rank) {
    char name[32];
    (void)snprintf(name, sizeof name, "ready.%d", rank);
    for (int i = 0; i < SECONDS * 200; i++, wait_a_little()) {
        FILE *file = fopen(scratch_path(name), "r");
        int pid = 0;
        const int n = file == NULL ? 0 : fscanf(file, "%d", &pid);
        if (file != NULL) (void)fclose(file);
        if (n == 1) return pid;
    }
    ck_abort_msg("rank %d is not ready", rank);
}

/* True once a process has exited. An orphan is a zombie until process 1 waits for it, which not every one does. */
static bool is_gone(pid_t pid) {
    char path[32], state = 'Z';
    FILE *file = NULL;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file == NULL) return true;
    (void)fscanf(file, "%*d (%*[^)]) %c", &state);
    (void)fclose(file);
    return state == 'Z' || state == 'X';
}

static void run_free(run *self) {
    free(self->log);
}

/* ---- tests ---- */

TEST(lines_carry_their_rank_and_others_than_rank_0_only_say_errors) {
    run r;
    run_begin(&r, "speak to all", 3);
    run_end(&r);
    ck_assert_int_eq(r.status, 0);
    ck_assert_ptr_nonnull(strstr(r.log, "[0] a table of 3\n"));
    ck_assert_ptr_nonnull(strstr(r.log, "[0] and more\n"));
    ck_assert_ptr_null(strstr(r.log, "[1] a table"));
    ck_assert_ptr_null(strstr(r.log, "[2] and more"));
    for (int rank = 0; rank < 3; rank++) {
        char line[64];
        (void)snprintf(line, sizeof line, "[%d] weft: a mistake\n", rank);
        ck_assert_msg(strstr(r.log, line) != NULL, "%s", r.log);
        (void)snprintf(line, sizeof line, "[%d] input -1\n", rank); /* no input, and no wait */
        ck_assert_msg(strstr(r.log, line) != NULL, "%s", r.log);
    }
    ck_assert_msg(strstr(r.log, "[0] the rest") != NULL, "%s", r.log); /* it was not killed */
    for (const char *at = r.log; at != NULL && *at != '\0'; at = strchr(at, '\n'), at += at != NULL)
        ck_assert_msg(*at == '[', "%s", r.log);
    run_free(&r);
}

TEST(a_rank_that_speaks_prints_as_rank_0_does) {
    run r;
    run_begin(&r, "speak, 2 too", 3);
    run_end(&r);
    ck_assert_int_eq(r.status, 0);
    ck_assert_ptr_nonnull(strstr(r.log, "[0] a table of 3\n"));
    ck_assert_ptr_nonnull(strstr(r.log, "[2] a table of 3\n"));
    ck_assert_ptr_nonnull(strstr(r.log, "[2] and more\n"));
    ck_assert_ptr_nonnull(strstr(r.log, "[2] the rest"));
    ck_assert_ptr_null(strstr(r.log, "[1] a table"));
    run_free(&r);
}

TEST(the_ranks_status_is_the_parents) {
    run r;
    run_begin(&r, "fail", 3);
    run_end(&r);
    ck_assert_int_eq(r.status, 3);
    run_free(&r);
}

TEST(a_crash_names_the_rank) {
    run r;
    run_begin(&r, "crash", 2);
    run_end(&r);
    ck_assert_int_eq(r.status, 99);
    ck_assert_msg(strstr(r.log, "\nrank 1 died by signal 6 before step 1: the other ranks were stopped") != NULL, "%s",
                  r.log);
    ck_assert_msg(strstr(r.log, "weft: signal 6 (abort) in ") != NULL && strstr(r.log, ", rank 1\n") != NULL, "%s",
                  r.log);
    run_free(&r);
}

TESTS(a_signal_to_the_parent_lets_every_rank_end_as_it_would_alone, N_SIGNALS) {
    run r;
    run_begin(&r, "listen", 3);
    for (int rank = 0; rank < 3; rank++) (void)ready(rank);
    ck_assert_int_eq(kill(r.pid, signals[_i].number), 0);
    run_end(&r);
    ck_assert_int_eq(r.status, 75);
    ck_assert_str_eq(r.log, signals[_i].said);
    run_free(&r);
}

/* Signals of a kind are merged until the first one is handled. */
static void wait_until_taken(pid_t pid, int number) {
    for (int i = 0; i < SECONDS * 200; i++, wait_a_little()) {
        char path[32], line[200];
        unsigned long long waits = 0;
        FILE *file = NULL;
        (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
        file = fopen(path, "r");
        if (file == NULL) return;
        while (waits == 0 && fgets(line, sizeof line, file) != NULL) (void)sscanf(line, "ShdPnd: %llx", &waits);
        (void)fclose(file);
        if ((waits & 1ull << (number - 1)) == 0) return;
    }
    ck_abort_msg("signal %d is not taken", number);
}

static void wait_until_gone(const pid_t ranks[2]) {
    int gone = 0;
    for (int i = 0; i < SECONDS * 200 && gone < 2; i++, wait_a_little()) {
        gone = 0;
        for (int rank = 0; rank < 2; rank++) gone += is_gone(ranks[rank]);
    }
    ck_assert_int_eq(gone, 2);
}

TEST(ranks_that_ignore_a_signal_end_by_the_second) {
    run r;
    pid_t ranks[2];
    run_begin(&r, "deaf", 2);
    for (int rank = 0; rank < 2; rank++) ranks[rank] = ready(rank);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(kill(r.pid, SIGINT), 0);
        wait_until_taken(r.pid, SIGINT);
        for (int k = 0; k < 40; k++) wait_a_little();
        ck_assert(i == 1 || (kill(ranks[0], 0) == 0 && kill(ranks[1], 0) == 0));
    }
    run_end(&r);
    ck_assert_int_eq(r.status, 1000 + SIGINT); /* the status of one rank */
    wait_until_gone(ranks);
    run_free(&r);
}

/* A rank that has not started may miss the signal or ignore it, and would block the others. */
TESTS(a_signal_before_all_ranks_have_begun_ends_the_job, N_SIGNALS) {
    run r;
    pid_t ranks[2];
    run_begin(&r, "ignores signals at the start", 2);
    for (int rank = 0; rank < 2; rank++) ranks[rank] = ready(rank);
    ck_assert_int_eq(kill(r.pid, signals[_i].number), 0);
    run_end(&r);
    ck_assert_int_eq(r.status, 1000 + signals[_i].number);
    wait_until_gone(ranks);
    run_free(&r);
}

/* nohup: the run continues. */
TEST(an_ignored_signal_is_not_passed_on) {
    run r;
    run_begin_ignoring(&r, "works for 1 s", 2, SIGHUP);
    for (int rank = 0; rank < 2; rank++) (void)ready(rank);
    ck_assert_int_eq(kill(r.pid, SIGHUP), 0);
    run_end(&r);
    ck_assert_int_eq(r.status, 0);
    run_free(&r);
}

/* Whether or not the launcher kills them, and also a rank that starts later. */
static const struct {
    const char *what, *launcher;
} orphans[] = {{"listen", "exec \"$LAUNCHER\" \"$@\""},
               {"listen", "trap '' TERM; exec \"$LAUNCHER\" \"$@\""},
               {"begins late", "trap '' TERM; exec \"$LAUNCHER\" \"$@\""}};

TESTS(a_parent_that_is_killed_leaves_no_rank_behind, 3) {
    run r;
    pid_t ranks[2];
    char command[900];
    FILE *file = NULL;
    scratch_make();
    file = fopen(scratch_path("launcher"), "w");
    ck_assert_ptr_nonnull(file);
    (void)fprintf(file, "#!/bin/sh\nLAUNCHER=%s/tests/launch/launcher.sh\n%s\n", fakes_source(), orphans[_i].launcher);
    (void)fclose(file);
    (void)snprintf(command, sizeof command, "chmod +x %s", scratch_path("launcher"));
    fakes_run(command);
    run_begin_in_scratch(&r, scratch_path("launcher"), orphans[_i].what, 2, SIGCHLD);
    for (int rank = 0; rank < 2; rank++) ranks[rank] = ready(rank);
    ck_assert_int_eq(kill(r.pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(r.pid, NULL, 0), r.pid);
    file = fopen(scratch_path("go"), "w");
    ck_assert(file != NULL && fclose(file) == 0);
    wait_until_gone(ranks);
    scratch_remove();
}

static const struct {
    const char *what;
    int status;
    const char *says;
} waits[] = {
    {"never begins", 99,
     "; rank 0 waits in step 7, at instruction 3, REDUCE root all micro-batch 0; rank 1 has not begun"},
    {"all wait", 99, "the ranks hang: no rank has made progress for 1 s and none computes; rank 0 waits in step 7"},
    {"one computes for 3 s", 0, ""},
};

TESTS(ranks_hang_when_all_wait_and_not_while_one_computes, 3) {
    run r;
    pid_t ranks[2];
    run_begin(&r, waits[_i].what, 2);
    for (int rank = 0; rank < 2; rank++) ranks[rank] = ready(rank);
    run_end(&r);
    ck_assert_msg(r.status == waits[_i].status, "%d: %s", r.status, r.log);
    ck_assert_msg(strstr(r.log, waits[_i].says) != NULL, "%s", r.log);
    for (int rank = 0; rank < 2; rank++) ck_assert(is_gone(ranks[rank]));
    run_free(&r);
}

/* The signal that killed a rank is unknown if the launcher collected its status before the watchdog, on an older kernel
 * or in the first moments. */
static const struct {
    int number;
    const char *says, *or_says, *place;
} blows[] = {{SIGKILL, "rank 1 died by signal 9 in", "rank 1 died without a report, as after kill -9",
              " in step 7, at instruction 3, REDUCE root all micro-batch 0: the other ranks were"},
             {SIGSTOP, "rank 1 hangs: it has been stopped by a signal for 1 s, in", NULL,
              " in step 7, at instruction 3, REDUCE root all micro-batch 0: the other ranks were"}};

TESTS(a_rank_that_is_killed_or_stopped_is_named_and_takes_the_others_along, 2) {
    run r;
    pid_t ranks[2];
    run_begin(&r, "one computes for ever", 2);
    for (int rank = 0; rank < 2; rank++) ranks[rank] = ready(rank);
    ck_assert_int_eq(kill(ranks[1], blows[_i].number), 0);
    run_end(&r);
    ck_assert_msg(r.status == 99, "%d: %s", r.status, r.log);
    ck_assert_msg(strstr(r.log, blows[_i].says) != NULL ||
                      (blows[_i].or_says != NULL && strstr(r.log, blows[_i].or_says) != NULL),
                  "%s", r.log);
    ck_assert_msg(strstr(r.log, blows[_i].place) != NULL, "%s", r.log);
    for (int rank = 0; rank < 2; rank++) ck_assert(is_gone(ranks[rank]));
    run_free(&r);
}

TEST(a_launcher_that_cannot_run_is_named) {
    run r;
    run_begin_by(&r, "/nowhere/mpiexec", "listen", 2);
    run_end(&r);
    ck_assert_int_eq(r.status, 127);
    ck_assert_ptr_nonnull(strstr(r.log, "weft: /nowhere/mpiexec cannot be started: No such file or directory"));
    run_free(&r);
}

int main(int argc, char **argv) {
    TCase *tests = NULL;
    if (argc == 6 && strcmp(argv[1], "act") == 0)
        return getenv("FAKE_RANK") != NULL ? act_rank(argv[2], argv[3]) : act_parent(argv[5], argv[4]);
    tests = tcase_create("start");
    tcase_set_timeout(tests, 3 * SECONDS);
    return run_tests(tests);
}
