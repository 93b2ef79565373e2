/* comm.c: an archived communicator without any library. Ranks of one machine, started by the host, exchange messages as
 * files of a directory. A message is complete when it has its final name, and its receiver removes it. A SEND therefore
 * completes immediately, and a waiting rank polls. It implements all of comm/1 itself: this file reads the host's
 * structs and calls its device's tables with the layouts that it was compiled with. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0)
#define WEFT_NOTE_MORE                                                                                                 \
    WEFT_NOTE_LAUNCH(WEFT_LAUNCH_BY_HOST)                                                                              \
    WEFT_NOTE_LAUNCHED("WEFT_RANK WEFT_RANKS")
#include <weft/comm.h>
#include <weft/host.h>
#include <weft/plugin.h>

#include "plugins/common/half.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

WEFT_NO_KEYS(files_config)

enum { MOST_RANKS = 16, NAME = 400 };

/* Counter of messages between two ranks of a group, by tag and direction; a rank has two of them for itself.
 * Collectives have their own tag. */
typedef struct lane {
    struct lane *next;
    int32_t from, to, tag, sends;
    int64_t n;
} lane;

enum { OF_ALL = -1, GOES = -2 };

struct weft_comm_group {
    weft_comm_group *next;
    char name[128]; /* its ranks, and the number of earlier groups of the same ranks */
    int32_t ranks[MOST_RANKS], n, place;
    lane *lanes;
};

struct weft_comm {
    const weft_host *host;
    const weft_device_plugin *kernels;
    weft_device *device;
    char directory[NAME / 2];
    weft_comm_group world, *groups;
};

/* Missing data: one row from each rank with a name. */
struct weft_comm_handle {
    char names[MOST_RANKS][NAME];
    weft_stream *stream;
    weft_ref to;
    int64_t n, bytes;    /* of a row */
    int32_t rows, dtype; /* number of ranks; dtype of the sum, 0: no sum */
    char *memory;        /* (rows, bytes) */
};

/* ---- messages ---- */

static lane *lane_of(weft_comm *comm, weft_comm_group *group, int32_t from, int32_t to, int32_t tag, int32_t sends) {
    lane *at = group->lanes;
    while (at != NULL && (at->from != from || at->to != to || at->tag != tag || at->sends != sends)) at = at->next;
    if (at != NULL) return at;
    at = (lane *)comm->host->alloc(comm->host, sizeof *at, 8);
    if (at == NULL) return NULL;
    memset(at, 0, sizeof *at);
    at->from = from;
    at->to = to;
    at->tag = tag;
    at->sends = sends;
    at->next = group->lanes;
    group->lanes = at;
    return at;
}

/* Writes the name of the next message. */
static weft_status name_next(weft_comm *comm, weft_comm_group *group, char out[NAME], int32_t from, int32_t to,
                             int32_t tag, int32_t sends, weft_error *err) {
    lane *at = lane_of(comm, group, from, to, tag, sends);
    if (at == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a lane");
    (void)snprintf(out, NAME, "%s/%s.%d.%d.%d.%lld", comm->directory, group->name, (int)from, (int)to, (int)tag,
                   (long long)at->n++);
    return WEFT_OK;
}

static weft_status leave(weft_comm *comm, weft_comm_group *group, int32_t to, int32_t tag, const char *bytes, int64_t n,
                         weft_error *err) {
    char name[NAME], half[NAME + 8];
    FILE *file = NULL;
    weft_status status = name_next(comm, group, name, group->place, to, tag, 1, err);
    if (status != WEFT_OK) return status;
    (void)snprintf(half, sizeof half, "%s.half", name);
    file = fopen(half, "wb");
    if (file == NULL || fwrite(bytes, 1, (size_t)n, file) != (size_t)n)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written", half);
    if (file != NULL && fclose(file) != 0) status = weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written", half);
    if (status == WEFT_OK && rename(half, name) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be named", half);
    return status;
}

static weft_status take(const char *name, char *to, int64_t n, weft_error *err) {
    FILE *file = fopen(name, "rb");
    const int whole = file != NULL && fread(to, 1, (size_t)n, file) == (size_t)n && getc(file) == EOF;
    if (file != NULL) (void)fclose(file);
    (void)unlink(name);
    return whole ? WEFT_OK : weft_error_set(err, WEFT_E_PEER, "%s has not the %lld bytes of it", name, (long long)n);
}

static void rest(void) {
    struct timespec moment;
    moment.tv_sec = 0;
    moment.tv_nsec = 200000;
    (void)nanosleep(&moment, NULL);
}

/* ---- the world ---- */

static int number_of(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text == NULL ? otherwise : atoi(text);
}

/* Rank 0 creates the directory. */
static weft_status make_directory(weft_comm *comm, weft_error *err) {
    const char *where = getenv("TMPDIR");
    (void)snprintf(comm->directory, sizeof comm->directory, "%.100s/weft-archive-XXXXXX",
                   where == NULL ? "/tmp" : where);
    if (mkdtemp(comm->directory) != NULL) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be made", comm->directory);
}

/* Broadcasts the directory. */
static weft_status meet(weft_comm *comm, weft_error *err) {
    const weft_host_exchange *exchange =
        (const weft_host_exchange *)comm->host->extension(comm->host, WEFT_HOST_EXCHANGE);
    const size_t n = sizeof comm->directory;
    weft_status status = comm->world.place == 0 ? make_directory(comm, err) : WEFT_OK;
    if (status != WEFT_OK || comm->world.n == 1) return status;
    if (exchange == NULL) return weft_error_set(err, WEFT_E_UNSUPPORTED, "this host has no WEFT_HOST_EXCHANGE");
    if (comm->world.place == 0) return exchange->put(comm->host, "archive.directory", comm->directory, n, err);
    return exchange->get(comm->host, "archive.directory", comm->directory, n, err);
}

static weft_status files_create(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                                weft_error *err) {
    const int rank = number_of("WEFT_RANK", 0), size = number_of("WEFT_RANKS", 1);
    weft_comm *comm = NULL;
    weft_status status = WEFT_OK;
    int32_t i;
    (void)config;
    if (rank < 0 || size < 1 || size > MOST_RANKS || (job->expected_size > 0 && job->expected_size != size))
        return weft_error_set(err, WEFT_E_PEER, "%d ranks were asked for, and there are %d", (int)job->expected_size,
                              size);
    comm = (weft_comm *)host->alloc(host, sizeof *comm, 8);
    if (comm == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a world");
    memset(comm, 0, sizeof *comm);
    comm->host = host;
    comm->world.n = size;
    comm->world.place = rank;
    for (i = 0; i < size; i++) comm->world.ranks[i] = i;
    (void)snprintf(comm->world.name, sizeof comm->world.name, "world");
    status = meet(comm, err);
    if (status == WEFT_OK) *out = comm;
    else host->release(host, comm);
    return status;
}

static void forget(weft_comm *comm, weft_comm_group *group) {
    while (group->lanes != NULL) {
        lane *next = group->lanes->next;
        comm->host->release(comm->host, group->lanes);
        group->lanes = next;
    }
}

/* Waits for a message of every other rank before rank 0 removes the directory. */
static void files_destroy(weft_comm *comm) {
    char name[NAME];
    int32_t i;
    for (i = 1; i < comm->world.n; i++) {
        if (comm->world.place == i) (void)leave(comm, &comm->world, 0, GOES, "", 0, NULL);
        if (comm->world.place != 0 || name_next(comm, &comm->world, name, i, 0, GOES, 0, NULL) != WEFT_OK) continue;
        while (access(name, F_OK) != 0) rest();
        (void)unlink(name);
    }
    if (comm->world.place == 0) (void)rmdir(comm->directory);
    while (comm->groups != NULL) {
        weft_comm_group *next = comm->groups->next;
        forget(comm, comm->groups);
        comm->host->release(comm->host, comm->groups);
        comm->groups = next;
    }
    forget(comm, &comm->world);
    comm->host->release(comm->host, comm);
}

static void files_info(const weft_comm *comm, weft_comm_info *out) {
    out->rank = out->local_rank = comm->world.place;
    out->size = out->local_size = comm->world.n;
    out->node = 0;
    out->nodes = 1;
    out->progress = WEFT_PROGRESS_CALLER;
    out->max_tag = INT32_MAX;
    (void)snprintf(out->backend, sizeof out->backend, "files");
}

static weft_status files_attach(weft_comm *comm, weft_device *device, const weft_device_plugin *kernels,
                                weft_error *err) {
    (void)err;
    comm->device = device;
    comm->kernels = kernels;
    return WEFT_OK;
}

static weft_status files_group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n,
                               weft_error *err) {
    weft_comm_group *group = NULL, *other = comm->groups;
    int32_t i, before = 0;
    size_t used = 1;
    if (n < 1 || n > comm->world.n) return weft_error_set(err, WEFT_E_HOST, "a group of %d ranks", (int)n);
    group = (weft_comm_group *)comm->host->alloc(comm->host, sizeof *group, 8);
    if (group == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a group");
    memset(group, 0, sizeof *group);
    group->n = n;
    group->place = -1;
    memcpy(group->ranks, ranks, (size_t)n * sizeof *ranks);
    for (i = 0; i < n; i++)
        if (ranks[i] == comm->world.place) group->place = i;
    if (group->place < 0) {
        comm->host->release(comm->host, group);
        return weft_error_set(err, WEFT_E_HOST, "a group without this rank");
    }
    for (; other != NULL; other = other->next)
        before += other->n == n && memcmp(other->ranks, ranks, (size_t)n * sizeof *ranks) == 0;
    (void)snprintf(group->name, sizeof group->name, "g");
    for (i = 0; i < n; i++)
        used += (size_t)snprintf(group->name + used, sizeof group->name - used, "%d-", (int)ranks[i]);
    (void)snprintf(group->name + used, sizeof group->name - used, "%d", (int)before);
    group->next = comm->groups;
    comm->groups = group;
    *out = group;
    return WEFT_OK;
}

/* ---- operations ---- */

static weft_status judge(const weft_comm *comm, const weft_exchange *what, weft_error *err) {
    if (comm->kernels == NULL) return weft_error_set(err, WEFT_E_HOST, "an exchange before `attach`");
    if (!WEFT_WHOLE(what, weft_exchange)) return weft_error_set(err, WEFT_E_HOST, "an exchange that is cut short");
    if (!weft_struct_known(what, sizeof *what))
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "an exchange asks for what this communicator does not know");
    return WEFT_OK;
}

/* Creates a handle that waits for a row from each rank, first to last. */
static weft_status await_rows(weft_comm *comm, weft_comm_handle **out, weft_comm_group *group,
                              const weft_exchange *what, int32_t first, int32_t last, int32_t tag, weft_error *err) {
    weft_comm_handle *handle = (weft_comm_handle *)comm->host->alloc(comm->host, sizeof *handle, 8);
    weft_status status = WEFT_OK;
    int32_t i;
    if (handle == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a handle");
    memset(handle, 0, sizeof *handle);
    handle->stream = what->stream;
    handle->to = what->to;
    handle->n = what->n;
    handle->bytes = what->n * weft_dtype_bytes(what->dtype);
    handle->rows = last - first;
    handle->memory = (char *)comm->host->alloc(comm->host, (size_t)(handle->bytes * handle->rows) + 1, 64);
    if (handle->memory == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for what comes");
    for (i = first; status == WEFT_OK && i < last; i++)
        status = name_next(comm, group, handle->names[i - first], i, group->place, tag, 0, err);
    *out = handle;
    return status;
}

/* Sends the data at `from` to each rank, first to last: the same row to all, or a row to each. */
static weft_status leave_rows(weft_comm *comm, weft_comm_group *group, const weft_exchange *what, weft_ref from,
                              int32_t first, int32_t last, int each, int32_t tag, weft_error *err) {
    const int64_t bytes = what->n * weft_dtype_bytes(what->dtype), all = each ? bytes * group->n : bytes;
    char *memory = (char *)comm->host->alloc(comm->host, (size_t)all + 1, 64);
    weft_status status = WEFT_OK;
    int32_t i;
    if (memory == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what is sent");
    if (all > 0) status = comm->kernels->read(comm->device, what->stream, memory, from, all, err);
    for (i = first; status == WEFT_OK && i < last; i++)
        status = leave(comm, group, i, tag, memory + (each ? i * bytes : 0), bytes, err);
    comm->host->release(comm->host, memory);
    return status;
}

static weft_status among_all(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, int each, int sums,
                             weft_error *err) {
    weft_comm_group *group = what->group == NULL ? &comm->world : what->group;
    weft_status status = judge(comm, what, err);
    if (status == WEFT_OK) status = leave_rows(comm, group, what, what->from, 0, group->n, each, OF_ALL, err);
    if (status == WEFT_OK) status = await_rows(comm, out, group, what, 0, group->n, OF_ALL, err);
    if (status == WEFT_OK && sums) (*out)->dtype = what->dtype;
    return status;
}

static weft_status files_all_gather(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what,
                                    weft_error *err) {
    return among_all(comm, out, what, 0, 0, err);
}

static weft_status files_all_to_all(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what,
                                    weft_error *err) {
    return among_all(comm, out, what, 1, 0, err);
}

static weft_status files_reduce_scatter(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what,
                                        weft_error *err) {
    return among_all(comm, out, what, 1, 1, err);
}

static weft_status files_all_reduce(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what,
                                    weft_error *err) {
    return among_all(comm, out, what, 0, 1, err);
}

static weft_status files_broadcast(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what,
                                   weft_error *err) {
    weft_comm_group *group = what->group == NULL ? &comm->world : what->group;
    weft_status status = judge(comm, what, err);
    if (status == WEFT_OK && group->place == what->peer)
        status = leave_rows(comm, group, what, what->to, 0, group->n, 0, OF_ALL, err);
    return status == WEFT_OK ? await_rows(comm, out, group, what, what->peer, what->peer + 1, OF_ALL, err) : status;
}

static weft_status files_barrier(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    weft_exchange nothing;
    const weft_status status = judge(comm, what, err);
    if (status != WEFT_OK) return status;
    (void)weft_struct_take(&nothing, sizeof nothing, what);
    nothing.n = 0;
    nothing.dtype = WEFT_F32;
    return among_all(comm, out, &nothing, 0, 0, err);
}

static weft_status files_send(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    weft_comm_group *group = what->group == NULL ? &comm->world : what->group;
    weft_status status = judge(comm, what, err);
    if (status == WEFT_OK)
        status = leave_rows(comm, group, what, what->from, what->peer, what->peer + 1, 0, what->tag, err);
    return status == WEFT_OK ? await_rows(comm, out, group, what, 0, 0, what->tag, err) : status;
}

static weft_status files_recv(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    weft_comm_group *group = what->group == NULL ? &comm->world : what->group;
    const weft_status status = judge(comm, what, err);
    return status == WEFT_OK ? await_rows(comm, out, group, what, what->peer, what->peer + 1, what->tag, err) : status;
}

/* ---- completion ---- */

static float number_at(const char *memory, int64_t i, int32_t dtype) {
    float x = 0;
    uint16_t half = 0;
    if (dtype == WEFT_F32) {
        memcpy(&x, memory + 4 * i, 4);
        return x;
    }
    memcpy(&half, memory + 2 * i, 2);
    return dtype == WEFT_BF16 ? half_of_bits((uint32_t)half << 16) : half_widen(half);
}

static void put_number(char *memory, int64_t i, int32_t dtype, float x) {
    const uint32_t bits = half_bits(x);
    const uint16_t half = dtype == WEFT_BF16 ? (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)
                                             : half_narrow(x);
    if (dtype == WEFT_F32) memcpy(memory + 4 * i, &x, 4);
    else memcpy(memory + 2 * i, &half, 2);
}

/* Sums the rows into row 0, in rank order. */
static void sum_rows(weft_comm_handle *handle) {
    int64_t i;
    int32_t r;
    for (i = 0; i < handle->n; i++) {
        float sum = number_at(handle->memory, i, handle->dtype);
        for (r = 1; r < handle->rows; r++) sum += number_at(handle->memory + r * handle->bytes, i, handle->dtype);
        put_number(handle->memory, i, handle->dtype, sum);
    }
}

static int has_come(const weft_comm_handle *handle) {
    int32_t i;
    for (i = 0; i < handle->rows; i++)
        if (access(handle->names[i], F_OK) != 0) return 0;
    return 1;
}

static weft_status finish(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    weft_status status = WEFT_OK;
    int32_t i;
    for (i = 0; status == WEFT_OK && i < handle->rows; i++)
        status = take(handle->names[i], handle->memory + i * handle->bytes, handle->bytes, err);
    if (status == WEFT_OK && handle->dtype != 0) sum_rows(handle);
    if (status == WEFT_OK && handle->rows > 0 && handle->bytes > 0)
        status = comm->kernels->write(comm->device, handle->stream, handle->to, handle->memory,
                                      handle->bytes * (handle->dtype != 0 ? 1 : handle->rows), err);
    comm->host->release(comm->host, handle->memory);
    comm->host->release(comm->host, handle);
    return status;
}

static int32_t files_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    if (!has_come(handle)) return 0;
    return finish(comm, handle, err) == WEFT_OK ? 1 : -1;
}

static weft_status files_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    weft_stream *stream = handle->stream;
    weft_status status;
    while (!has_come(handle)) rest();
    status = finish(comm, handle, err);
    return status == WEFT_OK ? comm->kernels->synchronize(comm->device, stream, err) : status;
}

/* clang-format off */
static const weft_comm_plugin files_table = {
    (uint32_t)sizeof(weft_comm_plugin), 0, files_create, files_destroy, files_info, files_attach, files_group,
    files_all_gather, files_all_to_all, files_reduce_scatter, files_all_reduce, files_broadcast, files_barrier,
    files_send, files_recv, files_test, files_wait, NULL, NULL, NULL, NULL, NULL, NULL};
/* clang-format on */

WEFT_PLUGIN(comm, 1, "archive-files", "0.1.0", "Ranks of one machine, by files.", files_config, NULL, files_table)
