/* host/run/control_channel.c: see control_channel.h. */
#include "run/control_channel.h"

#include "base/sizes.h"
#include "launch/heartbeat.h"
#include "plugin/enter.h"
#include "run/connect.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

static weft_status take_buffer(weft_control_channel *self, int64_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, alloc, err, self->device, &self->buffer, bytes);
    if (status == WEFT_OK) self->bytes = bytes;
    return status;
}

static weft_ref ref_at_offset(const weft_control_channel *self, int64_t offset) {
    const weft_ref ref = {.buffer = self->buffer, .offset = offset};
    return ref;
}

static weft_status write_bytes(const weft_control_channel *self, int64_t offset, const void *bytes, int64_t n,
                               weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, write, err, self->device, NULL, ref_at_offset(self, offset), bytes, n);
    return status;
}

/* Of an exchange: where the device waits for it, this waits for other ranks. */
static weft_status read_bytes(const weft_control_channel *self, void *bytes, int64_t offset, int64_t n,
                              weft_error *err) {
    weft_status status = WEFT_OK;
    weft_heartbeat_wait();
    WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, bytes, ref_at_offset(self, offset), n);
    weft_heartbeat_go();
    return status;
}

static weft_transfer make_transfer(const weft_control_channel *self, int64_t to, int64_t from, int64_t n,
                                   int32_t peer) {
    const weft_transfer transfer = {.group = self->ranks->everyone,
                                    .to = ref_at_offset(self, to),
                                    .from = ref_at_offset(self, from),
                                    .n = n,
                                    .dtype = WEFT_U8,
                                    .peer = peer};
    return transfer;
}

static weft_status note_failure(weft_control_channel *self, weft_status status, weft_error *err) {
    self->broken = self->broken || status != WEFT_OK;
    if (status == WEFT_OK || status == WEFT_E_PEER) return status;
    return weft_error_prefix(err, "what ranks tell one another: ");
}

/* Behind an exchange that has failed here none is begun: the others may wait in the one before for ever. */
static weft_status judge_whole(const weft_control_channel *self, weft_error *err) {
    if (!self->broken && !self->ranks->process_context->broken) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PEER, "an exchange of this rank has failed before: it tells the others nothing");
}

static weft_status gather_numbers(void *context, int32_t *out, int32_t mine, weft_error *err) {
    weft_control_channel *self = context;
    const int64_t n = (int64_t)sizeof mine;
    const weft_ranks *ranks = self->ranks;
    weft_transfer transfer;
    weft_status status = judge_whole(self, err);
    if (status == WEFT_OK) status = write_bytes(self, 0, &mine, n, err);
    if (status != WEFT_OK) return note_failure(self, status, err);
    transfer = make_transfer(self, ALIGNMENT, 0, n, 0);
    status = weft_ranks_exchange(ranks, ranks->plugin->all_gather, "all_gather", &transfer, err);
    if (status == WEFT_OK) status = read_bytes(self, out, ALIGNMENT, n * ranks->world, err);
    return note_failure(self, status, err);
}

static weft_status share_piece(weft_control_channel *self, void *bytes, int64_t n, int32_t from, weft_error *err) {
    const weft_ranks *ranks = self->ranks;
    const weft_transfer transfer = make_transfer(self, 0, 0, n, from);
    weft_status status = ranks->rank == from ? write_bytes(self, 0, bytes, n, err) : WEFT_OK;
    if (status != WEFT_OK) return status;
    status = weft_ranks_exchange(ranks, ranks->plugin->broadcast, "broadcast", &transfer, err);
    return status == WEFT_OK ? read_bytes(self, bytes, 0, n, err) : status;
}

static weft_status share_bytes(void *context, void *bytes, int64_t n, int32_t from, weft_error *err) {
    weft_control_channel *self = context;
    weft_status status = judge_whole(self, err);
    for (int64_t at = 0; at < n && status == WEFT_OK; at += self->bytes)
        status = share_piece(self, (char *)bytes + at, n - at < self->bytes ? n - at : self->bytes, from, err);
    return note_failure(self, status, err);
}

/* Of this rank's own: [world] each. */
typedef struct parcels {
    const weft_message_buffer *in, *out;
} parcels;

/* ---- swapping ----
 *
 * All messages of all ranks have one order: by sender, then by receiver, then by place in their parcel, which is cut
 * alike on both sides. Each rank goes through its own in that order, as many together as there is room for, and ends
 * those before it begins more. So the first message that has not ended has begun on both of its sides, whatever the
 * communicator keeps for itself, and all end. */

static weft_status end_message(weft_control_channel *self, const weft_control_message *letter,
                               weft_comm_handle **handle, weft_error *err) {
    const weft_status status = weft_ranks_join(self->ranks, handle, NULL, err);
    if (status != WEFT_OK || letter->to == NULL) return status;
    return read_bytes(self, letter->to, letter->offset, letter->n, err);
}

static weft_status end_letters(weft_control_channel *self, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n_letters && status == WEFT_OK; i++)
        status = end_message(self, &self->letters[i], &self->handles[i], err);
    self->n_letters = 0;
    self->filled = 0;
    return status;
}

/* Room for the next message, which is then the last of those that are under way. */
static weft_status add_letter(weft_control_channel *self, int64_t n, void *to, weft_error *err) {
    weft_control_message letter = {.n = n, .to = to};
    weft_status status = WEFT_OK;
    if (self->n_letters == 2 * self->ranks->world || self->filled + n > self->bytes) status = end_letters(self, err);
    letter.offset = self->filled;
    self->letters[self->n_letters++] = letter;
    self->filled += weft_cache_lines(n);
    return status;
}

static weft_status start_message(weft_control_channel *self, int32_t peer, bool sends, void *bytes, int64_t n,
                                 weft_error *err) {
    const weft_ranks *ranks = self->ranks;
    weft_transfer transfer;
    weft_comm_handle **handle = NULL;
    weft_status status = add_letter(self, n, sends ? NULL : bytes, err);
    const int64_t offset = self->letters[self->n_letters - 1].offset;
    transfer = make_transfer(self, offset, offset, n, peer);
    handle = &self->handles[self->n_letters - 1];
    if (status == WEFT_OK && sends) status = write_bytes(self, offset, bytes, n, err);
    if (status != WEFT_OK) return status;
    if (sends) return weft_ranks_start(ranks, handle, ranks->plugin->send, "send", &transfer, err);
    return weft_ranks_start(ranks, handle, ranks->plugin->recv, "recv", &transfer, err);
}

/* A quarter of the room: several are under way at once. */
static weft_status start_buffer(weft_control_channel *self, int32_t peer, bool sends, const weft_message_buffer *parcel,
                                weft_error *err) {
    const int64_t piece = self->bytes / 4;
    weft_status status = WEFT_OK;
    for (int64_t at = 0; at < parcel->n && status == WEFT_OK; at += piece)
        status = start_message(self, peer, sends, (char *)parcel->bytes + at,
                               parcel->n - at < piece ? parcel->n - at : piece, err);
    return status;
}

/* to_first: those to rank 0 alone. */
static weft_status go_through(weft_control_channel *self, const parcels *of, bool to_first, weft_error *err) {
    const weft_ranks *ranks = self->ranks;
    const int32_t world = ranks->world, receivers = to_first ? 1 : world;
    weft_status status = WEFT_OK;
    for (int32_t sender = 0; sender < world && status == WEFT_OK; sender++) {
        if (sender != ranks->rank && ranks->rank < receivers)
            status = start_buffer(self, sender, false, &of->in[sender], err);
        for (int32_t to = 0; sender == ranks->rank && to < receivers && status == WEFT_OK; to++)
            status = start_buffer(self, to, true, &of->out[to], err);
    }
    return status == WEFT_OK ? end_letters(self, err) : status;
}

/* ---- without ways of their own ----
 *
 * A communicator that has to be told of a way beforehand may take memory of the device for each, so there are those to
 * rank 0 alone, which are made before a run's room is judged. What goes to another rank is told to all, sender by
 * sender: how much each is to have, then the bytes. That is little: pages of a file that two ranks have a part in. */

static int64_t sum_sizes(const int32_t *sizes, int32_t n) {
    int64_t sum = 0;
    for (int32_t r = 0; r < n; r++) sum += sizes[r];
    return sum;
}

static weft_status note_sizes(int32_t *sizes, const weft_control_channel *self, const weft_message_buffer *out,
                              weft_error *err) {
    const weft_ranks *ranks = self->ranks;
    for (int32_t r = 0; r < ranks->world; r++) {
        if (out[r].n > INT32_MAX)
            return weft_error_set(err, WEFT_E_HOST, "rank %d tells rank %d more than 2 GiB at once", (int)ranks->rank,
                                  (int)r);
        sizes[r] = r == 0 || r == ranks->rank ? 0 : (int32_t)out[r].n;
    }
    return WEFT_OK;
}

/* Bytes of a sender, of which each rank takes its own. */
static weft_status spread_bytes(weft_control_channel *self, const parcels *of, int32_t sender, char *bytes,
                                weft_error *err) {
    const weft_ranks *ranks = self->ranks;
    const int64_t n = sum_sizes(self->sizes, ranks->world), at = sum_sizes(self->sizes, ranks->rank);
    const int64_t mine = self->sizes[ranks->rank];
    char *end = bytes;
    weft_status status = WEFT_OK;
    for (int32_t r = 0; sender == ranks->rank && r < ranks->world; r++) {
        if (self->sizes[r] > 0) memcpy(end, of->out[r].bytes, (size_t)self->sizes[r]);
        end += self->sizes[r];
    }
    status = share_bytes(self, bytes, n, sender, err);
    if (status != WEFT_OK || sender == ranks->rank || ranks->rank == 0) return status;
    if (mine != of->in[sender].n)
        return weft_error_set(err, WEFT_E_HOST, "rank %d has %lld bytes for rank %d, which awaits %lld", (int)sender,
                              (long long)mine, (int)ranks->rank, (long long)of->in[sender].n);
    if (mine > 0) memcpy(of->in[sender].bytes, bytes + at, (size_t)mine);
    return WEFT_OK;
}

static weft_status spread_from(weft_control_channel *self, const parcels *of, int32_t sender, weft_error *err) {
    const weft_ranks *ranks = self->ranks;
    const int64_t table = ranks->world * (int64_t)sizeof *self->sizes;
    char *bytes = NULL;
    weft_status status = sender == ranks->rank ? note_sizes(self->sizes, self, of->out, err) : WEFT_OK;
    if (status == WEFT_OK) status = share_bytes(self, self->sizes, table, sender, err);
    if (status != WEFT_OK) return status;
    bytes = malloc((size_t)sum_sizes(self->sizes, ranks->world));
    if (bytes == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what rank %d tells", (int)sender);
    status = spread_bytes(self, of, sender, bytes, err);
    free(bytes);
    return status;
}

static weft_status spread_parcels(weft_control_channel *self, const parcels *of, weft_error *err) {
    const weft_ranks *ranks = self->ranks;
    int32_t some = 0;
    weft_status status = WEFT_OK;
    for (int32_t r = 1; r < ranks->world; r++) some |= r != ranks->rank && of->out[r].n > 0;
    status = gather_numbers(self, self->senders, some, err);
    for (int32_t sender = 0; sender < ranks->world && status == WEFT_OK; sender++)
        if (self->senders[sender] != 0) status = spread_from(self, of, sender, err);
    return status;
}

/* Both sides of a way know of it. */
weft_status weft_control_channel_connect(const weft_control_channel *post, weft_error *err) {
    const weft_ranks *ranks = post->ranks;
    weft_p2p_channels *lanes = NULL;
    weft_status status = WEFT_OK;
    if (!weft_ranks_need_connecting(ranks)) return WEFT_OK;
    lanes = calloc((size_t)ranks->world, sizeof *lanes);
    if (lanes == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a list of %d ranks", (int)ranks->world);
    lanes[0].sends[0] = ranks->rank != 0;
    for (int32_t r = 1; r < ranks->world; r++) lanes[r].takes[0] = ranks->rank == 0;
    status = weft_ranks_connect(ranks, lanes, err);
    free(lanes);
    return status;
}

static weft_status swap_parcels(void *context, const weft_message_buffer *in, const weft_message_buffer *out,
                                weft_error *err) {
    weft_control_channel *self = context;
    const parcels of = {in, out};
    const bool to_first = weft_ranks_need_connecting(self->ranks);
    weft_status status = judge_whole(self, err);
    if (status == WEFT_OK) status = go_through(self, &of, to_first, err);
    if (status == WEFT_OK && to_first) status = spread_parcels(self, &of, err);
    return note_failure(self, status, err);
}

weft_status weft_control_channel_open(weft_control_channel *post, weft_process_group *out, const weft_ranks *ranks,
                                      const weft_device_plugin *kernels, weft_device *device, weft_error *err) {
    const weft_process_group peers = {.rank = ranks->rank,
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
    post->letters = calloc(2 * (size_t)ranks->world, sizeof *post->letters);
    post->senders = calloc((size_t)ranks->world, sizeof *post->senders);
    post->sizes = calloc((size_t)ranks->world, sizeof *post->sizes);
    *out = peers;
    if (peers.codes == NULL || post->handles == NULL || post->letters == NULL || post->senders == NULL ||
        post->sizes == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for what %d ranks say", (int)ranks->world);
    if (ranks->comm == NULL || ranks->world == 1) return WEFT_OK;
    return take_buffer(post, weft_process_group_scratch(ranks->world), err);
}

void weft_control_channel_close(weft_control_channel *post, weft_process_group *peers) {
    if (post->buffer != NULL) WEFT_PLUGIN_TELL(post->kernels, release, post->device, post->buffer);
    post->buffer = NULL;
    free(post->handles);
    free(post->letters);
    free(post->senders);
    free(post->sizes);
    post->handles = NULL;
    post->letters = NULL;
    post->senders = NULL;
    post->sizes = NULL;
    free(peers->codes);
    peers->codes = NULL;
}
