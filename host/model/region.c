/* host/model/region.c: see region.h. */
#include "model/region.h"

#include "base/alloc.h"
#include "base/units.h"
#include "plugin/enter.h"
#include "plugin/services.h"

#include <stdlib.h>

weft_status weft_double_buffer_open(weft_double_buffer *out, const weft_device_plugin *kernels, weft_device *device,
                                    int64_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    *out = (weft_double_buffer){.turn = 0};
    status = weft_stream_sync_open(&out->order, kernels, device, 1, err);
    for (int i = 0; i < 2 && status == WEFT_OK; i++)
        status = weft_stream_sync_alloc(&out->order, &out->memory[i], bytes, err);
    if (status != WEFT_OK) (void)weft_double_buffer_close(out, NULL);
    return status;
}

weft_status weft_double_buffer_close(weft_double_buffer *self, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int i = 0; i < 2; i++) {
        const weft_status one = weft_stream_sync_await(&self->order, &self->events[i], status == WEFT_OK ? err : NULL);
        if (status == WEFT_OK) status = one;
        weft_stream_sync_free(&self->order, self->memory[i]);
    }
    *self = (weft_double_buffer){0};
    return status;
}

weft_status weft_double_buffer_send(weft_double_buffer *self, weft_ref to, int64_t bytes, weft_error *err) {
    const int turn = self->turn;
    self->turn = 1 - turn;
    return weft_stream_sync_upload(&self->order, to, self->memory[turn], bytes, &self->events[turn], err);
}

weft_status weft_double_buffer_fetch(weft_double_buffer *self, weft_ref from, int64_t bytes, weft_error *err) {
    const int turn = self->turn;
    const weft_status status = weft_stream_sync_await(&self->order, &self->events[turn], err);
    if (status != WEFT_OK) return status;
    self->turn = 1 - turn;
    return weft_stream_sync_download(&self->order, self->memory[turn], from, bytes, &self->events[turn], err);
}

weft_status weft_double_buffer_take(weft_double_buffer *self, int ago, void **out, weft_error *err) {
    const int i = ago == 0 ? 1 - self->turn : self->turn;
    *out = self->memory[i];
    return weft_stream_sync_await(&self->order, &self->events[i], err);
}

int32_t weft_region_file_dtype(const weft_region_file *self, int32_t tensor) {
    const int32_t held = weft_region_dtype(self->region, self->parameters[tensor]);
    return weft_dtype_block(held) > 1 ? held : self->specs[tensor].dtype;
}

static weft_ref ref_of_element(const weft_region *self, int32_t parameter, int64_t first) {
    const weft_parameter *p = &self->declared->parameters[parameter];
    weft_ref ref = self->ref;
    if (self->hold != NULL) ref.offset += weft_span_at(&self->hold->spans[p->group], p->offset + first);
    else
        ref.offset += self->layout->groups[p->group].base +
                      weft_dtype_span(weft_region_dtype(self, parameter), p->offset + first);
    return ref;
}

int32_t weft_region_dtype(const weft_region *self, int32_t parameter) {
    if (self->dtype != 0) return self->dtype;
    return self->layout->groups[self->declared->parameters[parameter].group].dtype;
}

/* Returns the host's view of the element's device memory; NULL if it is not visible. */
static void *view_of_element(const weft_region *self, int32_t parameter, int64_t first) {
    return weft_device_view(self->kernels, self->device, ref_of_element(self, parameter, first));
}

/* Elements [first, first + n) of a parameter, and `padding` further ones after its end. */
typedef struct piece {
    int32_t parameter;
    int64_t first, n, padding;
} piece;

/* Elements per call of the source by one of several threads: few enough that all threads finish together. */
enum { THREAD_PIECE = 1 << 16 };

typedef struct fill_job {
    const weft_region *region;
    weft_region_source *source;
    void *context;
    int64_t size; /* maximum elements of a chunk */
    piece *pieces;
    int64_t n;
    weft_first_failure failure;
} fill_job;

/* Appends the chunks of one parameter's stored elements. Shard boundaries and parameter starts are on the grid, so the
 * padding after a parameter is stored with its last element. */
static void cut_into_pieces(fill_job *job, int32_t parameter) {
    const weft_parameter *p = &job->region->declared->parameters[parameter];
    const int64_t grid = job->region->layout->grid;
    int64_t begin = 0, end = p->numel, at = 0;
    if (job->region->hold != NULL && !weft_hold_find(job->region->hold, p, 0, p->numel, &begin, &end, &at)) return;
    for (int64_t first = begin; first < end; first += job->size) {
        const int64_t n = weft_smaller(job->size, end - first);
        const int64_t padding = first + n == p->numel ? weft_round_up(p->numel, grid) - p->numel : 0;
        job->pieces[job->n++] = (piece){parameter, first, n, padding};
    }
}

static void clear_padding(char *at, const piece *p, int32_t dtype) {
    const int64_t used = weft_dtype_span(dtype, p->n);
    memset(at + used, 0, (size_t)(weft_dtype_span(dtype, p->n + p->padding) - used));
}

void weft_first_failure_keep(weft_first_failure *self, weft_status status, const weft_error *err) {
    if (status == WEFT_OK || atomic_exchange(&self->is_set, true)) return;
    self->status = status;
    if (self->err != NULL) *self->err = *err;
}

static void fill_visible(int64_t i, void *context) {
    fill_job *job = context;
    const piece *p = &job->pieces[i];
    const int32_t dtype = weft_region_dtype(job->region, p->parameter);
    char *view = view_of_element(job->region, p->parameter, p->first);
    weft_error err = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (atomic_load(&job->failure.is_set)) return;
    status = job->source(job->context, p->parameter, p->first, p->n, dtype, view, &err);
    clear_padding(view, p, dtype);
    if (status == WEFT_OK && job->region->filled != NULL)
        job->region->filled(job->region->context, p->parameter, p->first, p->n, view);
    weft_first_failure_keep(&job->failure, status, &err);
}

/* One chunk in host memory, filled by several threads. */
typedef struct staged {
    fill_job *job;
    const piece *piece;
    int32_t dtype;
    char *staging;
} staged;

static void fill_staged(int64_t i, void *context) {
    const staged *self = context;
    const int64_t at = i * THREAD_PIECE;
    weft_error err = WEFT_ERROR_INIT;
    if (atomic_load(&self->job->failure.is_set)) return;
    weft_first_failure_keep(&self->job->failure,
                            self->job->source(self->job->context, self->piece->parameter, self->piece->first + at,
                                              weft_smaller(THREAD_PIECE, self->piece->n - at), self->dtype,
                                              self->staging + weft_dtype_span(self->dtype, at), &err),
                            &err);
}

/* Fills each chunk while the previous one is transferred. */
static weft_status fill_through_staging(fill_job *job) {
    const weft_region *self = job->region;
    weft_double_buffer double_buffer;
    weft_status closed = WEFT_OK;
    weft_status status = weft_double_buffer_open(&double_buffer, self->kernels, self->device,
                                                 weft_f32_bytes(WEFT_REGION_PIECE + self->layout->grid),
                                                 job->failure.err);
    if (status != WEFT_OK) return weft_error_prefix(job->failure.err, "memory for the transfer of weights: ");
    for (int64_t i = 0; i < job->n && status == WEFT_OK; i++) {
        const piece *p = &job->pieces[i];
        const int32_t dtype = weft_region_dtype(self, p->parameter);
        const char *name = self->declared->parameters[p->parameter].name;
        void *staging = NULL;
        status = weft_double_buffer_take(&double_buffer, 1, &staging, job->failure.err);
        if (status != WEFT_OK) {
            (void)weft_error_prefix(job->failure.err, "transfer of the weights before %s: ", name);
            break;
        }
        weft_services()->parallel_for(weft_services(), (p->n + THREAD_PIECE - 1) / THREAD_PIECE, fill_staged,
                                      &(staged){job, p, dtype, staging});
        status = job->failure.status;
        if (status != WEFT_OK) break;
        clear_padding(staging, p, dtype);
        if (self->filled != NULL) self->filled(self->context, p->parameter, p->first, p->n, staging);
        status = weft_double_buffer_send(&double_buffer, ref_of_element(self, p->parameter, p->first),
                                         weft_dtype_span(dtype, p->n + p->padding), job->failure.err);
        if (status != WEFT_OK) (void)weft_error_prefix(job->failure.err, "%s: ", name);
    }
    closed = weft_double_buffer_close(&double_buffer, status == WEFT_OK ? job->failure.err : NULL);
    if (status != WEFT_OK || closed == WEFT_OK) return status;
    return weft_error_prefix(job->failure.err, "transfer of the last weights: ");
}

weft_status weft_region_fill(const weft_region *self, const int32_t *parameters, int32_t n, weft_region_source *source,
                             void *context, weft_error *err) {
    const bool visible = weft_device_view(self->kernels, self->device, self->ref) != NULL;
    fill_job job = {.region = self, .source = source, .context = context, .failure = {.err = err}};
    size_t pieces = 0;
    job.size = visible ? THREAD_PIECE : WEFT_REGION_PIECE;
    for (int32_t i = 0; i < n; i++) pieces += (size_t)(self->declared->parameters[parameters[i]].numel / job.size + 1);
    job.pieces = weft_alloc(pieces, sizeof *job.pieces);
    for (int32_t i = 0; i < n; i++) cut_into_pieces(&job, parameters[i]);
    if (visible) weft_services()->parallel_for(weft_services(), job.n, fill_visible, &job);
    else job.failure.status = fill_through_staging(&job);
    free(job.pieces);
    return job.failure.status;
}

/* Adds the parameter's name to the error. */
static weft_status of_parameter(const weft_region *self, int32_t parameter, weft_error *err) {
    return weft_error_prefix(err, "%s: ", self->declared->parameters[parameter].name);
}

/* Does weft_region_read for elements that this rank stores. */
static weft_status read_kept(const weft_region *self, int32_t parameter, int64_t first, int64_t n, void *staging,
                             const void **out, weft_error *err) {
    const void *view = view_of_element(self, parameter, first);
    weft_status status = WEFT_OK;
    if (view == NULL)
        WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, staging,
                         ref_of_element(self, parameter, first),
                         weft_dtype_span(weft_region_dtype(self, parameter), n));
    if (status != WEFT_OK) return of_parameter(self, parameter, err);
    *out = view == NULL ? staging : view;
    return WEFT_OK;
}

weft_status weft_region_query(const weft_region *self, weft_double_buffer *double_buffer, int32_t parameter,
                              int64_t first, int64_t n, weft_error *err) {
    weft_status status = WEFT_OK;
    if (view_of_element(self, parameter, first) != NULL) return WEFT_OK;
    status = weft_double_buffer_fetch(double_buffer, ref_of_element(self, parameter, first),
                                      weft_dtype_span(weft_region_dtype(self, parameter), n), err);
    return status == WEFT_OK ? WEFT_OK : of_parameter(self, parameter, err);
}

weft_status weft_region_take(const weft_region *self, weft_double_buffer *double_buffer, int ago, int32_t parameter,
                             int64_t first, const void **out, weft_error *err) {
    void *values = view_of_element(self, parameter, first);
    weft_status status = WEFT_OK;
    if (values == NULL) status = weft_double_buffer_take(double_buffer, ago, &values, err);
    *out = values;
    return status == WEFT_OK ? WEFT_OK : of_parameter(self, parameter, err);
}

weft_status weft_region_read(const weft_region *self, int32_t parameter, int64_t first, int64_t n, void *staging,
                             const void **out, weft_error *err) {
    const int32_t dtype = weft_region_dtype(self, parameter);
    weft_status status = WEFT_OK;
    if (self->hold == NULL || !self->apart[self->declared->parameters[parameter].group])
        return read_kept(self, parameter, first, n, staging, out, err);
    *out = staging;
    for (int64_t at = 0, some = 0; at < n && status == WEFT_OK; at += some) {
        char *to = (char *)staging + weft_dtype_span(dtype, at);
        const void *kept = to;
        int64_t end = 0, bytes = 0;
        const int32_t giver = weft_region_written_by(self, parameter, first + at, &end);
        some = weft_smaller(end - (first + at), n - at);
        bytes = weft_dtype_span(dtype, some);
        if (giver == self->peers->rank) status = read_kept(self, parameter, first + at, some, to, &kept, err);
        if (status == WEFT_OK && kept != to) memcpy(to, kept, (size_t)bytes);
        if (status == WEFT_OK) status = self->peers->share(self->peers->context, to, bytes, giver, err);
    }
    return status;
}

int32_t weft_region_written_by(const weft_region *self, int32_t parameter, int64_t first, int64_t *end) {
    if (!weft_process_group_is_single(self->peers)) return self->writer(self->context, parameter, first, end);
    *end = self->declared->parameters[parameter].numel;
    return 0;
}
