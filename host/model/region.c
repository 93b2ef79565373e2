/* region.c: see region.h. */
#include "model/region.h"

#include <stdlib.h>

#include "plugin/services.h"

static weft_ref place_of(const weft_region *self, int32_t parameter, int64_t first) {
    weft_ref ref = self->ref;
    const int64_t element = weft_layout_offset(self->layout, &self->declared->parameters[parameter]) + first;
    ref.offset += element * (int64_t)sizeof(float);
    return ref;
}

/* The device's memory as the host sees it; NULL: it does not. */
static float *view_of(const weft_region *self, int32_t parameter, int64_t first) {
    if (self->kernels->host_view == NULL) return NULL;
    return self->kernels->host_view(self->device, place_of(self, parameter, first));
}

typedef struct fill_job {
    weft_region_source *source;
    void *context;
    int32_t parameter;
    int64_t numel;
    float *view;
} fill_job;

static void fill_piece(int64_t i, void *context) {
    const fill_job *job = context;
    const int64_t first = i * WEFT_REGION_PIECE, left = job->numel - first;
    job->source(job->context, job->parameter, first, left < WEFT_REGION_PIECE ? left : WEFT_REGION_PIECE,
                job->view + first);
}

static weft_status fill_through_staging(const weft_region *self, const fill_job *job, weft_error *err) {
    weft_status status = WEFT_OK;
    float *staging = malloc(WEFT_REGION_PIECE * sizeof(float));
    if (staging == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a piece of the weights");
    for (int64_t first = 0; first < job->numel && status == WEFT_OK; first += WEFT_REGION_PIECE) {
        const int64_t left = job->numel - first, n = left < WEFT_REGION_PIECE ? left : WEFT_REGION_PIECE;
        job->source(job->context, job->parameter, first, n, staging);
        status = self->kernels->write(self->device, NULL, place_of(self, job->parameter, first), staging,
                                      n * (int64_t)sizeof(float), err);
    }
    free(staging);
    return status;
}

weft_status weft_region_fill(const weft_region *self, int32_t parameter, weft_region_source *source, void *context,
                             weft_error *err) {
    const int64_t numel = self->declared->parameters[parameter].numel, grid = self->layout->grid;
    const int64_t padding = (grid - numel % grid) % grid;
    const fill_job job = {source, context, parameter, numel, view_of(self, parameter, 0)};
    weft_status status = WEFT_OK;
    if (job.view == NULL)
        status = fill_through_staging(self, &job, err);
    else
        weft_services()->parallel_for(weft_services(), (numel + WEFT_REGION_PIECE - 1) / WEFT_REGION_PIECE, fill_piece,
                                      (void *)(uintptr_t)&job);
    if (status != WEFT_OK || padding == 0) return status;
    if (job.view != NULL)
        memset(job.view + numel, 0, (size_t)padding * sizeof(float));
    else
        status = self->kernels->fill(self->device, NULL, place_of(self, parameter, numel), 0, padding, err);
    return status;
}

weft_status weft_region_read(const weft_region *self, int32_t parameter, int64_t first, int64_t n, float *staging,
                             const float **out, weft_error *err) {
    const float *view = view_of(self, parameter, first);
    weft_status status = WEFT_OK;
    if (view == NULL)
        status = self->kernels->read(self->device, NULL, staging, place_of(self, parameter, first),
                                     n * (int64_t)sizeof(float), err);
    if (status == WEFT_OK) *out = view == NULL ? staging : view;
    return status;
}
