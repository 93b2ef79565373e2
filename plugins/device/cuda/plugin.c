/* plugin.c: entry points of plugin device:cuda: keys, create and destroy, info, and the kernel table. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0)
#include "algorithm.h"
#include "attention_cudnn.h"

const char operands_device[] = "cuda";
const uint32_t operands_types = 1u << WEFT_F32 | 1u << WEFT_BF16 | 1u << WEFT_F16;

WEFT_KEYS_TABLE(cuda_config, CUDA_KEYS)

static void destroy_device(weft_device *device) {
    if (device->live_buffers != 0) {
        weft_log(device->host, WEFT_LOG_WARN,
                 "Device cuda ends with %lld bytes in %lld buffers that were not released.",
                 (long long)device->live_bytes, (long long)device->live_buffers);
    }
    cuda_cudnn_close(device);
    cuda_modules_close(device);
    cuda_algorithms_close(device);
    cuda_staging_close(device);
    cuda_streams_close(device);
    cuda_end_unheard(device);
    device->host->release(device->host, device);
}

static weft_status open_device(weft_device *d, const cuda_config *keys, int32_t index, weft_error *err) {
    weft_status status = cuda_card_pick(d, keys, index, err);
    if (status == WEFT_OK) status = cuda_libraries_open(&d->libraries, err);
    if (status == WEFT_OK) status = cuda_streams_open(d, err);
    if (status == WEFT_OK) status = cuda_staging_open(d, err);
    if (status == WEFT_OK) status = cuda_algorithms_open(d, err);
    if (status == WEFT_OK) status = cuda_modules_open(d, keys, err);
    if (status == WEFT_OK && keys->attention == ATTENTION_BY_CUDNN) status = cuda_cudnn_open(d, err);
    if (status == WEFT_OK)
        status = cuda_judge_call(cuda_card_held(d, &d->held), "cudaMemGetInfo", "the free memory of the card", err);
    return status;
}

static weft_status create_device(weft_device **out, const weft_host *host, const void *config, int32_t index,
                                 weft_error *err) {
    const cuda_config *keys = config;
    weft_device *d = host->alloc(host, sizeof *d, _Alignof(max_align_t));
    weft_status status = WEFT_OK;
    if (d == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for itself.");
    memset(d, 0, sizeof *d);
    d->host = host;
    d->tf32 = keys->tf32 != 0;
    d->workspace = keys->workspace;
    status = open_device(d, keys, index, err);
    if (status == WEFT_OK) *out = d;
    else destroy_device(d);
    return status;
}

static void tell_device_info(const weft_device *device, weft_device_info *out) {
    const size_t lt = device->libraries.cublasLtGetVersion();
    const long dnn = (long)cuda_cudnn_version(device);
    weft_device_info i = {
        .struct_size = (uint32_t)sizeof i, .has_bf16 = 1, .packed = PACKED_TYPES, .types = operands_types};
    (void)snprintf(i.name, sizeof i.name, "%.63s", device->card.name);
    (void)snprintf(i.isa, sizeof i.isa, "sm_%d%d", device->card.major, device->card.minor);
    (void)snprintf(i.backend, sizeof i.backend, "cuBLASLt %zu.%zu.%zu%s", lt / 10000, lt / 100 % 100, lt % 100,
                   device->tf32 ? ", TF32" : "");
    if (dnn > 0) {
        const size_t used = strlen(i.backend);
        (void)snprintf(i.backend + used, sizeof i.backend - used, ", cuDNN %ld.%ld.%ld", dnn / 10000, dnn / 100 % 100,
                       dnn % 100);
    }
    i.memory = (int64_t)device->card.totalGlobalMem / device->sharers;
    /* A failed measurement keeps the previous value, and the next checked call reports the error. */
    cuda_put_off(cuda_card_held(device, &device->first.device->held), "cudaMemGetInfo", "the free memory of the card");
    i.held = device->held;
    weft_struct_give(out, &i);
}

static const void *find_extension(const weft_device *device, const char *id) {
    (void)device;
    if (strcmp(id, WEFT_DEVICE_TRANSFER) == 0) return &cuda_transfer;
    if (strcmp(id, WEFT_DEVICE_CAPTURE) == 0) return &cuda_capture;
    if (strcmp(id, WEFT_DEVICE_NATIVE) == 0) return &cuda_native;
    if (strcmp(id, WEFT_DEVICE_CHOICES) == 0) return &cuda_choices;
    if (strcmp(id, WEFT_DEVICE_DRY_RUN) == 0) return &cuda_dry_run;
    return NULL;
}

static const weft_device_plugin table = {
    .struct_size = (uint32_t)sizeof(weft_device_plugin),
    .create = create_device,
    .destroy = destroy_device,
    .info = tell_device_info,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .synchronize = cuda_synchronize,
    .record_event = cuda_record_event,
    .wait = cuda_wait,
    .write = cuda_write,
    .read = cuda_read,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .convert = cuda_convert,
    .matmul_workspace = cuda_matmul_workspace,
    .sum_rows_workspace = cuda_sum_rows_workspace,
    .norm_backward_workspace = cuda_norm_backward_workspace,
    .attention_workspace = cuda_attention_workspace,
    .attention_backward_workspace = cuda_attention_backward_workspace,
    .embedding_backward_workspace = cuda_embedding_backward_workspace,
    .head_loss_workspace = cuda_head_loss_workspace,
    .head_loss_grad_workspace = cuda_head_loss_grad_workspace,
    .square_sum_workspace = cuda_square_sum_workspace,
    .multiply_backward_workspace = cuda_multiply_backward_workspace,
    .row_norms_workspace = cuda_row_norms_workspace,
    .prefix_workspace = cuda_prefix_workspace,
    .prefix_backward_workspace = cuda_prefix_backward_workspace,
    .matmul = cuda_matmul,
    .sum_rows = cuda_sum_rows,
    .norm = cuda_norm,
    .norm_backward = cuda_norm_backward,
    .rope = cuda_rope,
    .attention = cuda_attention,
    .attention_backward = cuda_attention_backward,
    .activation = cuda_activation,
    .activation_backward = cuda_activation_backward,
    .embedding = cuda_embedding,
    .embedding_backward = cuda_embedding_backward,
    .head_loss = cuda_head_loss,
    .head_loss_grad = cuda_head_loss_grad,
    .scale = cuda_scale,
    .add = cuda_add,
    .multiply = cuda_multiply,
    .multiply_backward = cuda_multiply_backward,
    .dropout = cuda_dropout,
    .row_norms = cuda_row_norms,
    .prefix = cuda_prefix,
    .prefix_backward = cuda_prefix_backward,
    .square_sum = cuda_square_sum,
    .clip = cuda_clip,
    .update = cuda_update,
    .extension = find_extension,
};

WEFT_PLUGIN_THAT(device, 1, "cuda", "0.1.0", "NVIDIA GPUs, through cuBLASLt and kernels of its own", cuda_config, NULL,
                 table, cuda_works)
