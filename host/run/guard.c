/* host/run/guard.c: see guard.h. */
#include "run/guard.h"

#include "launch/sidecar.h"

#include <stdlib.h>
#include <unistd.h>

/* What every rank says: its machine, its process, and if it is the lowest one there, the memory's descriptor. */
typedef struct table {
    int32_t *nodes, *pids, *files; /* [world] */
    weft_heartbeat *own;           /* of the lowest one: the memory itself; NULL: it belongs to another rank */
} table;

static weft_status gather_table(table *self, const weft_process_group *peers, const weft_comm_info *info, int32_t file,
                                weft_error *err) {
    weft_status status = peers->gather(peers->context, self->nodes, info->node, err);
    if (status == WEFT_OK) status = peers->gather(peers->context, self->pids, (int32_t)getpid(), err);
    if (status == WEFT_OK) status = peers->gather(peers->context, self->files, file, err);
    return status;
}

/* The records of this machine, and the path by which they are opened; NULL: there are none. */
static weft_heartbeat *find_records(const table *self, const weft_comm_info *info, char *path, size_t size) {
    int32_t lowest = 0;
    while (self->nodes[lowest] != info->node) lowest++;
    if (self->files[lowest] < 0) return NULL;
    weft_heartbeat_path(path, size, self->pids[lowest], self->files[lowest]);
    return self->own != NULL ? self->own : weft_heartbeat_map(path, info->local_size);
}

/* The watchers of other machines are told where rank 0's is. */
static weft_status begin_watch(const char *path, const weft_process_group *peers, const weft_comm_info *info,
                               weft_error *err) {
    weft_node_watchdog_address chief = {0};
    const bool follows = info->nodes > 1 && info->node > 0;
    weft_status status = WEFT_OK;
    if (info->nodes > 1 && peers->rank == 0) status = weft_sidecar_listen(&chief, err);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK && info->nodes > 1)
        status = weft_process_group_broadcast(peers, &chief, (int64_t)sizeof chief, err);
    if (status == WEFT_OK && info->nodes > 1 && chief.n_hosts == 0)
        status = weft_error_set(err, WEFT_E_SYSTEM,
                                "the machine of rank 0 has no IPv4 address at which the watchers of the others could "
                                "tell it what they see");
    if (status == WEFT_OK && info->local_rank == 0)
        status = weft_sidecar_watch(path, info->local_size, info->size, follows ? &chief : NULL, err);
    weft_sidecar_dismiss();
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) (void)weft_heartbeat_link(path);
    return status;
}

static weft_status share_records(const table *self, const weft_process_group *peers, const weft_comm_info *info,
                                 weft_error *err) {
    char path[64] = "";
    bool all = false;
    weft_heartbeat *records = find_records(self, info, path, sizeof path);
    weft_status status = WEFT_OK;
    if (records != NULL) weft_heartbeat_move(&records[info->local_rank]);
    status = weft_process_group_all_true(peers, &all, records != NULL, err);
    if (status == WEFT_OK && !all)
        status = weft_error_set(err, WEFT_E_SYSTEM,
                                "ranks of one machine cannot share memory through %s to be watched: they must see one "
                                "another's processes",
                                path[0] != '\0' ? path : "memfd_create");
    return status == WEFT_OK ? begin_watch(path, peers, info, err) : status;
}

weft_status weft_guard_arrange(const weft_process_group *peers, const weft_comm_info *info, weft_error *err) {
    const size_t bytes = (size_t)peers->world * sizeof(int32_t);
    table self = {malloc(bytes), malloc(bytes), malloc(bytes), NULL};
    weft_status status = WEFT_OK;
    int32_t file = -1;
    bool all = false;
    if (peers->world != info->size) weft_sidecar_dismiss(); /* an engine of some ranks */
    else if (info->size > 1) status = weft_process_group_all_true(peers, &all, weft_sidecar_waits(), err);
    if (all && info->local_rank == 0) self.own = weft_heartbeat_create(&file, info->local_size);
    if (status == WEFT_OK && (self.nodes == NULL || self.pids == NULL || self.files == NULL))
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the processes of %d ranks", (int)peers->world);
    if (all) status = weft_process_group_agree(peers, status, err);
    if (all && status == WEFT_OK) status = gather_table(&self, peers, info, file, err);
    if (all && status == WEFT_OK) status = share_records(&self, peers, info, err);
    free(self.nodes);
    free(self.pids);
    free(self.files);
    return status;
}
