/* update.c: an optimizer's element-wise update over a flat region: one launch, however many ranges there are. */
#include "modules.h"

/* The kernel's first argument (update_source.c). */
typedef struct region {
    void *weight;
    const float *gradient;
    void *states[WEFT_MAX_STATES];
} region;

typedef struct update_operands {
    region at;
    cuda_update_types types;
    const void *hp;
    const char *ranges;
    const float *coefficient;
    const int32_t *skip;
} update_operands;

static void check_kernel(operands *c, const weft_elementwise *kernel) {
    if (c->status != WEFT_OK ||
        (kernel != NULL && kernel->body != NULL && kernel->hp_name != NULL && kernel->hp_fields != NULL &&
         kernel->name != NULL && kernel->n_states >= 0 && kernel->n_states <= WEFT_MAX_STATES))
        return;
    c->status = weft_error_set(c->err, WEFT_E_PLUGIN,
                               "update on device cuda: the optimizer's kernel has no text or not 0 to %d states.",
                               WEFT_MAX_STATES);
}

/* An array of the region, in the type that it is stored in. */
static void *need_stored(operands *c, int32_t *type, weft_ref ref, const char *name, int32_t dtype, int64_t n,
                         bool may_pack) {
    const bool packed = may_pack && (dtype == WEFT_DYN8X256 || dtype == WEFT_UDYN8X256);
    const int64_t block = weft_dtype_block(dtype == 0 ? WEFT_F32 : dtype);
    int64_t width = 0;
    *type = dtype == 0 ? WEFT_F32 : dtype;
    if (c->status == WEFT_OK && *type != WEFT_F32 && *type != WEFT_BF16 && !packed)
        c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                                   "update on device cuda: %s is %s; a weight is fp32 or bf16, a state also in 8-bit "
                                   "blocks.",
                                   name, weft_dtype_name(*type));
    if (c->status == WEFT_OK && n % block != 0)
        c->status =
            weft_error_set(c->err, WEFT_E_HOST,
                           "update on device cuda: n is %lld, which is no multiple of the blocks of %lld of %s.",
                           (long long)n, (long long)block, name);
    if (c->status != WEFT_OK) return NULL;
    width = packed ? (int64_t)sizeof(float) : weft_dtype_bytes(*type); /* a block's scale */
    return operands_need(c, ref, name, weft_dtype_span(*type, n) / width, 1, width);
}

static void look_up_operands(operands *c, update_operands *o, const weft_update *args) {
    static const char *const names[WEFT_MAX_STATES] = {"states[0]", "states[1]", "states[2]", "states[3]"};
    check_kernel(c, args->kernel);
    operands_size(c, "n", args->n, 0);
    operands_size(c, "n_ranges", args->n_ranges, 0);
    if (c->status != WEFT_OK) return;
    o->at.weight = need_stored(c, &o->types.weight, args->weight, "weight", args->weight_dtype, args->n, false);
    o->at.gradient = operands_need(c, args->gradient, "gradient", args->n, 1, 4);
    for (int64_t i = 0; i < args->kernel->n_states; i++)
        o->at.states[i] =
            need_stored(c, &o->types.states[i], args->states[i], names[i], args->state_dtypes[i], args->n, true);
    o->hp = operands_need(c, args->hp, "hp", 1, 1, 4);
    if (args->n_ranges > 0)
        o->ranges = operands_need_rows(c, args->ranges, "ranges", args->n_ranges, args->range_stride,
                                       WEFT_SIZE_1_0(weft_range));
    o->coefficient = operands_need(c, args->coefficient, "coefficient", 1, 1, 4);
    o->skip = operands_need(c, args->skip, "skip", 1, 1, 4);
}

CUDA_KERNEL(update, weft_update) {
    operands c = OPERANDS("update", weft_update, args, err);
    update_operands o = {0};
    CUfunction function = NULL;
    int64_t stride = 0, n_ranges = 0, n = 0;
    cudaStream_t stream = NULL;
    if (c.status != WEFT_OK) return c.status;
    look_up_operands(&c, &o, args);
    if (c.status != WEFT_OK) return c.status;
    stream = cuda_stream(device, s);
    if (args->n > 0 && args->n_ranges > 0 && cuda_dry_kernel()) return WEFT_OK;
    c.status = cuda_module_find(&function, device, args->kernel, &o.types, err);
    if (c.status != WEFT_OK || args->n == 0 || args->n_ranges == 0) return c.status;
    stride = args->range_stride;
    n_ranges = args->n_ranges;
    n = args->n;
    void *values[] = {&o.at, &o.hp, &o.ranges, &stride, &n_ranges, &n, &o.coefficient, &o.skip};
    return cuda_judge_driver(device,
                             device->libraries.cuLaunchKernel(function, (unsigned)size_ceil_div(n, CUDA_UPDATE_BLOCK),
                                                              1, 1, CUDA_UPDATE_THREADS, 1, 1, 0, stream, values, NULL),
                             "update", err);
}
