/* host/tools/common/meeting.c: see meeting.h. */
#include "tools/common/meeting.h"

#include "run/coherence.h"

weft_status weft_meeting_open(weft_meeting *out, const char *path, const char *const *overrides, size_t n_overrides,
                              weft_error *err) {
    weft_process_context *context = NULL;
    weft_rank_span all;
    weft_status status = weft_run_open(&out->run, path, overrides, n_overrides, WEFT_NEEDS_ALL, err);
    if (status == WEFT_OK) status = weft_process_context_open(&out->process_context, out->run, err);
    if (status != WEFT_OK) return status;
    context = out->process_context;
    all = weft_process_context_rank_span(context);
    weft_ranks_set(&out->ranks, &all);
    status = weft_control_channel_open(&out->channel, &out->peers, &out->ranks, err);
    if (status == WEFT_OK && context->comm != NULL)
        status = weft_watchdogs_start(&out->peers, &context->comm_info, err);
    out->failed = status != WEFT_OK;
    if (status == WEFT_OK) status = weft_coherence_run(&out->peers, out->run, &context->device_info, status, err);
    if (status != WEFT_OK) return status;
    /* rank 0 gathers rows: its channels are opened before the available memory is measured */
    status = weft_control_channel_connect(&out->channel, err);
    if (status == WEFT_OK && out->ranks.world > 1) {
        status = weft_device_measure(&context->device_info, context->kernels, context->device, err);
        status = weft_process_group_agree(&out->peers, status, err);
    }
    out->failed = status != WEFT_OK;
    return status;
}

void weft_meeting_close(weft_meeting *self) {
    weft_control_channel_close(&self->channel, &self->peers);
    weft_process_context_close(self->process_context, self->failed || self->channel.broken);
    weft_run_close(self->run);
    memset(self, 0, sizeof *self);
}

weft_status weft_meeting_share(weft_meeting *self, void *all, const void *mine, int64_t bytes, weft_error *err) {
    const weft_status status = weft_process_context_share(self->process_context, all, mine, bytes, err);
    self->failed = self->failed || status != WEFT_OK;
    return status;
}
