/* tests/comm/ranks.h: a communicator for the cases of this directory, and exchanges between plain buffers of which
 * every byte is known before.
 *
 * A case is run by all ranks of a launcher at once (ranks.c). What is not as it must be ends the rank with a sentence
 * and status 1; the launcher then ends the rest. */
#ifndef WEFT_TESTS_COMM_RANKS_H
#define WEFT_TESTS_COMM_RANKS_H

#include <string.h>

#include <weft/comm.h>

/* Some of the ranks, by place. */
typedef struct some {
    weft_comm_group *group; /* NULL: the world */
    int32_t n, place;       /* place -1: this rank is not one of them */
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
    int n_groups; /* 0: not made yet */
} ranks;

/* Exchanges move by themselves, in the streams of a device; messages of a lane come in the order in which they were
 * sent. */
static inline int moves_itself(const ranks *r) {
    return (r->info.flags & WEFT_COMM_IN_ORDER) != 0;
}
static inline int is_alone(const ranks *r) { /* by the communicator of one rank */
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

/* device.c: the device of the plugin that WEFT_TEST_DEVICE_FILE names, with the keys of WEFT_TEST_KEYS. NULL: the
 * variable is not set. */
const weft_device_plugin *device_of_environment(weft_device **out);

/* The cases; each returns when it holds. */
void case_exchanges(ranks *r);   /* every exchange of every shape, type and group against an oracle */
void case_several(ranks *r);     /* several under way at once, waited for in different orders */
void case_pairs(ranks *r);       /* send and recv by tag */
void case_wrong_calls(ranks *r); /* each has its sentence, and nothing is sent */
void case_large(ranks *r);       /* 64 MiB */
void case_crossing(ranks *r);    /* exchanges of two groups in another order on each rank */
void case_memory(ranks *r);      /* long sums take memory that does not grow with them */
void case_rounding(ranks *r);    /* sums of 16 bits */
void case_speed(ranks *r);       /* prints figures */

#endif
