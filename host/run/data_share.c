/* host/run/data_share.c: see data_share.h. */
#include "run/data_share.h"

#include "launch/heartbeat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* The start of a file, by which another process recognizes it. */
typedef struct mark {
    char name[12];
    int32_t number; /* random; never 0 */
} mark;

static const char mark_name[12] = "weft shares";

/* What the ranks of all machines exchange. */
typedef struct table {
    int32_t *nodes, *pids, *files, *numbers, *errors; /* [world]; files: descriptors; -1: none */
    int32_t maker;                                    /* lowest rank of this machine */
    int file;                                         /* this rank's descriptor; -1: none */
    bool makes;
    mark own;
} table;

static weft_status file_error(weft_error *err, const char *what) {
    const int error = errno;
    return weft_error_set(err, error == ENOMEM || error == ENOSPC ? WEFT_E_MEMORY : WEFT_E_SYSTEM,
                          "memory for data that ranks of a machine share: %s: %s", what, strerror(error));
}

/* ---- the file ---- */

static weft_status write_bytes(int file, const void *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t wrote = write(file, (const char *)bytes + done, n - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return errno == ENOMEM || errno == ENOSPC ? WEFT_E_MEMORY : WEFT_E_SYSTEM;
        done += (size_t)wrote;
    }
    return WEFT_OK;
}

/* error: errno of a write that failed, for a make that has no message. */
typedef struct writer {
    int file, error;
} writer;

static weft_status put_bytes(void *context, const void *bytes, size_t n) {
    writer *self = context;
    const weft_status status = write_bytes(self->file, bytes, n);
    if (status != WEFT_OK) self->error = errno;
    return status;
}

/* The file, locked; its bytes begin on the second page. */
static weft_status make_file(table *self, weft_error *err) {
    const long page = sysconf(_SC_PAGESIZE);
    memcpy(self->own.name, mark_name, sizeof mark_name);
    if (getrandom(&self->own.number, sizeof self->own.number, 0) < 0) return file_error(err, "getrandom");
    self->own.number |= 1;
    self->file = memfd_create("weft-data", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (self->file < 0) return file_error(err, "memfd_create");
    self->makes = true;
    if (write_bytes(self->file, &self->own, sizeof self->own) != WEFT_OK) return file_error(err, "write");
    if (lseek(self->file, page, SEEK_SET) != page) return file_error(err, "lseek");
    return flock(self->file, LOCK_EX) == 0 ? WEFT_OK : file_error(err, "flock");
}

/* Calls make, and lets nobody write any more. The lock ends in any case. */
static weft_status fill_file(const table *self, weft_share_make *make, void *context, weft_error *err) {
    writer to = {self->file, 0};
    const weft_bytes_sink sink = {&to, put_bytes};
    weft_status status = make(context, &sink, err);
    if (to.error != 0 && (status == WEFT_OK || (err != NULL && err->text[0] == '\0'))) {
        errno = to.error;
        status = file_error(err, "write");
    }
    if (status == WEFT_OK &&
        fcntl(self->file, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
        status = file_error(err, "F_ADD_SEALS");
    (void)flock(self->file, LOCK_UN);
    return status;
}

static void wait_for_maker(const table *self) {
    weft_heartbeat_wait();
    while (flock(self->file, LOCK_SH) != 0 && errno == EINTR) {
    }
    weft_heartbeat_go();
}

/* Opens the maker's file. Returns errno, 0: it is open. */
static int32_t open_file(table *self) {
    char path[64];
    struct stat info;
    mark found = {.number = 0};
    weft_heartbeat_path(path, sizeof path, self->pids[self->maker], self->files[self->maker]);
    if (stat(path, &info) != 0) return errno;
    if (!S_ISREG(info.st_mode)) return ESTALE; /* of another process by this number */
    self->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (self->file < 0) return errno;
    if (pread(self->file, &found, sizeof found, 0) == (ssize_t)sizeof found &&
        memcmp(found.name, mark_name, sizeof mark_name) == 0 && found.number == self->numbers[self->maker])
        return 0;
    (void)close(self->file);
    self->file = -1;
    return ESTALE;
}

static weft_status map_file(weft_data_share *self, int file, const void **bytes, size_t *n, weft_error *err) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct stat info;
    void *map = MAP_FAILED;
    if (fstat(file, &info) != 0) return file_error(err, "fstat");
    if ((size_t)info.st_size <= page) return weft_error_set(err, WEFT_E_PLUGIN, "it shares no bytes");
    map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) return file_error(err, "mmap");
    self->map = map;
    self->bytes = (size_t)info.st_size;
    *bytes = (const char *)map + page;
    *n = self->bytes - page;
    return WEFT_OK;
}

/* ---- the ranks ---- */

/* True if every rank is in weft_data_share_make, or this one is alone. Once one is not, all end with the lowest rank's
 * failure. */
static weft_status meet(weft_data_share *self, bool is_making, weft_status status, weft_error *err) {
    const weft_process_group *peers = self->peers;
    weft_error own = WEFT_ERROR_INIT;
    weft_status failed = WEFT_OK;
    int32_t n = 0;
    if (weft_process_group_is_single(peers)) return status;
    failed = peers->gather(peers->context, peers->codes, is_making, &own);
    if (failed != WEFT_OK) {
        self->has_ended = true;
        if (status != WEFT_OK) return status;
        if (err != NULL) *err = own;
        return failed;
    }
    for (int32_t rank = 0; rank < peers->world; rank++) n += peers->codes[rank];
    if (n == peers->world) return WEFT_OK;
    self->has_ended = true;
    if (n == 0) return status;
    status = weft_process_group_agree(peers, status, err);
    if (status != WEFT_OK) return status;
    return weft_error_set(err, WEFT_E_PLUGIN, "%d of %d ranks call share in create: all have to, or none", (int)n,
                          (int)peers->world);
}

static weft_status gather(const weft_data_share *self, int32_t *out, int32_t mine, weft_error *err) {
    if (!weft_process_group_is_single(self->peers)) return self->peers->gather(self->peers->context, out, mine, err);
    *out = mine;
    return WEFT_OK;
}

static void log_failures(const weft_data_share *self, const table *ranks) {
    const int32_t world = weft_process_group_is_single(self->peers) ? 1 : self->peers->world;
    for (int32_t rank = 0; rank < world && weft_process_group_is_rank_0(self->peers); rank++)
        if (ranks->errors[rank] != 0)
            weft_log(self->host, WEFT_LOG_WARN,
                     "rank %d cannot map the data that another rank of its machine makes (%s): it makes a copy of its "
                     "own, which takes that much more memory",
                     (int)rank, strerror(ranks->errors[rank]));
}

/* Opens the files of all machines' makers. Afterwards each rank has a file, which it makes or waits for. */
static weft_status open_files(weft_data_share *self, table *ranks, weft_error *err) {
    const int32_t rank = weft_process_group_is_single(self->peers) ? 0 : self->peers->rank;
    int32_t error = 0;
    weft_status status = gather(self, ranks->nodes, self->node, err);
    if (status != WEFT_OK) return status;
    while (ranks->nodes[ranks->maker] != self->node) ranks->maker++;
    if (ranks->maker == rank) status = make_file(ranks, err);
    status = weft_process_group_agree(self->peers, status, err);
    if (status == WEFT_OK) status = gather(self, ranks->pids, (int32_t)getpid(), err);
    if (status == WEFT_OK) status = gather(self, ranks->files, ranks->file, err);
    if (status == WEFT_OK) status = gather(self, ranks->numbers, ranks->own.number, err);
    if (status == WEFT_OK && !ranks->makes) error = open_file(ranks);
    if (status == WEFT_OK) status = gather(self, ranks->errors, error, err);
    if (status != WEFT_OK) return status;
    log_failures(self, ranks);
    self->is_apart = error != 0;
    return weft_process_group_agree(self->peers, error != 0 ? make_file(ranks, err) : WEFT_OK, err);
}

weft_status weft_data_share_make(weft_data_share *self, weft_share_make *make, void *context, const void **bytes,
                                 size_t *n, weft_error *err) {
    const size_t world = weft_process_group_is_single(self->peers) ? 1 : (size_t)self->peers->world;
    int32_t *numbers = calloc(5 * world, sizeof *numbers);
    table ranks = {.file = -1};
    weft_status status = WEFT_OK;
    if (numbers == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for %d ranks", (int)world);
    else if (self->is_called) status = weft_error_set(err, WEFT_E_PLUGIN, "it calls share twice in its create");
    if (status == WEFT_OK) {
        self->is_called = true;
        status = meet(self, true, WEFT_OK, err);
    }
    if (status == WEFT_OK) {
        ranks.nodes = numbers;
        ranks.pids = ranks.nodes + world;
        ranks.files = ranks.pids + world;
        ranks.numbers = ranks.files + world;
        ranks.errors = ranks.numbers + world;
        status = open_files(self, &ranks, err);
    }
    if (status == WEFT_OK) {
        if (ranks.makes) status = fill_file(&ranks, make, context, err);
        else wait_for_maker(&ranks);
        status = weft_process_group_agree(self->peers, status, err);
        if (status == WEFT_OK) status = map_file(self, ranks.file, bytes, n, err);
    }
    if (ranks.file >= 0) (void)close(ranks.file);
    free(numbers);
    return status;
}

weft_status weft_data_share_end(weft_data_share *self, weft_status status, weft_error *err) {
    return self->has_ended ? status : meet(self, false, status, err);
}

void weft_data_share_close(weft_data_share *self) {
    if (self->map != NULL) (void)munmap((void *)(uintptr_t)self->map, self->bytes);
    self->map = NULL;
}
