/* update.c: an optimizer's element-wise update: one launch for all regions with the same storage types, for any number
 * of regions and ranges. */
#include "modules.h"

/* A row of the kernel's region table (update_text.h). */
typedef struct update_row {
    void *weight;
    const float *gradient;
    void *states[WEFT_MAX_STATES];
    void *copy; /* NULL: none */
    const char *ranges;
    int64_t n_ranges, n;
    uint32_t range_stride;
    uint32_t first; /* first block of this region in the launch */
} update_row;

typedef struct update_table {
    update_row rows[CUDA_UPDATE_MANY];
} update_table;

/* The kernel's other arguments. */
typedef struct update_shared {
    const void *hp;
    const float *coefficient;
    const int32_t *skip;
} update_shared;

/* Regions of one storage type, collected per launch. */
typedef struct update_launch {
    weft_device *device;
    cudaStream_t stream;
    update_shared shared;
    CUfunction function;
    cuda_update_types types;
    update_table table;
    int32_t n_rows;
    int64_t n_blocks;
} update_launch;

static void check_kernel(operands *c, const weft_elementwise *kernel) {
    if (c->status != WEFT_OK ||
        (kernel != NULL && kernel->body != NULL && kernel->hp_name != NULL && kernel->hp_fields != NULL &&
         kernel->name != NULL && kernel->n_states >= 0 && kernel->n_states <= WEFT_MAX_STATES))
        return;
    c->status = weft_error_set(c->err, WEFT_E_PLUGIN,
                               "update on device cuda: the optimizer's kernel has no text or not 0 to %d states.",
                               WEFT_MAX_STATES);
}

static int32_t type_of(int32_t dtype) {
    return dtype == 0 ? WEFT_F32 : dtype;
}

/* Looks up an array of the region in its stored type. */
static void *need_stored(operands *c, weft_ref ref, const char *name, int32_t dtype, int64_t n, bool may_pack) {
    const bool packed = may_pack && (dtype == WEFT_DYN8X256 || dtype == WEFT_UDYN8X256);
    const int32_t type = type_of(dtype);
    const int64_t block = weft_dtype_block(type);
    int64_t width = 0;
    if (c->status == WEFT_OK && type != WEFT_F32 && type != WEFT_BF16 && !packed)
        c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                                   "update on device cuda: %s is %s; a weight is fp32 or bf16, a state also in 8-bit "
                                   "blocks.",
                                   name, weft_dtype_name(type));
    if (c->status == WEFT_OK && n % block != 0)
        c->status =
            weft_error_set(c->err, WEFT_E_HOST,
                           "update on device cuda: n is %lld, which is no multiple of the blocks of %lld of %s.",
                           (long long)n, (long long)block, name);
    if (c->status != WEFT_OK) return NULL;
    width = packed ? (int64_t)sizeof(float) : weft_dtype_bytes(type); /* the scale of a block */
    return operands_need(c, ref, name, weft_dtype_span(type, n) / width, 1, width);
}

static void look_up_shared(operands *c, update_shared *out, const weft_update *args) {
    check_kernel(c, args->kernel);
    out->hp = operands_need(c, args->hp, "hp", 1, 1, 4);
    out->coefficient = operands_need(c, args->coefficient, "coefficient", 1, 1, 4);
    out->skip = operands_need(c, args->skip, "skip", 1, 1, 4);
    operands_regions(c, args);
}

static update_row look_up_region(operands *c, const weft_elementwise *kernel, const weft_update_region *region) {
    static const char *const names[WEFT_MAX_STATES] = {"states[0]", "states[1]", "states[2]", "states[3]"};
    const int64_t n = region->n;
    update_row out = {.n = n, .n_ranges = region->n_ranges, .range_stride = region->range_stride};
    int32_t copy_dtype = 0;
    operands_region(c, region);
    if (c->status != WEFT_OK) return out;
    out.weight = need_stored(c, region->weight, "weight", region->weight_dtype, n, false);
    out.gradient = operands_need(c, region->gradient, "gradient", n, 1, 4);
    for (int64_t i = 0; i < kernel->n_states; i++)
        out.states[i] = need_stored(c, region->states[i], names[i], region->state_dtypes[i], n, true);
    out.copy = operands_copy(c, region, &copy_dtype);
    if (region->n_ranges > 0)
        out.ranges = operands_need_rows(c, region->ranges, "ranges", region->n_ranges, region->range_stride,
                                        WEFT_SIZE_1_0(weft_range));
    return out;
}

static cuda_update_types types_of(const weft_update *args, int32_t i) {
    const weft_update_region *region = weft_update_region_at(args, i);
    cuda_update_types types = {.weight = type_of(region->weight_dtype)};
    if (WEFT_HAS(region, copy_dtype)) types.copy = region->copy_dtype;
    for (int64_t k = 0; k < args->kernel->n_states; k++) types.states[k] = type_of(region->state_dtypes[k]);
    return types;
}

static bool are_alike(const weft_update *args, int32_t i, int32_t k) {
    const cuda_update_types a = types_of(args, i), b = types_of(args, k);
    return memcmp(&a, &b, sizeof a) == 0;
}

static bool is_first_of_its_types(const weft_update *args, int32_t i) {
    int32_t k = 0;
    while (!are_alike(args, k, i)) k++;
    return k == i;
}

static int32_t count_alike(const weft_update *args, int32_t i) {
    int32_t n = 0;
    for (int32_t k = i; k < args->n_regions; k++) n += are_alike(args, i, k);
    return n;
}

static weft_status start(update_launch *l, weft_error *err) {
    void *values[] = {&l->table, &l->n_rows, &l->shared.hp, &l->shared.coefficient, &l->shared.skip};
    CUresult code = CUDA_SUCCESS;
    if (l->n_rows == 0) return WEFT_OK;
    if (!cuda_dry_kernel())
        code = l->device->libraries.cuLaunchKernel(l->function, (unsigned)l->n_blocks, 1, 1, CUDA_UPDATE_THREADS, 1, 1,
                                                   0, l->stream, values, NULL);
    l->n_rows = 0;
    l->n_blocks = 0;
    return cuda_judge_driver_call(l->device, code, "cuLaunchKernel", "update", err);
}

static weft_status add_row(update_launch *l, const update_row *row, weft_error *err) {
    const int64_t blocks = size_ceil_div(row->n, CUDA_UPDATE_BLOCK);
    weft_status status = WEFT_OK;
    if (row->n == 0 || row->n_ranges == 0) return WEFT_OK;
    if (l->n_rows == l->types.rows || l->n_blocks + blocks > INT32_MAX) status = start(l, err);
    l->table.rows[l->n_rows] = *row;
    l->table.rows[l->n_rows].first = (uint32_t)l->n_blocks;
    l->n_rows++;
    l->n_blocks += blocks;
    return status;
}

/* Updates all regions with the same storage types as region i. */
static weft_status update_alike(update_launch *l, operands *c, const weft_update *args, int32_t i) {
    weft_status status = WEFT_OK;
    l->types = types_of(args, i);
    l->types.rows = count_alike(args, i) <= CUDA_UPDATE_FEW ? CUDA_UPDATE_FEW : cuda_update_most(l->device);
    status = cuda_module_find(&l->function, l->device, args->kernel, &l->types, c->err);
    for (int32_t k = i; k < args->n_regions && status == WEFT_OK; k++) {
        const update_row row = look_up_region(c, args->kernel, weft_update_region_at(args, k));
        if (are_alike(args, i, k)) status = add_row(l, &row, c->err);
    }
    return status == WEFT_OK ? start(l, c->err) : status;
}

CUDA_KERNEL(update, weft_update) {
    operands c = OPERANDS("update", weft_update, args, err);
    update_launch launch = {.device = device};
    if (c.status != WEFT_OK) return c.status;
    look_up_shared(&c, &launch.shared, args);
    for (int32_t i = 0; c.status == WEFT_OK && i < args->n_regions; i++) /* validate all before any update */
        (void)look_up_region(&c, args->kernel, weft_update_region_at(args, i));
    if (c.status == WEFT_OK) launch.stream = cuda_stream(device, s);
    for (int32_t i = 0; c.status == WEFT_OK && i < args->n_regions; i++)
        if (is_first_of_its_types(args, i)) c.status = update_alike(&launch, &c, args, i);
    return c.status;
}
