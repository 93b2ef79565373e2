/* tests/comm/ranks.h: a communicator for the cases of this directory, and collectives on plain buffers with known
 * results for every byte.
 *
 * All ranks of a launcher run a case together (ranks.c). A failed check ends the rank with a message and status 1; the
 * launcher then ends the rest. */
#ifndef WEFT_TESTS_COMM_RANKS_H
#define WEFT_TESTS_COMM_RANKS_H

#include <string.h>

#include <weft/comm.h>

/* A group, by ranks of the world. */
typedef struct some {
    weft_comm_group *group; /* NULL: the world */
    int32_t n, place;       /* place -1: this rank is not a member */
    int32_t ranks[16];
} some;

#define MOST_GROUPS 24

typedef struct ranks {
    const weft_comm_plugin *table;
    weft_comm *comm;
    weft_device *device;
    const weft_device_plugin *kernels;
    int32_t rank, size; /* in the world */
    weft_comm_info info;
    some groups[MOST_GROUPS];
    int n_groups; /* 0: not created yet */
} ranks;

/* Calls progress by themselves, in a device's streams; messages of a channel arrive in the order of sending. */
static inline int moves_itself(const ranks *r) {
    return (r->info.flags & WEFT_COMM_IN_ORDER) != 0;
}
static inline int is_alone(const ranks *r) { /* the one-rank communicator */
    return strcmp(r->info.backend, "none") == 0;
}

_Noreturn void fail(int line, const char *format, ...) WEFT_PRINTF(2, 3);
#define must(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) fail(__LINE__, "not true: %s", #condition);                                                  \
    } while (0)
#define must_be_ok(status, err)                                                                                        \
    do {                                                                                                               \
        if ((status) != WEFT_OK) fail(__LINE__, "%s", (err).text);                                                     \
    } while (0)

/* device.c: the device of the plugin file in WEFT_TEST_DEVICE_FILE, with the keys of WEFT_TEST_KEYS. NULL: the variable
 * is not set. */
const weft_device_plugin *device_of_environment(weft_device **out);

/* The cases; each returns on success. */
void case_exchanges(ranks *r);   /* every call in every shape, type and group against an oracle */
void case_several(ranks *r);     /* several in flight, waited for in different orders */
void case_pairs(ranks *r);       /* send and recv by tag */
void case_wrong_calls(ranks *r); /* each has its error message, and nothing is sent */
void case_large(ranks *r);       /* 64 MiB */
void case_crossing(ranks *r);    /* calls of two groups in a different order on each rank */
void case_memory(ranks *r);      /* the memory of long sums is bounded */
void case_rounding(ranks *r);    /* 16-bit sums */
void case_speed(ranks *r);       /* prints measurements */

#endif
