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
    weft_status status = WEFT_OK;
    if (keys->measure && strcmp(keys->cache, "none") == 0)
        return weft_error_set(
            err, WEFT_E_USER,
            "measure = yes needs a directory for its results, and cache = none gives it none. Fix: set cache "
            "to auto or to a directory.");
    status = cuda_card_pick(d, keys, index, err);
    if (status == WEFT_OK) status = cuda_libraries_open(&d->libraries, err);
    if (status == WEFT_OK) status = cuda_streams_open(d, err);
    if (status == WEFT_OK) status = cuda_staging_open(d, err);
    if (status == WEFT_OK) status = cuda_algorithms_open(d, err);
    if (status == WEFT_OK) status = cuda_modules_open(d, keys, err);
    if (status == WEFT_OK && keys->attention == ATTENTION_CUDNN) status = cuda_cudnn_open(d, err);
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
    d->measures = keys->measure != 0;
    d->splits_attention = keys->attention == ATTENTION_SPLIT;
    d->nvtx = keys->nvtx != 0;
    d->workspace = keys->workspace;
    status = open_device(d, keys, index, err);
    if (status == WEFT_OK) *out = d;
    else destroy_device(d);
    return status;
}

static void tell_device_info(const weft_device *device, weft_device_info *out) {
    const size_t lt = device->libraries.cublasLtGetVersion();
    const long dnn = (long)cuda_cudnn_version(device);
    size_t used = 0;
    weft_device_info i = {
        .struct_size = (uint32_t)sizeof i, .has_bf16 = 1, .packed = PACKED_TYPES, .types = operands_types};
    (void)snprintf(i.name, sizeof i.name, "%.63s", device->card.name);
    (void)snprintf(i.isa, sizeof i.isa, "sm_%d%d", device->card.major, device->card.minor);
    (void)snprintf(i.backend, sizeof i.backend, "cuBLASLt %zu.%zu.%zu%s", lt / 10000, lt / 100 % 100, lt % 100,
                   device->tf32 ? ", TF32" : "");
    used = strlen(i.backend);
    if (dnn > 0)
        (void)snprintf(i.backend + used, sizeof i.backend - used, ", cuDNN %ld.%ld.%ld", dnn / 10000, dnn / 100 % 100,
                       dnn % 100);
    used = strlen(i.backend);
    if (cuda_rounds_attention(device)) (void)snprintf(i.backend + used, sizeof i.backend - used, ", rounded attention");
    i.memory = (int64_t)device->card.totalGlobalMem / device->sharers;
    /* A failed measurement keeps the previous value, and the next checked call reports the error. */
    cuda_put_off(cuda_card_held(device, &device->first.device->held), "cudaMemGetInfo", "the free memory of the card");
    i.held = device->held;
    weft_struct_give(out, &i);
}

static const void *find_extension(const weft_device *device, const char *id) {
    if (strcmp(id, WEFT_DEVICE_TRANSFER) == 0) return &cuda_transfer;
    if (strcmp(id, WEFT_DEVICE_CAPTURE) == 0) return &cuda_capture;
    if (strcmp(id, WEFT_DEVICE_NATIVE) == 0) return &cuda_native;
    if (strcmp(id, WEFT_DEVICE_CHOICES) == 0) return &cuda_choices;
    if (strcmp(id, WEFT_DEVICE_DRY_RUN) == 0) return &cuda_dry_run;
    if (strcmp(id, WEFT_DEVICE_ROOFLINE) == 0) return &cuda_roofline;
    if (strcmp(id, WEFT_DEVICE_RANGES) == 0 && device->nvtx) return &cuda_ranges;
    return NULL;
}

#define KERNEL_ROW(name, type)    .name = cuda_##name,
#define WORKSPACE_ROW(name, type) .name##_workspace = cuda_##name##_workspace,
static const weft_device_plugin table = {.struct_size = (uint32_t)sizeof(weft_device_plugin),
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
                                         .extension = find_extension,
                                         WEFT_DEVICE_WORKSPACES(WORKSPACE_ROW) WEFT_DEVICE_KERNELS(KERNEL_ROW)};

WEFT_PLUGIN_THAT(device, 1, "cuda", "0.1.0", "NVIDIA GPUs, through cuBLASLt and kernels of its own", cuda_config, NULL,
                 table, cuda_works)
