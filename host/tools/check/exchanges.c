/* host/tools/check/exchanges.c: runs every collective and p2p exchange of a communicator on the ranks of a launch, with
 * predictable numbers.
 *
 * Counts are 0, 1 and odd numbers. Groups are the world and two of its ranks in another order. Each exchange completes
 * once through `wait`, once through `test` and once through `join`. Data at a wrong position and missing data are both
 * errors. The concurrent test runs sixteen exchanges in flight together, in the world and between two of its ranks,
 * completed in six orders. */
#include "cli/flags.h"
#include "model/convert.h"
#include "plugin/crash.h"
#include "plugin/enter.h"
#include "plugin/services.h"
#include "run/process_context.h"
#include "tools/check/newer_abi.h"
#include "tools/check/rule.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

enum { MARGIN = 32, FILLER = 0xa5, MOST_SAID = 400, TAG = 5 };

typedef enum exchange_kind { GATHER, ALL_TO_ALL, SCATTER, REDUCE, BROADCAST, PAIR, BARRIER, KINDS } exchange_kind;
typedef enum ending { BY_WAIT, BY_TEST, BY_JOIN, ENDINGS } ending;

static const char *const kind_names[] = {"all_gather", "all_to_all", "reduce_scatter", "all_reduce",
                                         "broadcast",  "send",       "barrier"};
static const char *const ending_names[] = {"wait", "test", "join"};

/* A process group of the test; place -1: this rank is not a member. */
typedef struct circle {
    weft_process_context *process_context;
    weft_comm_group *group; /* NULL: the world */
    int32_t n, place;
} circle;

typedef struct exchange {
    const circle *among;
    exchange_kind kind;
    ending by;
    int64_t n;
    int32_t dtype;
    int32_t among_many; /* number of concurrent exchanges; 0: only this one */
    int32_t salt;       /* distinguishes the numbers of similar exchanges */
    int32_t tag;        /* tag of PAIR */
    weft_buffer *to, *from;
    weft_comm_handle *handle; /* set while in flight */
    unsigned char *want;      /* expected content of `to` afterwards, margins included */
} exchange;

/* ---- timeout ---- */

static char overdue[MOST_SAID]; /* the error line, formatted in advance for the signal handler */

static void give_up(int number) {
    (void)number;
    weft_crash_crumb(NULL); /* the host ends the process, not a plugin */
    if (write(STDERR_FILENO, overdue, strlen(overdue)) < 0) _exit(2);
    _exit(1);
}

static void set_alarm(double seconds) {
    const struct itimerval timer = {{0, 0}, {(time_t)seconds, (suseconds_t)((seconds - floor(seconds)) * 1e6)}};
    (void)signal(SIGALRM, give_up);
    (void)setitimer(ITIMER_REAL, &timer, NULL);
}

static void describe(char *out, size_t size, const exchange *e) {
    char many[48] = "";
    if (e->among_many > 0) (void)snprintf(many, sizeof many, ", one of %d concurrent ones", (int)e->among_many);
    (void)snprintf(out, size, "%s of %lld %s among %d of %d ranks, ended by %s%s", kind_names[e->kind], (long long)e->n,
                   weft_dtype_name(e->dtype), (int)e->among->n, (int)e->among->process_context->comm_info.size,
                   ending_names[e->by], many);
}

static void watch(const exchange *e, double seconds) {
    char what[MOST_SAID / 2];
    describe(what, sizeof what, e);
    (void)snprintf(overdue, sizeof overdue, "weft: rank %d: %s, has not ended within %g s\n",
                   (int)e->among->process_context->comm_info.rank, what, seconds);
    set_alarm(seconds);
}

/* ---- numbers ---- */

/* Returns a small integer, so that sums are exact in any type and order. */
static double number(const exchange *e, int32_t from, int32_t to, int64_t i) {
    return (double)((7 * from + 5 * to + 3 * i + e->n + 2 * e->salt) % 13 - 6);
}

static void put(const exchange *e, unsigned char *row, int64_t i, double value) {
    const float x = (float)value;
    (void)weft_convert(row + i * weft_dtype_bytes(e->dtype), e->dtype, &x, WEFT_F32, 1);
}

static double sum_at(const exchange *e, int32_t to, int64_t i) {
    double sum = 0;
    for (int32_t r = 0; r < e->among->n; r++) sum += number(e, r, to, i);
    return sum;
}

/* Rows of the output buffer. */
static int32_t rows_out(const exchange *e) {
    if (e->kind == BARRIER || (e->kind == PAIR && e->among->place != e->among->n - 1)) return 0;
    return e->kind == GATHER || e->kind == ALL_TO_ALL ? e->among->n : 1;
}

static double comes(const exchange *e, int32_t row, int64_t i) {
    const int32_t place = e->among->place;
    switch (e->kind) {
    case GATHER: return number(e, row, 0, i);
    case ALL_TO_ALL: return number(e, row, place, i);
    case SCATTER: return sum_at(e, place, i);
    case REDUCE: return sum_at(e, 0, i);
    case BROADCAST: return number(e, e->among->n - 1, 0, i);
    default: return number(e, 0, 0, i);
    }
}

static int64_t room_of(const exchange *e) {
    return e->among->n * e->n * weft_dtype_bytes(e->dtype) + 2 * MARGIN;
}

static void fill_rows(const exchange *e, unsigned char *at, int32_t rows, bool is_answer) {
    for (int32_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < e->n; i++)
            put(e, at + MARGIN, r * e->n + i, is_answer ? comes(e, r, i) : number(e, e->among->place, r, i));
}

static weft_status write_bytes(const exchange *e, weft_buffer *to, const void *bytes, weft_error *err) {
    const weft_process_context *p = e->among->process_context;
    weft_status status;
    WEFT_PLUGIN_CALL(status, p->kernels, write, err, p->device, NULL, (weft_ref){to, 0}, bytes, room_of(e));
    return status;
}

/* Fills both buffers, and `want` with the expected result. */
static weft_status fill(const exchange *e, weft_error *err) {
    const bool is_root = e->kind == BROADCAST && e->among->place == e->among->n - 1;
    unsigned char *before = weft_alloc(room_of(e), 1);
    weft_status status;
    memset(before, FILLER, (size_t)room_of(e));
    fill_rows(e, before, e->among->n, false);
    status = write_bytes(e, e->from, before, err);
    memset(before, FILLER, (size_t)room_of(e));
    if (is_root) fill_rows(e, before, 1, true);
    if (status == WEFT_OK) status = write_bytes(e, e->to, before, err);
    free(before);
    memset(e->want, FILLER, (size_t)room_of(e));
    fill_rows(e, e->want, rows_out(e), true);
    return status;
}

static weft_status compare(const exchange *e, weft_error *err) {
    const weft_process_context *p = e->among->process_context;
    unsigned char *got = weft_alloc(room_of(e), 1);
    char what[MOST_SAID / 2];
    weft_status status;
    WEFT_PLUGIN_CALL(status, p->kernels, read, err, p->device, NULL, got, (weft_ref){e->to, 0}, room_of(e));
    describe(what, sizeof what, e);
    for (int64_t i = 0; i < room_of(e) && status == WEFT_OK; i++)
        if (got[i] != e->want[i])
            status = WEFT_BROKEN(err, "%s: byte %lld of the result is %u, and should be %u%s", what,
                                 (long long)(i - MARGIN), got[i], e->want[i],
                                 i < MARGIN || e->want[i] == FILLER ? ", which must stay unchanged" : "");
    free(got);
    return status;
}

/* ---- one exchange from start to completion ---- */

static weft_status begin(const exchange *e, weft_comm_handle **out, weft_error *err) {
    const weft_comm_plugin *table = e->among->process_context->comm_plugin;
    weft_comm *comm = e->among->process_context->comm;
    const int32_t last = e->among->n - 1;
    weft_exchange what = {.struct_size = (uint32_t)sizeof what,
                          .group = e->among->group,
                          .to = {e->to, MARGIN},
                          .from = {e->from, MARGIN},
                          .n = e->n,
                          .dtype = e->dtype};
    const bool receives = e->kind == PAIR && e->among->place != 0;
    weft_exchange_fn *const slots[KINDS] = {table->all_gather, table->all_to_all, table->reduce_scatter,
                                            table->all_reduce, table->broadcast,  receives ? table->recv : table->send,
                                            table->barrier};
    const char *slot = receives ? "recv" : kind_names[e->kind];
    weft_call_record before;
    if (e->kind == BROADCAST) what.peer = last;
    if (e->kind == PAIR) what.tag = e->tag;
    if (e->kind == PAIR && e->among->place == 0) what.peer = last;
    before = weft_plugin_enter(table, slot);
    return weft_plugin_leave(before, slots[e->kind](comm, out, &what, err), err);
}

static weft_status test_until_done(const exchange *e, weft_comm_handle *handle, weft_error *err) {
    const weft_comm_plugin *table = e->among->process_context->comm_plugin;
    int32_t done = 0;
    while (done == 0) {
        const weft_call_record before = weft_plugin_enter(table, "test");
        done = table->test(e->among->process_context->comm, handle, err);
        (void)weft_plugin_leave(before, WEFT_OK, NULL);
        if (done == 0 && table->poke != NULL) WEFT_PLUGIN_NOTIFY(table, poke, e->among->process_context->comm);
        if (done == 0) (void)sched_yield(); /* ranks may outnumber cores */
    }
    if (done == 1) return WEFT_OK;
    return done < 0 ? (weft_status)err->code : WEFT_BROKEN(err, "test returns %d. Allowed: 1, 0, or below", done);
}

static weft_status end(const exchange *e, weft_comm_handle *handle, weft_error *err) {
    const weft_process_context *p = e->among->process_context;
    weft_status status;
    if (e->by == BY_TEST) return test_until_done(e, handle, err);
    if (e->by == BY_JOIN && p->comm_plugin->join != NULL)
        WEFT_PLUGIN_CALL(status, p->comm_plugin, join, err, p->comm, handle, NULL);
    else WEFT_PLUGIN_CALL(status, p->comm_plugin, wait, err, p->comm, handle);
    return status;
}

static bool is_part(const exchange *e) {
    const int32_t place = e->among->place, last = e->among->n - 1;
    return e->kind == PAIR ? place == 0 || place == last : place >= 0;
}

/* Names the exchange in an error. */
static weft_status named(const exchange *e, weft_status status, weft_error *err) {
    char what[MOST_SAID / 2];
    describe(what, sizeof what, e);
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "%s: ", what);
}

/* Starts or completes an exchange. Both skip a PAIR of which this rank is no end. */
static weft_status begin_own(exchange *e, weft_error *err) {
    return is_part(e) ? named(e, begin(e, &e->handle, err), err) : WEFT_OK;
}

static weft_status end_own(exchange *e, weft_error *err) {
    weft_comm_handle *handle = e->handle;
    e->handle = NULL;
    return is_part(e) ? named(e, end(e, handle, err), err) : WEFT_OK;
}

static weft_status run(exchange *e, double seconds, weft_error *err) {
    weft_status status = fill(e, err);
    watch(e, seconds);
    if (status == WEFT_OK) status = begin_own(e, err);
    if (status == WEFT_OK) status = end_own(e, err);
    set_alarm(0);
    return status == WEFT_OK ? compare(e, err) : status;
}

static weft_status take_buffers(exchange *e, weft_error *err) {
    const weft_process_context *p = e->among->process_context;
    weft_status status;
    e->want = weft_alloc(room_of(e), 1);
    WEFT_PLUGIN_CALL(status, p->kernels, alloc, err, p->device, &e->to, room_of(e));
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, p->kernels, alloc, err, p->device, &e->from, room_of(e));
    return status;
}

static void give_buffers(exchange *e) {
    const weft_process_context *p = e->among->process_context;
    if (e->from != NULL) WEFT_PLUGIN_NOTIFY(p->kernels, release, p->device, e->from);
    if (e->to != NULL) WEFT_PLUGIN_NOTIFY(p->kernels, release, p->device, e->to);
    free(e->want);
}

static weft_status with_buffers(exchange *e, double seconds, weft_error *err) {
    weft_status status = take_buffers(e, err);
    for (int by = 0; by < ENDINGS && status == WEFT_OK; by++) {
        e->by = (ending)by;
        status = run(e, seconds, err);
    }
    give_buffers(e);
    return status;
}

/* ---- process groups ---- */

/* Connects both ranks of a p2p exchange. */
static weft_status connect_ends(const circle *among, weft_error *err) {
    const weft_process_context *p = among->process_context;
    const int32_t last = among->n - 1;
    weft_status status = WEFT_OK;
    if (!WEFT_HAS(p->comm_plugin, connect) || p->comm_plugin->connect == NULL) return WEFT_OK;
    if (among->place == 0) WEFT_PLUGIN_CALL(status, p->comm_plugin, connect, err, p->comm, among->group, last, 0, 1);
    else if (among->place == last)
        WEFT_PLUGIN_CALL(status, p->comm_plugin, connect, err, p->comm, among->group, 0, 0, 0);
    return status;
}

static weft_status try_among(const circle *among, double seconds, weft_error *err) {
    static const int64_t counts[] = {0, 1, 7, 33};
    static const int32_t dtypes[] = {WEFT_F32, WEFT_BF16};
    weft_status status = among->place < 0 ? WEFT_OK : connect_ends(among, err);
    for (int i = 0; i < KINDS * 8 && status == WEFT_OK && among->place >= 0; i++) {
        exchange e = {
            .among = among, .kind = (exchange_kind)(i / 8), .n = counts[i % 4], .dtype = dtypes[i / 4 % 2], .tag = TAG};
        status = with_buffers(&e, seconds, err);
    }
    return status;
}

static weft_status try_each(const circle *world, const circle *ends, double seconds, weft_error *err) {
    weft_status status = try_among(world, seconds, err);
    return status == WEFT_OK && ends->place >= 0 ? try_among(ends, seconds, err) : status;
}

/* ---- concurrent exchanges ---- */

/* Similar exchanges with different numbers are adjacent. The first two are messages that differ only in their tags. */
static const struct {
    bool is_ends;
    exchange_kind kind;
    int64_t n;
    int32_t dtype, tag;
} together[] = {{true, PAIR, 33, WEFT_F32, TAG},     {true, PAIR, 33, WEFT_F32, TAG + 1},
                {false, GATHER, 33, WEFT_F32, 0},    {true, GATHER, 33, WEFT_F32, 0},
                {false, GATHER, 33, WEFT_F32, 0},    {false, REDUCE, 7, WEFT_BF16, 0},
                {true, REDUCE, 7, WEFT_BF16, 0},     {false, ALL_TO_ALL, 7, WEFT_F32, 0},
                {false, BROADCAST, 33, WEFT_F32, 0}, {true, BROADCAST, 33, WEFT_F32, 0},
                {false, SCATTER, 7, WEFT_F32, 0},    {false, PAIR, 33, WEFT_F32, TAG},
                {true, ALL_TO_ALL, 7, WEFT_F32, 0},  {false, BARRIER, 0, WEFT_F32, 0},
                {true, SCATTER, 7, WEFT_F32, 0},     {false, ALL_TO_ALL, 7, WEFT_F32, 0}};

enum { TOGETHER = sizeof together / sizeof together[0], ORDERS = 6 };

/* Returns the index of the i-th exchange to complete: in start order, in reverse order, or in strides coprime to the
 * number of exchanges, with another first index on each rank. */
static int32_t ended(int order, int32_t rank, int32_t i) {
    static const int32_t strides[ORDERS] = {1, -1, 3, 5, -3, 7};
    const int32_t from = order < 2 ? (order == 0 ? 0 : TOGETHER - 1) : rank + order;
    return ((from + strides[order] * i) % TOGETHER + TOGETHER) % TOGETHER;
}

/* Returns the i-th exchange to start. The receiver swaps the tagged messages if delivery may be out of order. */
static int32_t started(const exchange *all, int32_t i) {
    const weft_process_context *p = all->among->process_context;
    const bool receives = all[0].among->place == all[0].among->n - 1;
    return i < 2 && receives && (p->comm_info.flags & WEFT_COMM_IN_ORDER) == 0 ? 1 - i : i;
}

static weft_status run_together(exchange *all, int order, double seconds, weft_error *err) {
    const int32_t rank = all->among->process_context->comm_info.rank;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < TOGETHER && status == WEFT_OK; i++) {
        all[i].by = (ending)((i + order) % ENDINGS);
        if (is_part(&all[i])) status = fill(&all[i], err);
    }
    for (int32_t i = 0; i < TOGETHER && status == WEFT_OK; i++) {
        exchange *e = &all[started(all, i)];
        watch(e, seconds);
        status = begin_own(e, err);
    }
    for (int32_t i = 0; i < TOGETHER && status == WEFT_OK; i++) {
        exchange *e = &all[ended(order, rank, i)];
        watch(e, seconds);
        status = end_own(e, err);
    }
    set_alarm(0);
    for (int32_t i = 0; i < TOGETHER && status == WEFT_OK; i++)
        if (is_part(&all[i])) status = compare(&all[i], err);
    return status;
}

static weft_status try_together(const circle *world, const circle *ends, double seconds, weft_error *err) {
    exchange all[TOGETHER] = {{0}};
    weft_status status = connect_ends(world, err);
    if (status == WEFT_OK && ends->place >= 0) status = connect_ends(ends, err);
    for (int32_t i = 0; i < TOGETHER; i++)
        all[i] = (exchange){.among = together[i].is_ends ? ends : world,
                            .kind = together[i].kind,
                            .n = together[i].n,
                            .dtype = together[i].dtype,
                            .tag = together[i].tag,
                            .among_many = TOGETHER,
                            .salt = i};
    for (int32_t i = 0; i < TOGETHER && status == WEFT_OK; i++)
        if (is_part(&all[i])) status = take_buffers(&all[i], err);
    for (int order = 0; order < ORDERS && status == WEFT_OK; order++) status = run_together(all, order, seconds, err);
    for (int32_t i = 0; i < TOGETHER; i++) give_buffers(&all[i]);
    return status;
}

/* Checks for asynchronous errors after all calls have returned, as a pass does at its end. */
static weft_status nothing_went_wrong(const weft_process_context *p, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!WEFT_HAS(p->comm_plugin, check) || p->comm_plugin->check == NULL) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, p->comm_plugin, check, err, p->comm);
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "after exchanges that all have finished: ");
}

/* seconds: timeout of one exchange. After it, this process prints a line about the exchange and exits, in whichever
 * slot it hangs. [collective] */
static weft_status weft_exchanges_try(weft_process_context *process_context, bool at_once, double seconds,
                                      weft_error *err) {
    const int32_t size = process_context->comm_info.size, rank = process_context->comm_info.rank;
    const int32_t two[2] = {size - 1, 0};
    const circle world = {process_context, NULL, size, rank};
    circle ends = {process_context, NULL, 2, rank == size - 1 ? 0 : rank == 0 ? 1 : -1};
    weft_status status = WEFT_OK;
    if (process_context->comm == NULL || size < 2)
        return weft_error_set(err, WEFT_E_USER, "one rank has no peer to exchange with. Fix: --ranks 2 or more");
    if (ends.place >= 0) status = weft_process_context_group_of(process_context, &ends.group, two, 2, err);
    if (status == WEFT_OK)
        status = at_once ? try_together(&world, &ends, seconds, err) : try_each(&world, &ends, seconds, err);
    if (status == WEFT_OK) status = nothing_went_wrong(process_context, err);
    if (status == WEFT_OK) { /* no rank may leave while others still communicate */
        exchange last = {.among = &world, .kind = BARRIER};
        status = with_buffers(&last, seconds, err);
    }
    return status;
}

/* `weft plugins exchange`: tests a communicator on its ranks. */

static const weft_flag flags[] = {
    {"ranks", "N", false,
     "Number of ranks (default 3): start them on this machine, or check that a launcher started N."},
    {"seconds", "N", false, "Time limit of one exchange (default 60)."},
    {"at-once", NULL, false, "Start sixteen exchanges before the first one is completed."},
    {"later", NULL, false, "Act as a newer host of the same major version, with longer structs."},
    {NULL, NULL, false, NULL},
};

static weft_status run_exchanges(const weft_args *args, double seconds, weft_error *err) {
    const bool later = weft_args_has(args, "later");
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    weft_run *run = NULL;
    weft_process_context *process_context = NULL;
    weft_status status = weft_run_open(&run, weft_args_config(args), overrides, n, WEFT_NEEDS_ALL, err);
    weft_part *comm = status == WEFT_OK ? &run->parts[WEFT_PART_COMM] : NULL;
    if (comm != NULL && later && comm->loaded != NULL) comm->loaded = weft_newer_abi_loaded(comm->loaded);
    if (status == WEFT_OK) status = weft_process_context_open(&process_context, run, err);
    if (status == WEFT_OK) status = weft_exchanges_try(process_context, weft_args_has(args, "at-once"), seconds, err);
    if (status == WEFT_OK && later) status = weft_newer_abi_check(WEFT_OK, true, "", err);
    weft_process_context_close(process_context, status != WEFT_OK);
    weft_run_close(run);
    return status;
}

static weft_exit run_exchange(const weft_args *args, weft_error *err) {
    weft_exit launched = WEFT_EXIT_DONE;
    int64_t ranks = 0;
    double seconds = 0;
    if (!weft_args_i64(args, &ranks, "ranks", "[2,65536]", 3, err) ||
        !weft_args_f64(args, &seconds, "seconds", "(0,inf)", 60, err))
        return WEFT_EXIT_USAGE;
    (void)weft_services_log_level(WEFT_LOG_WARN);
    if (!weft_command_is_rank(&launched, args, NULL, (int32_t)ranks, WEFT_RANKS_RUN_MANY, err)) return launched;
    return weft_exit_from(run_exchanges(args, seconds, err));
}

const weft_command weft_command_plugins_exchange = {
    .name = "plugins exchange",
    .usage = "run.ini [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .flags = flags,
    .more = "Runs every exchange with known numbers, for 0, 1 and odd counts, among all ranks and between two of them, "
            "and completes each by wait, by test and by join. With --at-once, sixteen of them are in flight, in six "
            "orders that differ between ranks. Prints no output on success.",
    .examples = "  weft plugins exchange run.ini --ranks 4\n"
                "  weft plugins exchange run.ini --at-once\n",
    .run = run_exchange,
};
