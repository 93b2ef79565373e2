/* host/ranks/post.c: see post.h. */
#include "ranks/post.h"

#include "base/sizes.h"
#include "launch/pulse.h"
#include "plugin/enter.h"
#include "ranks/connect.h"

#include <stdlib.h>

enum { ALIGNMENT = 64, LEAST = 1 << 16 };

static weft_status reserve_bytes(weft_post *self, int64_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    if (bytes <= self->bytes) return WEFT_OK;
    if (self->buffer != NULL) WEFT_PLUGIN_TELL(self->kernels, release, self->device, self->buffer);
    self->buffer = NULL;
    self->bytes = 0;
    if (bytes < LEAST) bytes = LEAST;
    WEFT_PLUGIN_CALL(status, self->kernels, alloc, err, self->device, &self->buffer, bytes);
    if (status == WEFT_OK) self->bytes = bytes;
    return status;
}

weft_status weft_post_room(weft_post *self, weft_buffer **out, int64_t bytes, weft_error *err) {
    const weft_status status = reserve_bytes(self, bytes, err);
    if (status == WEFT_OK) *out = self->buffer;
    return status;
}

static weft_ref ref_at_offset(const weft_post *self, int64_t offset) {
    const weft_ref ref = {.buffer = self->buffer, .offset = offset};
    return ref;
}

static weft_status write_bytes(const weft_post *self, int64_t offset, const void *bytes, int64_t n, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, write, err, self->device, NULL, ref_at_offset(self, offset), bytes, n);
    return status;
}

/* Of an exchange: where the device waits for it, this waits for other ranks. */
static weft_status read_bytes(const weft_post *self, void *bytes, int64_t offset, int64_t n, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_pulse_wait();
    WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, bytes, ref_at_offset(self, offset), n);
    weft_pulse_go();
    return status;
}

static weft_transfer make_transfer(const weft_post *self, int64_t to, int64_t from, int64_t n, int32_t peer) {
    const weft_transfer transfer = {.group = self->ranks->everyone,
                                    .to = ref_at_offset(self, to),
                                    .from = ref_at_offset(self, from),
                                    .n = n,
                                    .dtype = WEFT_U8,
                                    .peer = peer};
    return transfer;
}

static weft_status note_failure(weft_post *self, weft_status status) {
    self->broken = self->broken || status != WEFT_OK;
    return status;
}

/* Behind an exchange that has failed here none is begun: the others may wait in the one before for ever. */
static weft_status judge_whole(const weft_post *self, weft_error *err) {
    if (!self->broken && !self->ranks->platform->broken) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PEER, "an exchange of this rank has failed before: it tells the others nothing");
}

static weft_status gather_numbers(void *context, int32_t *out, int32_t mine, weft_error *err) {
    weft_post *self = context;
    const int64_t n = (int64_t)sizeof mine;
    const weft_ranks *ranks = self->ranks;
    weft_transfer transfer;
    weft_status status = judge_whole(self, err);
    if (status == WEFT_OK) status = reserve_bytes(self, ALIGNMENT + n * ranks->world, err);
    if (status == WEFT_OK) status = write_bytes(self, 0, &mine, n, err);
    if (status != WEFT_OK) return note_failure(self, status);
    transfer = make_transfer(self, ALIGNMENT, 0, n, 0);
    status = weft_ranks_exchange(ranks, ranks->plugin->all_gather, "all_gather", &transfer, err);
    if (status == WEFT_OK) status = read_bytes(self, out, ALIGNMENT, n * ranks->world, err);
    return note_failure(self, status);
}

static weft_status share_bytes(void *context, void *bytes, int64_t n, int32_t from, weft_error *err) {
    weft_post *self = context;
    const weft_ranks *ranks = self->ranks;
    weft_transfer transfer;
    weft_status status = judge_whole(self, err);
    if (status == WEFT_OK) status = reserve_bytes(self, n, err);
    if (status == WEFT_OK && ranks->rank == from) status = write_bytes(self, 0, bytes, n, err);
    if (status != WEFT_OK) return note_failure(self, status);
    transfer = make_transfer(self, 0, 0, n, from);
    status = weft_ranks_exchange(ranks, ranks->plugin->broadcast, "broadcast", &transfer, err);
    if (status == WEFT_OK) status = read_bytes(self, bytes, 0, n, err);
    return note_failure(self, status);
}

/* ---- swapping ---- */

static int64_t parcels_end(const weft_parcel *parcels, int32_t n, int64_t offset) {
    for (int32_t r = 0; r < n; r++) offset += weft_cache_lines(parcels[r].n);
    return offset;
}

/* Starts what comes, then what goes: nothing is promised to be buffered. */
static weft_status start_parcels(weft_post *self, const weft_parcel *in, const weft_parcel *out, weft_error *err) {
    const weft_ranks *ranks = self->ranks;
    weft_status status = WEFT_OK;
    int64_t offset = 0;
    for (int32_t r = 0; r < ranks->world && status == WEFT_OK; offset += weft_cache_lines(in[r].n), r++) {
        const weft_transfer transfer = make_transfer(self, offset, offset, in[r].n, r);
        if (in[r].n > 0)
            status = weft_ranks_start(ranks, &self->handles[r], ranks->plugin->recv, "recv", &transfer, err);
    }
    for (int32_t r = 0; r < ranks->world && status == WEFT_OK; offset += weft_cache_lines(out[r].n), r++) {
        const weft_transfer transfer = make_transfer(self, offset, offset, out[r].n, r);
        if (out[r].n == 0) continue;
        status = write_bytes(self, offset, out[r].bytes, out[r].n, err);
        if (status == WEFT_OK)
            status =
                weft_ranks_start(ranks, &self->handles[ranks->world + r], ranks->plugin->send, "send", &transfer, err);
    }
    return status;
}

/* A parcel is there on both sides. */
static weft_status connect_parcels(const weft_post *self, const weft_parcel *in, const weft_parcel *out,
                                   weft_error *err) {
    weft_lanes *lanes = NULL;
    weft_status status = WEFT_OK;
    if (!weft_ranks_need_connecting(self->ranks)) return WEFT_OK;
    lanes = calloc((size_t)self->ranks->world, sizeof *lanes);
    if (lanes == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a list of %d ranks", (int)self->ranks->world);
    for (int32_t r = 0; r < self->ranks->world; r++) {
        lanes[r].sends[0] = out[r].n > 0;
        lanes[r].takes[0] = in[r].n > 0;
    }
    status = weft_ranks_connect(self->ranks, lanes, err);
    free(lanes);
    return status;
}

static weft_status swap_parcels(void *context, const weft_parcel *in, const weft_parcel *out, weft_error *err) {
    weft_post *self = context;
    const int32_t world = self->ranks->world;
    int64_t offset = 0;
    weft_status status = judge_whole(self, err);
    if (status == WEFT_OK) status = reserve_bytes(self, parcels_end(out, world, parcels_end(in, world, 0)), err);
    if (status == WEFT_OK) status = connect_parcels(self, in, out, err);
    if (status == WEFT_OK) status = start_parcels(self, in, out, err);
    for (int32_t i = 0; i < 2 * world && status == WEFT_OK; i++)
        status = weft_ranks_join(self->ranks, &self->handles[i], NULL, err);
    for (int32_t r = 0; r < world && status == WEFT_OK; offset += weft_cache_lines(in[r].n), r++)
        if (in[r].n > 0) status = read_bytes(self, in[r].bytes, offset, in[r].n, err);
    return note_failure(self, status);
}

weft_status weft_post_open(weft_post *post, weft_peers *out, const weft_ranks *ranks, const weft_device_plugin *kernels,
                           weft_device *device, weft_error *err) {
    const weft_peers peers = {.rank = ranks->rank,
                              .world = ranks->comm == NULL ? 1 : ranks->world, /* planned ranks say nothing */
                              .codes = calloc((size_t)ranks->world, sizeof *peers.codes),
                              .context = post,
                              .gather = gather_numbers,
                              .share = share_bytes,
                              .swap = swap_parcels};
    post->ranks = ranks;
    post->kernels = kernels;
    post->device = device;
    post->broken = false;
    post->handles = calloc(2 * (size_t)ranks->world, sizeof(weft_comm_handle *));
    *out = peers;
    if (peers.codes == NULL || post->handles == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for what %d ranks say", (int)ranks->world);
    return ranks->comm == NULL || ranks->world == 1 ? WEFT_OK : reserve_bytes(post, LEAST, err); /* no step takes it */
}

void weft_post_close(weft_post *post, weft_peers *peers) {
    if (post->buffer != NULL) WEFT_PLUGIN_TELL(post->kernels, release, post->device, post->buffer);
    post->buffer = NULL;
    free(post->handles);
    post->handles = NULL;
    free(peers->codes);
    peers->codes = NULL;
}
