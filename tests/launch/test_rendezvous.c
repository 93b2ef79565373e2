/* Control messages between ranks before their communicator exists: ranks started by the host, ranks that meet through
 * their parent, and ranks that meet at a port. This program also acts as the ranks. */
#include "scratch.h"
#include "suite.h"

#include "launch/find.h"
#include "launch/rendezvous.h"
#include "launch/world.h"
#include "plugin/services.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static weft_error err = WEFT_ERROR_INIT;

enum { RANKS = 5, ROUNDS = 20 };

static char *program;

/* ---- a rank: "act WHAT" ---- */

static const weft_host_exchange *begin_rank(int32_t patience) {
    weft_world world = {.rank = atoi(getenv(WEFT_OWN_RANK)), .size = atoi(getenv(WEFT_OWN_SIZE))};
    world.local_rank = world.rank;
    world.local_size = world.size;
    weft_world_set(&world);
    weft_rendezvous_offer(patience);
    return weft_services()->extension(weft_services(), WEFT_HOST_EXCHANGE);
}

/* Each rank publishes its values one by one and receives those of all others; a value contains its sender and index. */
static int act_all_tell(const weft_host_exchange *exchange) {
    const weft_host *host = weft_services();
    const int32_t rank = weft_world_get()->rank, size = weft_world_get()->size;
    for (int32_t round = 0; round < ROUNDS; round++) {
        int32_t value[256] = {[0] = rank, [1] = round, [255] = rank * 1000 + round};
        char key[40];
        (void)snprintf(key, sizeof key, "round-%d.%d", (int)round, (int)rank);
        if (exchange->put(host, key, value, sizeof value, &err) != WEFT_OK) return 10;
        for (int32_t other = 0; other < size; other++) {
            (void)snprintf(key, sizeof key, "round-%d.%d", (int)round, (int)other);
            if (exchange->get(host, key, value, sizeof value, &err) != WEFT_OK) return 11;
            if (value[0] != other || value[1] != round || value[255] != other * 1000 + round) return 12;
        }
    }
    weft_rendezvous_end(false);
    return exchange == weft_services()->extension(host, WEFT_HOST_EXCHANGE) ? 13 : 0;
}

/* Errors of the last rank, each with its message. */
static int act_mistakes(const weft_host_exchange *exchange) {
    const weft_host *host = weft_services();
    static const char large[WEFT_EXCHANGE_MOST + 1];
    int32_t value = 7;
    int64_t longer = 0;
    if (weft_world_get()->rank == 0 && exchange->put(host, "one", &value, sizeof value, &err) != WEFT_OK) return 20;
    if (exchange->get(host, "one", &value, sizeof value, &err) != WEFT_OK || value != 7) return 21;
    if (exchange->put(host, "one", &value, sizeof value, &err) != WEFT_E_HOST || !strstr(err.text, "put before"))
        return 22;
    if (exchange->put(host, "A key", &value, sizeof value, &err) != WEFT_E_HOST || !strstr(err.text, "is no key"))
        return 23;
    if (exchange->put(host, "large", large, sizeof large, &err) != WEFT_E_HOST || !strstr(err.text, "4096 at most"))
        return 24;
    if (exchange->get(host, "one", &longer, sizeof longer, &err) != WEFT_E_PEER || !strstr(err.text, "4 bytes"))
        return 25;
    if (exchange->get(host, "never", &value, sizeof value, &err) != WEFT_E_PEER ||
        !strstr(err.text, "no rank has put it within 1 s ([run] patience): one has not started, or has failed before "
                          "(the key of the exchange is \"never\")"))
        return 26;
    weft_rendezvous_end(false);
    return 0;
}

static int act(const char *what) {
    const int32_t rank = atoi(getenv(WEFT_OWN_RANK));
    if (strcmp(what, "all tell") == 0) return act_all_tell(begin_rank(60));
    if (strcmp(what, "late after strangers") == 0) {
        if (rank != 0) (void)usleep(200000);
        return act_all_tell(begin_rank(60));
    }
    if (strcmp(what, "mistakes") == 0) return act_mistakes(begin_rank(1));
    if (strcmp(what, "one fails") == 0 && rank == 3) return 3;
    if (strcmp(what, "one is killed") == 0 && rank == 2) (void)raise(SIGKILL);
    return 0;
}

/* ---- ways to start the ranks ---- */

static int run_own(const char *what) {
    char *words[] = {program, (char *)(uintptr_t) "act", (char *)(uintptr_t)what, NULL};
    const pid_t pid = fork();
    int ended = 0;
    if (pid == 0) _exit(weft_own_launcher_run(RANKS, program, words));
    ck_assert_int_eq(waitpid(pid, &ended, 0), pid);
    ck_assert(WIFEXITED(ended));
    return WEXITSTATUS(ended);
}

/* By another launcher, here this process, which only assigns rank numbers. The last rank starts first and waits for
 * rank 0. */
static void run_others(const char *what) {
    pid_t ranks[RANKS];
    int ended = 0;
    for (int r = RANKS - 1; r >= 0; r--) {
        ranks[r] = fork();
        if (ranks[r] != 0) continue;
        char place[16];
        (void)snprintf(place, sizeof place, "%d", r);
        (void)setenv(WEFT_OWN_RANK, place, 1);
        (void)execl(program, program, "act", what, (char *)NULL);
        _exit(99);
    }
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(waitpid(ranks[r], &ended, 0), ranks[r]);
        ck_assert_msg(WIFEXITED(ended) && WEXITSTATUS(ended) == 0, "rank %d ends with %d", r, ended);
    }
}

static void clear_environment(void) {
    static const char *const names[] = {WEFT_RENDEZVOUS,
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_JOB_ID",
                                        "MPI_LOCALNRANKS",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "LOCAL_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) (void)unsetenv(names[i]);
    (void)setenv(WEFT_OWN_SIZE, "5", 1);
    (void)setenv(WEFT_JOB_SECRET, "the secret of these tests", 1);
}

/* Returns a port that was free a moment ago. */
static int find_port(void) {
    struct sockaddr_storage any = {.ss_family = AF_INET};
    socklen_t size = sizeof any;
    unsigned char bytes[4];
    const int file = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(file, (struct sockaddr *)&any, 16), 0);
    ck_assert_int_eq(getsockname(file, (struct sockaddr *)&any, &size), 0);
    memcpy(bytes, &any, sizeof bytes);
    (void)close(file);
    return bytes[2] * 256 + bytes[3];
}

TEST(ranks_of_the_host_tell_one_another) {
    clear_environment();
    ck_assert_int_eq(run_own("all tell"), 0);
    ck_assert_int_eq(run_own("mistakes"), 0);
}

TEST(their_end_is_the_first_that_failed) {
    clear_environment();
    ck_assert_int_eq(run_own("none"), 0);
    ck_assert_int_eq(run_own("one fails"), 3);
    ck_assert_int_eq(run_own("one is killed"), 128 + SIGKILL);
}

TEST(ranks_of_one_launcher_meet_by_its_process) {
    clear_environment();
    (void)setenv("MPI_LOCALNRANKS", "5", 1);
    run_others("all tell");
}

TEST(ranks_meet_at_a_port) {
    char place[40];
    clear_environment();
    (void)snprintf(place, sizeof place, "localhost:%d", find_port());
    (void)setenv(WEFT_RENDEZVOUS, place, 1);
    run_others("all tell");
    clear_environment();
    (void)setenv("MASTER_ADDR", "127.0.0.1", 1);
    (void)snprintf(place, sizeof place, "%d", find_port() - 1);
    (void)setenv("MASTER_PORT", place, 1);
    run_others("all tell");
}

/* A closed connection is not a system error; errno of an earlier call is not its reason. */
TEST(whoever_keeps_it_is_named_when_it_ends) {
    int ends[2], value = 0;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ck_assert_int_eq(shutdown(ends[1], SHUT_WR), 0);
    errno = EEXIST;
    ck_assert_int_eq(weft_store_get(ends[0], "key", &value, sizeof value, 5, &err), WEFT_E_PEER);
    ck_assert_str_eq(err.text, "rank 0, which keeps the key-value store of the ranks, is gone: it has ended");
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void meeting_says(const char *expected) {
    const weft_world world = {.rank = 1, .size = RANKS, .local_size = RANKS};
    const weft_host_exchange *exchange = NULL;
    int value = 0;
    weft_world_set(&world);
    weft_rendezvous_offer(1);
    exchange = weft_services()->extension(weft_services(), WEFT_HOST_EXCHANGE);
    ck_assert_int_ne(exchange->put(weft_services(), "key", &value, sizeof value, &err), WEFT_OK);
    ck_assert_msg(strstr(err.text, expected) != NULL, "%s", err.text);
    weft_rendezvous_end(true);
}

TEST(without_a_place_a_rank_says_what_to_set) {
    clear_environment();
    meeting_says("set WEFT_RENDEZVOUS=host:port for all of them");
    (void)setenv(WEFT_RENDEZVOUS, "somewhere", 1);
    meeting_says("WEFT_RENDEZVOUS=somewhere is no host:port, such as node1:29400");
    (void)setenv(WEFT_RENDEZVOUS, "127.0.0.1:1", 1);
    meeting_says("rank 0 cannot be reached within 1 s ([run] patience) at 127.0.0.1:1 (from WEFT_RENDEZVOUS)");
}

TEST(the_first_machine_of_a_list) {
    static const struct {
        const char *list, *first;
    } rows[] = {{"node7", "node7"},  {"gpu[03-07,11],login1", "gpu03"}, {"a,b[1-2]", "a"},
                {"n[1,3]-ib", "n1"}, {"rack1-[008-010]", "rack1-008"},  {"", NULL},
                {"gpu[x]", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[32];
        const bool read = weft_rendezvous_first_host(out, sizeof out, rows[i].list);
        ck_assert_msg(read == (rows[i].first != NULL), "%s", rows[i].list);
        if (read) ck_assert_str_eq(out, rows[i].first);
    }
}

/* A process with another protocol is disconnected, and the ranks are served. */
TEST(a_stranger_is_let_go) {
    weft_store *store = weft_store_create(2);
    char garbage[200];
    int stranger[2], rank[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, stranger), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, rank), 0);
    weft_store_admit(store, 0, stranger[0]);
    weft_store_admit(store, 1, rank[0]);
    memset(garbage, 0x41, sizeof garbage);
    ck_assert_int_eq(write(stranger[1], garbage, sizeof garbage), sizeof garbage);
    weft_store_serve(store, 1000);
    ck_assert_int_eq(recv(stranger[1], garbage, sizeof garbage, 0) <= 0, 1);
    ck_assert(!weft_store_is_over(store));
    (void)close(rank[1]);
    weft_store_serve(store, 1000);
    ck_assert(weft_store_is_over(store));
    weft_store_destroy(store);
    (void)close(stranger[1]);
}

/* ---- foreign connections to a port ---- */

static int connect_to(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(file, (struct sockaddr *)&address, sizeof address) == 0) return file;
    (void)close(file);
    return -1;
}

/* Simulates a port scan: early connections that send no data, or other data. */
static int scan(int port) {
    int file = -1, held = 0;
    while ((file = connect_to(port)) < 0) (void)usleep(1000);
    (void)close(file);
    for (int i = 0; i < 100; i++) {
        char garbage[300];
        memset(garbage, i, sizeof garbage);
        file = connect_to(port);
        if (file < 0) break;
        if (i % 2 == 0) (void)send(file, garbage, sizeof garbage, MSG_NOSIGNAL);
        held++; /* remains open until this process ends */
        (void)usleep(500);
    }
    return held > 0 ? 0 : 1;
}

TEST(strangers_take_no_place) {
    char place[40];
    const int port = find_port();
    pid_t scanner = -1;
    int ended = 0;
    clear_environment();
    (void)snprintf(place, sizeof place, "localhost:%d", port);
    (void)setenv(WEFT_RENDEZVOUS, place, 1);
    scanner = fork();
    if (scanner == 0) {
        ended = scan(port);
        (void)usleep(500000);
        _exit(ended);
    }
    run_others("late after strangers");
    ck_assert_int_eq(waitpid(scanner, &ended, 0), scanner);
    ck_assert_int_eq(ended, 0);
}

/* A rank in a child process: greets, reads until the connection closes, and exits with the result. */
static pid_t start_client(int port, const weft_job_key *key, int32_t rank) {
    const pid_t pid = fork();
    bool again = false;
    char byte = 0;
    int file = -1;
    if (pid != 0) return pid;
    file = connect_to(port);
    if (weft_store_greet(file, key, rank, 10, &again, &err) == WEFT_OK) {
        (void)recv(file, &byte, 1, 0);
        _exit(1);
    }
    _exit(strstr(err.text, "WEFT_JOB_SECRET") != NULL ? 2 : strstr(err.text, "is rank") != NULL ? 3 : 4);
}

static int end_of_client(weft_store *store, pid_t pid) {
    int ended = 0;
    while (waitpid(pid, &ended, WNOHANG) == 0) weft_store_serve(store, 10);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : 1000;
}

TEST(a_place_is_for_one_that_has_the_secret_and_is_free_after_its_end) {
    const weft_job_key key = {"the key"}, other = {"another"};
    const int port = find_port(), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    weft_store *store = weft_store_create(1);
    pid_t first = -1;
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    ck_assert(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 16) == 0);
    weft_store_listen(store, listener, &key);
    ck_assert_int_eq(end_of_client(store, start_client(port, &other, 0)), 2);
    ck_assert_int_eq(end_of_client(store, start_client(port, &key, 1)), 3); /* no such rank */
    for (int round = 0; round < 2; round++) {
        first = start_client(port, &key, 0);
        for (int i = 0; i < 50; i++) weft_store_serve(store, 10);
        ck_assert_int_eq(end_of_client(store, start_client(port, &key, 0)), 3); /* already taken */
        ck_assert(!weft_store_is_over(store));
        ck_assert_int_eq(kill(first, SIGKILL), 0);
        ck_assert_int_eq(end_of_client(store, first), 1000);
        for (int i = 0; i < 500 && !weft_store_is_over(store); i++) weft_store_serve(store, 10);
        ck_assert(weft_store_is_over(store));
    }
    weft_store_destroy(store);
    (void)close(listener);
}

TEST(the_secret_is_a_file_of_the_user) {
    weft_job_key one, two;
    struct stat info;
    char path[600];
    scratch_make();
    clear_environment();
    (void)unsetenv(WEFT_JOB_SECRET);
    (void)setenv("XDG_DATA_HOME", scratch, 1);
    (void)snprintf(path, sizeof path, "%s/weft/job-secret", scratch);
    ck_assert_int_eq(weft_job_key_read(&one, &err), WEFT_OK);
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777, 0600);
    ck_assert_int_eq(info.st_size, 64);
    ck_assert_int_eq(weft_job_key_read(&two, &err), WEFT_OK);
    ck_assert_mem_eq(&one, &two, sizeof one);
    ck_assert_int_eq(chmod(path, 0644), 0);
    ck_assert_int_eq(weft_job_key_read(&two, &err), WEFT_E_USER);
    ck_assert(strstr(err.text, path) != NULL && strstr(err.text, "chmod 600") != NULL);
    (void)setenv(WEFT_JOB_SECRET, "short", 1);
    ck_assert_int_eq(weft_job_key_read(&two, &err), WEFT_E_USER);
    ck_assert(strstr(err.text, "WEFT_JOB_SECRET") != NULL);
    (void)setenv(WEFT_JOB_SECRET, "long enough for one", 1);
    ck_assert_int_eq(weft_job_key_read(&two, &err), WEFT_OK);
    ck_assert_mem_ne(&one, &two, sizeof one);
    scratch_remove();
}

int main(int argc, char **argv) {
    TCase *tests = NULL;
    if (argc == 3 && strcmp(argv[1], "act") == 0) return act(argv[2]);
    program = realpath("/proc/self/exe", NULL);
    tests = tcase_create("rendezvous");
    tcase_set_timeout(tests, 60);
    const int failed = run_tests(tests);
    free(program);
    return failed;
}
