/* world.c: see world.h. */
#include "world.h"

enum { MOST_TAG = 32766 };

/* ---- world ---- */

static const weft_host_exchange *find_exchange(const weft_host *host) {
    return (const weft_host_exchange *)host->extension(host, WEFT_HOST_EXCHANGE);
}

/* Rank 0 creates the world's NCCL id. */
static weft_status share_id(weft_comm *comm, const weft_host_exchange *exchange, weft_error *err) {
    weft_status status = WEFT_OK;
    if (comm->info.rank == 0) {
        status = nccl_judge(ncclGetUniqueId(&comm->id), NULL, "a name for the world", err);
        if (status == WEFT_OK) status = exchange->put(comm->host, "nccl", &comm->id, sizeof comm->id, err);
        return status;
    }
    status = exchange->get(comm->host, "nccl", &comm->id, sizeof comm->id, err);
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "NCCL, the id of the world from rank 0: ");
}

static weft_status find_world(weft_comm *comm, const weft_comm_job *job, weft_error *err) {
    const weft_host_world *world = (const weft_host_world *)comm->host->extension(comm->host, WEFT_HOST_WORLD);
    const weft_host_exchange *exchange = find_exchange(comm->host);
    int version = 0;
    weft_status status = WEFT_OK;
    comm->info.rank = world == NULL ? 0 : world->rank;
    comm->info.size = world == NULL ? 1 : world->size;
    comm->info.local_size = comm->info.nodes = 1;
    comm->info.progress = WEFT_PROGRESS_OWN;
    comm->info.max_tag = MOST_TAG;
    comm->info.flags = WEFT_COMM_IN_ORDER;
    status = nccl_judge(ncclGetVersion(&version), NULL, "its version", err);
    if (status != WEFT_OK) return status;
    (void)snprintf(comm->info.backend, sizeof comm->info.backend, "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
                   version % 100);
    if (job->expected_size > 0 && job->expected_size != comm->info.size)
        return weft_error_set(err, WEFT_E_PEER, "the run requests %d ranks, and this world has %d.",
                              (int)job->expected_size, (int)comm->info.size);
    if (comm->info.size > 1 && exchange == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM,
                              "NCCL's ranks connect through the host, and this host has no exchange.");
    if (comm->info.size > 1) status = nccl_find_machines(&comm->info, comm->host, exchange, err);
    if (status == WEFT_OK && comm->info.size > 1) return share_id(comm, exchange, err);
    return status == WEFT_OK ? nccl_judge(ncclGetUniqueId(&comm->id), NULL, "a name for the world", err) : status;
}

weft_status nccl_create(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                        weft_error *err) {
    weft_comm *comm = host->alloc(host, sizeof *comm, _Alignof(max_align_t));
    weft_status status = WEFT_OK;
    (void)config;
    if (comm == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for the communicator nccl.");
    memset(comm, 0, sizeof *comm);
    comm->host = host;
    (void)pthread_mutex_init(&comm->lock, NULL);
    (void)pthread_cond_init(&comm->ending, NULL);
    status = find_world(comm, job, err);
    if (status == WEFT_OK) *out = comm;
    else nccl_destroy(comm);
    return status;
}

void nccl_info(const weft_comm *comm, weft_comm_info *out) {
    const uint32_t size = out->struct_size;
    memcpy(out, &comm->info, size < sizeof *out ? size : sizeof *out);
    out->struct_size = size;
}

/* ---- groups ---- */

static void free_group(weft_comm *comm, weft_comm_group *group) {
    nccl_end(comm, group->nccl);
    comm->host->release(comm->host, group->ranks);
    comm->host->release(comm->host, group);
}

/* Creates a group, not yet in the watchdog thread's list. NULL: out of memory. */
static weft_comm_group *new_group(weft_comm *comm, int32_t n) {
    weft_comm_group *group = comm->host->alloc(comm->host, sizeof *group, _Alignof(max_align_t));
    if (group == NULL) return NULL;
    memset(group, 0, sizeof *group);
    group->comm = comm;
    group->size = n;
    group->ranks = comm->host->alloc(comm->host, (size_t)n * sizeof *group->ranks, 8);
    if (group->ranks != NULL) return group;
    comm->host->release(comm->host, group);
    return NULL;
}

static void add_group(weft_comm *comm, weft_comm_group *group) {
    (void)pthread_mutex_lock(&comm->lock);
    group->next = comm->groups;
    comm->groups = group;
    (void)pthread_mutex_unlock(&comm->lock);
}

static weft_status make_world(weft_comm *comm, weft_error *err) {
    weft_comm_group *group = new_group(comm, comm->info.size);
    weft_status status = WEFT_OK;
    if (group == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for a world of ranks.");
    group->place = comm->info.rank;
    for (int32_t r = 0; r < group->size; r++) group->ranks[r] = r;
    status = nccl_judge(ncclCommInitRank(&group->nccl, comm->info.size, comm->id, comm->info.rank), NULL,
                        "connecting the world's ranks", err);
    if (status != WEFT_OK) {
        free_group(comm, group);
        return status;
    }
    comm->world = group;
    add_group(comm, group);
    return WEFT_OK;
}

/* Fails unless the list has n distinct ranks of the world; *place: this rank's index. */
static weft_status judge_ranks(int32_t *place, const weft_comm *comm, const int32_t *ranks, int32_t n,
                               weft_error *err) {
    *place = -1;
    if (n < 1 || n > comm->info.size)
        return weft_error_set(err, WEFT_E_HOST, "The call requests a group of %d ranks in a world of %d.", (int)n,
                              (int)comm->info.size);
    for (int32_t i = 0; i < n; i++) {
        int32_t j = 0;
        if (ranks[i] == comm->info.rank) *place = i;
        while (j < i && ranks[j] != ranks[i]) j++;
        if (ranks[i] < 0 || ranks[i] >= comm->info.size || j < i)
            return weft_error_set(err, WEFT_E_HOST, "The call requests a group with rank %d %s.", (int)ranks[i],
                                  j < i ? "in it twice" : "in it, which the world does not have");
    }
    if (*place >= 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_HOST, "Rank %d requests a group that does not contain it.", (int)comm->info.rank);
}

/* "nccl.group.<first>.<size>.<hash>.<earlier groups>": a key that only this group's ranks use. */
static void name_group(char *out, size_t size, const weft_comm *comm, const int32_t *ranks, int32_t n) {
    uint32_t hash = 2166136261u;
    int32_t before = 0;
    for (int32_t i = 0; i < n; i++) hash = (hash ^ (uint32_t)ranks[i]) * 16777619u;
    for (const weft_comm_group *g = comm->groups; g != NULL; g = g->next)
        before += g->size == n && memcmp(g->ranks, ranks, (size_t)n * sizeof *ranks) == 0;
    (void)snprintf(out, size, "nccl.group.%d.%d.%08x.%d", (int)ranks[0], (int)n, (unsigned)hash, (int)before);
}

/* The group's first rank creates the NCCL id. Ranks outside the group take no part; a split of the world would involve
 * them. */
static weft_status meet_group(weft_comm_group *group, weft_comm *comm, weft_error *err) {
    const weft_host_exchange *exchange = find_exchange(comm->host);
    ncclUniqueId id;
    char key[60];
    weft_status status = WEFT_OK;
    name_group(key, sizeof key, comm, group->ranks, group->size);
    if (group->place == 0) status = nccl_judge(ncclGetUniqueId(&id), NULL, "a name for a group", err);
    if (status == WEFT_OK && group->size > 1 && exchange == NULL)
        return weft_error_set(err, WEFT_E_HOST, "The host has no exchange to connect a group of NCCL.");
    if (status == WEFT_OK && group->size > 1)
        status = group->place == 0 ? exchange->put(comm->host, key, &id, sizeof id, err)
                                   : exchange->get(comm->host, key, &id, sizeof id, err);
    if (status != WEFT_OK && group->place > 0)
        return weft_error_prefix(err, "NCCL, the id of a group from rank %d: ", (int)group->ranks[0]);
    if (status != WEFT_OK) return status;
    return nccl_judge(ncclCommInitRank(&group->nccl, group->size, id, group->place), NULL, "connecting a group's ranks",
                      err);
}

weft_status nccl_group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n, weft_error *err) {
    weft_comm_group *group = NULL;
    int32_t place = 0;
    weft_status status = judge_ranks(&place, comm, ranks, n, err);
    if (status != WEFT_OK) return status;
    group = new_group(comm, n);
    if (group == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for a group of ranks.");
    group->place = place;
    memcpy(group->ranks, ranks, (size_t)n * sizeof *ranks);
    status = meet_group(group, comm, err);
    if (status != WEFT_OK) {
        free_group(comm, group);
        return status;
    }
    add_group(comm, group);
    *out = group;
    return WEFT_OK;
}

/* ---- device ---- */

static weft_status find_native(weft_comm *comm, weft_error *err) {
    const weft_device_native *native = NULL;
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    if (comm->kernels->extension != NULL)
        native = (const weft_device_native *)comm->kernels->extension(comm->device, WEFT_DEVICE_NATIVE);
    comm->native = native;
    if (native != NULL && WEFT_WHOLE(native, weft_device_native) && strcmp(native->api, "cuda") == 0) return WEFT_OK;
    comm->kernels->info(comm->device, &info);
    return weft_error_set(err, WEFT_E_USER,
                          "NCCL needs memory of CUDA devices, and the device is %s. Fix: set [device] plugin = cuda, "
                          "or [comm] plugin = %s",
                          info.name, comm->info.size > 1 ? "mpi" : "self");
}

weft_status nccl_attach(weft_comm *comm, weft_device *device, const weft_device_plugin *kernels, weft_error *err) {
    weft_status status = WEFT_OK;
    comm->device = device;
    comm->kernels = kernels;
    status = find_native(comm, err);
    if (status == WEFT_OK) status = weft_device_transfer_find(&comm->transfer, kernels, device, err);
    if (status == WEFT_OK && comm->transfer == NULL)
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "the device lacks the extension " WEFT_DEVICE_TRANSFER
                                ", by which NCCL's exchanges are waited for");
    if (status == WEFT_OK && comm->info.size > 1) status = nccl_compare_cards(comm, find_exchange(comm->host), err);
    if (status == WEFT_OK) status = make_world(comm, err);
    return status == WEFT_OK ? nccl_watch_start(comm, err) : status;
}

void nccl_destroy(weft_comm *comm) {
    if (comm == NULL) return;
    nccl_watch_end(comm);
    nccl_handles_free(comm);
    nccl_ways_free(comm);
    while (comm->groups != NULL) {
        weft_comm_group *group = comm->groups;
        comm->groups = group->next;
        free_group(comm, group);
    }
    if (comm->nothing != NULL) comm->kernels->release(comm->device, comm->nothing);
    (void)pthread_cond_destroy(&comm->ending);
    (void)pthread_mutex_destroy(&comm->lock);
    comm->host->release(comm->host, comm);
}
