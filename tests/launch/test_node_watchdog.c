/* Messages between the watchdogs of several nodes, over a socket open to anyone: for any input the leader continues, or
 * ends with a message. */
#include "suite.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch/watchdog.h"

enum { WORLD = 3, SENTENCE = 1500 };

/* The greeting of a watchdog on another node. */
typedef struct greeting {
    uint64_t word[2];
    uint32_t view_size;
    int32_t n;
} greeting;

typedef struct told {
    int32_t stop;
    char why[SENTENCE];
} told;

static weft_watchdog watch;
static weft_node_watchdog_address address;
static int listener, answer;
static pid_t child;

/* Watches one rank that never starts, so that only messages end it. */
static void open_watch(int32_t total) {
    char path[64];
    int32_t file = -1;
    weft_heartbeat *heartbeats = weft_heartbeat_create(&file, 1);
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ptr_nonnull(heartbeats);
    weft_heartbeat_path(path, sizeof path, (int32_t)getpid(), file);
    ck_assert_msg(weft_watchdog_open(&watch, heartbeats, path, 1, total, &err) == WEFT_OK, "%s", err.text);
}

/* In a child process: leads if `socket` is -1, otherwise follows the peer on `socket`. */
static void start(int socket) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        static told out;
        out.stop = socket < 0 ? weft_node_watchdog_lead(&watch, out.why, sizeof out.why, listener, &address)
                              : weft_node_watchdog_follow(&watch, out.why, sizeof out.why, socket);
        _exit(write(ends[1], &out, sizeof out) == (ssize_t)sizeof out ? 0 : 1);
    }
    (void)close(ends[1]);
    answer = ends[0];
}

/* It has stopped its ranks with this message, and has exited normally. */
static void expect_end(const char *why) {
    told out = {0};
    int status = -1;
    ck_assert_int_eq(read(answer, &out, sizeof out), (ssize_t)sizeof out);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(out.stop, 1);
    ck_assert_str_eq(out.why, why);
}

/* ---- messages to the leader ---- */

static int call_chief(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)address.port)};
    const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(connect(file, (const struct sockaddr *)&to, sizeof to), 0);
    return file;
}

/* Sends in parts, as a network may deliver it. */
static void say(int file, const void *bytes, size_t n, int parts) {
    const struct timespec time = {0, 50000000};
    const char *at = bytes;
    for (int i = 0; i < parts; i++) {
        const size_t from = n * (size_t)i / (size_t)parts, to = n * (size_t)(i + 1) / (size_t)parts;
        if (i > 0) (void)nanosleep(&time, NULL);
        ck_assert_int_eq(send(file, at + from, to - from, MSG_NOSIGNAL), (ssize_t)(to - from));
    }
}

/* True if the peer closes the connection soon, and not because of a timeout: messages continue. */
static bool is_closed(int file) {
    struct pollfd end = {file, POLLIN, 0};
    char byte = 0;
    for (int seconds = 0; seconds < 300; seconds++) {
        if (poll(&end, 1, 1000) == 1) return recv(file, &byte, 1, 0) <= 0;
        if (send(file, &byte, 1, MSG_NOSIGNAL) < 0) return true;
    }
    return false;
}

static greeting good(int32_t n) {
    return (greeting){{address.word[0], address.word[1]}, sizeof(weft_rank_view), n};
}

static weft_rank_view view(int32_t rank, int32_t condition) {
    weft_rank_view out;
    memset(&out, 0, sizeof out);
    out.rank = rank;
    out.condition = condition;
    out.status = 9;
    out.instruction = -1;
    out.step = 7;
    return out;
}

/* Returns false if this machine has only its loopback network. */
static bool lead(void) {
    listener = weft_node_watchdog_listen(&address);
    if (listener < 0) {
        (void)printf("no address of this machine is known to others: nothing to test\n");
        return false;
    }
    open_watch(WORLD);
    start(-1);
    return true;
}

TEST(the_chief_hangs_up_on_strangers) {
    greeting wrong[6];
    weft_rank_view both[2] = {view(1, WEFT_RANK_COMPUTES), view(2, WEFT_RANK_GONE)};
    int file = -1;
    if (!lead()) return;
    for (int i = 0; i < 6; i++) wrong[i] = good(2);
    memset(&wrong[0], 0xA5, sizeof wrong[0]);
    wrong[1].word[1]++;
    wrong[2].view_size--; /* another version */
    wrong[3].n = 0;
    wrong[4].n = -1;
    wrong[5].n = WORLD; /* one of them is the leader's */
    for (int i = 0; i < 6; i++) {
        file = call_chief();
        say(file, &wrong[i], sizeof wrong[i], 1 + i % 2);
        ck_assert_msg(is_closed(file), "greeting %d", i);
        (void)close(file);
    }
    file = call_chief();
    say(file, &wrong[1], 5, 1); /* and then silence */
    (void)close(file);
    file = call_chief();
    wrong[0] = good(2);
    say(file, wrong, sizeof wrong[0], 3);
    say(file, both, sizeof both, 5);
    expect_end("rank 2 died by signal 9 after step 7");
}

TEST(words_that_are_cut_short) {
    weft_rank_view both[2] = {view(1, WEFT_RANK_COMPUTES), view(2, WEFT_RANK_COMPUTES)};
    greeting now;
    int file = -1;
    if (!lead()) return;
    now = good(2);
    file = call_chief();
    say(file, &now, sizeof now, 1);
    say(file, both, sizeof both, 1);
    both[0] = view(1, WEFT_RANK_GONE); /* an incomplete message is ignored */
    say(file, both, sizeof both[0] + 8, 1);
    (void)close(file);
    expect_end("the machine of rank 1 is out of reach, where it was last seen after step 7");
}

TEST(a_text_without_an_end) {
    greeting now;
    weft_rank_view both[2];
    char why[SENTENCE];
    int file = -1;
    if (!lead()) return;
    now = good(2);
    both[0] = view(1, WEFT_RANK_GONE);
    both[0].instruction = 5;
    memset(both[0].text, 'A', sizeof both[0].text);
    memset(&both[1], 'B', sizeof both[1]);
    file = call_chief();
    say(file, &now, sizeof now, 1);
    say(file, both, sizeof both, 1);
    (void)snprintf(why, sizeof why, "rank 1 died by signal 9 in step 7, at instruction 5, %.*s",
                   WEFT_HEARTBEAT_TEXT - 1, both[0].text);
    expect_end(why);
}

/* ---- messages to a follower ---- */

/* A chief that commands a stop, or only closes the connection. */
static void follow(bool stops, const char *why) {
    const char word = 0;
    weft_rank_view seen;
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    open_watch(1);
    start(ends[0]);
    (void)close(ends[0]);
    ck_assert_int_eq(recv(ends[1], &seen, sizeof seen, MSG_WAITALL), (ssize_t)sizeof seen);
    ck_assert_int_eq(seen.condition, WEFT_RANK_UNBORN);
    if (stops) say(ends[1], &word, 1, 1);
    else (void)shutdown(ends[1], SHUT_RDWR);
    expect_end(why);
}

TEST(the_chief_commands_a_stop) {
    follow(true, ""); /* the chief prints the reason */
}

TEST(the_chief_disappears) {
    follow(false, "the watchdog of rank 0 is out of reach");
}

int main(void) {
    TCase *tests = tcase_create("words");
    tcase_set_timeout(tests, 60);
    return run_tests(tests);
}
