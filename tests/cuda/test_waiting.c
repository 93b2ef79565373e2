/* The CUDA device defers an add. A norm of its sum computes the sum too, with the same bits. It defers a copy too,
 * which the backward of a norm that adds to it replaces. All other work queued in its stream, an event record, a
 * wait, and creating or destroying an object launch it first. Each slot of each table of the device has a row here
 * with its required behaviour, tested on the emulator. */
#include <stddef.h>

#include <weft/capture.h>
#include <weft/choices.h>
#include <weft/dry_run.h>
#include <weft/native.h>
#include <weft/transfer.h>
#include <weft_emulator.h>

#include "device/fixture.h"
#include "tools/check/device_calls.h"

static weft_error err = WEFT_ERROR_INIT;

enum { ROWS = 8, WIDTH = 32, N = ROWS * WIDTH, PART = N * 4, HEADS = 2, OUTPUTS = 4, WORK = 3 << 20 };
enum { NO_PART, A, B, Y, OUT, PARTS = OUT + OUTPUTS }; /* parts of the memory, N words each */

static const weft_device_transfer *transfer;
static const weft_device_capture *capture;
static const weft_device_choices *choices;
static const weft_device_dry_run *dry;
static const weft_device_native *native;
static weft_device *device;
static weft_buffer *memory, *work;
static weft_stream *side;

/* Objects that a slot destroys; created before each add, NULL after destruction. */
static weft_buffer *spare_buffer;
static weft_stream *spare_stream;
static weft_captured_graph *spare_recording;
static weft_event *side_event;
static void *spare_pinned, *pinned;
static float told[N]; /* by `read` */

static weft_ref part(int i) {
    return (weft_ref){memory, (int64_t)(i - A) * PART};
}

/* ---- the slots besides kernels ---- */

#define ASK(name, ...)                                                                                                 \
    static weft_status ask_##name(void) {                                                                              \
        __VA_ARGS__                                                                                                    \
    }
ASK(create, weft_device *another = make_device(1, 0); table->destroy(another); return WEFT_OK;)
ASK(info, weft_device_info info = {.struct_size = sizeof info}; table->info(device, &info); return WEFT_OK;)
ASK(alloc, weft_buffer *b = NULL; const weft_status status = table->alloc(device, &b, 64, &err);
    table->release(device, spare_buffer); spare_buffer = b; return status;)
ASK(release, table->release(device, spare_buffer); spare_buffer = NULL; return WEFT_OK;)
ASK(stream_create, weft_stream *s = NULL; const weft_status status = table->stream_create(device, &s, &err);
    table->stream_destroy(device, spare_stream); spare_stream = s; return status;)
ASK(stream_destroy, table->stream_destroy(device, spare_stream); spare_stream = NULL; return WEFT_OK;)
ASK(synchronize, return table->synchronize(device, NULL, &err);)
ASK(record_event, weft_event *m = NULL; weft_status status = table->record_event(device, NULL, &m, &err);
    if (status == WEFT_OK) status = table->wait(device, side, m, &err);
    return status == WEFT_OK ? table->copy(device, side, part(OUT), part(Y), PART, &err) : status;)
ASK(wait, weft_event *m = side_event; side_event = NULL; return table->wait(device, NULL, m, &err);)
ASK(write, return table->write(device, NULL, part(Y), told, PART / 2, &err);)
ASK(read, return table->read(device, NULL, told, part(Y), PART, &err);)
ASK(copy, return table->copy(device, NULL, part(OUT), part(Y), PART, &err);)
ASK(fill, return table->fill(device, NULL, part(Y), 7, N / 2, &err);)
ASK(convert, return table->convert(device, NULL, part(OUT), WEFT_BF16, part(Y), WEFT_F32, N, &err);)
ASK(extension, return table->extension(device, WEFT_DEVICE_NATIVE) != NULL ? WEFT_OK : WEFT_E_HOST;)
ASK(take, void *at = NULL; const weft_status status = transfer->take(device, &at, 64, &err);
    transfer->give_back(device, spare_pinned); spare_pinned = at; return status;)
ASK(give_back, transfer->give_back(device, spare_pinned); spare_pinned = NULL; return WEFT_OK;)
ASK(upload, return transfer->upload(device, NULL, part(Y), pinned, PART / 2, &err);)
ASK(download, return transfer->download(device, NULL, pinned, part(Y), PART, &err);)
ASK(reached, return transfer->reached(device, side_event, &err) < 0 ? WEFT_E_DEVICE : WEFT_OK;)
ASK(await, weft_event *m = side_event; side_event = NULL; return transfer->await(device, m, &err);)
ASK(recording, weft_captured_graph *r = NULL; const weft_status status = capture->begin(device, NULL, &err);
    if (status != WEFT_OK) return status; (void)capture->end(device, NULL, &r, &err); capture->destroy(device, r);
    return WEFT_OK;)
ASK(replay, return capture->replay(device, NULL, spare_recording, &err);)
ASK(destroy, capture->destroy(device, spare_recording); spare_recording = NULL; return WEFT_OK;)
ASK(count, return choices->count(device) >= 0 ? WEFT_OK : WEFT_E_HOST;)
ASK(get, weft_device_choice c = {.struct_size = sizeof c}; choices->get(device, 0, &c); return WEFT_OK;)
ASK(choose, weft_device_choice c = {.struct_size = sizeof c}; choices->get(device, 0, &c);
    return choices->choose(device, &c, &err);)
ASK(take_choice, weft_device_choice c = {.struct_size = sizeof c}; choices->get(device, 0, &c);
    return choices->take(device, &c, &err);)
ASK(stream, return native->stream(device, NULL) != NULL ? WEFT_OK : WEFT_E_HOST;)
ASK(address, return native->address(device, part(Y), PART) != NULL ? WEFT_OK : WEFT_E_HOST;)
ASK(index, return native->index(device) == 0 ? WEFT_OK : WEFT_E_HOST;)
ASK(dry_begin, const weft_status status = dry->begin(device, &err); if (status == WEFT_OK) dry->end(device);
    return status;)
ASK(counts, weft_dry_counts c = {.struct_size = sizeof c}; dry->counts(device, &c); return WEFT_OK;)

/* ---- each slot ---- */

enum { LETS, LAUNCHES, ELSEWHERE }; /* the add stays deferred, is launched, or has a separate test below */
enum { OF_DEVICE, OF_TRANSFER, OF_CAPTURE, OF_CHOICES, OF_NATIVE, OF_DRY_RUN };

typedef struct slot {
    const char *name;
    int of;
    size_t offset;
    int does;
    weft_status (*ask)(void);
} slot;

#define DEVICE(slot, does)                                                                                             \
    { #slot, OF_DEVICE, offsetof(weft_device_plugin, slot), does, ask_##slot }
#define KERNEL(slot, type)    {#slot, OF_DEVICE, offsetof(weft_device_plugin, slot), ELSEWHERE, NULL},
#define WORKSPACE(slot, type) KERNEL(slot##_workspace, type)
#define TRANSFER(slot, does)                                                                                           \
    { "transfer's " #slot, OF_TRANSFER, offsetof(weft_device_transfer, slot), does, ask_##slot }
#define CAPTURE(slot, does, ask)                                                                                       \
    { "capture's " #slot, OF_CAPTURE, offsetof(weft_device_capture, slot), does, ask }
#define CHOICES(slot, ask)                                                                                             \
    { "choices' " #slot, OF_CHOICES, offsetof(weft_device_choices, slot), LETS, ask }
#define NATIVE(slot, does)                                                                                             \
    { "native's " #slot, OF_NATIVE, offsetof(weft_device_native, slot), does, ask_##slot }
#define DRY(slot, does, ask)                                                                                           \
    { "dry_run's " #slot, OF_DRY_RUN, offsetof(weft_device_dry_run, slot), does, ask }

static const slot slots[] = {
    DEVICE(create, LETS),
    {"destroy", OF_DEVICE, offsetof(weft_device_plugin, destroy), ELSEWHERE, NULL},
    DEVICE(info, LETS),
    DEVICE(alloc, LAUNCHES),
    DEVICE(release, LAUNCHES),
    {"host_view", OF_DEVICE, offsetof(weft_device_plugin, host_view), ELSEWHERE, NULL}, /* it has no such function */
    DEVICE(stream_create, LAUNCHES),
    DEVICE(stream_destroy, LAUNCHES),
    DEVICE(synchronize, LAUNCHES),
    DEVICE(record_event, LAUNCHES),
    DEVICE(wait, LAUNCHES),
    DEVICE(write, LAUNCHES),
    DEVICE(read, LAUNCHES),
    DEVICE(copy, LAUNCHES),
    DEVICE(fill, LAUNCHES),
    DEVICE(convert, LAUNCHES),
    WEFT_DEVICE_KERNELS(KERNEL) WEFT_DEVICE_WORKSPACES(WORKSPACE) DEVICE(extension, LETS),
    TRANSFER(take, LAUNCHES),
    TRANSFER(give_back, LAUNCHES),
    TRANSFER(upload, LAUNCHES),
    TRANSFER(download, LAUNCHES),
    TRANSFER(reached, LETS), /* the event is before the deferred add */
    TRANSFER(await, LETS),
    CAPTURE(begin, LAUNCHES, ask_recording),
    CAPTURE(end, ELSEWHERE, NULL),
    CAPTURE(replay, LAUNCHES, ask_replay),
    CAPTURE(destroy, LAUNCHES, ask_destroy),
    CHOICES(count, ask_count),
    CHOICES(get, ask_get),
    CHOICES(choose, ask_choose),
    CHOICES(take, ask_take_choice),
    NATIVE(stream, LAUNCHES),
    NATIVE(address, LETS),
    NATIVE(index, LETS),
    DRY(begin, LAUNCHES, ask_dry_begin),
    DRY(counts, LAUNCHES, ask_counts),
    DRY(end, ELSEWHERE, NULL),
};
#define N_SLOTS (sizeof slots / sizeof *slots)

/* ---- calls and their results ---- */

static void fine(weft_status status) {
    ck_assert_msg(status == WEFT_OK, "%s", err.text);
}

static long long launches(void) {
    return emulator_calls("cudaLaunchKernel") + emulator_calls("cuLaunchKernel");
}

static weft_add add_to(int y) {
    return (
        weft_add){.struct_size = sizeof(weft_add), .a = part(A), .b = part(B), .y = part(y), .n = N, .dtype = WEFT_F32};
}

/* Y = A + B is deferred. */
static void begin_add(void) {
    const weft_add args = add_to(Y);
    const long long before = launches();
    fine(table->add(device, NULL, &args, &err));
    ck_assert_int_eq(launches(), before);
}

static void settle(void) {
    fine(table->synchronize(device, NULL, &err));
    fine(table->synchronize(device, side, &err));
}

/* Captures a copy within the outputs, in the default stream. */
static weft_captured_graph *record_copy(void) {
    weft_captured_graph *out = NULL;
    fine(capture->begin(device, NULL, &err));
    fine(table->copy(device, NULL, part(OUT), part(OUT + 3), PART, &err));
    fine(capture->end(device, NULL, &out, &err));
    return out;
}

/* Returns a part's position in an image of the memory, in floats. */
static float *in_image(float *image, int i) {
    return image + (ptrdiff_t)(i - A) * N;
}

static void fill_image(float *image, int32_t dtype) {
    float *a = in_image(image, A); /* and B after it */
    number_state = 11;
    for (int i = 0; i < 2 * N; i++) a[i] = number();
    for (int i = 0; dtype != WEFT_F32 && i < 2; i++) {
        uint16_t *half = (uint16_t *)(void *)in_image(image, A + i);
        for (int j = 0; j < N; j++) half[j] = half_of(rounded(number(), dtype), dtype);
    }
    for (int i = 0; i < OUTPUTS * N; i++) in_image(image, OUT)[i] = (float)(i % 5);
}

/* Prepares the memory and all objects that a slot may destroy. dtype: of A and B. */
static void prepare(int32_t dtype) {
    float image[(PARTS - A) * N] = {0};
    fill_image(image, dtype);
    err = (weft_error)WEFT_ERROR_INIT;
    for (int i = 0; i < N; i++) told[i] = ((float *)pinned)[i] = (float)i;
    fine(table->write(device, NULL, part(A), image, sizeof image, &err));
    if (spare_buffer == NULL) fine(table->alloc(device, &spare_buffer, 64, &err));
    if (spare_stream == NULL) fine(table->stream_create(device, &spare_stream, &err));
    if (spare_pinned == NULL) fine(transfer->take(device, &spare_pinned, 64, &err));
    if (side_event == NULL) fine(table->record_event(device, side, &side_event, &err));
    settle();
    if (spare_recording == NULL) spare_recording = record_copy();
}

/* The complete memory, and the data read by the host. */
typedef struct left {
    float memory[(PARTS - A) * N], told[N], pinned[N];
} left;

static void look(left *out) {
    settle();
    fine(table->read(device, NULL, out->memory, part(A), sizeof out->memory, &err));
    memcpy(out->told, told, sizeof told);
    memcpy(out->pinned, pinned, sizeof out->pinned);
}

/* True if Y = A + B is complete. */
static bool has_sum(left *of) {
    const float *a = in_image(of->memory, A), *b = in_image(of->memory, B), *y = in_image(of->memory, Y);
    for (int i = 0; i < N; i++)
        if (y[i] != a[i] + b[i]) return false;
    return true;
}

/* Calls the slot after a completed add, or directly after a deferred one. Returns the number of launches. */
static long long ask_behind(const slot *s, bool runs_first, left *out) {
    long long before = 0, made = 0;
    prepare(WEFT_F32);
    begin_add();
    if (runs_first) settle();
    before = launches();
    ck_assert_msg(s->ask() == WEFT_OK, "%s: %s", s->name, err.text);
    made = launches() - before;
    look(out);
    return made;
}

TESTS(each_slot_launches_an_add_that_waits_or_lets_it, (int)N_SLOTS) {
    const slot *s = &slots[_i];
    left first, behind;
    long long alone = 0, made = 0;
    if (s->does == ELSEWHERE) return;
    (void)ask_behind(s, true, &first); /* creates objects that only the first call creates */
    alone = ask_behind(s, true, &first);
    made = ask_behind(s, false, &behind);
    ck_assert_msg(made == alone + (s->does == LAUNCHES), "%s: %lld launches behind an add, %lld by itself", s->name,
                  made, alone);
    ck_assert_msg(memcmp(&first, &behind, sizeof first) == 0, "%s: other bits right behind an add", s->name);
}

/* ---- kernels: the calls of `weft plugins check`, each with operands of its own ---- */

typedef struct drawn {
    weft_device_call call;
    weft_bench bench; /* owns the memory */
    weft_ref operands[WEFT_CALL_OPERANDS];
    weft_ref data, zeros, workspace; /* data, zeros: addends, as long as any operand */
} drawn;

static int64_t operand_bytes(const drawn *d, int i) {
    return weft_dtype_span(d->call.operands[i].dtype, d->call.operands[i].n);
}

static void draw(drawn *d, int32_t number) {
    int64_t most = 0;
    memset(d, 0, sizeof *d);
    d->bench = (weft_bench){.kernels = table, .device = device};
    ck_assert(weft_device_call_draw(&d->call, number, WEFT_F32));
    for (int i = 0; i < d->call.n; i++) {
        if (operand_bytes(d, i) > most) most = operand_bytes(d, i);
        fine(weft_bench_take(&d->bench, &d->operands[i], operand_bytes(d, i), &err));
        memcpy((char *)&d->call.args + d->call.operands[i].field, &d->operands[i], sizeof(weft_ref));
    }
    fine(weft_bench_take(&d->bench, &d->data, most, &err));
    fine(weft_bench_take(&d->bench, &d->zeros, most, &err));
    fine(table->fill(device, NULL, d->zeros, 0, most / 4, &err));
    d->workspace = (weft_ref){work, 0};
}

static void drop(drawn *d) {
    weft_bench_release(&d->bench);
    weft_device_call_free(&d->call);
}

static void write_operands(const drawn *d) {
    for (int i = 0; i < d->call.n; i++) {
        const void *data = d->call.operands[i].data;
        const int64_t bytes = operand_bytes(d, i);
        if (data != NULL) fine(table->write(device, NULL, d->operands[i], data, bytes, &err));
        else fine(table->fill(device, NULL, d->operands[i], 0, bytes / 4, &err));
    }
}

/* Defers an add whose sum is an fp32 input of the kernel: the first one, but not x of a norm, which would fuse it. */
static void begin_input(const drawn *d, const weft_kernel *kernel) {
    weft_add args = {.struct_size = sizeof args, .a = d->data, .b = d->zeros, .y = part(Y), .n = 1, .dtype = WEFT_F32};
    for (int i = kernel == &weft_kernel_norm; i < d->call.n && args.y.buffer == memory; i++) {
        const weft_call_operand *o = &d->call.operands[i];
        if (o->dtype != WEFT_F32 || o->is_result) continue;
        args.y = d->operands[i];
        args.n = o->n;
        fine(table->write(device, NULL, d->data, o->data, 4 * o->n, &err));
        fine(table->fill(device, NULL, args.y, 0, o->n, &err));
    }
    settle();
    fine(table->add(device, NULL, &args, &err));
}

/* Runs the kernels of the call, each after a completed add, or directly after a deferred one, which the workspace query
 * does not launch. Returns the number of launches, and a checksum of each operand. */
static long long run_drawn(drawn *d, bool runs_first, uint64_t sums[WEFT_CALL_OPERANDS]) {
    const weft_kernel_run on = {.kernels = table, .device = device};
    long long made = 0;
    write_operands(d);
    for (int k = 0; k < 2 && d->call.kernels[k] != NULL; k++) {
        size_t field = 0;
        begin_input(d, d->call.kernels[k]);
        if (runs_first) settle();
        const long long before = launches();
        ck_assert_int_le(weft_kernel_workspace(d->call.kernels[k], &on, &d->call.args.kernel, &field), WORK);
        ck_assert_int_eq(launches(), before);
        if (field != 0) memcpy((char *)&d->call.args + field, &d->workspace, sizeof d->workspace);
        fine(weft_kernel_invoke(d->call.kernels[k], &on, &d->call.args.kernel, &err));
        made += launches() - before;
    }
    settle();
    for (int i = 0; i < d->call.n; i++) {
        unsigned char *bytes = malloc((size_t)operand_bytes(d, i));
        fine(table->read(device, NULL, bytes, d->operands[i], operand_bytes(d, i), &err));
        sums[i] = 0;
        for (int64_t b = 0; b < operand_bytes(d, i); b++) sums[i] = sums[i] * 1099511628211u + bytes[b];
        free(bytes);
    }
    return made;
}

static int n_calls(void) {
    int32_t n = 0;
    weft_device_call call;
    for (; weft_device_call_draw(&call, n, WEFT_F32); n++) weft_device_call_free(&call);
    return n;
}

TESTS(each_kernel_launches_an_add_that_waits, n_calls()) {
    uint64_t first[WEFT_CALL_OPERANDS] = {0}, behind[WEFT_CALL_OPERANDS] = {0};
    const weft_kernel_run on = {.kernels = table, .device = device};
    long long alone = 0, made = 0;
    drawn d;
    draw(&d, _i);
    (void)run_drawn(&d, true, first); /* creates objects that only the first call creates */
    alone = run_drawn(&d, true, first);
    made = run_drawn(&d, false, behind) - (d.call.kernels[1] == NULL ? 1 : 2);
    ck_assert_msg(made == alone, "%s: %lld launches behind an add, %lld by itself", d.call.name, made, alone);
    ck_assert_msg(memcmp(first, behind, sizeof first) == 0, "%s: other bits right behind an add", d.call.name);
    begin_input(&d, d.call.kernels[0]);
    emulator_plant("cudaLaunchKernel:1=701"); /* the add's, which fails */
    ck_assert_int_ne(weft_kernel_invoke(d.call.kernels[0], &on, &d.call.args.kernel, &err), WEFT_OK);
    emulator_plant(NULL);
    ck_assert_says(err, "add on device cuda: cudaLaunchKernel answered");
    settle();
    drop(&d);
}

TEST(every_kernel_is_drawn) {
    bool seen[WEFT_SLOT_copy] = {false};
    weft_device_call call;
    for (int32_t i = 0; weft_device_call_draw(&call, i, WEFT_F32); i++) {
        for (int k = 0; k < 2 && call.kernels[k] != NULL; k++) seen[call.kernels[k]->slot] = true;
        weft_device_call_free(&call);
    }
    for (int i = 0; i < WEFT_SLOT_copy; i++) ck_assert_msg(seen[i], "kernel %d of WEFT_DEVICE_KERNELS is not drawn", i);
}

/* Checks that each pointer of the table from the first slot on has a row. */
static void check_whole(int of, size_t first, size_t bytes, const char *name) {
    for (size_t offset = first; offset < bytes; offset += sizeof(void *)) {
        int n = 0;
        for (size_t i = 0; i < N_SLOTS; i++) n += slots[i].of == of && slots[i].offset == offset;
        ck_assert_msg(n == 1, "%d rows are about the slot at byte %zu of %s", n, offset, name);
    }
}

TEST(every_slot_has_a_row) {
#define WHOLE(of, type, first) check_whole(of, offsetof(type, first), sizeof(type), #type)
    WHOLE(OF_DEVICE, weft_device_plugin, create);
    WHOLE(OF_TRANSFER, weft_device_transfer, take);
    WHOLE(OF_CAPTURE, weft_device_capture, begin);
    WHOLE(OF_CHOICES, weft_device_choices, count);
    WHOLE(OF_NATIVE, weft_device_native, stream);
    WHOLE(OF_DRY_RUN, weft_device_dry_run, begin);
}

/* ---- fusion with a norm ---- */

/* A norm after an add. Parts: the add's y, and the norm's operands if different from that and OUT. */
typedef struct meeting {
    const char *name;
    bool takes;
    weft_norm norm;
    int32_t dtype; /* of the add; 0, and of the norm: fp32 */
    int sum, x, y, rstd, gain, residual;
    int64_t x_from, y_from, rstd_from; /* bytes */
    bool on_side;
} meeting;

static const meeting meetings[] = {
    {.name = "RMSNorm", .takes = true},
    {.name = "LayerNorm", .takes = true, .norm = {.form = WEFT_NORM_LAYER}},
    {.name = "a gain from one", .takes = true, .norm = {.gain_from_one = 1}},
    {.name = "bf16", .takes = true, .norm = {.dtype = WEFT_BF16}, .dtype = WEFT_BF16},
    {.name = "fp16", .takes = true, .norm = {.dtype = WEFT_F16}, .dtype = WEFT_F16},
    {.name = "rows of heads", .takes = true, .norm = {.rows = ROWS * HEADS, .width = WIDTH / HEADS}},
    {.name = "the sum on a", .takes = true, .sum = A},
    {.name = "the sum on b", .takes = true, .sum = B},
    {.name = "the norm on the sum", .takes = true, .y = Y},
    {.name = "the norm on a", .takes = true, .y = A},
    {.name = "the norm on b", .takes = true, .y = B},
    {.name = "x elsewhere", .x = OUT + 2},
    {.name = "x further on", .norm = {.rows = ROWS - 1}, .x_from = WIDTH * 4},
    {.name = "fewer rows", .norm = {.rows = ROWS - 1}},
    {.name = "another type", .norm = {.dtype = WEFT_BF16}},
    {.name = "as many bytes of another type", .norm = {.dtype = WEFT_BF16, .width = 2 * WIDTH}},
    {.name = "a residual of its own", .residual = OUT + 2},
    {.name = "another stream", .on_side = true},
    {.name = "the norm across a and b", .y = A, .y_from = WIDTH * 4},
    {.name = "rstd in a", .rstd = A},
    {.name = "rstd in b", .rstd = B, .rstd_from = PART - ROWS * 4},
    {.name = "the gain in the sum", .gain = Y},
};

static int or_else(int chosen, int other) {
    return chosen != 0 ? chosen : other;
}

static weft_ref further(weft_ref from, int64_t bytes) {
    from.offset += bytes;
    return from;
}

static weft_norm norm_of(const meeting *m) {
    weft_norm n = m->norm;
    n.struct_size = sizeof n;
    n.eps = 1e-5;
    if (n.rows == 0) n.rows = ROWS;
    if (n.width == 0) n.width = WIDTH;
    n.dtype = or_else(n.dtype, WEFT_F32);
    n.x = further(part(or_else(m->x, or_else(m->sum, Y))), m->x_from);
    n.y = further(part(or_else(m->y, OUT)), m->y_from);
    n.rstd = further(part(or_else(m->rstd, OUT + 1)), m->rstd_from);
    n.gain = part(or_else(m->gain, OUT + 3));
    if (n.form == WEFT_NORM_LAYER) n.bias = part(OUT + 3), n.mean = part(OUT + 2);
    if (m->residual != NO_PART) n.residual = n.sum = part(m->residual);
    return n;
}

/* Runs the add and the norm, consecutively or separately. Returns the number of launches. */
static long long run_meeting(const meeting *m, bool apart, left *out) {
    const weft_norm norm = norm_of(m);
    const weft_add add = {.struct_size = sizeof add,
                          .a = part(A),
                          .b = part(B),
                          .y = part(or_else(m->sum, Y)),
                          .n = N,
                          .dtype = or_else(m->dtype, WEFT_F32)};
    long long before = 0, made = 0;
    prepare(add.dtype);
    before = launches();
    fine(table->add(device, NULL, &add, &err));
    if (apart) settle();
    fine(table->norm(device, m->on_side ? side : NULL, &norm, &err));
    settle();
    made = launches() - before;
    look(out);
    return made;
}

TESTS(a_norm_of_the_sum_takes_the_add, LENGTH(meetings)) {
    const meeting *m = &meetings[_i];
    left apart, met;
    long long made = 0;
    ck_assert_int_eq(run_meeting(m, true, &apart), 2);
    made = run_meeting(m, false, &met);
    ck_assert_msg(made == (m->takes ? 1 : 2), "%s: %lld launches", m->name, made);
    if (m->on_side) return; /* their order is undefined */
    ck_assert_msg(memcmp(&apart, &met, sizeof met) == 0, "%s: other bits", m->name);
}

/* A copy to OUT and the backward of a norm that adds to dx. Parts that differ from A (source), Y (x), B (dy), OUT (dx)
 * and OUT + 2 (dgain). */
typedef struct adding {
    const char *name;
    bool takes, sets, on_side;
    int64_t rows;
    int32_t form;
    int x, dy, dx, dgain;
} adding;

static const adding addings[] = {
    {.name = "RMSNorm", .takes = true},
    {.name = "LayerNorm", .takes = true, .form = WEFT_NORM_LAYER},
    {.name = "dy is the source", .takes = true, .dy = A},
    {.name = "x is the source", .takes = true, .x = A},
    {.name = "no sum", .sets = true},
    {.name = "dx elsewhere", .dx = OUT + 1},
    {.name = "fewer rows", .rows = ROWS - 1},
    {.name = "dy is the copy", .dy = OUT},
    {.name = "x is the copy", .x = OUT},
    {.name = "dgain in the source", .dgain = A},
    {.name = "another stream", .on_side = true},
};

/* Runs the copy and the backward, consecutively or separately. Returns the number of copies. */
static long long run_adding(const adding *a, bool apart, left *out) {
    weft_norm n = {.struct_size = sizeof n,
                   .rows = a->rows > 0 ? a->rows : ROWS,
                   .width = WIDTH,
                   .eps = 1e-5,
                   .form = a->form,
                   .accumulate_dx = !a->sets,
                   .dtype = WEFT_F32};
    long long before = 0, made = 0;
    n.x = part(or_else(a->x, Y)), n.dy = part(or_else(a->dy, B)), n.dx = part(or_else(a->dx, OUT));
    n.gain = part(OUT + 3), n.dgain = part(or_else(a->dgain, OUT + 2));
    n.workspace = (weft_ref){work, 0};
    prepare(WEFT_F32);
    before = emulator_calls("cudaMemcpyAsync");
    fine(table->copy(device, NULL, part(OUT), part(A), PART, &err));
    if (apart) settle();
    fine(table->norm_backward(device, a->on_side ? side : NULL, &n, &err));
    settle();
    made = emulator_calls("cudaMemcpyAsync") - before;
    look(out);
    return made;
}

TESTS(a_norm_that_adds_to_a_copy_reads_its_source, LENGTH(addings)) {
    const adding *a = &addings[_i];
    left apart, met;
    long long made = 0;
    ck_assert_int_eq(run_adding(a, true, &apart), 1);
    made = run_adding(a, false, &met);
    ck_assert_msg(made == (a->takes ? 0 : 1), "%s: %lld copies", a->name, made);
    if (a->on_side) return; /* their order is undefined */
    ck_assert_msg(memcmp(&apart, &met, sizeof met) == 0, "%s: other bits", a->name);
}

/* Only one call is deferred: a copy beside an add of another stream is not. */
TEST(a_copy_leaves_an_add_of_another_stream) {
    long long before = 0;
    prepare(WEFT_F32);
    begin_add();
    before = launches();
    fine(table->copy(device, side, part(OUT), part(A), PART, &err));
    ck_assert_int_eq(launches(), before);
    settle();
    ck_assert_int_eq(launches(), before + 1);
}

static const meeting *const plain = &meetings[0];

/* Work, event records and waits in another stream are unordered with the add and do not launch it. A communicator's
 * work there therefore does not change a step's launches. */
TEST(other_streams_let_it_wait) {
    const weft_norm norm = norm_of(plain);
    weft_event *m = NULL;
    left at;
    prepare(WEFT_F32);
    begin_add();
    const long long before = launches();
    fine(transfer->upload(device, side, part(OUT + 2), pinned, PART, &err));
    fine(table->record_event(device, side, &m, &err));
    fine(transfer->await(device, m, &err));
    fine(table->copy(device, side, part(OUT + 1), part(OUT + 2), PART, &err));
    fine(table->synchronize(device, side, &err));
    ck_assert_ptr_nonnull(native->stream(device, side));
    fine(table->norm(device, NULL, &norm, &err));
    settle();
    ck_assert_int_eq(launches(), before + 1);
    look(&at);
    ck_assert(has_sum(&at));
}

/* Two adds in two streams: only one can be deferred. */
TEST(an_add_of_another_stream_launches_it) {
    const weft_add args = add_to(OUT);
    left at;
    prepare(WEFT_F32);
    begin_add();
    const long long before = launches();
    fine(table->add(device, side, &args, &err));
    ck_assert_int_eq(launches(), before + 1);
    look(&at);
    ck_assert_int_eq(launches(), before + 2);
    ck_assert(has_sum(&at));
    ck_assert(memcmp(in_image(at.memory, Y), in_image(at.memory, OUT), PART) == 0);
}

TEST(an_add_of_nothing_waits_for_nothing) {
    weft_add args = add_to(Y);
    args.n = 0;
    prepare(WEFT_F32);
    const long long before = launches();
    fine(table->add(device, NULL, &args, &err));
    settle();
    ck_assert_int_eq(launches(), before);
}

/* ---- captured graphs ---- */

/* Captured work runs at replay, not before. */
static void check_replayed(weft_captured_graph *recording, long long kernels) {
    left at;
    prepare(WEFT_F32);
    const long long before = emulator_launches(NULL);
    fine(capture->replay(device, NULL, recording, &err));
    settle();
    ck_assert_int_eq(emulator_launches(NULL), before + kernels);
    look(&at);
    ck_assert(has_sum(&at));
    capture->destroy(device, recording);
}

TEST(a_norm_takes_the_add_in_a_recording) {
    const weft_norm norm = norm_of(plain);
    weft_captured_graph *recording = NULL;
    prepare(WEFT_F32);
    fine(capture->begin(device, NULL, &err));
    begin_add();
    fine(table->norm(device, NULL, &norm, &err));
    fine(capture->end(device, NULL, &recording, &err));
    check_replayed(recording, 1);
}

TEST(an_add_at_the_end_of_a_recording_is_in_it) {
    weft_captured_graph *recording = NULL;
    left at;
    prepare(WEFT_F32);
    fine(capture->begin(device, NULL, &err));
    begin_add();
    fine(capture->end(device, NULL, &recording, &err));
    look(&at);
    ck_assert(!has_sum(&at));
    check_replayed(recording, 1);
}

/* In a joined stream, which waits for the default stream only at the end. */
TEST(an_add_of_a_stream_that_has_joined_is_in_the_recording) {
    const weft_add args = add_to(Y);
    weft_captured_graph *recording = NULL;
    weft_event *m = NULL;
    prepare(WEFT_F32);
    fine(capture->begin(device, NULL, &err));
    fine(table->record_event(device, NULL, &m, &err));
    fine(table->wait(device, side, m, &err));
    fine(table->add(device, side, &args, &err));
    fine(table->record_event(device, side, &m, &err));
    fine(table->wait(device, NULL, m, &err));
    fine(capture->end(device, NULL, &recording, &err));
    check_replayed(recording, 1);
}

/* In a joined stream that the default stream does not wait for afterwards, the capture fails. */
TEST(an_add_of_a_stream_that_is_left_open_ends_the_recording) {
    const weft_add args = add_to(Y);
    weft_captured_graph *recording = NULL;
    weft_event *m = NULL;
    left at;
    prepare(WEFT_F32);
    fine(capture->begin(device, NULL, &err));
    fine(table->record_event(device, NULL, &m, &err));
    fine(table->wait(device, side, m, &err));
    fine(table->record_event(device, side, &m, &err));
    fine(table->wait(device, NULL, m, &err));
    fine(table->add(device, side, &args, &err));
    ck_assert_int_eq(capture->end(device, NULL, &recording, &err), WEFT_E_UNSUPPORTED);
    look(&at);
    ck_assert(!has_sum(&at));
}

/* A discarded capture leaves no work that would run. */
TEST(an_add_of_a_recording_that_is_given_up_never_runs) {
    weft_captured_graph *recording = NULL;
    weft_buffer *b = NULL;
    weft_error second = WEFT_ERROR_INIT;
    left at;
    prepare(WEFT_F32);
    fine(capture->begin(device, NULL, &err));
    begin_add();
    ck_assert_int_eq(table->alloc(device, &b, 64, &err), WEFT_E_HOST);
    ck_assert_says(err, "was called while a step was recorded");
    ck_assert_int_eq(capture->end(device, NULL, &recording, &second), WEFT_E_HOST);
    look(&at);
    ck_assert(!has_sum(&at));
}

/* ---- dry runs ---- */

static int64_t counted(void) {
    weft_dry_counts counts = {.struct_size = sizeof counts};
    dry->counts(device, &counts);
    return counts.kernels;
}

/* Buffers without memory overlap like real ones. */
TEST(a_dry_run_counts_what_would_be_launched) {
    weft_buffer *const kept = memory;
    weft_norm norm;
    prepare(WEFT_F32);
    fine(dry->begin(device, &err));
    fine(table->alloc(device, &memory, (PARTS - A) * PART, &err));
    norm = norm_of(plain);
    begin_add();
    fine(table->norm(device, NULL, &norm, &err));
    ck_assert_int_eq(counted(), 1);
    begin_add();
    ck_assert_int_eq(counted(), 2);
    begin_add();
    norm.x = part(Y);
    fine(table->alloc(device, &norm.x.buffer, (PARTS - A) * PART, &err)); /* which launches it */
    begin_add();
    fine(table->norm(device, NULL, &norm, &err)); /* at the same offset in another buffer */
    ck_assert_int_eq(counted(), 5);
    table->release(device, norm.x.buffer);
    table->release(device, memory);
    memory = kept;
    dry->end(device);
}

/* An add deferred at the end of a dry run never runs. */
TEST(an_add_at_the_end_of_a_dry_run_never_runs) {
    left at;
    prepare(WEFT_F32);
    const long long before = launches();
    fine(dry->begin(device, &err));
    begin_add();
    dry->end(device);
    look(&at);
    ck_assert(!has_sum(&at));
    ck_assert_int_eq(launches(), before);
}

/* ---- failures ---- */

/* The next call's launch fails, and the error is reported as the add's. */
static void check_told(weft_status (*ask)(void), const char *name) {
    left at;
    prepare(WEFT_F32);
    begin_add();
    emulator_plant("cudaLaunchKernel:1=701");
    ck_assert_msg(ask() != WEFT_OK, "%s: the launch that failed is not told", name);
    emulator_plant(NULL);
    ck_assert_msg(strstr(err.text, "add on device cuda: cudaLaunchKernel answered") == err.text, "%s: %s", name,
                  err.text);
    look(&at); /* and once */
}

static weft_status release_and_fill(void) {
    const weft_status status = ask_release();
    ck_assert_int_eq(status, WEFT_OK); /* it has no error result */
    return ask_fill();
}

TEST(a_launch_that_fails_is_told_as_the_adds) {
    check_told(ask_record_event, "record_event");
    check_told(ask_synchronize, "synchronize");
    check_told(ask_download, "download");
    check_told(ask_alloc, "alloc");
    check_told(release_and_fill, "release");
}

/* If the norm fused it, the error is the norm's. */
TEST(a_norm_that_took_it_is_told_as_itself) {
    const weft_norm norm = norm_of(plain);
    prepare(WEFT_F32);
    begin_add();
    emulator_plant("cudaLaunchKernel:1=701");
    ck_assert_int_eq(table->norm(device, NULL, &norm, &err), WEFT_E_DEVICE);
    emulator_plant(NULL);
    ck_assert_says(err, "norm on device cuda: cudaLaunchKernel answered");
    settle();
}

/* A rejected norm fuses nothing. */
TEST(a_norm_that_is_refused_lets_it_wait) {
    weft_norm norm = norm_of(plain);
    left at;
    norm.form = 9;
    prepare(WEFT_F32);
    begin_add();
    ck_assert_int_eq(table->norm(device, NULL, &norm, &err), WEFT_E_UNSUPPORTED);
    look(&at);
    ck_assert(has_sum(&at));
}

/* An add deferred when the device is destroyed is dropped. */
TEST(a_device_may_end_with_an_add_that_waits) {
    weft_device *other = make_device(1, 0);
    weft_add args = {.struct_size = sizeof args, .n = 64, .dtype = WEFT_F32};
    fine(table->alloc(other, &args.a.buffer, 256, &err));
    args.b = args.y = args.a;
    fine(table->add(other, NULL, &args, &err));
    table->release(other, args.a.buffer); /* which waits for the GPU */
    table->destroy(other);
}

/* ---- the suite ---- */

static void setup(void) {
    uint64_t sums[WEFT_CALL_OPERANDS];
    drawn d;
    load_plugin();
    device = devices[0];
    transfer = table->extension(device, WEFT_DEVICE_TRANSFER);
    capture = table->extension(device, WEFT_DEVICE_CAPTURE);
    choices = table->extension(device, WEFT_DEVICE_CHOICES);
    dry = table->extension(device, WEFT_DEVICE_DRY_RUN);
    native = table->extension(device, WEFT_DEVICE_NATIVE);
    fine(table->alloc(device, &memory, (PARTS - A) * PART, &err));
    fine(table->alloc(device, &work, WORK, &err));
    fine(table->stream_create(device, &side, &err));
    fine(transfer->take(device, &pinned, PART, &err));
    prepare(WEFT_F32);
    draw(&d, 0); /* a matmul, whose algorithm the slots of choices return */
    (void)run_drawn(&d, true, sums);
    drop(&d);
}

static void teardown(void) {
    capture->destroy(device, spare_recording);
    if (side_event != NULL) fine(transfer->await(device, side_event, &err));
    if (spare_stream != NULL) table->stream_destroy(device, spare_stream);
    table->stream_destroy(device, side);
    transfer->give_back(device, spare_pinned);
    transfer->give_back(device, pinned);
    table->release(device, spare_buffer);
    table->release(device, memory);
    table->release(device, work);
    unload_plugin();
}

int main(void) {
    TCase *tests = tcase_create("cuda.waiting");
    tcase_add_unchecked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 600);
    return run_tests_in_one_process(tests);
}
