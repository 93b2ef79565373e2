/* host/run/meeting.c: see meeting.h. */
#include "run/meeting.h"

#include "run/guard.h"
#include "run/coherence.h"

/* Rows are brought to rank 0, so its ways are there before the device is asked what is left for the sessions. */
static weft_status connect_control_channel(weft_meeting *self, weft_error *err) {
    weft_process_context *process_context = self->process_context;
    weft_status status = weft_control_channel_connect(&self->post, err);
    if (status != WEFT_OK || self->ranks.world == 1) return status;
    status = weft_device_measure(&process_context->device_info, process_context->kernels, process_context->device, err);
    return weft_process_group_agree(&self->peers, status, err);
}

static weft_status meet(weft_meeting *self, weft_error *err) {
    weft_process_context *process_context = self->process_context;
    const weft_rank_span all = weft_process_context_rank_span(process_context);
    weft_status status = WEFT_OK;
    weft_ranks_take(&self->ranks, &all);
    status = weft_control_channel_open(&self->post, &self->peers, &self->ranks, process_context->kernels,
                                       process_context->device, err);
    if (status == WEFT_OK && process_context->comm != NULL)
        status = weft_guard_arrange(&self->peers, &process_context->comm_info, err);
    self->failed = status != WEFT_OK;
    if (status == WEFT_OK)
        status = weft_coherence_run(&self->peers, self->run, &process_context->device_info, status, err);
    if (status != WEFT_OK) return status;
    status = connect_control_channel(self, err);
    self->failed = status != WEFT_OK;
    return status;
}

weft_status weft_meeting_open(weft_meeting *out, const char *path, const char *const *overrides, size_t n_overrides,
                              weft_error *err) {
    weft_status status = weft_run_open(&out->run, path, overrides, n_overrides, WEFT_NEEDS_ALL, err);
    if (status == WEFT_OK) status = weft_process_context_open(&out->process_context, out->run, err);
    return status == WEFT_OK ? meet(out, err) : status;
}

void weft_meeting_close(weft_meeting *self) {
    weft_control_channel_close(&self->post, &self->peers);
    weft_process_context_close(self->process_context, self->failed || self->post.broken);
    weft_run_close(self->run);
    memset(self, 0, sizeof *self);
}

/* Of which this rank may drop out alone. */
weft_status weft_meeting_share(weft_meeting *self, void *all, const void *mine, int64_t bytes, weft_error *err) {
    const weft_status status = weft_process_context_share(self->process_context, all, mine, bytes, err);
    self->failed = self->failed || status != WEFT_OK;
    return status;
}
