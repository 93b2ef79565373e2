/* fault_comm.c: an MPI with one of two common errors. FAULT_RING: the rows of an all-to-all arrive in the order of a
 * ring that starts at rank 1. FAULT_LOCAL: an in-place all-gather of fp64, as used for the norm, receives no data from
 * other ranks. */
#define WEFT_NOTE_MORE WEFT_NOTE_LAUNCH(RANKS_LAUNCH) WEFT_NOTE_LAUNCHED(RANKS_LAUNCHED)

#include "fault.h"

#include <stdlib.h>
#include <weft/comm.h>

static weft_comm_plugin real, table;
static weft_device *device;
static const weft_device_plugin *kernels;

enum { MOST_GROUPS = 256 };
static struct {
    const weft_comm_group *group;
    int32_t n;
} groups[MOST_GROUPS];
static int n_groups;

static weft_status attach(weft_comm *comm, weft_device *to, const weft_device_plugin *by, weft_error *err) {
    device = to;
    kernels = by;
    return real.attach(comm, to, by, err);
}

static weft_status group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n, weft_error *err) {
    const weft_status status = real.group(comm, out, ranks, n, err);
    if (status == WEFT_OK && n_groups == MOST_GROUPS)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "no more than %d groups", MOST_GROUPS);
    if (status == WEFT_OK) groups[n_groups].group = *out;
    if (status == WEFT_OK) groups[n_groups++].n = n;
    return status;
}

static int32_t size_of(const weft_comm *comm, const weft_comm_group *of) {
    weft_comm_info info = {.struct_size = (uint32_t)sizeof info};
    for (int i = 0; i < n_groups; i++)
        if (groups[i].group == of) return groups[i].n;
    real.info(comm, &info);
    return info.size;
}

/* Runs the operation immediately, and returns a barrier's handle instead of its own. */
static weft_status do_now(weft_comm *comm, weft_comm_handle **out, weft_exchange_fn *how, const weft_exchange *what,
                          weft_error *err) {
    weft_comm_handle *handle = NULL;
    weft_status status = how(comm, &handle, what, err);
    if (status == WEFT_OK) status = real.wait(comm, handle, err);
    return status == WEFT_OK ? real.barrier(comm, out, what, err) : status;
}

static weft_status ring_all_to_all(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what,
                                   weft_error *err) {
    const size_t row = (size_t)what->n * (size_t)weft_dtype_bytes(what->dtype);
    const int32_t rows = size_of(comm, what->group);
    weft_status status = do_now(comm, out, real.all_to_all, what, err);
    char *to = kernels->host_view(device, what->to);
    char *first = malloc(row + 1);
    if (first == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for a row");
    if (status == WEFT_OK) {
        memcpy(first, to, row);
        memmove(to, to + row, row * (size_t)(rows - 1));
        memcpy(to + row * (size_t)(rows - 1), first, row);
    }
    free(first);
    return status;
}

static weft_status local_all_gather(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what,
                                    weft_error *err) {
    const size_t row = (size_t)what->n * (size_t)weft_dtype_bytes(what->dtype);
    const int32_t rows = size_of(comm, what->group);
    const int64_t inside = what->from.offset - what->to.offset;
    const int in_place = what->from.buffer == what->to.buffer && inside >= 0 && inside < (int64_t)row * rows;
    char *to = NULL;
    if (what->dtype != WEFT_F64 || !in_place) return real.all_gather(comm, out, what, err);
    to = kernels->host_view(device, what->to);
    memset(to, 0, (size_t)inside);
    memset(to + inside + row, 0, row * (size_t)rows - (size_t)inside - row);
    return real.barrier(comm, out, what, err);
}

FAULT_NOTE(comm, FAULT_ID)
const weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) {
    const weft_plugin *plugin = fault_copy(&real, sizeof real, host, err);
    if (plugin == NULL) return NULL;
    table = real;
    table.attach = attach;
    table.group = group;
    if (strcmp(FAULT_ID, "ring") == 0) table.all_to_all = ring_all_to_all;
    else table.all_gather = local_all_gather;
    return fault_list(plugin, FAULT_ID, &table);
}
