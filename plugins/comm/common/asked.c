/* common/asked.c: see asked.h. */
#include "asked.h"

const asked_kind asked_all_gather = {"all_gather", ASKED_ONE, ASKED_ALL, 0, 0, 0};
const asked_kind asked_all_to_all = {"all_to_all", ASKED_ALL, ASKED_ALL, 0, 0, 0};
const asked_kind asked_reduce_scatter = {"reduce_scatter", ASKED_ALL, ASKED_ONE, 1, 0, 0};
const asked_kind asked_all_reduce = {"all_reduce", ASKED_ONE, ASKED_ONE, 1, 0, 0};
const asked_kind asked_broadcast = {"broadcast", ASKED_NONE, ASKED_ONE, 0, 1, 0};
const asked_kind asked_send = {"send", ASKED_ONE, ASKED_NONE, 0, 0, 1};
const asked_kind asked_recv = {"recv", ASKED_NONE, ASKED_ONE, 0, 0, 1};

static weft_status judge_struct(const weft_exchange *what, const char *name, weft_error *err) {
    if (!WEFT_WHOLE(what, weft_exchange)) {
        return weft_error_set(err, WEFT_E_HOST, "%s was started with struct_size %u; at least %u is needed.", name,
                              (unsigned)what->struct_size, (unsigned)WEFT_SIZE_1_0(weft_exchange));
    }
    if (!weft_struct_known(what, sizeof *what)) {
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "%s sets fields beyond the %zu bytes that this communicator supports for an exchange.",
                              name, sizeof *what);
    }
    return WEFT_OK;
}

static weft_status judge_elements(const asked *self, const asked_kind *kind, weft_error *err) {
    if (self->n < 0 || self->size == 0 || self->n > INT64_MAX / 16 / self->group_size) {
        return weft_error_set(err, WEFT_E_HOST, "%s of %lld elements of type %d is not valid.", kind->name,
                              (long long)self->n, (int)self->dtype);
    }
    if (kind->is_sum && self->dtype != WEFT_F32 && self->dtype != WEFT_BF16 && self->dtype != WEFT_F16) {
        return weft_error_set(err, WEFT_E_HOST, "%s sums fp32, bf16 or fp16, and the call requests a sum of %s.",
                              kind->name, weft_dtype_name(self->dtype));
    }
    return WEFT_OK;
}

static weft_status judge_peer(const asked *self, int32_t lane, const asked_kind *kind, weft_error *err) {
    if ((kind->has_root || kind->is_pair) && (self->peer < 0 || self->peer >= self->group_size)) {
        return weft_error_set(err, WEFT_E_HOST, "%s names rank %d in a group of %d ranks.", kind->name, (int)self->peer,
                              (int)self->group_size);
    }
    if (kind->is_pair && self->peer == self->place) {
        return weft_error_set(err, WEFT_E_HOST, "%s names this rank, %d, as its peer.", kind->name, (int)self->peer);
    }
    if (kind->is_pair && (lane < 0 || lane >= WEFT_COMM_LANES)) {
        return weft_error_set(err, WEFT_E_HOST, "%s has the lane %d. Allowed: 0 to %d.", kind->name, (int)lane,
                              WEFT_COMM_LANES - 1);
    }
    if (kind->is_pair && (self->tag < 0 || self->tag > self->max_tag)) {
        return weft_error_set(err, WEFT_E_HOST, "%s has the tag %d. Allowed: 0 to %d.", kind->name, (int)self->tag,
                              (int)self->max_tag);
    }
    return WEFT_OK;
}

int64_t asked_bytes(const asked *self, int rows) {
    const int64_t row = self->n * self->size;
    return rows == ASKED_ALL ? self->group_size * row : rows == ASKED_ONE ? row : 0;
}

/* Fails if operands overlap, unless the smaller one is this rank's row of the larger one. */
static weft_status judge_operands(asked *self, const weft_exchange *what, const asked_kind *kind, weft_error *err) {
    const int64_t to = what->to.offset, from = what->from.offset, own = self->place * self->n * self->size;
    const int64_t to_bytes = asked_bytes(self, kind->to), from_bytes = asked_bytes(self, kind->from);
    const int64_t inside = kind->to == ASKED_ALL     ? to + own - from
                           : kind->from == ASKED_ALL ? from + own - to
                                                     : to - from;
    if ((to_bytes > 0 && what->to.buffer == NULL) || (from_bytes > 0 && what->from.buffer == NULL)) {
        return weft_error_set(err, WEFT_E_HOST, "%s was started without its operand `%s`.", kind->name,
                              to_bytes > 0 && what->to.buffer == NULL ? "to" : "from");
    }
    if (to_bytes == 0 || from_bytes == 0 || what->to.buffer != what->from.buffer) return WEFT_OK;
    self->in_place = inside == 0 && !(kind->to == ASKED_ALL && kind->from == ASKED_ALL);
    if (!self->in_place && to < from + from_bytes && from < to + to_bytes) {
        return weft_error_set(err, WEFT_E_HOST, "%s has operands that overlap without being in-place.", kind->name);
    }
    return WEFT_OK;
}

weft_status asked_judge(asked *out, const weft_exchange *what, const asked_kind *kind, weft_error *err) {
    weft_status status = judge_struct(what, kind->name, err);
    if (status != WEFT_OK) return status;
    out->n = what->n;
    out->size = weft_dtype_bytes(what->dtype);
    out->dtype = what->dtype;
    out->peer = what->peer;
    out->tag = what->tag;
    out->in_place = 0;
    status = judge_elements(out, kind, err);
    if (status == WEFT_OK) status = judge_peer(out, what->lane, kind, err);
    return status == WEFT_OK ? judge_operands(out, what, kind, err) : status;
}
