/* machines.c: which ranks share a machine. Each tells rank 0 a number of its machine, and rank 0 tells all of them to
 * everybody, so that a rank asks for as many values as there are pages and not as there are ranks. */
#include "world.h"

#include <unistd.h>

enum { PAGE = WEFT_EXCHANGE_MOST / 8 }; /* machines in one value */

/* FNV-1a of host name and boot: containers of one machine may have other names, and then cards of their own. */
static uint64_t add_text(uint64_t hash, const char *text) {
    for (; *text != '\0'; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

static uint64_t number_of_machine(void) {
    uint64_t hash = 14695981039346656037u;
    char text[256] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL && fgets(text, sizeof text, file) != NULL) hash = add_text(hash, text);
    if (file != NULL) (void)fclose(file);
    if (gethostname(text, sizeof text - 1) == 0) hash = add_text(hash, text);
    return hash;
}

static weft_status gather_at_first(uint64_t *machines, int32_t size, const weft_host *host,
                                   const weft_host_exchange *exchange, weft_error *err) {
    char key[40];
    weft_status status = WEFT_OK;
    for (int32_t r = 1; r < size && status == WEFT_OK; r++) {
        (void)snprintf(key, sizeof key, "machine.%d", (int)r);
        status = exchange->get(host, key, &machines[r], sizeof machines[r], err);
    }
    for (int32_t at = 0; at < size && status == WEFT_OK; at += PAGE) {
        const int32_t n = size - at < PAGE ? size - at : PAGE;
        (void)snprintf(key, sizeof key, "machines.%d", (int)(at / PAGE));
        status = exchange->put(host, key, machines + at, (size_t)n * sizeof *machines, err);
    }
    return status;
}

static weft_status hear_from_first(uint64_t *machines, int32_t rank, int32_t size, const weft_host *host,
                                   const weft_host_exchange *exchange, weft_error *err) {
    char key[40];
    weft_status status = WEFT_OK;
    (void)snprintf(key, sizeof key, "machine.%d", (int)rank);
    status = exchange->put(host, key, &machines[rank], sizeof machines[rank], err);
    for (int32_t at = 0; at < size && status == WEFT_OK; at += PAGE) {
        const int32_t n = size - at < PAGE ? size - at : PAGE;
        (void)snprintf(key, sizeof key, "machines.%d", (int)(at / PAGE));
        status = exchange->get(host, key, machines + at, (size_t)n * sizeof *machines, err);
    }
    return status;
}

/* Machines are numbered by their lowest ranks: the number of one is how many first ranks of others stand before its
 * first. */
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
    machines[info->rank] = number_of_machine();
    if (info->rank == 0) status = gather_at_first(machines, info->size, host, exchange, err);
    else status = hear_from_first(machines, info->rank, info->size, host, exchange, err);
    if (status == WEFT_OK) count_places(info, machines);
    host->release(host, machines);
    return status;
}
