/* host/tools/check/device_rules.c: what a device has to keep to: what it moves, in which order, and what it computes
 * beside this project's own CPU device. */
#include "model/convert.h"
#include "plugin/device_queries.h"
#include "plugin/enter.h"
#include "tools/check/device_bench.h"
#include "tools/check/newer_abi.h"
#include "tools/check/newer_abi_struct.h"
#include "tools/check/rule.h"

#include <math.h>
#include <stdlib.h>
#include <weft/choices.h>
#include <weft/dry_run.h>
#include <weft/roofline.h>

static weft_status open_bench(weft_bench *out, const weft_plugin_under_test *tested, uint8_t poison, weft_error *err) {
    return weft_bench_open(out, weft_plugin_under_test_table(tested, device), weft_plugin_under_test_host(poison),
                           tested->config, err);
}

/* A trial of the device alone. */
static weft_status try_alone(const weft_plugin_under_test *tested, weft_status (*trial)(weft_bench *b, weft_error *err),
                             weft_error *err) {
    weft_bench b;
    weft_status status = open_bench(&b, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = trial(&b, err);
    weft_bench_close(&b);
    return status;
}

static weft_status moves_bytes(weft_plugin_under_test *tested, weft_error *err) {
    return try_alone(tested, weft_bench_moves, err);
}

static weft_status keeps_order(weft_plugin_under_test *tested, weft_error *err) {
    return try_alone(tested, weft_bench_orders, err);
}

static weft_status converts(weft_plugin_under_test *tested, weft_error *err) {
    return try_alone(tested, weft_bench_converts, err);
}

static weft_status serves_by_tables(weft_plugin_under_test *tested, weft_error *err) {
    weft_bench b;
    int n = 0;
    weft_status status = open_bench(&b, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = weft_bench_tables(&b, &n, err);
    weft_bench_close(&b);
    if (status == WEFT_OK && n == 0) return WEFT_MOOT(tested, err, "it has no optional table, and need not");
    return status;
}

/* ---- kernels ---- */

/* What a call's results are, as the device holds them; owned. */
typedef struct outcome {
    void *results[WEFT_CALL_OPERANDS];
} outcome;

static void free_outcome(outcome *self) {
    for (int i = 0; i < WEFT_CALL_OPERANDS; i++) free(self->results[i]);
}

/* Results and workspace hold the poison before it where nothing is said of them. */
static weft_status put(weft_bench *b, weft_ref *out, const void *data, int64_t bytes, uint8_t poison, weft_error *err) {
    void *filled = NULL;
    weft_status status = weft_bench_take(b, out, bytes, err);
    if (status != WEFT_OK || bytes == 0) return status;
    if (data != NULL) return b->kernels->write(b->device, NULL, *out, data, bytes, err);
    filled = malloc((size_t)bytes);
    if (filled == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a call");
    memset(filled, poison, (size_t)bytes);
    WEFT_PLUGIN_CALL(status, b->kernels, write, err, b->device, NULL, *out, filled, bytes);
    free(filled);
    return status;
}

static weft_status put_operands(weft_bench *b, weft_device_call *call, weft_ref refs[], uint8_t poison,
                                weft_error *err) {
    weft_status status = WEFT_OK;
    for (int i = 0; i < call->n && status == WEFT_OK; i++) {
        const weft_call_operand *o = &call->operands[i];
        status = put(b, &refs[i], o->data, weft_dtype_span(o->dtype, o->n), poison, err);
        memcpy((char *)&call->args + o->field, &refs[i], sizeof refs[i]);
    }
    return status;
}

/* In a crash the slot is told as the plugin's, and the call as what it was asked. */
static weft_status invoke(const weft_kernel_run *run, weft_device_call *call, const weft_kernel *kernel,
                          weft_error *err) {
    const weft_doing before = weft_plugin_enter(run->kernels, kernel->name);
    weft_plugin_under_test_asks("%s in %s", call->name, weft_dtype_name(call->dtype));
    return weft_plugin_leave(before, kernel->invoke(run, &call->args.kernel, err), err);
}

typedef weft_status invoke_fn(const weft_kernel_run *run, weft_device_call *call, const weft_kernel *kernel,
                              weft_error *err);

static weft_status run_kernel(weft_bench *b, weft_device_call *call, const weft_kernel *kernel, uint8_t poison,
                              invoke_fn *how, weft_error *err) {
    const weft_kernel_run run = {.kernels = b->kernels, .device = b->device};
    const int64_t room = kernel->workspace == NULL ? 0 : kernel->workspace(&run, &call->args.kernel);
    weft_ref workspace = {NULL, 0};
    weft_status status = WEFT_OK;
    if (room < 0 || room > (int64_t)1 << 28)
        return WEFT_BROKEN(err, "%s asks for %lld bytes of workspace", kernel->name, (long long)room);
    if (kernel->workspace != NULL && kernel->workspace(&run, &call->args.kernel) != room)
        return WEFT_BROKEN(err,
                           "%s asks for other bytes of workspace when it is asked again: a plan asks once, and the "
                           "step has no more",
                           kernel->name);
    if (room > 0) status = put(b, &workspace, NULL, room, poison, err);
    if (room > 0) workspace.offset = 0; /* as a buffer of its own begins */
    if (kernel->workspace != NULL) memcpy((char *)&call->args + kernel->workspace_field, &workspace, sizeof workspace);
    if (status == WEFT_OK) status = how(&run, call, kernel, err);
    if (status != WEFT_OK) (void)weft_error_prefix(err, "%s: ", kernel->name);
    return status;
}

static weft_status run_call(weft_bench *b, weft_device_call *call, uint8_t poison, invoke_fn *how, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int i = 0; i < 2 && call->kernels[i] != NULL && status == WEFT_OK; i++)
        status = run_kernel(b, call, call->kernels[i], poison, how, err);
    return status;
}

static weft_status get_results(weft_bench *b, const weft_device_call *call, const weft_ref refs[], outcome *out,
                               weft_error *err) {
    weft_status status = WEFT_OK;
    for (int i = 0; i < call->n && status == WEFT_OK; i++) {
        const int64_t bytes = weft_dtype_span(call->operands[i].dtype, call->operands[i].n);
        if (!call->operands[i].is_result) continue;
        out->results[i] = malloc((size_t)bytes + 8);
        if (out->results[i] == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a call");
        WEFT_PLUGIN_CALL(status, b->kernels, read, err, b->device, NULL, out->results[i], refs[i], bytes);
    }
    return status;
}

/* WEFT_E_UNSUPPORTED: the device lacks it. */
static weft_status perform(weft_bench *b, weft_device_call *call, outcome *out, uint8_t poison, invoke_fn *how,
                           weft_error *err) {
    weft_ref refs[WEFT_CALL_OPERANDS];
    weft_status status = call->has_memory ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for a call");
    memset(out, 0, sizeof *out);
    if (status == WEFT_OK) status = put_operands(b, call, refs, poison, err);
    if (status == WEFT_OK) status = run_call(b, call, poison, how, err);
    if (status == WEFT_OK) status = get_results(b, call, refs, out, err);
    weft_bench_release(b);
    return status;
}

static double number_at(const void *data, int32_t dtype, int64_t i) {
    float x = 0;
    switch (dtype) {
    case WEFT_F64: return ((const double *)data)[i];
    case WEFT_I32: return ((const int32_t *)data)[i];
    default: break;
    }
    weft_convert(&x, WEFT_F32, (const char *)data + i * weft_dtype_bytes(dtype), dtype, 1);
    return (double)x;
}

/* Of a result, in a pass of a type: three bits of either. */
static double rounding(int32_t result, int32_t pass) {
    if (result == WEFT_BF16) return 1.0 / 64;
    if (pass == WEFT_BF16) return 1e-2;
    return result == WEFT_F16 || pass == WEFT_F16 ? 1.0 / 256 : 1e-4;
}

/* Of what a call reads. */
static double largest_read(const weft_device_call *call) {
    double largest = 0;
    for (int k = 0; k < call->n; k++) {
        const weft_call_operand *o = &call->operands[k];
        if (o->data == NULL || o->is_result || o->dtype == WEFT_I32 || o->dtype == WEFT_F64) continue;
        for (int64_t i = 0; i < o->n; i++) largest = fmax(largest, fabs(number_at(o->data, o->dtype, i)));
    }
    return largest;
}

/* Within rounding of the largest: what cancels is no smaller. A result that is nothing but what is left of numbers that
 * cancel, as the gradient of a softmax over one place, is held against what went in. */
static weft_status compare(const weft_device_call *call, const outcome *got, const outcome *want, weft_error *err) {
    for (int k = 0; k < call->n; k++) {
        const weft_call_operand *o = &call->operands[k];
        double largest = call->exact ? 0 : largest_read(call) / 100;
        const double part = call->exact ? 0 : rounding(o->dtype, call->dtype);
        if (!o->is_result) continue;
        for (int64_t i = 0; i < o->n; i++) largest = fmax(largest, fabs(number_at(want->results[k], o->dtype, i)));
        for (int64_t i = 0; i < o->n; i++) {
            const double a = number_at(got->results[k], o->dtype, i), b = number_at(want->results[k], o->dtype, i);
            if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= part * largest) continue;
            return WEFT_BROKEN(err, "%s in %s: %s[%lld] of %lld is %.9g, and %.9g by the CPU device", call->name,
                               weft_dtype_name(call->dtype), o->name, (long long)i, (long long)o->n, a, b);
        }
    }
    return WEFT_OK;
}

typedef weft_status judge_fn(weft_bench *b, weft_bench *own, weft_device_call *call, weft_error *err);

/* Whether it says that its kernels take activations of the type. */
static bool says_it_takes(const weft_bench *b, int32_t dtype) {
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    WEFT_PLUGIN_TELL(b->kernels, info, b->device, &info);
    return info.types == 0 ? dtype != WEFT_F16 : (info.types >> dtype & 1u) != 0;
}

static weft_status judge_in(weft_bench *b, weft_bench *own, int32_t dtype, judge_fn *judge, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_device_call call;
    for (int32_t i = 0; status == WEFT_OK && weft_device_call_draw(&call, i, dtype); i++) {
        status = judge(b, own, &call, err);
        if (status == WEFT_E_UNSUPPORTED) {
            err->code = WEFT_E_PLUGIN;
            status = weft_error_prefix(err, "its info says that it takes %s: ", weft_dtype_name(dtype));
        }
        weft_device_call_free(&call);
    }
    return status;
}

static weft_status judge_all(weft_bench *b, weft_bench *own, judge_fn *judge, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t dtype = WEFT_F32; dtype <= WEFT_F16 && status == WEFT_OK; dtype++)
        if (says_it_takes(b, dtype)) status = judge_in(b, own, dtype, judge, err);
    return status;
}

static weft_status judge_numbers(weft_bench *b, weft_bench *own, weft_device_call *call, weft_error *err) {
    outcome got = {{0}}, want = {{0}};
    weft_status status = perform(b, call, &got, 0xff, invoke, err);
    if (status == WEFT_OK) {
        status = perform(own, call, &want, 0xff, invoke, err);
        if (status == WEFT_OK) status = compare(call, &got, &want, err);
    }
    free_outcome(&got);
    free_outcome(&want);
    return status;
}

static weft_status same_bits(const weft_device_call *call, const outcome *one, const outcome *two, const char *when,
                             weft_error *err) {
    for (int k = 0; k < call->n; k++) {
        const weft_call_operand *o = &call->operands[k];
        if (o->is_result && memcmp(one->results[k], two->results[k], (size_t)weft_dtype_span(o->dtype, o->n)) != 0)
            return WEFT_BROKEN(err, "%s gives other bits in %s %s", call->name, o->name, when);
    }
    return WEFT_OK;
}

/* The same call twice on one device, with other bytes in its memory or called in another way the second time. */
static weft_status check_accumulate(weft_bench *b, weft_device_call *call, uint8_t poison, invoke_fn *second,
                                    const char *when, weft_error *err) {
    outcome one = {{0}}, two = {{0}};
    weft_status status = perform(b, call, &one, 0xff, invoke, err);
    if (status == WEFT_OK) status = perform(b, call, &two, poison, second, err);
    if (status == WEFT_OK) status = same_bits(call, &one, &two, when, err);
    free_outcome(&one);
    free_outcome(&two);
    return status;
}

static weft_status judge_bits(weft_bench *b, weft_bench *own, weft_device_call *call, weft_error *err) {
    (void)own;
    return check_accumulate(b, call, 0x11, invoke, "when its memory held something else before", err);
}

static weft_status judge_device(weft_plugin_under_test *tested, judge_fn *judge, weft_error *err) {
    weft_bench b, own;
    weft_plugin_under_test cpu;
    weft_status status = open_bench(&b, tested, WEFT_POISON_ONE, err);
    memset(&own, 0, sizeof own);
    memset(&cpu, 0, sizeof cpu);
    if (status == WEFT_OK) status = weft_plugin_under_test_open_own(&cpu, "device", "cpu", err);
    if (status == WEFT_OK) status = open_bench(&own, &cpu, WEFT_POISON_TWO, err);
    if (status == WEFT_OK) status = judge_all(&b, &own, judge, err);
    weft_bench_close(&own);
    weft_bench_close(&b);
    weft_plugin_under_test_close(&cpu);
    return status;
}

static weft_status computes(weft_plugin_under_test *tested, weft_error *err) {
    return judge_device(tested, judge_numbers, err);
}

static weft_status repeats(weft_plugin_under_test *tested, weft_error *err) {
    return judge_device(tested, judge_bits, err);
}

/* ---- in a later host ---- */

/* A kernel's arguments with something behind their end, as `filler`: its answer. */
static weft_status invoke_longer(const weft_kernel_run *run, const weft_device_call *call, const weft_kernel *kernel,
                                 uint8_t filler, weft_error *err) {
    uint32_t size;
    void *longer = NULL;
    weft_status status;
    memcpy(&size, &call->args, sizeof size);
    longer = weft_newer_abi_copy(&call->args, 1, size, filler);
    if (longer == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a call");
    status = kernel->invoke(run, longer, err);
    free(longer);
    return status;
}

/* Zeros ask for nothing. */
static weft_status asks_nothing_more(const weft_kernel_run *run, const weft_device_call *call,
                                     const weft_kernel *kernel, weft_error *err) {
    const weft_doing before = weft_plugin_enter(run->kernels, kernel->name);
    const weft_status status = weft_plugin_leave(before, invoke_longer(run, call, kernel, 0, err), err);
    if (status == WEFT_OK || status == WEFT_E_UNSUPPORTED) return status;
    err->code = WEFT_E_PLUGIN;
    return weft_error_prefix(err, "a later host's %s, whose arguments are longer and zero there, is refused: ",
                             kernel->name);
}

/* What is asked for and not understood would be lost. */
static weft_status asks_something_more(const weft_kernel_run *run, const weft_device_call *call,
                                       const weft_kernel *kernel, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    const weft_doing before = weft_plugin_enter(run->kernels, kernel->name);
    const weft_status status = invoke_longer(run, call, kernel, WEFT_NEWER_ABI_PATTERN, &said);
    (void)weft_plugin_leave(before, WEFT_OK, NULL);
    if (status == WEFT_OK)
        return WEFT_BROKEN(err,
                           "%s takes arguments that ask for something behind their end, as SDK 1.0 has it, and does "
                           "without: it refuses them, by weft_struct_known",
                           kernel->name);
    return said.text[0] == '\0'
               ? WEFT_BROKEN(err, "%s refuses arguments that ask for more without a sentence", kernel->name)
               : WEFT_OK;
}

/* None is shorter than in SDK 1.0: what is missing would be read from behind the end. */
static weft_status asks_less(const weft_kernel_run *run, const weft_device_call *call, const weft_kernel *kernel,
                             weft_error *err) {
    const uint32_t shorter = WEFT_SHORTER_BYTES;
    weft_device_call asked = *call;
    weft_error said = WEFT_ERROR_INIT;
    const weft_doing before = weft_plugin_enter(run->kernels, kernel->name);
    weft_status status = WEFT_OK;
    memcpy(&asked.args, &shorter, sizeof shorter);
    status = kernel->invoke(run, &asked.args.kernel, &said);
    (void)weft_plugin_leave(before, WEFT_OK, NULL);
    if (status == WEFT_OK)
        return WEFT_BROKEN(err,
                           "%s takes arguments that are shorter than SDK 1.0 has them: it refuses them, by "
                           "WEFT_WHOLE",
                           kernel->name);
    return said.text[0] == '\0'
               ? WEFT_BROKEN(err, "%s refuses arguments that are too short without a sentence", kernel->name)
               : WEFT_OK;
}

static weft_status invoke_later(const weft_kernel_run *run, weft_device_call *call, const weft_kernel *kernel,
                                weft_error *err) {
    weft_status status = WEFT_OK;
    weft_plugin_under_test_asks("%s in %s with longer arguments", call->name, weft_dtype_name(call->dtype));
    status = asks_something_more(run, call, kernel, err);
    if (status == WEFT_OK) status = asks_less(run, call, kernel, err);
    return status == WEFT_OK ? asks_nothing_more(run, call, kernel, err) : status;
}

static weft_status judge_longer(weft_bench *b, weft_bench *own, weft_device_call *call, weft_error *err) {
    (void)own;
    return check_accumulate(b, call, 0xff, invoke_later, "in a later host, whose structs are longer", err);
}

static weft_status judge_info(const weft_bench *b, weft_error *err) {
    const weft_device_info empty = {.struct_size = (uint32_t)sizeof empty};
    weft_device_info plain = empty, answered = empty;
    weft_device_info *longer = weft_newer_abi_copy(&empty, 1, sizeof empty, WEFT_NEWER_ABI_PATTERN);
    if (longer == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for facts");
    WEFT_PLUGIN_TELL(b->kernels, info, b->device, &plain);
    WEFT_PLUGIN_TELL(b->kernels, info, b->device, longer);
    weft_newer_abi_read(&answered, 1, sizeof answered, longer, "weft_device_info");
    return weft_newer_abi_check(WEFT_OK, memcmp(&plain, &answered, sizeof plain) == 0, "facts in info", err);
}

/* ---- a device's optional tables in a later host ---- */

static weft_status ask_roofline(const weft_bench *b, const weft_device_roofline *roofline, uint32_t bytes,
                                uint8_t filler, weft_error *err) {
    const weft_roofline_product asked = {
        .struct_size = (uint32_t)sizeof asked, .m = 8, .n = 8, .k = 8, .dtype = WEFT_F32};
    weft_roofline_product *longer = weft_newer_abi_copy(&asked, 1, sizeof asked, filler);
    double seconds = 0;
    weft_status status = WEFT_OK;
    if (longer == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a call");
    if (bytes != 0) longer->struct_size = bytes;
    status = roofline->product(b->device, &seconds, longer, err);
    free(longer);
    return status;
}

static weft_status must_refuse(weft_status status, const weft_error *said, const char *what, weft_error *err) {
    if (status == WEFT_OK)
        return WEFT_BROKEN(err, "%s takes a weft_roofline_product that %s", WEFT_DEVICE_ROOFLINE, what);
    if (said->text[0] != '\0') return WEFT_OK;
    return WEFT_BROKEN(err, "%s refuses a weft_roofline_product that %s without a sentence", WEFT_DEVICE_ROOFLINE,
                       what);
}

static weft_status judge_roofline(const weft_bench *b, weft_error *err) {
    const weft_device_roofline *roofline = weft_device_find(b->kernels, b->device, WEFT_DEVICE_ROOFLINE);
    weft_error said = WEFT_ERROR_INIT, short_said = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (roofline == NULL) return WEFT_OK;
    status = must_refuse(ask_roofline(b, roofline, 0, WEFT_NEWER_ABI_PATTERN, &said), &said,
                         "asks for more than it knows", err);
    if (status == WEFT_OK)
        status = must_refuse(ask_roofline(b, roofline, WEFT_SHORTER_BYTES, 0, &short_said), &short_said,
                             "is shorter than SDK 1.0 has it", err);
    return status == WEFT_OK ? ask_roofline(b, roofline, 0, 0, err) : status;
}

/* Of all calls before it. */
static weft_status judge_choices(const weft_bench *b, weft_error *err) {
    const weft_device_choices *choices = weft_device_find(b->kernels, b->device, WEFT_DEVICE_CHOICES);
    const int64_t n = choices == NULL ? 0 : choices->count(b->device);
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < n && status == WEFT_OK; i++) {
        const weft_device_choice empty = {.struct_size = (uint32_t)sizeof empty};
        weft_device_choice plain = empty, answered = empty;
        weft_device_choice *longer = weft_newer_abi_structs(&empty, 1, sizeof empty);
        choices->get(b->device, i, &plain);
        choices->get(b->device, i, longer);
        weft_newer_abi_read(&answered, 1, sizeof answered, longer, "weft_device_choice");
        status = weft_newer_abi_check(WEFT_OK, memcmp(&plain, &answered, sizeof plain) == 0, "choices", err);
    }
    return status;
}

static weft_status judge_counts(const weft_bench *b, weft_error *err) {
    const weft_dry_counts empty = {.struct_size = (uint32_t)sizeof empty};
    const weft_device_dry_run *table = NULL;
    weft_dry_counts plain = empty, answered = empty, *longer = NULL;
    weft_status status = weft_device_dry_run_find(&table, b->kernels, b->device, err);
    if (status != WEFT_OK || table == NULL) return status;
    status = table->begin(b->device, err);
    if (status != WEFT_OK) return status;
    longer = weft_newer_abi_structs(&empty, 1, sizeof empty);
    table->counts(b->device, &plain);
    table->counts(b->device, longer);
    table->end(b->device);
    weft_newer_abi_read(&answered, 1, sizeof answered, longer, "weft_dry_counts");
    return weft_newer_abi_check(WEFT_OK, memcmp(&plain, &answered, sizeof plain) == 0, "counts", err);
}

static weft_status judge_tables(const weft_bench *b, weft_error *err) {
    weft_status status = judge_roofline(b, err);
    if (status == WEFT_OK) status = judge_choices(b, err);
    return status == WEFT_OK ? judge_counts(b, err) : status;
}

static weft_status works_later(weft_plugin_under_test *tested, weft_error *err) {
    weft_bench b;
    weft_status status = open_bench(&b, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = judge_info(&b, err);
    if (status == WEFT_OK) status = judge_all(&b, &b, judge_longer, err);
    if (status == WEFT_OK) status = judge_tables(&b, err);
    weft_bench_close(&b);
    return status;
}

/* Its memory is the host's: its heap holds what it keeps, and not what a card's libraries do behind streams. */
static bool shares_machine(const weft_bench *b) {
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    WEFT_PLUGIN_TELL(b->kernels, info, b->device, &info);
    return (info.flags & WEFT_DEVICE_SHARES_MACHINE) != 0;
}

static weft_status come_and_go(weft_plugin_under_test *tested, weft_error *err) {
    weft_bench b;
    weft_status status = open_bench(&b, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = weft_bench_moves_some(&b, err);
    if (status == WEFT_OK && shares_machine(&b)) status = weft_bench_orders(&b, err);
    weft_bench_close(&b);
    return status;
}

static weft_bench open_device; /* of the rule, while its kernels are called */

/* By the smallest call of each. */
static weft_status call_kernels(weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_device_call call;
    (void)tested;
    for (int32_t i = 0; status == WEFT_OK && weft_device_call_draw(&call, i, WEFT_F32); i += WEFT_CALL_SHAPES) {
        outcome none = {{0}};
        status = perform(&open_device, &call, &none, 0xff, invoke, err);
        free_outcome(&none);
        weft_device_call_free(&call);
    }
    return status;
}

/* A device that comes and goes, and one whose kernels are called again and again. */
static weft_status gives_back(weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = weft_plugin_under_test_gives_back(tested, come_and_go, err);
    if (status == WEFT_OK) status = open_bench(&open_device, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && shares_machine(&open_device) && says_it_takes(&open_device, WEFT_F32))
        status = weft_plugin_under_test_gives_back(tested, call_kernels, err);
    weft_bench_close(&open_device);
    return status;
}

const weft_rule weft_rules_device[] = {
    {"R100", "device", "moves the bytes that it is told to, and no others", moves_bytes, false},
    {"R101", "device", "keeps the order of streams that events give", keeps_order, false},
    {"R102", "device", "computes what this project's CPU device does, over odd shapes", computes, false},
    {"R103", "device", "gives the same bits whatever its memory held before", repeats, false},
    {"R104", "device", "gives its memory back", gives_back, false},
    {"R105", "device", "computes the same for a host whose structs are longer, and refuses what it does not know",
     works_later, false},
    {"R106", "device", "converts numbers into another type, to the nearest, ties to even", converts, false},
    {"R107", "device", "does by its optional tables what they are there for", serves_by_tables, false},
    {NULL, NULL, NULL, NULL, false}};
