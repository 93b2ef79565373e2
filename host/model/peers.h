/* host/model/peers.h: the ranks that keep a model together, as stages see them that know of no communicator.
 *
 * Files are written, read and proved by all ranks at once, and what goes wrong on one of them must end all: each such
 * piece of work ends with
 *
 *     return weft_peers_agree(peers, status, err);
 *
 * which gives every rank the first failure. Its sentence is told once, by rank 0. */
#ifndef WEFT_HOST_MODEL_PEERS_H
#define WEFT_HOST_MODEL_PEERS_H

#include <stdbool.h>
#include <weft/base.h>

typedef struct weft_parcel {
    void *bytes;
    int64_t n; /* 0: nothing */
} weft_parcel;

/* NULL wherever one is taken: a rank alone. */
typedef struct weft_peers {
    int32_t rank, world;
    int32_t *codes; /* [world] room for agree */
    void *context;
    /* All [collective]. A failure of their own is that of the communicator: peers may be gone. */
    weft_status (*gather)(void *context, int32_t *out, int32_t mine, weft_error *err); /* out [world] */
    /* Bytes of rank `from` to all. */
    weft_status (*share)(void *context, void *bytes, int64_t n, int32_t from, weft_error *err);
    /* out[r] goes to rank r, in[r] comes from it: [world] each. Both sides know how much. */
    weft_status (*swap)(void *context, const weft_parcel *in, const weft_parcel *out, weft_error *err);
} weft_peers;

/* Bytes of a device that all of this goes through, in pieces where it is more: a line of the plan; of one rank none. */
int64_t weft_peers_room(int32_t world);

bool weft_peers_alone(const weft_peers *self);
/* Of the ranks the one that does what is done once. True where there is but one. */
bool weft_peers_first(const weft_peers *self);

/* The status of the lowest rank that has failed, on all ranks; WEFT_E_STOPPED gives way to any other failure. Rank 0
 * has the sentence then, which names the rank if it is another one's; the other ranks have none, and the code
 * WEFT_E_PEER, in err: they have nothing to tell. [collective] */
weft_status weft_peers_agree(const weft_peers *self, weft_status status, weft_error *err);

/* Bytes of rank 0 to all. [collective] */
weft_status weft_peers_share(const weft_peers *self, void *bytes, int64_t n, weft_error *err);

/* True on all ranks if it is so on each. [collective] */
weft_status weft_peers_all(const weft_peers *self, bool *out, bool mine, weft_error *err);

/* Rows of `bytes` each, one per rank, to rank 0. [collective] */
weft_status weft_peers_bring(const weft_peers *peers, void *rows, int64_t bytes, weft_error *err);

#endif
