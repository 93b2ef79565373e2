/* machines.c: finds the ranks of each machine. Each rank sends rank 0 a machine id, and rank 0 publishes all of them in
 * pages. A rank then reads one value per page instead of one per rank. */
#include "../../common/machine.h"
#include "world.h"

static weft_status gather_at_first(const nccl_told *t, weft_error *err) {
    char key[40];
    weft_status status = WEFT_OK;
    for (int32_t r = 1; r < t->size && status == WEFT_OK; r++) {
        (void)snprintf(key, sizeof key, "%s.%d", t->name, (int)r);
        status = t->exchange->get(t->host, key, (char *)t->items + (size_t)r * t->bytes, t->bytes, err);
        if (status != WEFT_OK)
            return weft_error_prefix(err, "NCCL, the message of rank %d about its %s: ", (int)r, t->name);
    }
    return status;
}

/* A value contains as many items as fit. */
static weft_status tell_pages(const nccl_told *t, weft_error *err) {
    const int32_t page = (int32_t)(WEFT_EXCHANGE_MOST / t->bytes);
    char key[40];
    weft_status status = WEFT_OK;
    for (int32_t at = 0; at < t->size && status == WEFT_OK; at += page) {
        const size_t n = (size_t)(t->size - at < page ? t->size - at : page) * t->bytes;
        char *items = (char *)t->items + (size_t)at * t->bytes;
        (void)snprintf(key, sizeof key, "%ss.%d", t->name, (int)(at / page));
        status = t->rank == 0 ? t->exchange->put(t->host, key, items, n, err)
                              : t->exchange->get(t->host, key, items, n, err);
        if (status != WEFT_OK)
            return weft_error_prefix(err, "NCCL, the message of rank 0 about all ranks' %ss: ", t->name);
    }
    return status;
}

weft_status nccl_tell_all(const nccl_told *t, weft_error *err) {
    char key[40];
    weft_status status = WEFT_OK;
    (void)snprintf(key, sizeof key, "%s.%d", t->name, (int)t->rank);
    if (t->rank == 0) status = gather_at_first(t, err);
    else {
        status = t->exchange->put(t->host, key, (char *)t->items + (size_t)t->rank * t->bytes, t->bytes, err);
        if (status != WEFT_OK) return weft_error_prefix(err, "NCCL, sending rank 0 this rank's %s: ", t->name);
    }
    return status == WEFT_OK ? tell_pages(t, err) : status;
}

/* Numbers the machines by their lowest ranks: a machine's number is the count of machines with a lower first rank. */
static void count_places(weft_comm_info *info, const uint64_t *machines) {
    info->local_size = info->local_rank = info->nodes = info->node = 0;
    for (int32_t r = 0; r < info->size; r++) {
        int32_t first = 0;
        while (machines[first] != machines[r]) first++;
        if (machines[r] == machines[info->rank]) {
            if (first == r) info->node = info->nodes;
            info->local_rank += r < info->rank;
            info->local_size++;
        }
        info->nodes += first == r;
    }
}

weft_status nccl_find_machines(weft_comm_info *info, const weft_host *host, const weft_host_exchange *exchange,
                               weft_error *err) {
    uint64_t *machines = host->alloc(host, (size_t)info->size * sizeof *machines, 8);
    weft_status status = WEFT_OK;
    if (machines == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "No memory for a list of %d ranks.", (int)info->size);
    machines[info->rank] = machine_number();
    status =
        nccl_tell_all(&(nccl_told){host, exchange, "machine", machines, sizeof *machines, info->rank, info->size}, err);
    if (status == WEFT_OK) count_places(info, machines);
    host->release(host, machines);
    return status;
}
