/* Attention by the emulated cuDNN: each failing call is reported by name and leaks nothing, and its queued work can be
 * captured and replayed. Complete golden models are as close to the files as with own kernels. test_device_attention
 * compares the operator itself with plain C, run with attention=cudnn. Also tests the emulator's checks: a wrong use of
 * cuDNN's interface returns a status. */
#include <cudnn_graph.h>
#include <weft/capture.h>
#include <weft_emulator.h>

#include "golden.h"

#include "device/fixture.h"

/* ---- one attention ---- */

enum { LENGTH = 6, HEADS = 2, KV_HEADS = 1, SIDE = 8, N_Q = LENGTH * HEADS * SIDE, N_K = LENGTH * KV_HEADS * SIDE };

/* Parts of the memory are aligned to 1,024 bytes. */
enum { AT_Q, AT_K, AT_V, AT_STARTS, AT_O, AT_LSE, N_PARTS };

typedef struct attending {
    weft_device *device;
    weft_buffer *memory, *work;
    weft_attention args;
} attending;

static weft_ref part(const attending *a, int64_t i) {
    return (weft_ref){a->memory, i * 1024};
}

static weft_status make(attending *a, weft_host *counting, weft_error *err) {
    const char *overrides[] = {"device.workspace=1Mi", "device.cache=none", "device.share=yes",
                               "device.attention=cudnn"};
    weft_status status = create_device(&a->device, counting, 0, overrides, 4, err);
    if (status == WEFT_OK) status = table->alloc(a->device, &a->memory, N_PARTS * 1024, err);
    return status;
}

/* Writes numbers exact in bf16, different for each seed. */
static weft_status put_numbers(attending *a, int seed, weft_error *err) {
    static const int32_t starts[LENGTH] = {0, 0, 2, 2, 2, 6}; /* the last position sees no key */
    weft_status status = table->write(a->device, NULL, part(a, AT_STARTS), starts, sizeof starts, err);
    for (int i = AT_Q; status == WEFT_OK && i <= AT_V; i++) {
        uint16_t cells[N_Q];
        for (int j = 0; j < N_Q; j++) cells[j] = bf16_of((float)((j * 7 + i * 5 + seed) % 11 - 5) / 4);
        status = table->write(a->device, NULL, part(a, i), cells, (i == AT_Q ? N_Q : N_K) * 2, err);
    }
    return status;
}

static weft_status attend(attending *a, weft_error *err) {
    const weft_attention args = {.struct_size = sizeof args,
                                 .batch = 1,
                                 .length = LENGTH,
                                 .heads = HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_dim = SIDE,
                                 .scale = 0.25,
                                 .window = 3,
                                 .cap = 4,
                                 .dtype = WEFT_BF16,
                                 .q = part(a, AT_Q),
                                 .k = part(a, AT_K),
                                 .v = part(a, AT_V),
                                 .starts = part(a, AT_STARTS),
                                 .o = part(a, AT_O),
                                 .lse = part(a, AT_LSE)};
    weft_status status = WEFT_OK;
    if (a->work == NULL) {
        a->args = args;
        status = table->alloc(a->device, &a->work, table->attention_workspace(a->device, &args), err);
        a->args.workspace = (weft_ref){a->work, 0};
    }
    return status == WEFT_OK ? table->attention(a->device, NULL, &a->args, err) : status;
}

static weft_status get(attending *a, uint16_t out[N_Q], weft_error *err) {
    return table->read(a->device, NULL, out, part(a, AT_O), N_Q * 2, err);
}

static void unmake(attending *a) {
    if (a->device == NULL) return;
    if (a->work != NULL) table->release(a->device, a->work);
    if (a->memory != NULL) table->release(a->device, a->memory);
    table->destroy(a->device);
}

static char logged[512]; /* the last logged error */

static void keep_errors(const weft_host *h, int32_t level, const char *text) {
    (void)h;
    if (level == WEFT_LOG_ERROR) (void)snprintf(logged, sizeof logged, "%s", text);
}

static weft_status play(uint16_t out[N_Q], weft_error *err) {
    weft_host counting = host;
    attending a = {0};
    weft_status status;
    counting.alloc = counted_alloc;
    counting.release = counted_release;
    counting.log = keep_errors;
    logged[0] = '\0';
    held = 0;
    status = make(&a, &counting, err);
    if (status == WEFT_OK) status = put_numbers(&a, 0, err);
    if (status == WEFT_OK) status = attend(&a, err);
    if (status == WEFT_OK) status = get(&a, out, err);
    unmake(&a);
    return status;
}

/* ---- failing calls ---- */

static const char *const calls[] = {"cudnnCreate",
                                    "cudnnSetStream",
                                    "cudnnBackendCreateDescriptor",
                                    "cudnnBackendSetAttribute",
                                    "cudnnBackendGetAttribute",
                                    "cudnnBackendFinalize",
                                    "cudnnBackendExecute"};
enum { N_CALLS = sizeof calls / sizeof *calls };

static void expect_nothing_left(const char *call, long long which) {
    const bool makes = strcmp(call, "cudnnBackendCreateDescriptor") == 0, begins = strcmp(call, "cudnnCreate") == 0;
    ck_assert_msg(held == 0, "%s, call %lld: %lld pieces of memory are left", call, which, (long long)held);
    ck_assert_msg(emulator_calls("cudnnBackendCreateDescriptor") - makes ==
                      emulator_calls("cudnnBackendDestroyDescriptor"),
                  "%s, call %lld: descriptors are left", call, which);
    ck_assert_int_eq(emulator_calls("cudnnCreate") - begins, emulator_calls("cudnnDestroy"));
}

/* 4000: an internal error of cuDNN, which does not mean that a configuration is unsupported. */
TESTS(a_call_that_fails_is_told_and_leaves_nothing, N_CALLS) {
    const char *const call = calls[_i];
    uint16_t out[N_Q];
    weft_error err = WEFT_ERROR_INIT;
    long long all = 0;
    emulator_plant(NULL);
    ck_assert_msg(play(out, &err) == WEFT_OK, "%s", err.text);
    all = emulator_calls(call);
    ck_assert_msg(all > 0, "%s is never called", call);
    for (long long which = 1; which <= all; which++) {
        char plant[128];
        weft_error why = WEFT_ERROR_INIT;
        (void)snprintf(plant, sizeof plant, "%s:%lld=4000", call, which);
        emulator_plant(plant);
        ck_assert_msg(play(out, &why) == WEFT_E_DEVICE, "%s, call %lld: %s", call, which, why.text);
        ck_assert_msg(strstr(why.text, call) != NULL && strstr(why.text, "CUDNN_STATUS_INTERNAL_ERROR") != NULL,
                      "%s, call %lld: %s", call, which, why.text);
        expect_nothing_left(call, which);
    }
    emulator_plant(NULL);
}

/* A failing release changes nothing and is logged. */
TESTS(a_call_that_ends_something_may_fail, 4) {
    static const struct {
        const char *plant, *word;
    } ends[] = {
        {"cudnnDestroy:1=4000", "cudnnDestroy on device cuda answered 4000."},
        /* the first describes the call, the others belong to its plan, which is destroyed last */
        {"cudnnBackendDestroyDescriptor:1=4000", "cudnnBackendDestroyDescriptor on device cuda answered 4000."},
        {"cudnnBackendDestroyDescriptor:2=4000", "cudnnBackendDestroyDescriptor on device cuda answered 4000."},
        {"cudnnBackendDestroyDescriptor:9=4000", "cudnnBackendDestroyDescriptor on device cuda answered 4000."},
    };
    uint16_t whole[N_Q], out[N_Q];
    weft_error err = WEFT_ERROR_INIT;
    emulator_plant(NULL);
    ck_assert_msg(play(whole, &err) == WEFT_OK, "%s", err.text);
    ck_assert_str_eq(logged, "");
    emulator_plant(ends[_i].plant);
    ck_assert_msg(play(out, &err) == WEFT_OK, "%s", err.text);
    ck_assert_mem_eq(whole, out, sizeof out);
    ck_assert_str_eq(logged, ends[_i].word);
    ck_assert_int_eq(held, 0);
    emulator_plant(NULL);
}

/* ---- graph capture ---- */

TEST(it_is_recorded_and_replayed) {
    uint16_t want[N_Q], got[N_Q];
    weft_error err = WEFT_ERROR_INIT;
    weft_captured_graph *recording = NULL;
    attending a = {0};
    const weft_device_capture *capture = NULL;
    const long long before = emulator_launches("cudnnBackendExecute");
    ck_assert_msg(make(&a, &host, &err) == WEFT_OK, "%s", err.text);
    capture = table->extension(a.device, WEFT_DEVICE_CAPTURE);
    ck_assert_msg(put_numbers(&a, 3, &err) == WEFT_OK && attend(&a, &err) == WEFT_OK && get(&a, want, &err) == WEFT_OK,
                  "%s", err.text);
    ck_assert_msg(put_numbers(&a, 0, &err) == WEFT_OK && table->synchronize(a.device, NULL, &err) == WEFT_OK, "%s",
                  err.text);
    ck_assert_msg(capture->begin(a.device, NULL, &err) == WEFT_OK && attend(&a, &err) == WEFT_OK &&
                      capture->end(a.device, NULL, &recording, &err) == WEFT_OK,
                  "%s", err.text);
    ck_assert_int_eq(emulator_launches("cudnnBackendExecute") - before, 1);
    for (int again = 0; again < 2; again++) { /* with the memory's current contents */
        ck_assert_msg(put_numbers(&a, again == 0 ? 1 : 3, &err) == WEFT_OK &&
                          capture->replay(a.device, NULL, recording, &err) == WEFT_OK && get(&a, got, &err) == WEFT_OK,
                      "%s", err.text);
        ck_assert((memcmp(want, got, sizeof got) == 0) == (again == 1));
    }
    ck_assert_int_eq(emulator_launches("cudnnBackendExecute") - before, 3);
    capture->destroy(a.device, recording);
    unmake(&a);
}

/* Without a log-sum-exp, as in evaluation, the outputs are the same. */
TEST(it_is_the_same_without_lse) {
    uint16_t want[N_Q], got[N_Q];
    weft_error err = WEFT_ERROR_INIT;
    attending a = {0};
    ck_assert_msg(make(&a, &host, &err) == WEFT_OK && put_numbers(&a, 3, &err) == WEFT_OK, "%s", err.text);
    ck_assert_msg(attend(&a, &err) == WEFT_OK && get(&a, want, &err) == WEFT_OK, "%s", err.text);
    a.args.lse.buffer = NULL;
    ck_assert_msg(attend(&a, &err) == WEFT_OK && get(&a, got, &err) == WEFT_OK, "%s", err.text);
    ck_assert_mem_eq(want, got, sizeof got);
    for (int i = 0; i < HEADS * SIDE; i++) ck_assert_uint_eq(got[(LENGTH - 1) * HEADS * SIDE + i], 0);
    a.args.q.offset += 2;
    ck_assert_int_eq(table->attention(a.device, NULL, &a.args, &err), WEFT_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.text, "multiples of 16 bytes") != NULL, "%s", err.text);
    unmake(&a);
}

/* ---- golden models, with heads of 8 ---- */

static const char *const models[] = {"llama-bf16", "family-llama3", "family-phi3"}; /* the last one with a window */
enum { N_MODELS = sizeof models / sizeof *models };

/* Distance of a step from the files, which are fp32. */
typedef struct distance {
    double loss, gradients;
} distance;

static distance step_on(const char *model, const char *attention) {
    const char *overrides[] = {"optimizer.plugin=adamw", "train.precision=bf16", attention};
    golden_batch batch;
    golden_engine g;
    weft_error err = WEFT_ERROR_INIT;
    weft_step_result result = {0};
    distance out = {0};
    golden_batch_open(&batch, model);
    golden_engine_open(&g, &batch, model, 1, overrides, 3);
    ck_assert_msg(weft_stepper_train(g.stepper, &result, 1, 1e-3, 0.5, &err) == WEFT_OK, "%s", err.text);
    out.loss = fabs(result.loss_sum / golden_doubles(&batch, "loss_sum")[0] - 1.0);
    for (int32_t i = 0; i < g.engine->plan.declared->n_parameters; i++)
        out.gradients =
            fmax(out.gradients, golden_gradient_error(&g, &batch, &g.engine->plan.declared->parameters[i], 1.0));
    golden_engine_close(&g);
    golden_batch_close(&batch);
    return out;
}

/* bf16 causes a distance; cuDNN's bf16 probabilities add less than half of that. Errors of a loss, a single sum, cancel
 * by chance: the models' losses count together. */
TEST(golden_models_lie_as_near_as_with_own_kernels) {
    double of_cudnn = 0, of_own = 0; /* sums of squares */
    for (int i = 0; i < N_MODELS; i++) {
        const long long before = emulator_launches("cudnnBackendExecute");
        const distance own = step_on(models[i], "device.attention=split");
        ck_assert_int_eq(emulator_launches("cudnnBackendExecute"), before);
        const distance by_cudnn = step_on(models[i], "device.attention=cudnn");
        ck_assert_int_gt(emulator_launches("cudnnBackendExecute"), before);
        printf("%s: loss off by %.2g, gradients by %.2g at most; with own kernels %.2g, %.2g\n", models[i],
               by_cudnn.loss, by_cudnn.gradients, own.loss, own.gradients);
        ck_assert_double_lt(by_cudnn.gradients, 1.5 * own.gradients);
        ck_assert(by_cudnn.loss != own.loss);
        of_cudnn += by_cudnn.loss * by_cudnn.loss;
        of_own += own.loss * own.loss;
    }
    ck_assert_double_lt(of_cudnn, 1.5 * 1.5 * of_own);
}

/* ---- checks of the emulator ---- */

typedef struct told {
    cudnnBackendDescriptor_t d;
    cudnnStatus_t status; /* the first error */
} told;

static told begin(cudnnBackendDescriptorType_t type) {
    told t = {NULL, CUDNN_STATUS_SUCCESS};
    t.status = cudnnBackendCreateDescriptor(type, &t.d);
    return t;
}
static void tell(told *t, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                 const void *values) {
    if (t->status == CUDNN_STATUS_SUCCESS) t->status = cudnnBackendSetAttribute(t->d, name, type, n, values);
}
static void end(told *t) {
    if (t->status == CUDNN_STATUS_SUCCESS) t->status = cudnnBackendFinalize(t->d);
}

static told make_tensor(int64_t id, int64_t rows, int64_t columns, cudnnDataType_t type, int64_t alignment,
                        bool is_virtual) {
    const int64_t dims[4] = {1, 1, rows, columns}, strides[4] = {rows * columns, rows * columns, columns, 1};
    told t = begin(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tell(&t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    tell(&t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    tell(&t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    tell(&t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    tell(&t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    tell(&t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    end(&t);
    return t;
}
static void forget(told *t) {
    ck_assert_int_eq(cudnnBackendDestroyDescriptor(t->d), CUDNN_STATUS_SUCCESS);
}

static cudnnStatus_t made_of(int64_t rows, int64_t alignment) {
    told t = make_tensor(1, rows, 4, CUDNN_DATA_FLOAT, alignment, false);
    forget(&t);
    return t.status;
}

TEST(a_tensor_is_judged) {
    const int64_t four = 4;
    told t = make_tensor(1, 4, 4, CUDNN_DATA_FLOAT, 16, false), lacking = begin(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    ck_assert_int_eq(t.status, CUDNN_STATUS_SUCCESS);
    ck_assert_int_eq(made_of(0, 16), CUDNN_STATUS_BAD_PARAM);
    ck_assert_int_eq(made_of(4, 12), CUDNN_STATUS_BAD_PARAM);
    tell(&t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &four);
    ck_assert_int_eq(t.status, CUDNN_STATUS_NOT_INITIALIZED);
    end(&lacking);
    ck_assert_int_eq(lacking.status, CUDNN_STATUS_BAD_PARAM);
    ck_assert_int_eq(cudnnBackendSetAttribute(lacking.d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_INT64, 1, &four),
                     CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    ck_assert_int_eq(cudnnBackendSetAttribute(lacking.d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, &four),
                     CUDNN_STATUS_BAD_PARAM);
    ck_assert_int_eq(cudnnBackendSetAttribute(lacking.d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &four),
                     CUDNN_STATUS_BAD_PARAM);
    forget(&t);
    forget(&lacking);
    ck_assert_int_eq(cudnnBackendDestroyDescriptor(t.d), CUDNN_STATUS_BAD_PARAM);
}

/* c = a b, with all attributes set; returns the final status. */
static cudnnStatus_t multiply(told a, told b, told c, cudnnHandle_t handle, bool in_graph) {
    const cudnnDataType_t wide = CUDNN_DATA_FLOAT;
    told how = begin(CUDNN_BACKEND_MATMUL_DESCRIPTOR), t = begin(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    told g = begin(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    tell(&how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &wide);
    end(&how);
    tell(&t, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &a.d);
    tell(&t, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b.d);
    tell(&t, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c.d);
    tell(&t, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how.d);
    end(&t);
    g.status = t.status;
    tell(&g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t.d);
    tell(&g, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    end(&g);
    forget(&how), forget(&t), forget(&g);
    return in_graph ? g.status : t.status;
}

TEST(an_operation_and_a_graph_are_judged) {
    told a = make_tensor(1, 4, 8, CUDNN_DATA_FLOAT, 16, false), b = make_tensor(2, 8, 4, CUDNN_DATA_FLOAT, 16, false);
    told c = make_tensor(3, 4, 4, CUDNN_DATA_FLOAT, 16, false), same = make_tensor(1, 4, 4, CUDNN_DATA_FLOAT, 16, true);
    told nowhere = make_tensor(4, 4, 8, CUDNN_DATA_FLOAT, 16, true), early = begin(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    cudnnHandle_t handle = NULL;
    ck_assert_int_eq(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    ck_assert_int_eq(multiply(a, b, c, handle, true), CUDNN_STATUS_SUCCESS);
    ck_assert_int_eq(multiply(a, a, c, handle, false), CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    ck_assert_int_eq(multiply(a, early, c, handle, false), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    ck_assert_int_eq(multiply(nowhere, b, c, handle, true), CUDNN_STATUS_BAD_PARAM);
    ck_assert_int_eq(multiply(a, b, same, handle, true), CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
    ck_assert_int_eq(multiply(a, b, c, NULL, true), CUDNN_STATUS_BAD_PARAM);
    ck_assert_int_eq(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
    ck_assert_int_eq(cudnnDestroy(handle), CUDNN_STATUS_BAD_PARAM);
    forget(&a), forget(&b), forget(&c), forget(&same), forget(&nowhere), forget(&early);
}

int main(void) {
    return run_device_suite("cuda.cudnn");
}
