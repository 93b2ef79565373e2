/* tests/ranks/test_control_channel.c: control messages between ranks use a buffer of fixed size, for any amount of
 * data and any senders. The ranks are processes. Their communicator buffers no data: a byte is sent when its
 * operation is awaited, into a pipe with almost no capacity. An order with a deadlock therefore ends in an alarm. */
#include "common/reference_device.h"
#include "model/process_group.h"
#include "run/ranks.h"
#include "suite.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { WORLD = 4, SECONDS = 60 };

/* ---- the communicator ---- */

struct weft_comm {
    int32_t rank;
    int pipes[WORLD][WORLD][2]; /* [from][to] */
};

struct weft_comm_handle {
    int32_t from, to; /* to -1: all except `from` */
    weft_exchange what;
};

static char *bytes_at(weft_ref ref) {
    return weft_reference_device.host_view(NULL, ref);
}

static void put_all(int file, const char *bytes, int64_t n) {
    for (int64_t at = 0; at < n;) {
        const ssize_t some = write(file, bytes + at, (size_t)(n - at));
        if (some <= 0) _exit(7);
        at += some;
    }
}

static void take_all(int file, char *bytes, int64_t n) {
    for (int64_t at = 0; at < n;) {
        const ssize_t some = read(file, bytes + at, (size_t)(n - at));
        if (some <= 0) _exit(8);
        at += some;
    }
}

static weft_status begin(weft_comm_handle **out, int32_t from, int32_t to, const weft_exchange *what) {
    *out = calloc(1, sizeof **out);
    if (*out == NULL) _exit(9);
    (*out)->from = from;
    (*out)->to = to;
    (*out)->what = *what;
    return WEFT_OK;
}

static weft_status begin_send(weft_comm *c, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return begin(out, c->rank, what->peer, what);
}
static weft_status begin_recv(weft_comm *c, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return begin(out, what->peer, c->rank, what);
}
static weft_status begin_broadcast(weft_comm *c, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return begin(out, what->peer, -1, what);
}

/* Sends each rank's number to each other rank, by rank. */
static weft_status begin_gather(weft_comm *c, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    char *to = bytes_at(what->to);
    memcpy(to + c->rank * what->n, bytes_at(what->from), (size_t)what->n);
    for (int32_t from = 0; from < WORLD; from++)
        for (int32_t other = 0; other < WORLD; other++) {
            if (from == c->rank && other != from) put_all(c->pipes[from][other][1], bytes_at(what->from), what->n);
            if (from != c->rank && other == c->rank) take_all(c->pipes[from][other][0], to + from * what->n, what->n);
        }
    *out = NULL;
    return WEFT_OK;
}

static weft_status end_handle(weft_comm *c, weft_comm_handle *h, weft_error *err) {
    for (int32_t to = 0; to < WORLD; to++) {
        if (to == h->from || (h->to >= 0 && to != h->to)) continue;
        if (c->rank == h->from) put_all(c->pipes[h->from][to][1], bytes_at(h->what.from), h->what.n);
        if (c->rank == to) take_all(c->pipes[h->from][to][0], bytes_at(h->what.to), h->what.n);
    }
    free(h);
    return WEFT_OK;
}

static const weft_comm_plugin pipes_comm = {.struct_size = (uint32_t)sizeof(weft_comm_plugin),
                                            .all_gather = begin_gather,
                                            .broadcast = begin_broadcast,
                                            .send = begin_send,
                                            .recv = begin_recv,
                                            .wait = end_handle};

/* ---- a rank ---- */

/* Returns the bytes from rank a to rank b: zero, less than a line, some, or many times the buffer. */
static int64_t bytes_between(int32_t a, int32_t b) {
    static const int64_t sizes[] = {0, 5, 70000, 1100003};
    return a == b ? 0 : sizes[(a * 3 + b * 5 + a * b) % 4];
}

static char byte_of(int32_t a, int32_t b, int64_t i) {
    return (char)(a * 31 + b * 7 + i % 251);
}

static void fill_parcels(weft_message_buffer *in, weft_message_buffer *out, int32_t rank) {
    for (int32_t r = 0; r < WORLD; r++) {
        in[r].n = bytes_between(r, rank);
        out[r].n = bytes_between(rank, r);
        in[r].bytes = calloc(1, (size_t)in[r].n + 1);
        out[r].bytes = calloc(1, (size_t)out[r].n + 1);
        for (int64_t i = 0; i < out[r].n; i++) ((char *)out[r].bytes)[i] = byte_of(rank, r, i);
    }
}

static bool swaps(const weft_process_group *peers, weft_error *err) {
    weft_message_buffer in[WORLD], out[WORLD];
    bool whole = true;
    fill_parcels(in, out, peers->rank);
    whole = peers->swap(peers->context, in, out, err) == WEFT_OK;
    for (int32_t r = 0; r < WORLD; r++) {
        for (int64_t i = 0; i < in[r].n; i++) whole = whole && ((char *)in[r].bytes)[i] == byte_of(r, peers->rank, i);
        free(in[r].bytes);
        free(out[r].bytes);
    }
    return whole;
}

static bool shares(const weft_process_group *peers, int32_t from, weft_error *err) {
    enum { BYTES = 700001 };
    char *bytes = calloc(1, BYTES);
    bool whole = bytes != NULL;
    for (int64_t i = 0; whole && peers->rank == from && i < BYTES; i++) bytes[i] = byte_of(from, from, i);
    whole = whole && peers->share(peers->context, bytes, BYTES, from, err) == WEFT_OK;
    for (int64_t i = 0; whole && i < BYTES; i++) whole = bytes[i] == byte_of(from, from, i);
    free(bytes);
    return whole;
}

static bool gathers(const weft_process_group *peers, weft_error *err) {
    int32_t all[WORLD] = {0};
    bool whole = peers->gather(peers->context, all, 100 + peers->rank, err) == WEFT_OK;
    for (int32_t r = 0; r < WORLD; r++) whole = whole && all[r] == 100 + r;
    return whole;
}

/* Returns the exit status: 0, or the failing check. */
static int run_rank(weft_comm *comm) {
    weft_process_context process_context = {.kernels = &weft_reference_device,
                                            .comm_plugin = &pipes_comm,
                                            .comm = comm};
    const weft_ranks ranks = {
        .plugin = &pipes_comm, .comm = comm, .rank = comm->rank, .world = WORLD, .process_context = &process_context};
    weft_error err = WEFT_ERROR_INIT;
    weft_control_channel post = {0};
    weft_process_group peers;
    int failed = 0;
    (void)alarm(SECONDS);
    if (weft_control_channel_open(&post, &peers, &ranks, &err) != WEFT_OK) return 1;
    if (post.bytes != weft_process_group_scratch(WORLD)) failed = 2;
    if (failed == 0 && !gathers(&peers, &err)) failed = 3;
    if (failed == 0 && !swaps(&peers, &err)) failed = 4;
    for (int32_t from = 0; from < WORLD && failed == 0; from++)
        if (!shares(&peers, from, &err)) failed = 5;
    if (failed == 0 && !swaps(&peers, &err)) failed = 4;
    weft_control_channel_close(&post, &peers);
    return failed;
}

static void make_pipes(weft_comm *comm) {
    for (int a = 0; a < WORLD; a++)
        for (int b = 0; b < WORLD; b++) {
            ck_assert_int_eq(pipe(comm->pipes[a][b]), 0);
            ck_assert_int_gt(fcntl(comm->pipes[a][b][1], F_SETPIPE_SZ, 4096), 0);
        }
}

TEST(all_of_it_gets_through_a_buffer_of_one_size) {
    weft_comm comm = {0};
    pid_t children[WORLD];
    make_pipes(&comm);
    for (comm.rank = 0; comm.rank < WORLD; comm.rank++) {
        children[comm.rank] = fork();
        ck_assert_int_ge(children[comm.rank], 0);
        if (children[comm.rank] == 0) _exit(run_rank(&comm));
    }
    for (int r = 0; r < WORLD; r++) {
        int status = 0;
        ck_assert_int_eq(waitpid(children[r], &status, 0), children[r]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d: signal %d, status %d", r,
                      WIFSIGNALED(status) ? WTERMSIG(status) : 0, WIFEXITED(status) ? WEXITSTATUS(status) : 0);
    }
}

TEST(its_size_is_known_before_ranks_are) {
    ck_assert_int_eq(weft_process_group_scratch(1), 0);
    ck_assert_int_eq(weft_process_group_scratch(2), 1 << 18);
    ck_assert_int_gt(weft_process_group_scratch(1 << 17), 4 << 17); /* one number per rank */
}

int main(void) {
    return run_tests(test_case("post", 2 * SECONDS, NULL, NULL));
}
