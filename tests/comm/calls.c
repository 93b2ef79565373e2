/* tests/comm/calls.c: send and recv, invalid calls, and the rounding of bf16 and fp16 sums. */
#include "ranks.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/services.h"

static weft_error err = WEFT_ERROR_INIT;

static weft_buffer *filled(ranks *r, int64_t n, float value) {
    weft_buffer *out = NULL;
    uint32_t bits;
    const size_t bytes = sizeof bits;
    memcpy(&bits, &value, bytes);
    must_be_ok(r->kernels->alloc(r->device, &out, n * 4, &err), err);
    must_be_ok(r->kernels->fill(r->device, NULL, (weft_ref){out, 0}, bits, n, &err), err);
    return out;
}

/* Checks that all n elements have the value. */
static void expect(ranks *r, weft_buffer *b, int64_t n, float value, int line) {
    float *got = malloc((size_t)n * 4);
    must(got != NULL);
    must_be_ok(r->kernels->read(r->device, NULL, got, (weft_ref){b, 0}, n * 4, &err), err);
    for (int64_t i = 0; i < n; i++) {
        if (got[i] != value) fail(line, "element %lld is %g and not %g", (long long)i, (double)got[i], (double)value);
    }
    free(got);
}

static weft_exchange pair(weft_buffer *to, weft_buffer *from, int64_t n, int32_t peer, int32_t tag) {
    weft_exchange what = {.struct_size = (uint32_t)sizeof what, .n = n, .dtype = WEFT_F32, .peer = peer, .tag = tag};
    what.to.buffer = to;
    what.from.buffer = from;
    return what;
}

#define MESSAGES 6
static const int64_t lengths[MESSAGES] = {3, 70001, 1, 262144, 17, 5};
static const int32_t tags[MESSAGES] = {4, 0, 32766, 9, 4, 4}; /* three have tag 4: they keep their order */

/* Connects each rank to the next one for sending and to the previous one for receiving. */
static void connect_ring(ranks *r) {
    const int32_t before = (r->rank + r->size - 1) % r->size;
    for (int32_t sender = 0; sender < r->size && r->table->connect != NULL; sender++) {
        if (sender == r->rank) must_be_ok(r->table->connect(r->comm, NULL, (r->rank + 1) % r->size, 0, 1, &err), err);
        if (sender == before) must_be_ok(r->table->connect(r->comm, NULL, before, 0, 0, &err), err);
    }
}

/* Each rank sends to the next one and receives from the previous one, in a mixed order of tags, and in order within a
 * tag; all in order for communicators without tags. */
void case_pairs(ranks *r) {
    static const int mixed[MESSAGES] = {3, 0, 2, 4, 1, 5}, straight[MESSAGES] = {0, 1, 2, 3, 4, 5};
    const int *const order = moves_itself(r) ? straight : mixed;
    const int32_t next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
    weft_comm_handle *sent[MESSAGES], *got[MESSAGES];
    weft_buffer *from[MESSAGES], *to[MESSAGES];
    if (r->size == 1) return;
    connect_ring(r);
    for (int i = 0; i < MESSAGES; i++) {
        from[i] = filled(r, lengths[i], (float)(100 * r->rank + i));
        to[i] = filled(r, lengths[i] + 1, -1);
    }
    for (int i = 0; i < MESSAGES; i++) {
        const weft_exchange what = pair(NULL, from[i], lengths[i], next, tags[i]);
        must_be_ok(r->table->send(r->comm, &sent[i], &what, &err), err);
    }
    for (int i = 0; i < MESSAGES; i++) {
        const weft_exchange what = pair(to[order[i]], NULL, lengths[order[i]], before, tags[order[i]]);
        must_be_ok(r->table->recv(r->comm, &got[order[i]], &what, &err), err);
    }
    /* the fourth message is the largest: a wait for any one progresses all */
    for (int i = MESSAGES - 1; i >= 0; i--)
        must_be_ok(r->table->wait(r->comm, r->rank % 2 ? sent[i] : got[i], &err), err);
    for (int i = MESSAGES - 1; i >= 0; i--)
        must_be_ok(r->table->wait(r->comm, r->rank % 2 ? got[i] : sent[i], &err), err);
    for (int i = 0; i < MESSAGES; i++) {
        expect(r, to[i], lengths[i], (float)(100 * before + i), __LINE__);
        r->kernels->release(r->device, to[i]);
        r->kernels->release(r->device, from[i]);
    }
}

/* --- invalid calls --- */

static void refused(ranks *r, weft_exchange_fn *call, const weft_exchange *what, const char *sentence, int line) {
    weft_comm_handle *handle = (weft_comm_handle *)(void *)r;
    const weft_status status = call(r->comm, &handle, what, &err);
    if (status != WEFT_E_HOST) fail(line, "status %d where \"%s\" is WEFT_E_HOST", (int)status, sentence);
    if (strstr(err.text, sentence) == NULL) fail(line, "\"%s\" does not say \"%s\"", err.text, sentence);
    if (handle != (weft_comm_handle *)(void *)r) fail(line, "the handle was touched");
}

static void group_refused(ranks *r, const int32_t *of, int32_t n, const char *sentence, int line) {
    weft_comm_group *group = NULL;
    const weft_status status = r->table->group(r->comm, &group, of, n, &err);
    if (status != WEFT_E_HOST || group != NULL) fail(line, "status %d", (int)status);
    if (strstr(err.text, sentence) == NULL) fail(line, "\"%s\" does not say \"%s\"", err.text, sentence);
}

static void wrong_groups(ranks *r) {
    const int32_t twice[] = {r->rank, r->rank}, outside[] = {r->rank, r->size}, below[] = {-1};
    const int32_t other[] = {(r->rank + 1) % r->size};
    group_refused(r, twice, 0, "a group of 0 ranks in a world of", __LINE__);
    group_refused(r, below, 1, "with rank -1 in it, which the world does not have", __LINE__);
    if (r->size == 1) return;
    group_refused(r, twice, 2, "in it twice", __LINE__);
    group_refused(r, outside, 2, "in it, which the world does not have", __LINE__);
    group_refused(r, other, 1, "requests a group that does not contain it", __LINE__);
}

static void wrong_places(ranks *r, weft_buffer *a, weft_buffer *b) {
    weft_exchange what = pair(a, b, 4, 0, 0);
    what.peer = r->size;
    refused(r, r->table->broadcast, &what, "broadcast names rank", __LINE__);
    what.peer = -1;
    refused(r, r->table->recv, &what, "recv names rank -1 in a group of", __LINE__);
    what.peer = r->rank;
    refused(r, r->table->send, &what, "send names this rank, ", __LINE__);
    if (r->size == 1) return;
    what.peer = (r->rank + 1) % r->size;
    what.tag = -1;
    refused(r, r->table->send, &what, "send has the tag -1. Allowed: 0 to", __LINE__);
}

static void wrong_operands(ranks *r, weft_buffer *a, weft_buffer *b) {
    weft_exchange what = pair(a, b, -4, 0, 0);
    refused(r, r->table->all_gather, &what, "all_gather of -4 elements of type 1 is not valid", __LINE__);
    what.n = 4;
    what.dtype = 99;
    refused(r, r->table->all_to_all, &what, "all_to_all of 4 elements of type 99", __LINE__);
    what.dtype = WEFT_I32;
    refused(r, r->table->all_reduce, &what, "all_reduce sums fp32, bf16 or fp16, and the call requests a sum of int32",
            __LINE__);
    refused(r, r->table->reduce_scatter, &what, "reduce_scatter sums fp32, bf16 or fp16", __LINE__);
    what.to.buffer = NULL;
    refused(r, r->table->all_gather, &what, "all_gather was started without its operand `to`", __LINE__);
    what = pair(a, NULL, 4, 0, 0);
    refused(r, r->table->all_gather, &what, "all_gather was started without its operand `from`", __LINE__);
    what = pair(a, a, 4, 0, 0);
    refused(r, r->table->all_to_all, &what, "all_to_all has operands that overlap", __LINE__);
    what.from.offset = 4;
    refused(r, r->table->all_reduce, &what, "all_reduce has operands that overlap", __LINE__);
    what.from.offset = 16 * ((r->rank + 1) % r->size);
    if (r->size > 1) refused(r, r->table->all_gather, &what, "all_gather has operands that overlap", __LINE__);
}

/* Structs of older and of later SDKs. */
static void wrong_structs(ranks *r, weft_buffer *a, weft_buffer *b) {
    struct {
        weft_exchange known;
        int64_t more;
    } what = {pair(a, b, 4, 0, 0), 1};
    weft_comm_handle *handle = NULL;
    what.known.struct_size = 16;
    refused(r, r->table->all_gather, &what.known, "was started with struct_size 16; at least ", __LINE__);
    what.known.struct_size = (uint32_t)sizeof what;
    must(r->table->broadcast(r->comm, &handle, &what.known, &err) == WEFT_E_UNSUPPORTED);
    must(strstr(err.text, "sets fields beyond the ") != NULL);
}

/* A second world: its groups, and calls before `attach`, must be rejected. */
static void wrong_world(ranks *r, weft_buffer *a, weft_buffer *b) {
    const weft_comm_job job = {(uint32_t)sizeof job, 0, r->size, 0};
    const int32_t me[] = {r->rank};
    weft_exchange what = pair(a, b, 4, 0, 0);
    ranks other = *r;
    must_be_ok(r->table->create(&other.comm, weft_services(), NULL, &job, &err), err);
    refused(&other, r->table->all_gather, &what, "all_gather was started before `attach`", __LINE__);
    must_be_ok(r->table->group(other.comm, &what.group, me, 1, &err), err);
    refused(r, r->table->all_gather, &what, "all_gather was started in a group of another communicator", __LINE__);
    refused(r, r->table->barrier, &what, "barrier was started in a group of another communicator", __LINE__);
    r->table->destroy(other.comm);
}

/* One message whose length differs from its receiver's, both shorter and longer. */
static void wrong_lengths(ranks *r, weft_buffer *a, weft_buffer *b) {
    weft_comm_handle *handle = NULL;
    const int64_t n[2] = {2, 6};
    for (int i = 0; i < 2 && r->rank < 2 && r->size > 1 && !moves_itself(r); i++) { /* NCCL does not check lengths */
        const weft_exchange what = pair(a, b, r->rank == 0 ? 4 : n[i], 1 - r->rank, 1);
        must_be_ok((r->rank == 0 ? r->table->send : r->table->recv)(r->comm, &handle, &what, &err), err);
        if (r->rank == 0) {
            must_be_ok(r->table->wait(r->comm, handle, &err), err);
            continue;
        }
        must(r->table->wait(r->comm, handle, &err) == WEFT_E_PEER);
        must(strstr(err.text, i == 0 ? "recv: MPI error: " : "recv: the peer sent 8 bytes less than") != NULL);
    }
}

/* The one-rank communicator has fewer rules, and its own messages. */
static void wrong_alone(ranks *r, weft_buffer *a, weft_buffer *b) {
    const int32_t two[] = {0, 1};
    weft_exchange what = pair(a, b, -4, 0, 0);
    group_refused(r, two, 2, "a group of 2 ranks in a world of rank 0 only", __LINE__);
    refused(r, r->table->all_gather, &what, "An exchange of -4 elements of type 1 is not valid", __LINE__);
    refused(r, r->table->send, &what, "The call has peer 0 in a group of 1", __LINE__);
    refused(r, r->table->recv, &what, "The call has peer 0 in a group of 1", __LINE__);
    what.n = 4;
    what.dtype = WEFT_I32;
    refused(r, r->table->all_reduce, &what, "Sums support fp32, bf16 or fp16, and the call requests int32", __LINE__);
    what.peer = 1;
    refused(r, r->table->broadcast, &what, "The call has root 1 in a group of 1", __LINE__);
    expect(r, a, 12, 1, __LINE__);
}

void case_wrong_calls(ranks *r) {
    weft_buffer *a = filled(r, 4 * r->size + 8, 1), *b = filled(r, 4 * r->size + 8, 2);
    weft_exchange what = pair(a, b, 4, 0, 0);
    weft_comm_handle *handle = NULL;
    wrong_structs(r, a, b);
    if (is_alone(r)) {
        wrong_alone(r, a, b);
        goto done;
    }
    wrong_groups(r);
    wrong_places(r, a, b);
    wrong_operands(r, a, b);
    if (!moves_itself(r)) wrong_world(r, a, b);
    expect(r, a, 4 * r->size + 8, 1, __LINE__);
    must_be_ok(r->table->all_gather(r->comm, &handle, &what, &err), err); /* the rejected calls sent nothing */
    must_be_ok(r->table->wait(r->comm, handle, &err), err);
    expect(r, a, 4 * r->size, 2, __LINE__);
    wrong_lengths(r, a, b);
done:
    r->kernels->release(r->device, a);
    r->kernels->release(r->device, b);
}

/* --- rounding --- */

/* Returns the nearest bf16 to an fp32 sum, ties to even; computed from its halves, unlike in the plugin. */
static uint16_t nearest(float sum) {
    uint32_t bits, down, rest;
    memcpy(&bits, &sum, sizeof bits);
    if (isnan(sum)) return 0x7fc0;
    down = bits >> 16;
    rest = bits & 0xffff;
    if (rest > 0x8000 || (rest == 0x8000 && down % 2 == 1)) down++;
    return (uint16_t)down;
}

static float wide(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Returns the nearest fp16, computed from the value: eleven bits, or steps of 2^-24 if larger. */
static float nearest_f16(float sum) {
    int exponent = 0;
    float step, near;
    if (!isfinite(sum)) return sum;
    (void)frexpf(sum, &exponent);
    step = ldexpf(1, exponent - 11 > -24 ? exponent - 11 : -24);
    near = rintf(sum / step) * step;
    return fabsf(near) > 65504 ? copysignf(INFINITY, sum) : near;
}

static float wide_f16(uint16_t x) {
    const int exponent = x >> 10 & 31, digits = x & 1023;
    float size = exponent > 0 ? ldexpf((float)(1024 + digits), exponent - 25) : ldexpf((float)digits, -24);
    if (exponent == 31) size = digits != 0 ? NAN : INFINITY;
    return x >> 15 != 0 ? -size : size;
}

#define PAIRS 65536

static void check_sum(int32_t dtype, uint16_t a, uint16_t b, uint16_t got) {
    const bool half = dtype == WEFT_F16;
    const float left = half ? wide_f16(a) : wide(a), right = half ? wide_f16(b) : wide(b), sum = left + right;
    const float found = half ? wide_f16(got) : wide(got), wanted = half ? nearest_f16(sum) : wide(nearest(sum));
    if (isnan(sum) ? !isnan(found) : memcmp(&found, &wanted, sizeof found) != 0)
        fail(__LINE__, "%g + %g in %s is %g and not %g", (double)left, (double)right, weft_dtype_name(dtype),
             (double)found, (double)wanted);
}

/* Every number, paired with another one, in a group of the first two ranks. */
static void round_sums(ranks *r, int32_t dtype) {
    static uint16_t mine[2][PAIRS], got[PAIRS];
    const int32_t two[] = {0, 1};
    weft_buffer *b = NULL;
    weft_exchange what = {.struct_size = (uint32_t)sizeof what, .n = PAIRS, .dtype = dtype};
    weft_comm_handle *handle = NULL;
    uint32_t i, odd = 12345;
    if (r->size < 2 || r->rank > 1) return;
    for (i = 0; i < PAIRS; i++) {
        odd = odd * 1664525 + 1013904223;
        mine[0][i] = (uint16_t)i;
        mine[1][i] = i % 2 == 0 ? (uint16_t)(odd >> 16) : (uint16_t)(i ^ (odd >> 29)); /* any number, and a close one */
    }
    must_be_ok(r->kernels->alloc(r->device, &b, PAIRS * 2, &err), err);
    must_be_ok(r->table->group(r->comm, &what.group, two, 2, &err), err);
    what.to.buffer = what.from.buffer = b;
    must_be_ok(r->kernels->write(r->device, NULL, what.to, mine[r->rank], PAIRS * 2, &err), err);
    must_be_ok(r->table->all_reduce(r->comm, &handle, &what, &err), err);
    must_be_ok(r->table->wait(r->comm, handle, &err), err);
    must_be_ok(r->kernels->read(r->device, NULL, got, what.to, PAIRS * 2, &err), err);
    for (i = 0; i < PAIRS; i++) check_sum(dtype, mine[0][i], mine[1][i], got[i]);
    r->kernels->release(r->device, b);
}

void case_rounding(ranks *r) {
    round_sums(r, WEFT_BF16);
    round_sums(r, WEFT_F16);
}
