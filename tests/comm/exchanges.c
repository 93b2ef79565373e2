/* tests/comm/exchanges.c: collectives with known results for every byte. Operands have guard areas on both sides to
 * detect excess writes. Numbers are small integers, so sums are exact in any order. */
#include "ranks.h"

#include <stdlib.h>
#include <time.h>

static weft_error err = WEFT_ERROR_INIT;

#define GUARD 64

typedef struct buffer {
    weft_ref ref;
    int64_t bytes;
    unsigned char *expected; /* including guards; the contents before, then the expected contents after */
} buffer;

typedef weft_exchange_fn *exchange_of(const weft_comm_plugin *table);

typedef enum kind { ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, ALL_REDUCE, BROADCAST, KINDS } kind;

/* One call, from start to end. */
typedef struct one {
    kind kind;
    const some *group;
    int64_t n;
    int32_t dtype, root, round;
    int in_place;
    buffer to, from;
    weft_stream *stream;
    weft_comm_handle *handle;
} one;

/* --- numbers --- */

/* Returns element i that rank `from` has for rank `to`: one of -8 to 7, exact in every type except uint8. */
static double number(const one *e, int32_t from, int32_t to, int64_t i) {
    const int64_t x = 7 * from + 5 * to + 3 * i + i / 16 + e->round + e->n;
    return (double)(x % 16 - (e->dtype == WEFT_U8 ? 0 : 8));
}

static void put(unsigned char *at, int32_t dtype, int64_t i, double value) {
    const float f = (float)value;
    const int64_t whole = (int64_t)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    switch (dtype) {
    case WEFT_F32: memcpy(at + 4 * i, &f, 4); break;
    case WEFT_BF16: memcpy(at + 2 * i, (char *)&bits + 2, 2); break; /* little-endian, exact */
    case WEFT_I64: memcpy(at + 8 * i, &whole, 8); break;
    case WEFT_U8: at[i] = (unsigned char)whole; break;
    default: fail(__LINE__, "no number of type %d", (int)dtype);
    }
}

/* --- buffers --- */

static void buffer_make(ranks *r, buffer *b, int64_t bytes) {
    b->bytes = bytes;
    b->ref.offset = GUARD;
    b->expected = malloc((size_t)bytes + 2 * GUARD);
    must(b->expected != NULL);
    memset(b->expected, 0xa5, (size_t)bytes + 2 * GUARD);
    must_be_ok(r->kernels->alloc(r->device, &b->ref.buffer, bytes + 2 * GUARD, &err), err);
}

static void buffer_write(ranks *r, buffer *b) {
    const weft_ref all = {b->ref.buffer, 0};
    must_be_ok(r->kernels->write(r->device, NULL, all, b->expected, b->bytes + 2 * GUARD, &err), err);
}

static void buffer_check(ranks *r, const buffer *b, const char *what) {
    const weft_ref all = {b->ref.buffer, 0};
    const int64_t bytes = b->bytes + 2 * GUARD;
    unsigned char *got = malloc((size_t)bytes);
    must(got != NULL);
    must_be_ok(r->kernels->read(r->device, NULL, got, all, bytes, &err), err);
    if (memcmp(got, b->expected, (size_t)bytes) != 0) {
        int64_t i = 0;
        while (got[i] == b->expected[i]) i++;
        fail(__LINE__, "%s: byte %lld of %lld is %u and not %u", what, (long long)(i - GUARD), (long long)b->bytes,
             got[i], b->expected[i]);
    }
    free(got);
}

static void buffer_free(ranks *r, buffer *b) {
    if (b->ref.buffer != NULL) r->kernels->release(r->device, b->ref.buffer);
    free(b->expected);
    memset(b, 0, sizeof *b);
}

/* --- the oracle --- */

static unsigned char *row(const one *e, const buffer *b, int32_t r) {
    return b->expected + GUARD + r * e->n * weft_dtype_bytes(e->dtype);
}

/* Numbers repeat after 256. */
static void fill_row(const one *e, unsigned char *at, int32_t from, int32_t to) {
    const int64_t size = weft_dtype_bytes(e->dtype);
    for (int64_t i = 0; i < e->n && i < 256; i++) put(at, e->dtype, i, number(e, from, to, i));
    for (int64_t i = 256; i < e->n; i += 256) {
        memcpy(at + i * size, at, (size_t)((e->n - i < 256 ? e->n - i : 256) * size));
    }
}

/* Fills the contents before the call. */
static void fill_before(one *e) {
    const some *g = e->group;
    switch (e->kind) {
    case ALL_GATHER: fill_row(e, e->in_place ? row(e, &e->to, g->place) : row(e, &e->from, 0), g->place, 0); break;
    case ALL_TO_ALL:
    case REDUCE_SCATTER:
        for (int32_t r = 0; r < g->n; r++) fill_row(e, row(e, e->in_place ? &e->to : &e->from, r), g->place, r);
        break;
    case ALL_REDUCE: fill_row(e, row(e, e->in_place ? &e->to : &e->from, 0), g->place, 0); break;
    default:
        if (g->place == e->root) fill_row(e, row(e, &e->to, 0), g->place, 0);
    }
}

static void fill_sum(const one *e, unsigned char *at, int32_t to) {
    for (int64_t i = 0; i < e->n; i++) {
        double sum = 0;
        for (int32_t r = 0; r < e->group->n; r++) sum += number(e, r, to, i);
        put(at, e->dtype, i, sum);
    }
}

/* Fills the expected contents after it; an in-place sum leaves the other rows unchanged. */
static void fill_after(one *e) {
    const some *g = e->group;
    switch (e->kind) {
    case ALL_GATHER:
        for (int32_t r = 0; r < g->n; r++) fill_row(e, row(e, &e->to, r), r, 0);
        break;
    case ALL_TO_ALL:
        for (int32_t r = 0; r < g->n; r++) fill_row(e, row(e, &e->to, r), r, g->place);
        break;
    case REDUCE_SCATTER: fill_sum(e, row(e, &e->to, e->in_place ? g->place : 0), g->place); break;
    case ALL_REDUCE: fill_sum(e, row(e, &e->to, 0), 0); break;
    default: fill_row(e, row(e, &e->to, 0), e->root, 0);
    }
}

static weft_exchange_fn *function(const ranks *r, kind k) {
    weft_exchange_fn *const of[KINDS] = {r->table->all_gather, r->table->all_to_all, r->table->reduce_scatter,
                                         r->table->all_reduce, r->table->broadcast};
    return of[k];
}

static void prepare(ranks *r, one *e) {
    const int64_t bytes = e->n * weft_dtype_bytes(e->dtype);
    const int rows = e->kind == ALL_TO_ALL || e->kind == REDUCE_SCATTER;
    const int whole = e->kind == ALL_GATHER || e->kind == ALL_TO_ALL || (e->kind == REDUCE_SCATTER && e->in_place);
    buffer_make(r, &e->to, whole ? e->group->n * bytes : bytes);
    if (!e->in_place && e->kind != BROADCAST) buffer_make(r, &e->from, rows ? e->group->n * bytes : bytes);
    fill_before(e);
    buffer_write(r, &e->to);
    if (e->from.expected != NULL) buffer_write(r, &e->from);
}

static void launch(ranks *r, one *e) {
    const int64_t bytes = e->n * weft_dtype_bytes(e->dtype);
    weft_exchange what = {.struct_size = (uint32_t)sizeof what, .group = e->group->group, .n = e->n};
    what.stream = e->stream;
    what.dtype = e->dtype;
    what.peer = e->kind == BROADCAST ? e->root : 0;
    what.to = e->to.ref;
    what.from = e->in_place ? e->to.ref : e->from.ref;
    if (e->in_place && e->kind == ALL_GATHER) what.from.offset += e->group->place * bytes;
    if (e->in_place && e->kind == REDUCE_SCATTER) what.to.offset += e->group->place * bytes;
    must_be_ok(function(r, e->kind)(r->comm, &e->handle, &what, &err), err);
}

static void begin(ranks *r, one *e) {
    prepare(r, e);
    launch(r, e);
}

static void end(ranks *r, one *e) {
    static const char *const names[KINDS] = {"all_gather", "all_to_all", "reduce_scatter", "all_reduce", "broadcast"};
    char what[200];
    (void)snprintf(what, sizeof what, "%s of %lld %s in a group of %d, place %d%s", names[e->kind], (long long)e->n,
                   weft_dtype_name(e->dtype), (int)e->group->n, (int)e->group->place, e->in_place ? ", in place" : "");
    fill_after(e);
    buffer_check(r, &e->to, what);
    if (e->from.expected != NULL) buffer_check(r, &e->from, what);
    buffer_free(r, &e->to);
    buffer_free(r, &e->from);
}

static void wait_for(ranks *r, one *e) {
    must_be_ok(r->table->wait(r->comm, e->handle, &err), err);
    end(r, e);
}

/* --- groups --- */

static void some_make(ranks *r, some *g) {
    g->place = -1;
    g->group = NULL;
    for (int32_t i = 0; i < g->n; i++) {
        if (g->ranks[i] == r->rank) g->place = i;
    }
    if (g->place >= 0) must_be_ok(r->table->group(r->comm, &g->group, g->ranks, g->n, &err), err);
}

/* The world, the world in reverse, every second rank, and each pair of neighbours; groups overlap. */
static void make_groups(ranks *r) {
    some *groups = r->groups;
    if (r->n_groups > 0) return;
    for (int32_t i = 0; i < r->size; i++) {
        groups[0].ranks[i] = i;
        groups[1].ranks[i] = r->size - 1 - i;
        if (i % 2 == 0) groups[2].ranks[groups[2].n++] = i;
    }
    groups[0].n = groups[1].n = r->size;
    groups[0].place = r->rank;
    r->n_groups = 3;
    for (int32_t i = 0; i + 1 < r->size; i++) {
        some *two = &groups[r->n_groups++];
        two->n = 2;
        two->ranks[0] = i % 3 == 0 ? i + 1 : i;
        two->ranks[1] = i % 3 == 0 ? i : i + 1;
    }
    for (int32_t i = 1; i < r->n_groups; i++) some_make(r, &groups[i]);
}

/* --- the cases --- */

static int is_sum(int k) {
    return k == REDUCE_SCATTER || k == ALL_REDUCE;
}

static void each_in_place(ranks *r, one e) {
    const int can = e.kind == ALL_GATHER || is_sum(e.kind);
    for (e.in_place = 0; e.in_place <= can; e.in_place++) {
        one now = e;
        begin(r, &now);
        wait_for(r, &now);
    }
}

void case_exchanges(ranks *r) {
    static const int64_t sizes[] = {0, 1, 2, 3, 64, 1021, 40009}; /* the last one for sums of long rows */
    static const int32_t dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_I64, WEFT_U8};
    const some *groups = r->groups;
    int g, k;
    size_t s, d;
    make_groups(r);
    for (g = 0; g < r->n_groups; g++) {
        if (groups[g].place < 0) continue;
        for (k = 0; k < KINDS; k++) {
            for (d = 0; d < (is_sum(k) ? 2 : 4); d++) {
                for (s = 0; s + !is_sum(k) < sizeof sizes / sizeof sizes[0]; s++) {
                    const int32_t root = (int32_t)(s % (size_t)groups[g].n);
                    const one e = {.kind = k, .group = &groups[g], .n = sizes[s], .dtype = dtypes[d], .root = root};
                    each_in_place(r, e);
                }
            }
        }
    }
}

#define TOGETHER 30

/* 30 calls of all groups in flight; even ranks wait from the first on, odd ones from the last on, and some test and
 * poke until they are done. */
void case_several(ranks *r) {
    one e[TOGETHER];
    int i, n = 0;
    make_groups(r);
    memset(e, 0, sizeof e);
    for (i = 0; i < TOGETHER; i++) {
        const some *g = &r->groups[i % r->n_groups];
        const one now = {.kind = i % KINDS,
                         .group = g,
                         .n = i % 4 == 0 ? 50021 : 17 * i,
                         .dtype = WEFT_F32 + i % 2,
                         .root = i % g->n,
                         .round = i};
        if (g->place < 0) continue;
        e[n] = now;
        begin(r, &e[n++]);
    }
    for (i = 0; i < n; i++) {
        one *at = &e[r->rank % 2 == 0 ? i : n - 1 - i];
        int32_t done = 0;
        if (r->rank % 3 != 0) {
            wait_for(r, at);
            continue;
        }
        while ((done = r->table->test(r->comm, at->handle, &err)) == 0)
            if (r->table->poke != NULL) r->table->poke(r->comm);
        if (done < 0) fail(__LINE__, "%s", err.text);
        end(r, at);
    }
}

/* 64 MiB on each rank, in total; once. */
void case_large(ranks *r) {
    const some world = {NULL, r->size, r->rank, {0}};
    const int64_t n = ((int64_t)64 << 20) / 4 / r->size;
    const one e = {.kind = ALL_TO_ALL, .group = &world, .n = n, .dtype = WEFT_F32};
    one now = e;
    if (r->kernels->host_view == NULL && !moves_itself(r)) return;
    begin(r, &now);
    wait_for(r, &now);
}

/* Calls of two groups that half of the ranks start in reverse order and finish before starting the next: neither may
 * wait for a resource of the other. If they are work of a stream, each has its own stream. */
void case_crossing(ranks *r) {
    one e[2] = {{.kind = REDUCE_SCATTER, .n = 1000003, .dtype = WEFT_F32},
                {.kind = REDUCE_SCATTER, .n = 1000003, .dtype = WEFT_F32, .round = 3}};
    make_groups(r);
    for (int i = 0; i < 2; i++) {
        e[i].group = &r->groups[i];
        prepare(r, &e[i]);
        if (moves_itself(r)) must_be_ok(r->kernels->stream_create(r->device, &e[i].stream, &err), err);
    }
    must_be_ok(r->kernels->synchronize(r->device, NULL, &err), err); /* the prepared data is visible to every stream */
    launch(r, &e[r->rank % 2]);
    if (r->rank % 2 == 0) launch(r, &e[1]);
    wait_for(r, &e[1]);
    if (r->rank % 2 == 1) launch(r, &e[0]);
    wait_for(r, &e[0]);
    for (int i = 0; i < 2; i++)
        if (e[i].stream != NULL) r->kernels->stream_destroy(r->device, e[i].stream);
}

/* --- memory --- */

/* Returns the peak memory of this process since the last reset. Some systems do not allow a reset; then a case that
 * uses less than an earlier one is not measured. */
static int64_t most_memory(void) {
    char line[256];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    must(file != NULL);
    while (kib < 0 && fgets(line, sizeof line, file) != NULL) (void)sscanf(line, "VmHWM: %lld", &kib);
    (void)fclose(file);
    must(kib >= 0);
    file = fopen("/proc/self/clear_refs", "w");
    if (file != NULL) {
        (void)fputs("5", file);
        (void)fclose(file);
    }
    return kib * 1024;
}

/* The memory of a call, apart from its operands, must not grow with them. The first call lets MPI allocate its
 * permanent memory. */
static void take_little(ranks *r, one e, int64_t n) {
    const int64_t bound = (int64_t)8 << 20;
    int64_t before, more;
    e.n = 1000003 / r->size;
    begin(r, &e);
    wait_for(r, &e);
    e.n = n;
    prepare(r, &e);
    (void)most_memory();
    before = most_memory();
    launch(r, &e);
    must_be_ok(r->table->wait(r->comm, e.handle, &err), err);
    more = most_memory() - before;
    if (more > bound) fail(__LINE__, "%lld bytes more", (long long)more);
    end(r, &e);
}

/* Rows that end within a chunk, and less than an element before a chunk's end. */
void case_memory(ranks *r) {
    const some world = {NULL, r->size, r->rank, {0}};
    const int64_t n = ((int64_t)64 << 20) / 4 / r->size / 65536 * 65536;
    const one e = {.kind = REDUCE_SCATTER, .group = &world};
    one now = e;
    if (r->kernels->host_view == NULL) return; /* copies are as large as the operands */
    now.dtype = WEFT_F32;
    take_little(r, now, n + 1);
    take_little(r, now, n - 1);
    now.in_place = 1;
    take_little(r, now, n + 32771);
    now.dtype = WEFT_BF16;
    take_little(r, now, n + 1);
}

/* --- measurements --- */

static double seconds(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void exchange(ranks *r, weft_exchange_fn *start, const weft_exchange *what) {
    weft_comm_handle *handle = NULL;
    must_be_ok(start(r->comm, &handle, what, &err), err);
    must_be_ok(r->table->wait(r->comm, handle, &err), err);
}

/* Times one call repeatedly; `bytes`: size of the larger operand. */
static void measure(ranks *r, const char *name, weft_exchange_fn *start, int64_t bytes, int rows, int times) {
    const int64_t n = bytes / 4 / (rows ? r->size : 1);
    weft_exchange what = {.struct_size = (uint32_t)sizeof what, .n = n, .dtype = WEFT_F32};
    double best = 1e9, all = 0;
    must_be_ok(r->kernels->alloc(r->device, &what.to.buffer, bytes, &err), err);
    must_be_ok(r->kernels->alloc(r->device, &what.from.buffer, bytes, &err), err);
    must_be_ok(r->kernels->fill(r->device, NULL, what.to, 0, bytes / 4, &err), err);
    must_be_ok(r->kernels->fill(r->device, NULL, what.from, 0, bytes / 4, &err), err);
    for (int i = -1; i < times; i++) {
        double before, took;
        exchange(r, r->table->barrier, &what);
        before = seconds();
        exchange(r, start, &what);
        took = seconds() - before;
        if (i >= 0) all += took;
        if (i >= 0 && took < best) best = took;
    }
    if (r->rank == 0) {
        (void)printf("%-15s %9lld bytes, %d ranks: mean %9.1f us, best %9.1f us, %6.2f GB/s\n", name, (long long)bytes,
                     (int)r->size, all / times * 1e6, best * 1e6, (double)bytes / best * 1e-9);
    }
    r->kernels->release(r->device, what.to.buffer);
    r->kernels->release(r->device, what.from.buffer);
}

void case_speed(ranks *r) {
    const int64_t large = (int64_t)64 << 20;
    measure(r, "all_gather", r->table->all_gather, 256 * r->size, 1, 2000);
    measure(r, "all_to_all", r->table->all_to_all, 256 * r->size, 1, 2000);
    measure(r, "all_gather", r->table->all_gather, large, 1, 20);
    measure(r, "all_to_all", r->table->all_to_all, large, 1, 20);
    measure(r, "reduce_scatter", r->table->reduce_scatter, large, 1, 20);
    measure(r, "all_reduce", r->table->all_reduce, large, 0, 20);
}
