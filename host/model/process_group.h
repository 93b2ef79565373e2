/* host/model/process_group.h: the process group of a model, for modules that do not depend on a communicator.
 *
 * Ranks write, read and check files together, and a failure on one rank must end all of them: each such operation ends
 * with `return weft_process_group_agree(peers, status, err)`, which returns the first failure on every rank. */
#ifndef WEFT_HOST_MODEL_PROCESS_GROUP_H
#define WEFT_HOST_MODEL_PROCESS_GROUP_H

#include <stdbool.h>
#include <weft/base.h>

typedef struct weft_message_buffer {
    void *bytes;
    int64_t n; /* 0: empty */
} weft_message_buffer;

/* A NULL group is a single rank. */
typedef struct weft_process_group {
    int32_t rank, world;
    int32_t *codes; /* [world] buffer for agree */
    void *context;
    /* All are [collective]. A failure of the functions themselves is a failure of the communicator: other ranks may be
     * unreachable. */
    weft_status (*gather)(void *context, int32_t *out, int32_t mine, weft_error *err); /* out [world] */
    /* Broadcasts bytes of rank `from`. */
    weft_status (*share)(void *context, void *bytes, int64_t n, int32_t from, weft_error *err);
    /* All-to-all: out[r] is sent to rank r, in[r] is received from it: [world] each. Both sides know the sizes. */
    weft_status (*swap)(void *context, const weft_message_buffer *in, const weft_message_buffer *out, weft_error *err);
} weft_process_group;

/* Returns the bytes of device memory for the staging buffer of all these functions: a line of the plan; 0 for one rank.
 * Larger messages are chunked. */
int64_t weft_process_group_scratch(int32_t world);

static inline bool weft_process_group_is_single(const weft_process_group *self) {
    return self == NULL || self->world == 1;
}

/* True on the rank that performs work that is done once per group. True for a single rank. */
static inline bool weft_process_group_is_rank_0(const weft_process_group *self) {
    return self == NULL || self->rank == 0;
}

/* Returns the status of the lowest failed rank on all ranks; WEFT_E_STOPPED yields to any other failure. Only rank 0
 * gets the message, with the rank's number if it is another rank's. On the other ranks err contains WEFT_E_PEER without
 * a message, so that they report no error. [collective] */
weft_status weft_process_group_agree(const weft_process_group *self, weft_status status, weft_error *err);

/* Broadcasts bytes of rank 0. [collective] */
weft_status weft_process_group_broadcast(const weft_process_group *self, void *bytes, int64_t n, weft_error *err);

/* Logical AND over all ranks. [collective] */
weft_status weft_process_group_all_true(const weft_process_group *self, bool *out, bool mine, weft_error *err);

/* Gathers rows of `bytes` each, one per rank, to rank 0. [collective] */
weft_status weft_process_group_gather(const weft_process_group *peers, void *rows, int64_t bytes, weft_error *err);

#endif
