/* A region distributed over ranks is written as one file. Bytes and hashes equal those of a single rank. Each page of
 * the file is written by only one rank, each byte once, from the rank that owns it. A failing rank stops all ranks.
 *
 * Ranks are threads here. Each has its own copy of the region, in which only the owned part is valid. */
#include "fixture.h"

#include <pthread.h>
#include <sys/stat.h>

#include "model/region.h"

struct weft_buffer {
    float *values;
};

enum { MOST_RANKS = 5, GRID = 64 };

static void *view(weft_device *device, weft_ref ref) {
    return ref.buffer->values + ref.offset / 4;
}

static const weft_device_plugin kernels = {.struct_size = sizeof(weft_device_plugin), .host_view = view};

/* ---- a model of a few tensors, and its distribution ---- */

typedef struct model {
    weft_parameter *parameters;
    weft_tensor_spec *specs;
    int32_t *order; /* all tensors */
    weft_group group;
    weft_declared declared;
    weft_layout layout;
    char (*names)[32];
} model;

static void model_make(model *out, const int64_t *numels, int32_t n, int32_t dtype) {
    int64_t at = 0;
    memset(out, 0, sizeof *out);
    out->parameters = calloc((size_t)n, sizeof *out->parameters);
    out->specs = calloc((size_t)n, sizeof *out->specs);
    out->order = calloc((size_t)n, sizeof *out->order);
    out->names = calloc((size_t)n, sizeof *out->names);
    for (int32_t i = 0; i < n; i++) {
        weft_parameter *p = &out->parameters[i];
        (void)snprintf(out->names[i], sizeof out->names[i], "tensor.%03d", i);
        p->name = out->names[i];
        p->numel = p->dims[0] = numels[i];
        p->rank = 1;
        p->offset = at;
        at += (numels[i] + GRID - 1) / GRID * GRID;
        out->order[i] = i;
        out->specs[i].name = p->name;
        out->specs[i].dtype = dtype;
        out->specs[i].rank = 1;
        out->specs[i].dims[0] = numels[i];
    }
    out->declared.parameters = out->parameters;
    out->declared.n_parameters = n;
    out->group.numel = at;
    out->group.dtype = WEFT_F32;
    out->layout.grid = GRID;
    out->layout.groups = &out->group;
    out->layout.n_groups = 1;
    out->layout.numel = at;
}

static void model_free(model *m) {
    free(m->parameters);
    free(m->specs);
    free(m->order);
    free(m->names);
}

/* Distributes runs of `cells` grid cells of the flat region round-robin to `world` ranks, from the last rank on. */
typedef struct deal {
    const model *model;
    int32_t world;
    int64_t cells;
} deal;

static int32_t keeper(void *context, int32_t parameter, int64_t first, int64_t *end) {
    const deal *d = context;
    const weft_parameter *p = &d->model->parameters[parameter];
    const int64_t run = d->cells * GRID, piece = (p->offset + first) / run;
    *end = (piece + 1) * run - p->offset;
    if (*end > p->numel) *end = p->numel;
    return d->world - 1 - (int32_t)(piece % d->world);
}

/* ---- ranks as threads ---- */

typedef struct crew {
    int32_t world;
    pthread_barrier_t barrier;
    int32_t codes[MOST_RANKS];
    void *shared;
    const weft_message_buffer *out[MOST_RANKS];
    int64_t swapped[MOST_RANKS]; /* bytes sent by each rank */
    bool unequal;                /* two ranks expected different messages */
} crew;

typedef struct member {
    crew *crew;
    int32_t rank;
} member;

static weft_status gather(void *context, int32_t *out, int32_t mine, weft_error *err) {
    const member *self = context;
    self->crew->codes[self->rank] = mine;
    (void)pthread_barrier_wait(&self->crew->barrier);
    memcpy(out, self->crew->codes, (size_t)self->crew->world * sizeof *out);
    (void)pthread_barrier_wait(&self->crew->barrier);
    return WEFT_OK;
}

static weft_status share(void *context, void *bytes, int64_t n, int32_t from, weft_error *err) {
    const member *self = context;
    if (self->rank == from) self->crew->shared = bytes;
    (void)pthread_barrier_wait(&self->crew->barrier);
    if (self->rank != from) memcpy(bytes, self->crew->shared, (size_t)n);
    (void)pthread_barrier_wait(&self->crew->barrier);
    return WEFT_OK;
}

static weft_status swap(void *context, const weft_message_buffer *in, const weft_message_buffer *out, weft_error *err) {
    const member *self = context;
    self->crew->out[self->rank] = out;
    (void)pthread_barrier_wait(&self->crew->barrier);
    for (int32_t r = 0; r < self->crew->world; r++) {
        const weft_message_buffer *comes = &self->crew->out[r][self->rank];
        self->crew->swapped[self->rank] += out[r].n;
        if (comes->n != in[r].n) self->crew->unequal = true;
        else if (comes->n > 0) memcpy(in[r].bytes, comes->bytes, (size_t)comes->n);
    }
    (void)pthread_barrier_wait(&self->crew->barrier);
    return WEFT_OK;
}

/* ---- files ---- */

typedef struct root_list {
    int32_t n;
    char text[400][100]; /* "tensor.000 hash" */
} root_list;

static weft_status tell(void *context, const char *path, const char *tensor, const char hex[65], weft_error *err) {
    root_list *roots = context;
    (void)snprintf(roots->text[roots->n++], sizeof roots->text[0], "%s %s", tensor, hex);
    return WEFT_OK;
}

typedef struct job {
    const model *model;
    const char *path;
    deal deal;
    member member;
    root_list *roots;
    int32_t poisoned; /* rank that cannot create or find its file; -1: no rank */
    weft_status status;
    weft_error err;
} job;

static float value_of(int64_t element) {
    return (float)(element % 8191) * 0.37f - 1000.0f;
}

static void *run_rank(void *context) {
    job *self = context;
    const model *m = self->model;
    const int32_t rank = self->member.rank, world = self->deal.world;
    int32_t codes[MOST_RANKS];
    weft_buffer buffer = {malloc((size_t)m->layout.numel * sizeof(float))};
    const weft_process_group peers = {rank, world, codes, &self->member, gather, share, swap};
    const weft_region region = {.declared = &m->declared,
                                .layout = &m->layout,
                                .kernels = &kernels,
                                .ref = {&buffer, 0},
                                .writer = keeper,
                                .context = &self->deal,
                                .peers = world == 1 ? NULL : &peers};
    const weft_roots roots = {tell, self->roots};
    const weft_region_file file = {&region, self->poisoned == rank ? "/nowhere/at/all" : self->path, m->specs, m->order,
                                   m->declared.n_parameters};
    memset(buffer.values, 0xFF, (size_t)m->layout.numel * sizeof(float));
    for (int32_t p = 0; p < m->declared.n_parameters; p++)
        for (int64_t first = 0, end = 0; first < m->parameters[p].numel; first = end)
            if (weft_region_written_by(&region, p, first, &end) == rank)
                for (int64_t i = m->parameters[p].offset + first; i < m->parameters[p].offset + end; i++)
                    buffer.values[i] = value_of(i);
    self->status = weft_region_write(&file, &roots, &self->err);
    free(buffer.values);
    return NULL;
}

static void write_by(const model *m, const char *path, int32_t world, int64_t cells, root_list *roots, crew *c,
                     job jobs[MOST_RANKS], int32_t poisoned) {
    pthread_t threads[MOST_RANKS];
    memset(c, 0, sizeof *c);
    c->world = world;
    (void)pthread_barrier_init(&c->barrier, NULL, (unsigned)world);
    for (int32_t r = 0; r < world; r++) {
        const job one = {m, path, {m, world, cells}, {c, r}, roots, poisoned, WEFT_OK, WEFT_ERROR_INIT};
        jobs[r] = one;
        ck_assert_int_eq(pthread_create(&threads[r], NULL, run_rank, &jobs[r]), 0);
    }
    for (int32_t r = 0; r < world; r++) (void)pthread_join(threads[r], NULL);
    (void)pthread_barrier_destroy(&c->barrier);
    ck_assert(!c->unequal);
}

/* ---- tests ---- */

/* Small ones, some that end within a page, one of several chunks. */
static const int64_t mixed[] = {64, 7, 5000, 1, 130, 3 << 20, 64, 64, 1023, 1024, 40000, 65};
enum { MIXED = LENGTH(mixed) };

TESTS(any_number_of_ranks_writes_the_same_file, 2) {
    static const int32_t dtypes[] = {WEFT_F32, WEFT_BF16};
    static root_list one, many;
    model m;
    crew c;
    job jobs[MOST_RANKS];
    one.n = 0;
    model_make(&m, mixed, MIXED, dtypes[_i]);
    write_by(&m, scratch_path("one"), 1, 1, &one, &c, jobs, -1);
    ck_assert_ok(jobs[0].status, jobs[0].err);
    ck_assert_int_eq(one.n, MIXED);
    for (int32_t world = 2; world <= MOST_RANKS; world++)
        for (int64_t cells = 1; cells < 20000; cells *= 37) { /* from alternating cells to some runs per rank */
            many.n = 0;
            write_by(&m, scratch_path("many"), world, cells, &many, &c, jobs, -1);
            for (int32_t r = 0; r < world; r++) ck_assert_ok(jobs[r].status, jobs[r].err);
            check_same_file(scratch_path("one"), scratch_path("many"));
            ck_assert_msg(many.n == one.n && memcmp(many.text, one.text, sizeof one.text) == 0,
                          "%d ranks, %lld cells: other hashes", world, (long long)cells);
            ck_assert_int_eq(unlink(scratch_path("many")), 0);
        }
    model_free(&m);
}

TESTS(a_page_has_one_writer_and_a_byte_comes_once, 3) {
    weft_error err = WEFT_ERROR_INIT;
    weft_tensor_writer *writer = NULL;
    struct stat about;
    model m;
    model_make(&m, mixed, MIXED, WEFT_F32);
    ck_assert_ok(weft_tensor_writer_open(&writer, scratch_path("w"), m.specs, MIXED, true, &err), err);
    ck_assert_int_eq(stat(scratch_path("w"), &about), 0);
    const int64_t bytes = about.st_size, begin = weft_tensor_writer_offset(writer, 0);
    signed char *by = malloc((size_t)bytes), *kept = malloc((size_t)bytes);
    for (int32_t world = 1; world <= MOST_RANKS; world++) {
        const int64_t cells = 1 + _i * 13;
        deal d = {&m, world, cells};
        const weft_process_group peers = {.world = world};
        const weft_region region = {
            .declared = &m.declared, .layout = &m.layout, .writer = keeper, .context = &d, .peers = &peers};
        weft_file_extents s;
        const weft_region_file file = {&region, NULL, m.specs, m.order, MIXED};
        s = weft_file_extents_make(&file, writer);
        memset(by, -1, (size_t)bytes);
        memset(by, 0, (size_t)begin);
        memset(kept, 0, (size_t)begin);
        for (int32_t i = 1; i < s.n; i++)
            for (int64_t at = s.items[i].begin; at < s.items[i].end; at += 3 * 256) { /* in chunks */
                const int64_t end = at + 3 * 256 < s.items[i].end ? at + 3 * 256 : s.items[i].end;
                weft_file_part parts[WEFT_FILE_EXTENT_PARTS];
                const int n = weft_file_extent_split(parts, &s, i, at, end);
                memset(kept + at, s.items[i].keeper, (size_t)(end - at));
                for (int k = 0; k < n; k++)
                    for (int64_t b = parts[k].begin; b < parts[k].end; b++) {
                        if (by[b] != -1) ck_abort_msg("byte %lld comes twice", (long long)b);
                        by[b] = (signed char)parts[k].writer;
                    }
            }
        for (int64_t page = 0; page < bytes; page += WEFT_PAGE) {
            signed char lowest = kept[page];
            for (int64_t b = page; b < bytes && b < page + WEFT_PAGE; b++)
                if (kept[b] < lowest) lowest = kept[b];
            for (int64_t b = page; b < bytes && b < page + WEFT_PAGE; b++)
                if (by[b] != lowest) ck_abort_msg("byte %lld: %d writes, not %d", (long long)b, by[b], lowest);
        }
        free(s.items);
    }
    free(by);
    free(kept);
    weft_tensor_writer_cancel(writer);
    model_free(&m);
}

/* Many small tensors: the data of shared pages exceed one message. */
TEST(many_shared_pages_go_over) {
    static root_list one, many;
    int64_t numels[300];
    model m;
    crew c;
    job jobs[MOST_RANKS];
    for (int i = 0; i < 300; i++) numels[i] = 64 + i % 70;
    model_make(&m, numels, 300, WEFT_F32);
    one.n = many.n = 0;
    write_by(&m, scratch_path("one"), 1, 1, &one, &c, jobs, -1);
    write_by(&m, scratch_path("many"), 4, 1, &many, &c, jobs, -1);
    check_same_file(scratch_path("one"), scratch_path("many"));
    ck_assert(memcmp(many.text, one.text, sizeof one.text) == 0);
    ck_assert_int_gt(c.swapped[3], 0);
    model_free(&m);
}

/* Rank 0 reports the error, once, and names the failing rank. */
TESTS(a_rank_that_fails_ends_all, 3) {
    static root_list roots;
    model m;
    crew c;
    job jobs[MOST_RANKS];
    model_make(&m, mixed, MIXED, WEFT_F32);
    write_by(&m, scratch_path("f"), 3, 5, &roots, &c, jobs, _i);
    for (int32_t r = 0; r < 3; r++) {
        ck_assert_int_eq(jobs[r].status, WEFT_E_SYSTEM);
        if (r > 0) {
            ck_assert_str_eq(jobs[r].err.text, "");
            ck_assert_int_eq(jobs[r].err.code, WEFT_E_PEER);
        }
    }
    ck_assert_msg(strstr(jobs[0].err.text, "/nowhere/at/all: cannot be written: No such file") != NULL, "%s",
                  jobs[0].err.text);
    ck_assert_int_eq(strncmp(jobs[0].err.text, "rank 2: ", 8) == 0, _i == 2);
    model_free(&m);
}

int main(void) {
    return run_tests(test_case("region_write", 120, scratch_make, scratch_remove));
}
