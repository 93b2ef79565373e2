/* plain.c: a device of plain C loops over host memory, in fp32, with the kernels that LLaMA models call. The page
 * docs/guide/your-own-device.md explains this file.
 *
 * Every call has finished when it returns, so streams and events need no code. A missing kernel or variant returns
 * WEFT_E_UNSUPPORTED and its name. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0)
#include <weft/device.h>

WEFT_NO_KEYS(plain_config)

struct weft_device {
    const weft_host *host;
};
struct weft_buffer {
    char *data;
    int64_t bytes;
};
struct weft_stream {
    int64_t unused;
};
struct weft_event {
    int64_t unused;
};

static weft_status lacks(weft_error *err, const char *feature) {
    return weft_error_set(err, WEFT_E_UNSUPPORTED, "device plain has no %s", feature);
}

/* ---- the device ---- */

static weft_status plain_create(weft_device **out, const weft_host *host, const void *config, int32_t index,
                                weft_error *err) {
    weft_device *device = (weft_device *)host->alloc(host, sizeof *device, 64);
    (void)config;
    (void)index; /* there is one device, whichever rank opens it */
    if (device == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for device plain");
    device->host = host;
    *out = device;
    return WEFT_OK;
}

static void plain_destroy(weft_device *device) {
    device->host->release(device->host, device);
}

/* Sets single fields: `out` may be shorter or longer than this file's struct. */
static void plain_info(const weft_device *device, weft_device_info *out) {
    (void)device;
    out->flags = WEFT_DEVICE_SHARES_MACHINE;
    (void)snprintf(out->name, sizeof out->name, "plain C loops");
    (void)snprintf(out->isa, sizeof out->isa, "c11");
    (void)snprintf(out->backend, sizeof out->backend, "none");
    out->memory = (int64_t)64 << 30;
    out->threads = 1;
    out->types = 1u << WEFT_F32;
}

/* ---- memory ---- */

static weft_status plain_alloc(weft_device *device, weft_buffer **out, int64_t bytes, weft_error *err) {
    weft_buffer *buffer = (weft_buffer *)device->host->alloc(device->host, sizeof *buffer, 64);
    if (buffer != NULL) buffer->data = (char *)device->host->alloc(device->host, (size_t)bytes + 1, 256);
    if (buffer == NULL || buffer->data == NULL) {
        device->host->release(device->host, buffer);
        return weft_error_set(err, WEFT_E_MEMORY, "device plain cannot allocate %lld bytes", (long long)bytes);
    }
    buffer->bytes = bytes;
    *out = buffer;
    return WEFT_OK;
}

static void plain_release(weft_device *device, weft_buffer *buffer) {
    if (buffer == NULL) return;
    device->host->release(device->host, buffer->data);
    device->host->release(device->host, buffer);
}

static void *address(weft_ref ref) {
    return ref.buffer == NULL ? NULL : ref.buffer->data + ref.offset;
}

static float *numbers(weft_ref ref) {
    return (float *)address(ref);
}

static void *plain_host_view(weft_device *device, weft_ref ref) {
    (void)device;
    return ref.buffer == NULL || ref.offset < 0 || ref.offset > ref.buffer->bytes ? NULL : address(ref);
}

static weft_status within(weft_ref ref, int64_t bytes, weft_error *err) {
    if (ref.buffer != NULL && ref.offset >= 0 && bytes >= 0 && ref.offset + bytes <= ref.buffer->bytes) return WEFT_OK;
    return weft_error_set(err, WEFT_E_HOST, "%lld bytes from offset %lld are not within a buffer", (long long)bytes,
                          (long long)ref.offset);
}

static weft_status plain_write(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                               weft_error *err) {
    const weft_status status = within(to, bytes, err);
    (void)device, (void)s;
    if (status == WEFT_OK && bytes > 0) memcpy(address(to), from, (size_t)bytes);
    return status;
}

static weft_status plain_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes,
                              weft_error *err) {
    const weft_status status = within(from, bytes, err);
    (void)device, (void)s;
    if (status == WEFT_OK && bytes > 0) memcpy(to, address(from), (size_t)bytes);
    return status;
}

static weft_status plain_copy(weft_device *device, weft_stream *s, weft_ref to, weft_ref from, int64_t bytes,
                              weft_error *err) {
    weft_status status = within(to, bytes, err);
    (void)device, (void)s;
    if (status == WEFT_OK) status = within(from, bytes, err);
    if (status == WEFT_OK && bytes > 0) memmove(address(to), address(from), (size_t)bytes);
    return status;
}

static weft_status plain_fill(weft_device *device, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words,
                              weft_error *err) {
    const weft_status status = within(to, 4 * words, err);
    int64_t i;
    (void)device, (void)s;
    for (i = 0; i < words && status == WEFT_OK; i++) ((uint32_t *)address(to))[i] = pattern;
    return status;
}

static weft_status plain_convert(weft_device *device, weft_stream *s, weft_ref to, int32_t dtype_to, weft_ref from,
                                 int32_t dtype_from, int64_t n, weft_error *err) {
    if (dtype_to != WEFT_F32 || dtype_from != WEFT_F32) return lacks(err, "convert of 16-bit types");
    return plain_copy(device, s, to, from, 4 * n, err);
}

/* ---- streams and events ---- */

static weft_status plain_stream_create(weft_device *device, weft_stream **out, weft_error *err) {
    *out = (weft_stream *)device->host->alloc(device->host, sizeof **out, 64);
    return *out != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for a stream");
}

static void plain_stream_destroy(weft_device *device, weft_stream *stream) {
    device->host->release(device->host, stream);
}

static weft_status plain_synchronize(weft_device *device, weft_stream *stream, weft_error *err) {
    (void)device, (void)stream, (void)err;
    return WEFT_OK;
}

static weft_status plain_record_event(weft_device *device, weft_stream *stream, weft_event **out, weft_error *err) {
    (void)stream;
    *out = (weft_event *)device->host->alloc(device->host, sizeof **out, 64);
    return *out != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for an event");
}

static weft_status plain_wait(weft_device *device, weft_stream *stream, weft_event *event, weft_error *err) {
    (void)stream, (void)err;
    device->host->release(device->host, event);
    return WEFT_OK;
}

/* ---- kernels ---- */

/* Defines the slot of a kernel: copies its arguments, rejects those of a newer or older SDK, and runs the loop. */
#define KERNEL(name, type)                                                                                             \
    static weft_status plain_##name(weft_device *device, weft_stream *s, const type *given, weft_error *err) {         \
        type a;                                                                                                        \
        (void)device, (void)s;                                                                                         \
        if (!WEFT_WHOLE(given, type) || !weft_struct_take(&a, sizeof a, given))                                        \
            return weft_error_set(err, WEFT_E_UNSUPPORTED, "device plain: " #name " has arguments of another SDK");    \
        return name##_loop(&a, err);                                                                                   \
    }
#define MISSING(name, type)                                                                                            \
    static weft_status plain_##name(weft_device *device, weft_stream *s, const type *args, weft_error *err) {          \
        (void)device, (void)s, (void)args;                                                                             \
        return lacks(err, #name);                                                                                      \
    }
#define NO_WORKSPACE(name, type)                                                                                       \
    static int64_t plain_##name##_workspace(const weft_device *device, const type *args) {                             \
        (void)device, (void)args;                                                                                      \
        return 0;                                                                                                      \
    }

/* C (M,N) = or += op(A) op(B) + bias. */
static weft_status matmul_loop(const weft_matmul *m, weft_error *err) {
    const float *a = numbers(m->a), *b = numbers(m->b), *bias = numbers(m->bias);
    const int64_t a_row = m->transpose_a ? 1 : m->lda, a_column = m->transpose_a ? m->lda : 1;
    const int64_t b_row = m->transpose_b ? 1 : m->ldb, b_column = m->transpose_b ? m->ldb : 1;
    int64_t i, j, k;
    if (m->dtype_a != WEFT_F32 || m->dtype_b != WEFT_F32) return lacks(err, "matmul of 16-bit or packed matrices");
    for (i = 0; i < m->m; i++)
        for (j = 0; j < m->n; j++) {
            float *c = &numbers(m->c)[i * m->ldc + j], sum = 0.0f;
            for (k = 0; k < m->k; k++) sum += a[i * a_row + k * a_column] * b[k * b_row + j * b_column];
            if (m->has_bias) sum += bias[j];
            *c = m->accumulate ? *c + sum : sum;
        }
    return WEFT_OK;
}
KERNEL(matmul, weft_matmul)
NO_WORKSPACE(matmul, weft_matmul)

static float rstd_of(const float *x, int64_t width, double eps) {
    double sum = 0.0;
    int64_t i;
    for (i = 0; i < width; i++) sum += (double)x[i] * (double)x[i];
    return (float)(1.0 / sqrt(sum / (double)width + eps));
}

/* y = x rstd gain; with a residual, of the sum x + residual. */
static weft_status norm_loop(const weft_norm *n, weft_error *err) {
    const float *x = numbers(n->x), *gain = numbers(n->gain), *residual = numbers(n->residual);
    float *y = numbers(n->y), *sum = numbers(n->sum), *rstd = numbers(n->rstd), scale;
    int64_t r, i;
    if (n->form != WEFT_NORM_RMS || n->gain_from_one) return lacks(err, "norm but RMSNorm");
    for (i = 0; residual != NULL && i < n->rows * n->width; i++) sum[i] = x[i] + residual[i];
    if (residual != NULL) x = sum;
    for (r = 0; r < n->rows; r++, x += n->width, y += n->width) {
        scale = rstd_of(x, n->width, n->eps);
        if (rstd != NULL) rstd[r] = scale;
        for (i = 0; i < n->width; i++) y[i] = x[i] * scale * gain[i];
    }
    return WEFT_OK;
}
KERNEL(norm, weft_norm)

/* dx (+)= rstd (dy gain - x rstd^2 mean(dy gain x)), dgain (+)= the sum over rows of dy x rstd. */
static weft_status norm_backward_loop(const weft_norm *n, weft_error *err) {
    const float *x = numbers(n->x), *gain = numbers(n->gain), *dy = numbers(n->dy);
    float *dx = numbers(n->dx), *dgain = numbers(n->dgain);
    int64_t r, i;
    if (n->form != WEFT_NORM_RMS || n->gain_from_one) return lacks(err, "norm but RMSNorm");
    if (dgain != NULL && !n->accumulate_dgain) memset(dgain, 0, (size_t)n->width * sizeof *dgain);
    for (r = 0; r < n->rows; r++, x += n->width, dy += n->width) {
        const float scale = rstd_of(x, n->width, n->eps);
        float mean = 0.0f;
        for (i = 0; i < n->width; i++) mean += dy[i] * gain[i] * x[i] / (float)n->width;
        for (i = 0; i < n->width && dgain != NULL; i++) dgain[i] += dy[i] * x[i] * scale;
        for (i = 0; i < n->width && dx != NULL; i++) {
            const float d = scale * (dy[i] * gain[i] - x[i] * scale * scale * mean);
            dx[r * n->width + i] = n->accumulate_dx ? dx[r * n->width + i] + d : d;
        }
    }
    return WEFT_OK;
}
KERNEL(norm_backward, weft_norm)
NO_WORKSPACE(norm_backward, weft_norm)

/* Rotates the pairs (x[i], x[i + d/2]) of each head. */
static weft_status rope_loop(const weft_rope *p, weft_error *err) {
    const int32_t *positions = (const int32_t *)address(p->positions);
    const int64_t half = p->head_dim / 2;
    int64_t r, h, i;
    if (p->rotary_dim != 0 && p->rotary_dim != p->head_dim) return lacks(err, "rope of a slice of a head");
    for (r = 0; r < p->rows; r++) {
        const float *cosine;
        if (positions[r] < 0 || positions[r] >= p->table_rows)
            return weft_error_set(err, WEFT_E_USER, "position %d is not in the table of positions", (int)positions[r]);
        cosine = numbers(p->table) + positions[r] * p->head_dim;
        for (h = 0; h < p->heads; h++)
            for (i = 0; i < half; i++) {
                const int64_t at = (r * p->heads + h) * p->head_dim + i;
                const float sine = p->inverse ? -cosine[half + i] : cosine[half + i];
                const float low = numbers(p->x)[at], high = numbers(p->x)[at + half];
                float *y = numbers(p->y) + at;
                y[0] = (p->accumulate ? y[0] : 0.0f) + (low * cosine[i] - high * sine);
                y[half] = (p->accumulate ? y[half] : 0.0f) + (high * cosine[i] + low * sine);
            }
    }
    return WEFT_OK;
}
KERNEL(rope, weft_rope)

static float dot(const float *a, const float *b, int64_t n) {
    float sum = 0.0f;
    int64_t i;
    for (i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* to += factor x */
static void add_scaled(float *to, const float *x, float factor, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i++) to[i] += factor * x[i];
}

/* Appends the new keys or values to a cache, at position `past`. */
static void append(const weft_attention *n, weft_ref cache, weft_ref rows, int64_t past) {
    const int64_t width = n->kv_heads * n->head_dim;
    int64_t b;
    for (b = 0; b < n->batch && rows.buffer != NULL; b++)
        memcpy(numbers(cache) + (b * n->cache_rows + past) * width, numbers(rows) + b * n->length * width,
               (size_t)(n->length * width) * sizeof(float));
}

/* One query of one head: o = softmax(scale q k^T) v over positions first to last, in one pass (online softmax). Returns
 * the log-sum-exp. stride: elements between the keys of two positions. */
static float attend(const weft_attention *n, float *o, const float *q, const float *k, const float *v, int64_t first,
                    int64_t last, int64_t stride) {
    float top = -INFINITY, sum = 0.0f;
    int64_t t, i;
    memset(o, 0, (size_t)n->head_dim * sizeof *o);
    for (t = first; t <= last; t++) {
        const float score = (float)n->scale * dot(q, k + t * stride, n->head_dim);
        const float shrink = score > top ? expf(top - score) : 1.0f;
        if (score > top) top = score;
        sum = sum * shrink + expf(score - top);
        for (i = 0; i < n->head_dim; i++) o[i] *= shrink;
        add_scaled(o, v + t * stride, expf(score - top), n->head_dim);
    }
    for (i = 0; i < n->head_dim; i++) o[i] /= sum;
    return top + logf(sum);
}

static weft_status attention_loop(const weft_attention *n, weft_error *err) {
    const int64_t past = n->past.buffer == NULL ? 0 : *(const int64_t *)address(n->past);
    const int64_t keys = n->cache_rows > 0 ? n->cache_rows : n->length, stride = n->kv_heads * n->head_dim;
    int64_t b, t, h;
    if (n->window > 0 || n->cap > 0.0) return lacks(err, "attention with a window or a cap");
    append(n, n->k, n->new_k, past);
    append(n, n->v, n->new_v, past);
    for (b = 0; b < n->batch; b++)
        for (t = 0; t < n->length; t++)
            for (h = 0; h < n->heads; h++) {
                const int64_t q = ((b * n->length + t) * n->heads + h) * n->head_dim;
                const int64_t k = b * keys * stride + h / (n->heads / n->kv_heads) * n->head_dim;
                const float lse = attend(n, numbers(n->o) + q, numbers(n->q) + q, numbers(n->k) + k, numbers(n->v) + k,
                                         ((const int32_t *)address(n->starts))[b * n->length + t], past + t, stride);
                if (n->lse.buffer != NULL) numbers(n->lse)[(b * n->heads + h) * n->length + t] = lse;
            }
    return WEFT_OK;
}
KERNEL(attention, weft_attention)
NO_WORKSPACE(attention, weft_attention)

/* One query: with p = exp(score - lse) and ds = p (do v - do o) scale, dq += ds k, dk += ds q, dv += p do. */
static void attend_backward(const weft_attention *n, int64_t q, int64_t k, int64_t first, int64_t last, float lse) {
    const int64_t stride = n->kv_heads * n->head_dim, d = n->head_dim;
    const float *query = numbers(n->q) + q, *d_o = numbers(n->d_o) + q;
    const float delta = dot(d_o, numbers(n->o) + q, d);
    int64_t t;
    for (t = first; t <= last; t++) {
        const int64_t at = k + t * stride;
        const float p = expf((float)n->scale * dot(query, numbers(n->k) + at, d) - lse);
        const float ds = p * (dot(d_o, numbers(n->v) + at, d) - delta) * (float)n->scale;
        add_scaled(numbers(n->dq) + q, numbers(n->k) + at, ds, d);
        add_scaled(numbers(n->dk) + at, query, ds, d);
        add_scaled(numbers(n->dv) + at, d_o, p, d);
    }
}

static weft_status attention_backward_loop(const weft_attention *n, weft_error *err) {
    const int64_t stride = n->kv_heads * n->head_dim, rows = n->batch * n->length;
    int64_t b, t, h;
    if (n->window > 0 || n->cap > 0.0) return lacks(err, "attention with a window or a cap");
    memset(numbers(n->dq), 0, (size_t)(rows * n->heads * n->head_dim) * sizeof(float));
    memset(numbers(n->dk), 0, (size_t)(rows * stride) * sizeof(float));
    memset(numbers(n->dv), 0, (size_t)(rows * stride) * sizeof(float));
    for (b = 0; b < n->batch; b++)
        for (t = 0; t < n->length; t++)
            for (h = 0; h < n->heads; h++)
                attend_backward(n, ((b * n->length + t) * n->heads + h) * n->head_dim,
                                b * n->length * stride + h / (n->heads / n->kv_heads) * n->head_dim,
                                ((const int32_t *)address(n->starts))[b * n->length + t], t,
                                numbers(n->lse)[(b * n->heads + h) * n->length + t]);
    return WEFT_OK;
}
KERNEL(attention_backward, weft_attention)
NO_WORKSPACE(attention_backward, weft_attention)

/* y = silu(x) up */
static weft_status activation_loop(const weft_activation *v, weft_error *err) {
    const float *x = numbers(v->x), *up = numbers(v->up);
    int64_t i;
    if (v->form != WEFT_SILU) return lacks(err, "activation but SiLU");
    for (i = 0; i < v->n; i++) numbers(v->y)[i] = x[i] / (1.0f + expf(-x[i])) * (up != NULL ? up[i] : 1.0f);
    return WEFT_OK;
}
KERNEL(activation, weft_activation)

static weft_status activation_backward_loop(const weft_activation *v, weft_error *err) {
    float *dx = numbers(v->dx), *dup = numbers(v->dup);
    int64_t i;
    if (v->form != WEFT_SILU) return lacks(err, "activation but SiLU");
    for (i = 0; i < v->n; i++) { /* dx and dup may be the memory of x and up */
        const float x = numbers(v->x)[i], dy = numbers(v->dy)[i], sigmoid = 1.0f / (1.0f + expf(-x));
        const float up = v->up.buffer != NULL ? numbers(v->up)[i] : 1.0f;
        const float d = dy * up * sigmoid * (1.0f + x * (1.0f - sigmoid));
        if (dx != NULL) dx[i] = v->accumulate_dx ? dx[i] + d : d;
        if (dup != NULL) dup[i] = v->accumulate_dup ? dup[i] + dy * x * sigmoid : dy * x * sigmoid;
    }
    return WEFT_OK;
}
KERNEL(activation_backward, weft_activation)

static weft_status embedding_loop(const weft_embedding *e, weft_error *err) {
    const int32_t *ids = (const int32_t *)address(e->ids);
    int64_t r;
    for (r = 0; r < e->rows; r++) {
        if (ids[r] < 0 || ids[r] >= e->vocab)
            return weft_error_set(err, WEFT_E_USER, "id %d is not in the vocabulary", (int)ids[r]);
        memcpy(numbers(e->y) + r * e->width, numbers(e->table) + ids[r] * e->width, (size_t)e->width * sizeof(float));
    }
    return WEFT_OK;
}
KERNEL(embedding, weft_embedding)

static weft_status embedding_backward_loop(const weft_embedding *e, weft_error *err) {
    const int32_t *ids = (const int32_t *)address(e->ids);
    int64_t r;
    (void)err;
    if (!e->accumulate) memset(numbers(e->dtable), 0, (size_t)(e->vocab * e->width) * sizeof(float));
    for (r = 0; r < e->rows; r++)
        if (ids[r] >= 0 && ids[r] < e->vocab && !(e->has_padding && ids[r] == e->padding))
            add_scaled(numbers(e->dtable) + ids[r] * e->width, numbers(e->dy) + r * e->width, 1.0f, e->width);
    return WEFT_OK;
}
KERNEL(embedding_backward, weft_embedding)
NO_WORKSPACE(embedding_backward, weft_embedding)

/* One row: writes its logits to the workspace, then their gradients, which are (softmax - target) factor. Returns the
 * loss. */
static double head_row(const weft_head *h, int64_t r, float factor) {
    float *z = numbers(h->workspace), top = -INFINITY, sum = 0.0f, loss;
    const int32_t target = ((const int32_t *)address(h->targets))[r];
    int64_t v;
    for (v = 0; v < h->vocab; v++) {
        z[v] = dot(numbers(h->x) + r * h->width, numbers(h->w) + v * h->width, h->width);
        if (z[v] > top) top = z[v];
    }
    for (v = 0; v < h->vocab; v++) sum += expf(z[v] - top);
    loss = top + logf(sum) - z[target];
    for (v = 0; v < h->vocab; v++) z[v] = (expf(z[v] - top) / sum - (v == target ? 1.0f : 0.0f)) * factor;
    return (double)loss;
}

static weft_status head_rows(const weft_head *h, int with_gradients, weft_error *err) {
    const float *weights = numbers(h->weights), seed = h->seed.buffer != NULL ? *numbers(h->seed) : 1.0f;
    float *dx = with_gradients ? numbers(h->dx) : NULL, *dw = with_gradients ? numbers(h->dw) : NULL;
    const int32_t *targets = (const int32_t *)address(h->targets);
    double *loss = (double *)address(h->loss);
    int64_t r, v;
    if ((h->scale != 0.0 && h->scale != 1.0) || h->cap > 0.0 || h->has_bias)
        return lacks(err, "head with scale, cap or bias");
    if (dw != NULL && !h->accumulate_dw) memset(dw, 0, (size_t)(h->vocab * h->width) * sizeof *dw);
    if (dx != NULL) memset(dx, 0, (size_t)(h->rows * h->width) * sizeof *dx);
    *loss = 0.0;
    for (r = 0; r < h->rows; r++) {
        const float *z = numbers(h->workspace);
        if (weights[r] == 0.0f) continue; /* no target */
        if (targets[r] < 0 || targets[r] >= h->vocab)
            return weft_error_set(err, WEFT_E_USER, "target %d is not in the vocabulary", (int)targets[r]);
        *loss += (double)weights[r] * head_row(h, r, weights[r] * seed);
        for (v = 0; v < h->vocab && dx != NULL; v++)
            add_scaled(dx + r * h->width, numbers(h->w) + v * h->width, z[v], h->width);
        for (v = 0; v < h->vocab && dw != NULL; v++)
            add_scaled(dw + v * h->width, numbers(h->x) + r * h->width, z[v], h->width);
    }
    return WEFT_OK;
}

static weft_status head_loss_loop(const weft_head *h, weft_error *err) {
    return head_rows(h, 0, err);
}
KERNEL(head_loss, weft_head)

static weft_status head_loss_grad_loop(const weft_head *h, weft_error *err) {
    return head_rows(h, 1, err);
}
KERNEL(head_loss_grad, weft_head)

static int64_t plain_head_workspace(const weft_device *device, const weft_head *args) {
    (void)device;
    return args->vocab * (int64_t)sizeof(float);
}

static weft_status add_loop(const weft_add *d, weft_error *err) {
    int64_t i;
    (void)err;
    for (i = 0; i < d->n; i++) numbers(d->y)[i] = numbers(d->a)[i] + numbers(d->b)[i];
    return WEFT_OK;
}
KERNEL(add, weft_add)

/* ---- the optimizer step ---- */

/* Sums neighbors pairwise until one sum is left; an odd last one moves up. Changes the sums. */
static double tree(double *sums, int64_t n) {
    int64_t i;
    for (; n > 1; n = (n + 1) / 2) {
        for (i = 0; i < n / 2; i++) sums[i] = sums[2 * i] + sums[2 * i + 1];
        if (n % 2 == 1) sums[n / 2] = sums[n - 1];
    }
    return n > 0 ? sums[0] : 0.0;
}

static double sum_of(const weft_square_sum *q, int64_t first, int64_t n) {
    double *sums = (double *)address(q->workspace);
    int64_t i;
    if (q->dtype == WEFT_F64) memcpy(sums, (const double *)address(q->x) + first, (size_t)n * sizeof *sums);
    if (q->dtype == WEFT_F64) return tree(sums, n);
    for (i = 0; i < n; i++) {
        const double x = (double)numbers(q->x)[first + i];
        sums[i / 64] = (i % 64 == 0 ? 0.0 : sums[i / 64]) + x * x;
    }
    return tree(sums, (n + 63) / 64);
}

static weft_status square_sum_loop(const weft_square_sum *q, weft_error *err) {
    const char *extents = (const char *)address(q->extents);
    int64_t e, at;
    (void)err;
    if (extents == NULL) *(double *)address(q->out) = sum_of(q, 0, q->n);
    for (e = 0; e < q->n_extents && extents != NULL; e++) {
        const weft_extent *extent = (const weft_extent *)(const void *)(extents + e * q->extent_stride);
        const int64_t cell = q->cell > 0 && q->dtype != WEFT_F64 ? q->cell : extent->length;
        double *out = (double *)address(q->out) + extent->out;
        if (extent->length == 0) *out = 0.0;
        for (at = 0; at < extent->length; at += cell)
            *out++ = sum_of(q, extent->offset + at, extent->length - at < cell ? extent->length - at : cell);
    }
    return WEFT_OK;
}
KERNEL(square_sum, weft_square_sum)

static int64_t plain_square_sum_workspace(const weft_device *device, const weft_square_sum *args) {
    (void)device;
    return (args->n + 1) * (int64_t)sizeof(double);
}

static weft_status clip_loop(const weft_clip *c, weft_error *err) {
    const double factor = *(const double *)address(c->count) *
                          (c->seed.buffer != NULL ? (double)*numbers(c->seed) : 1.0);
    double sum = 0.0, norm, clip = 1.0;
    int64_t i;
    (void)err;
    for (i = 0; i < c->n; i++) sum += ((const double *)address(c->square_sums))[i];
    norm = sqrt(sum) / factor;
    if (c->clip > 0.0 && c->clip / (norm + 1e-6) < 1.0) clip = c->clip / (norm + 1e-6);
    *(double *)address(c->norm) = norm;
    *numbers(c->coefficient) = (float)(clip / factor);
    *(int32_t *)address(c->skip) = isfinite(norm) ? 0 : 1;
    return WEFT_OK;
}
KERNEL(clip, weft_clip)

/* Calls the optimizer's own loop for each range of each region. */
static weft_status update_loop(const weft_update *u, weft_error *err) {
    weft_elementwise_call call;
    int32_t r, s;
    int64_t i;
    memset(&call, 0, sizeof call);
    call.struct_size = (uint32_t)sizeof call;
    call.hp = address(u->hp);
    call.coefficient = *numbers(u->coefficient);
    for (r = 0; r < u->n_regions && *(const int32_t *)address(u->skip) == 0; r++) {
        const weft_update_region *region = weft_update_region_at(u, r);
        if (region->weight_dtype > WEFT_F32) return lacks(err, "update of bf16 weights");
        if (WEFT_HAS(region, copy) && region->copy.buffer != NULL) return lacks(err, "update with a copy");
        for (s = 0; s < WEFT_MAX_STATES; s++) {
            if (region->state_dtypes[s] > WEFT_F32) return lacks(err, "update of bf16 or 8-bit states");
            call.states[s] = numbers(region->states[s]);
        }
        call.weight = numbers(region->weight);
        call.gradient = numbers(region->gradient);
        for (i = 0; i < region->n_ranges; i++) {
            call.range =
                (const weft_range *)(const void *)((const char *)address(region->ranges) + i * region->range_stride);
            call.begin = call.range->offset;
            call.end = call.range->offset + call.range->length;
            u->kernel->cpu(&call);
        }
    }
    return WEFT_OK;
}
KERNEL(update, weft_update)

/* ---- kernels that LLaMA in fp32 does not call ---- */

MISSING(sum_rows, weft_sum_rows)
NO_WORKSPACE(sum_rows, weft_sum_rows)
MISSING(scale, weft_scale)
MISSING(multiply, weft_multiply)
MISSING(multiply_backward, weft_multiply)
NO_WORKSPACE(multiply_backward, weft_multiply)
MISSING(dropout, weft_dropout)
MISSING(row_norms, weft_row_norms)
NO_WORKSPACE(row_norms, weft_row_norms)
MISSING(prefix, weft_prefix)
NO_WORKSPACE(prefix, weft_prefix)
MISSING(prefix_backward, weft_prefix)
NO_WORKSPACE(prefix_backward, weft_prefix)

/* ---- the table ---- */

static const weft_device_plugin plain_table = {
    .struct_size = (uint32_t)sizeof(weft_device_plugin),
    .create = plain_create,
    .destroy = plain_destroy,
    .info = plain_info,
    .alloc = plain_alloc,
    .release = plain_release,
    .host_view = plain_host_view,
    .stream_create = plain_stream_create,
    .stream_destroy = plain_stream_destroy,
    .synchronize = plain_synchronize,
    .record_event = plain_record_event,
    .wait = plain_wait,
    .write = plain_write,
    .read = plain_read,
    .copy = plain_copy,
    .fill = plain_fill,
    .convert = plain_convert,
    .matmul_workspace = plain_matmul_workspace,
    .sum_rows_workspace = plain_sum_rows_workspace,
    .norm_backward_workspace = plain_norm_backward_workspace,
    .attention_workspace = plain_attention_workspace,
    .attention_backward_workspace = plain_attention_backward_workspace,
    .embedding_backward_workspace = plain_embedding_backward_workspace,
    .head_loss_workspace = plain_head_workspace,
    .head_loss_grad_workspace = plain_head_workspace,
    .square_sum_workspace = plain_square_sum_workspace,
    .multiply_backward_workspace = plain_multiply_backward_workspace,
    .row_norms_workspace = plain_row_norms_workspace,
    .prefix_workspace = plain_prefix_workspace,
    .prefix_backward_workspace = plain_prefix_backward_workspace,
    .matmul = plain_matmul,
    .sum_rows = plain_sum_rows,
    .norm = plain_norm,
    .norm_backward = plain_norm_backward,
    .rope = plain_rope,
    .attention = plain_attention,
    .attention_backward = plain_attention_backward,
    .activation = plain_activation,
    .activation_backward = plain_activation_backward,
    .embedding = plain_embedding,
    .embedding_backward = plain_embedding_backward,
    .head_loss = plain_head_loss,
    .head_loss_grad = plain_head_loss_grad,
    .scale = plain_scale,
    .add = plain_add,
    .multiply = plain_multiply,
    .multiply_backward = plain_multiply_backward,
    .dropout = plain_dropout,
    .row_norms = plain_row_norms,
    .prefix = plain_prefix,
    .prefix_backward = plain_prefix_backward,
    .square_sum = plain_square_sum,
    .clip = plain_clip,
    .update = plain_update,
};

WEFT_PLUGIN(device, 1, "plain", "0.1.0", "Plain C loops over host memory, in fp32.", plain_config, NULL, plain_table)
