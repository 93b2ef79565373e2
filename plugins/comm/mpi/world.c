/* world.c: see ranks.h. MPI is per process: the first communicator initializes it, the last one finalizes it. */
#include "ranks.h"

#include <ctype.h>
#include <sched.h>

static int communicators; /* in this process */
static int is_ours;       /* MPI was initialized here, so it is finalized here */

weft_status ranks_error(weft_error *err, weft_status status, int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING + 1] = "unknown error";
    int n = 0, i;
    (void)MPI_Error_string(code, text, &n);
    for (i = 0; text[i] != 0; i++) {
        if (text[i] == '\n') text[i] = text[i + 1] == 0 ? 0 : ' ';
    }
    return weft_error_set(err, status, "%s: MPI error: %s", what, text);
}

/* MPI_Wait without its busy loop. */
static int wait_for(MPI_Request *request) {
    MPI_Status status;
    int ended = 0, code = MPI_SUCCESS;
    while (code == MPI_SUCCESS && !ended) {
        code = MPI_Test(request, &ended, &status);
        if (!ended) (void)sched_yield();
    }
    return code;
}

static weft_status begin(weft_error *err) {
    int begun = 0, ended = 0, level = MPI_THREAD_SINGLE, code;
    (void)MPI_Initialized(&begun);
    (void)MPI_Finalized(&ended);
    if (ended) {
        return weft_error_set(err, WEFT_E_HOST,
                              "MPI was finalized in this process and cannot start again. Fix: keep one communicator "
                              "while ranks are needed.");
    }
    code = begun ? MPI_Query_thread(&level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code != MPI_SUCCESS) return ranks_error(err, WEFT_E_SYSTEM, code, "MPI cannot begin");
    if (!begun) is_ours = 1;
    communicators++;
    if (level < MPI_THREAD_FUNNELED) {
        return weft_error_set(err, WEFT_E_SYSTEM,
                              "MPI was begun for processes of one thread (level %d), and this one has several. It "
                              "needs MPI_THREAD_FUNNELED (level %d).",
                              level, MPI_THREAD_FUNNELED);
    }
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    (void)MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    return WEFT_OK;
}

static void end(void) {
    if (--communicators == 0 && is_ours) (void)MPI_Finalize();
}

/* "MPICH Version: 4.0.2 ..." or "Open MPI v4.1.4, package: ..." -> "MPICH 4.0.2", "Open MPI 4.1.4". */
static void name_library(char *out, size_t room) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    const char *name = RANKS_NAME;
    size_t first, length;
    int n = 0;
    (void)MPI_Get_library_version(text, &n);
    first = strcspn(text, "0123456789");
    length = strspn(text + first, "0123456789.abcr");
    (void)snprintf(out, room, "%s %.*s", name, (int)length, text + first);
}

typedef char machine[MPI_MAX_PROCESSOR_NAME];

/* Returns the first rank on the machine of rank r. */
static int32_t first_beside(machine *names, int32_t r) {
    int32_t first = 0;
    while (memcmp(names[first], names[r], sizeof names[r]) != 0) first++;
    return first;
}

/* Finds the machine of each rank by equal host names. MPI_Comm_split_type does it too, but takes a third of a second
 * for 9 ranks on 2 cores. */
static int find_machines(weft_comm *comm, weft_comm_info *info) {
    machine *names = comm->host->alloc(comm->host, (size_t)info->size * sizeof *names, _Alignof(max_align_t));
    machine mine = "";
    MPI_Request request;
    int32_t r, first;
    int n = 0, code = names == NULL ? MPI_ERR_NO_MEM : MPI_Get_processor_name(mine, &n);
    if (code == MPI_SUCCESS) {
        code = MPI_Iallgather(mine, sizeof mine, MPI_BYTE, names, sizeof mine, MPI_BYTE, comm->world->mpi, &request);
    }
    if (code == MPI_SUCCESS) code = wait_for(&request);
    for (r = 0; code == MPI_SUCCESS && r < info->size; r++) {
        first = first_beside(names, info->rank);
        info->local_rank += r < info->rank && first_beside(names, r) == first;
        info->local_size += first_beside(names, r) == first;
        info->nodes += first_beside(names, r) == r;
        info->node += first_beside(names, r) == r && r < first;
    }
    comm->host->release(comm->host, names);
    return code;
}

static weft_comm_group *new_group(weft_comm *comm, MPI_Comm mpi) {
    weft_comm_group *group = comm->host->alloc(comm->host, sizeof *group, _Alignof(max_align_t));
    if (group == NULL) return NULL;
    group->comm = comm;
    group->mpi = mpi;
    group->pairs = NULL;
    (void)MPI_Comm_size(mpi, &group->size);
    (void)MPI_Comm_rank(mpi, &group->place);
    group->next = comm->groups;
    comm->groups = group;
    return group;
}

/* Duplicates MPI's world, to separate it from messages of other libraries. */
static weft_status find_world(weft_comm *comm, weft_error *err) {
    weft_comm_info *info = &comm->info;
    MPI_Comm world = MPI_COMM_NULL;
    MPI_Request request;
    int *most_tag = NULL, found = 0;
    int code = MPI_Comm_idup(MPI_COMM_WORLD, &world, &request);
    if (code == MPI_SUCCESS) code = wait_for(&request);
    if (code != MPI_SUCCESS) return ranks_error(err, WEFT_E_SYSTEM, code, "The world cannot be created");
    comm->world = new_group(comm, world);
    if (comm->world == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for the world of ranks.");
    info->rank = comm->world->place;
    info->size = comm->world->size;
    info->progress = WEFT_PROGRESS_CALLER;
    (void)MPI_Comm_get_attr(world, MPI_TAG_UB, &most_tag, &found);
    info->max_tag = (found ? *most_tag : 32767) - 1; /* MPI's last tag is reserved for this plugin */
    name_library(info->backend, sizeof info->backend);
    code = find_machines(comm, info);
    if (code == MPI_SUCCESS) code = MPI_Op_create(ranks_add_bf16, 1, &comm->add_bf16);
    if (code == MPI_SUCCESS) code = MPI_Op_create(ranks_add_f16, 1, &comm->add_f16);
    if (code != MPI_SUCCESS) return ranks_error(err, WEFT_E_SYSTEM, code, "The world cannot be searched");
    return WEFT_OK;
}

static weft_status check_size(const weft_comm *comm, int32_t expected, weft_error *err) {
    const weft_comm_info *info = &comm->info;
    if (expected == 0 || expected == info->size) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PEER,
                          "the run requests %d ranks, and this process is in a world of %d%s. [comm] plugin = " RANKS_ID
                          " is built for %s: start its ranks with %s.",
                          (int)expected, (int)info->size,
                          info->size == 1 ? ": it was started without a launcher, or by the launcher of another MPI"
                                          : "",
                          info->backend, RANKS_LAUNCHER);
}

weft_status ranks_create(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                         weft_error *err) {
    weft_comm *comm = host->alloc(host, sizeof *comm, _Alignof(max_align_t));
    weft_status status = WEFT_OK;
    (void)config;
    if (comm == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for the communicator " RANKS_ID ".");
    memset(comm, 0, sizeof *comm);
    comm->host = host;
    comm->add_bf16 = comm->add_f16 = MPI_OP_NULL;
    status = begin(err);
    if (status != WEFT_OK) {
        host->release(host, comm);
        return status;
    }
    status = find_world(comm, err);
    if (status != WEFT_OK) return status; /* MPI may still use it */
    status = check_size(comm, job->expected_size, err);
    if (status == WEFT_OK) {
        *out = comm;
    } else {
        ranks_destroy(comm); /* all ranks of this world reach this */
    }
    return status;
}

void ranks_destroy(weft_comm *comm) {
    if (comm == NULL) return;
    ranks_handles_free(comm);
    while (comm->groups != NULL) {
        weft_comm_group *group = comm->groups;
        comm->groups = group->next;
        (void)MPI_Comm_free(&group->mpi);
        comm->host->release(comm->host, group);
    }
    (void)MPI_Op_free(&comm->add_bf16);
    (void)MPI_Op_free(&comm->add_f16);
    comm->host->release(comm->host, comm);
    end();
}

void ranks_info(const weft_comm *comm, weft_comm_info *out) {
    const uint32_t size = out->struct_size;
    memcpy(out, &comm->info, size < sizeof *out ? size : sizeof *out);
    out->struct_size = size;
}

weft_status ranks_attach(weft_comm *comm, weft_device *device, const weft_device_plugin *kernels, weft_error *err) {
    comm->device = device;
    comm->kernels = kernels;
    return weft_device_transfer_find(&comm->transfer, kernels, device, err);
}

/* Fails unless the list has n distinct ranks of the world, including this one. */
static weft_status check_ranks(const weft_comm *comm, const int32_t *ranks, int32_t n, weft_error *err) {
    int32_t i, j, mine = 0;
    if (n < 1 || n > comm->info.size) {
        return weft_error_set(err, WEFT_E_HOST, "The call requests a group of %d ranks in a world of %d.", (int)n,
                              (int)comm->info.size);
    }
    for (i = 0; i < n; i++) {
        mine += ranks[i] == comm->info.rank;
        for (j = 0; j < i && ranks[j] != ranks[i];) j++;
        if (ranks[i] < 0 || ranks[i] >= comm->info.size || j < i) {
            return weft_error_set(err, WEFT_E_HOST, "The call requests a group with rank %d %s.", (int)ranks[i],
                                  j < i ? "in it twice" : "in it, which the world does not have");
        }
    }
    if (mine == 0) {
        return weft_error_set(err, WEFT_E_HOST, "Rank %d requests a group that does not contain it.",
                              (int)comm->info.rank);
    }
    return WEFT_OK;
}

weft_status ranks_group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n, weft_error *err) {
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm mpi = MPI_COMM_NULL;
    weft_comm_group *group = NULL;
    int code;
    weft_status status = check_ranks(comm, ranks, n, err);
    if (status != WEFT_OK) return status;
    code = MPI_Comm_group(comm->world->mpi, &all);
    if (code == MPI_SUCCESS) code = MPI_Group_incl(all, n, ranks, &some);
    if (code == MPI_SUCCESS) code = MPI_Comm_create_group(comm->world->mpi, some, 0, &mpi);
    if (some != MPI_GROUP_NULL) (void)MPI_Group_free(&some);
    if (all != MPI_GROUP_NULL) (void)MPI_Group_free(&all);
    if (code != MPI_SUCCESS) return ranks_error(err, WEFT_E_SYSTEM, code, "A group of ranks cannot be created");
    group = new_group(comm, mpi);
    if (group == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for a group of ranks.");
    *out = group;
    return WEFT_OK;
}
