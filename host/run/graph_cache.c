/* host/run/graph_cache.c: see graph_cache.h. */
#include "run/graph_cache.h"

#include "plugin/enter.h"

#include <stdlib.h>

static void forget(const weft_graph_cache *self, weft_graph_cache_entry *kept) {
    const weft_graph_cache_entry none = {0};
    if (kept->made != NULL) {
        const weft_doing before = weft_plugin_enter(self->kernels, "destroy of a recording");
        self->capture->destroy(self->device, kept->made);
        (void)weft_plugin_leave(before, WEFT_OK, NULL);
    }
    free(kept->sent.to);
    free(kept->lengths);
    *kept = none;
}

weft_status weft_graph_cache_open(weft_graph_cache *self, int32_t world, weft_error *err) {
    const size_t slices = (size_t)self->mode_plan->slices->n;
    self->world = world;
    self->kept = calloc(slices * WEFT_GRAPH_CACHE_ENTRIES, sizeof *self->kept);
    self->now = calloc(slices, sizeof(weft_graph_cache_entry *));
    if (self->kept != NULL && self->now != NULL) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for recordings of steps");
}

void weft_graph_cache_close(weft_graph_cache *self) {
    for (int32_t i = 0; self->kept != NULL && i < self->mode_plan->slices->n * WEFT_GRAPH_CACHE_ENTRIES; i++)
        forget(self, &self->kept[i]);
    free(self->kept);
    free(self->now);
}

/* A slice of a pass, as it comes. */
typedef struct coming {
    const int32_t *micro_batches; /* [n] */
    int32_t n;
    const int32_t *lengths; /* of all micro-batches */
    double clip;
} coming;

static coming slice_of(const weft_stepper *stepper, int32_t k) {
    const weft_slices *slices = stepper->mode_plan->slices;
    coming out = {.micro_batches = slices->micro_batches + slices->at[k],
                  .n = slices->at[k + 1] - slices->at[k],
                  .lengths = stepper->micro_batch_lengths};
    if (stepper->step > 0 && k == slices->n - 1) out.clip = stepper->clip;
    return out;
}

static bool is_the_same(const weft_graph_cache_entry *kept, const coming *slice) {
    if (kept->lengths == NULL || memcmp(&kept->clip, &slice->clip, sizeof kept->clip) != 0) return false;
    for (int32_t i = 0; i < slice->n; i++)
        if (kept->lengths[i] != slice->lengths[slice->micro_batches[i]]) return false;
    return true;
}

static weft_graph_cache_entry *find(weft_graph_cache_entry *kept, const coming *slice) {
    for (int i = 0; i < WEFT_GRAPH_CACHE_ENTRIES; i++)
        if (is_the_same(&kept[i], slice)) return &kept[i];
    return NULL;
}

static weft_graph_cache_entry *longest_gone(weft_graph_cache_entry *kept) {
    weft_graph_cache_entry *out = &kept[0];
    for (int i = 1; i < WEFT_GRAPH_CACHE_ENTRIES; i++)
        if (kept[i].came < out->came) out = &kept[i];
    return out;
}

static weft_status keep(const weft_graph_cache *self, weft_graph_cache_entry *kept, const coming *slice,
                        weft_error *err) {
    forget(self, kept);
    kept->lengths = malloc(((size_t)slice->n + 1) * sizeof *kept->lengths);
    kept->sent.to = calloc((size_t)self->world, sizeof *kept->sent.to);
    if (kept->lengths == NULL || kept->sent.to == NULL) {
        forget(self, kept);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the micro-batch lengths of a step");
    }
    for (int32_t i = 0; i < slice->n; i++) kept->lengths[i] = slice->lengths[slice->micro_batches[i]];
    kept->clip = slice->clip;
    return WEFT_OK;
}

weft_status weft_graph_cache_find(weft_graph_cache *self, weft_graph_cache_result *out, const weft_stepper *stepper,
                                  weft_error *err) {
    weft_status status = WEFT_OK;
    *out = (weft_graph_cache_result){true, false};
    self->passes++;
    for (int32_t k = 0; k < self->mode_plan->slices->n && status == WEFT_OK; k++) {
        const coming slice = slice_of(stepper, k);
        weft_graph_cache_entry *all = &self->kept[(size_t)k * WEFT_GRAPH_CACHE_ENTRIES], *kept = find(all, &slice);
        if (kept == NULL) {
            kept = longest_gone(all);
            out->is_known = false;
            out->in_vain = out->in_vain || (kept->lengths != NULL && kept->made == NULL);
            status = keep(self, kept, &slice, err);
        }
        kept->came = self->passes;
        self->now[k] = kept;
    }
    return status;
}
