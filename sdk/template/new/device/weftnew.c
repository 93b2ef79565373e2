/* weftnew-id: a device that wraps another one, counts the calls, and logs the counts at the end.
 *
 * Each slot forwards its call. The handles are the wrapped device's own, so that the tables of its extensions, which
 * have separate functions, accept them; this plugin's own data is global to the process. The main thread calls all
 * slots except those marked [any-thread] in weft/device.h. Calls return immediately: a kernel runs when its stream
 * reaches it. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0) /* the oldest supported host; newer declarations are hidden */
#include <weft/device.h>
#include <weft/host.h>
#include <weft/plugin.h>

/* The keys of [device]: type, name, default, range, unit, flags, help. They define struct weftnew_config. */
#define WEFTNEW_KEYS(K)                                                                                                \
    K(STR, wraps, "cpu", "", "", WEFT_SAME, "The device that computes; its keys are in its own section, [device.cpu].")
WEFT_KEYS(weftnew_config, WEFTNEW_KEYS)

static const weft_device_plugin *inner; /* table of the wrapped device, set by the first `create` */
static const weft_host *teller;         /* host for logging */
static int64_t kernels, copies, bytes;  /* numbers of calls; bytes: of copies */
static int32_t devices;                 /* number of existing devices */

/* ---- create and destroy ---- */

static weft_status weftnew_create(weft_device **out, const weft_host *given, const void *config, int32_t index,
                                  weft_error *err) {
    const char *name = ((const weftnew_config *)config)->wraps;
    const weft_host_plugins *plugins = (const weft_host_plugins *)given->extension(given, WEFT_HOST_PLUGINS);
    const weft_plugin *plugin = NULL;
    const void *keys = NULL;
    weft_status status;
    if (plugins == NULL) return weft_error_set(err, WEFT_E_UNSUPPORTED, "this host lends no plugins to wrap");
    status = plugins->get(given, "device", name, &plugin, &keys, err);
    if (status != WEFT_OK) return status;
    if (devices > 0 && inner != plugin->table)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "wraps = %s: this process wraps another device", name);
    inner = (const weft_device_plugin *)plugin->table;
    teller = given;
    status = inner->create(out, given, keys, index, err);
    if (status == WEFT_OK) devices++;
    return status;
}

static void weftnew_destroy(weft_device *device) {
    inner->destroy(device);
    devices--;
    weft_log(teller, WEFT_LOG_INFO, "weftnew-id: %lld kernels, and %lld copies of %lld bytes in all",
             (long long)kernels, (long long)copies, (long long)bytes);
}

static void weftnew_info(const weft_device *device, weft_device_info *out) {
    inner->info(device, out);
}

static const void *weftnew_extension(const weft_device *device, const char *id) {
    return inner->extension == NULL ? NULL : inner->extension(device, id);
}

/* ---- memory and streams ---- */

static weft_status weftnew_alloc(weft_device *device, weft_buffer **out, int64_t n, weft_error *err) {
    return inner->alloc(device, out, n, err);
}

static void weftnew_release(weft_device *device, weft_buffer *buffer) {
    inner->release(device, buffer);
}

static void *weftnew_host_view(weft_device *device, weft_ref ref) {
    return inner->host_view == NULL ? NULL : inner->host_view(device, ref);
}

static weft_status weftnew_stream_create(weft_device *device, weft_stream **out, weft_error *err) {
    return inner->stream_create(device, out, err);
}

static void weftnew_stream_destroy(weft_device *device, weft_stream *stream) {
    inner->stream_destroy(device, stream);
}

static weft_status weftnew_synchronize(weft_device *device, weft_stream *stream, weft_error *err) {
    return inner->synchronize(device, stream, err);
}

static weft_status weftnew_record_event(weft_device *device, weft_stream *stream, weft_event **out, weft_error *err) {
    return inner->record_event(device, stream, out, err);
}

static weft_status weftnew_wait(weft_device *device, weft_stream *stream, weft_event *event, weft_error *err) {
    return inner->wait(device, stream, event, err);
}

/* ---- copies ---- */

static void count_copy(int64_t n) {
    copies++;
    bytes += n;
}

static weft_status weftnew_write(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t n,
                                 weft_error *err) {
    count_copy(n);
    return inner->write(device, s, to, from, n, err);
}

static weft_status weftnew_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t n,
                                weft_error *err) {
    count_copy(n);
    return inner->read(device, s, to, from, n, err);
}

static weft_status weftnew_copy(weft_device *device, weft_stream *s, weft_ref to, weft_ref from, int64_t n,
                                weft_error *err) {
    count_copy(n);
    return inner->copy(device, s, to, from, n, err);
}

static weft_status weftnew_fill(weft_device *device, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words,
                                weft_error *err) {
    return inner->fill(device, s, to, pattern, words, err);
}

static weft_status weftnew_convert(weft_device *device, weft_stream *s, weft_ref to, int32_t dtype_to, weft_ref from,
                                   int32_t dtype_from, int64_t n, weft_error *err) {
    kernels++;
    return inner->convert(device, s, to, dtype_to, from, dtype_from, n, err);
}

/* ---- kernels: name and argument struct; ROOM: also the workspace query ---- */

#define KERNEL(name, type)                                                                                             \
    static weft_status weftnew_##name(weft_device *device, weft_stream *s, const type *args, weft_error *err) {        \
        kernels++;                                                                                                     \
        return inner->name(device, s, args, err);                                                                      \
    }
#define ROOM(name, type)                                                                                               \
    static int64_t weftnew_##name##_workspace(const weft_device *device, const type *args) {                           \
        return inner->name##_workspace(device, args);                                                                  \
    }

ROOM(matmul, weft_matmul)
KERNEL(matmul, weft_matmul)
ROOM(sum_rows, weft_sum_rows)
KERNEL(sum_rows, weft_sum_rows)
KERNEL(norm, weft_norm)
ROOM(norm_backward, weft_norm)
KERNEL(norm_backward, weft_norm)
KERNEL(rope, weft_rope)
ROOM(attention, weft_attention)
KERNEL(attention, weft_attention)
ROOM(attention_backward, weft_attention)
KERNEL(attention_backward, weft_attention)
KERNEL(activation, weft_activation)
KERNEL(activation_backward, weft_activation)
KERNEL(embedding, weft_embedding)
ROOM(embedding_backward, weft_embedding)
KERNEL(embedding_backward, weft_embedding)
ROOM(head_loss, weft_head)
KERNEL(head_loss, weft_head)
ROOM(head_loss_grad, weft_head)
KERNEL(head_loss_grad, weft_head)
KERNEL(scale, weft_scale)
KERNEL(add, weft_add)
KERNEL(multiply, weft_multiply)
ROOM(multiply_backward, weft_multiply)
KERNEL(multiply_backward, weft_multiply)
KERNEL(dropout, weft_dropout)
ROOM(row_norms, weft_row_norms)
KERNEL(row_norms, weft_row_norms)
ROOM(prefix, weft_prefix)
KERNEL(prefix, weft_prefix)
ROOM(prefix_backward, weft_prefix)
KERNEL(prefix_backward, weft_prefix)
ROOM(square_sum, weft_square_sum)
KERNEL(square_sum, weft_square_sum)
KERNEL(clip, weft_clip)
KERNEL(update, weft_update)

/* clang-format off */
static const weft_device_plugin weftnew_table = {
    (uint32_t)sizeof(weft_device_plugin), 0, weftnew_create, weftnew_destroy, weftnew_info, weftnew_alloc,
    weftnew_release, weftnew_host_view, weftnew_stream_create, weftnew_stream_destroy, weftnew_synchronize,
    weftnew_record_event, weftnew_wait, weftnew_write, weftnew_read, weftnew_copy, weftnew_fill, weftnew_convert,
    weftnew_matmul_workspace, weftnew_sum_rows_workspace, weftnew_norm_backward_workspace,
    weftnew_attention_workspace, weftnew_attention_backward_workspace, weftnew_embedding_backward_workspace,
    weftnew_head_loss_workspace, weftnew_head_loss_grad_workspace, weftnew_square_sum_workspace,
    weftnew_multiply_backward_workspace, weftnew_row_norms_workspace, weftnew_prefix_workspace,
    weftnew_prefix_backward_workspace, weftnew_matmul, weftnew_sum_rows, weftnew_norm, weftnew_norm_backward,
    weftnew_rope, weftnew_attention, weftnew_attention_backward, weftnew_activation, weftnew_activation_backward,
    weftnew_embedding, weftnew_embedding_backward, weftnew_head_loss, weftnew_head_loss_grad, weftnew_scale,
    weftnew_add, weftnew_multiply, weftnew_multiply_backward, weftnew_dropout, weftnew_row_norms, weftnew_prefix,
    weftnew_prefix_backward, weftnew_square_sum, weftnew_clip, weftnew_update, weftnew_extension};
/* clang-format on */

WEFT_PLUGIN(device, 1, "weftnew-id", "0.1.0", "A wrapper of another device that counts its calls.", weftnew_config,
            NULL, weftnew_table)
