/* host/run/files.c: see files.h. */
#include "run/files.h"

#include "base/hash.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

/* What a file is, as it goes to other ranks. */
typedef struct identity {
    char name[NAME_MAX + 1];
    char kernel[40]; /* "": it does not say which one it is, and this file is no other rank's */
    int64_t device, number, bytes, seconds, nanoseconds;
    int64_t hashed; /* some rank has another file of this name and size */
    char hex[65];   /* "": not hashed here */
} identity;

typedef struct listing {
    identity *files;
    int64_t n;
} listing;

/* The boot of this kernel, which no two machines share; containers of one machine do, as they share its files. */
static void name_kernel(char out[40]) {
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    out[0] = '\0';
    if (file == NULL) return;
    if (fgets(out, 40, file) == NULL) out[0] = '\0';
    (void)fclose(file);
}

static weft_status identify_file(identity *out, const weft_tensor_file *file, weft_error *err) {
    const char *slash = strrchr(file->path, '/');
    struct stat about;
    if (fstat(file->descriptor, &about) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be looked at: %s", file->path, strerror(errno));
    (void)snprintf(out->name, sizeof out->name, "%s", slash == NULL ? file->path : slash + 1);
    name_kernel(out->kernel);
    out->device = (int64_t)about.st_dev;
    out->number = (int64_t)about.st_ino;
    out->bytes = (int64_t)about.st_size;
    out->seconds = (int64_t)about.st_mtim.tv_sec;
    out->nanoseconds = (int64_t)about.st_mtim.tv_nsec;
    return WEFT_OK;
}

static bool is_same_file(const identity *a, const identity *b) {
    return a->kernel[0] != '\0' && strcmp(a->kernel, b->kernel) == 0 && a->device == b->device &&
           a->number == b->number && a->bytes == b->bytes && a->seconds == b->seconds &&
           a->nanoseconds == b->nanoseconds;
}

/* Index; -1: there is none of that name. */
static int64_t find_file(const listing *in, const char *name) {
    for (int64_t i = 0; i < in->n; i++)
        if (strcmp(in->files[i].name, name) == 0) return i;
    return -1;
}

static weft_status list_own(listing *out, const weft_tensor_file *files, int32_t n, weft_error *err) {
    weft_status status = WEFT_OK;
    out->files = calloc((size_t)n + 1, sizeof *out->files);
    if (out->files == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to compare %d files", (int)n);
    out->n = n;
    for (int32_t i = 0; i < n && status == WEFT_OK; i++) status = identify_file(&out->files[i], &files[i], err);
    return status;
}

/* Rank 0's list on every rank. */
static weft_status share_first(listing *out, const listing *own, const weft_process_group *peers, weft_error *err) {
    weft_status status = WEFT_OK;
    out->n = own->n;
    status = weft_process_group_broadcast(peers, &out->n, (int64_t)sizeof out->n, err);
    if (status != WEFT_OK) return status;
    out->files = calloc((size_t)out->n + 1, sizeof *out->files);
    if (out->files == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory to compare %lld files", (long long)out->n);
    else if (peers->rank == 0) memcpy(out->files, own->files, (size_t)out->n * sizeof *out->files);
    status = weft_process_group_agree(peers, status, err);
    return status == WEFT_OK
               ? weft_process_group_broadcast(peers, out->files, out->n * (int64_t)sizeof *out->files, err)
               : status;
}

/* Which of rank 0's files are to be hashed, by it and by whom `hashed` says so in its own list. */
static weft_status choose_files_to_hash(listing *first, listing *own, const weft_process_group *peers,
                                        weft_error *err) {
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < first->n && status == WEFT_OK; i++) {
        const int64_t at = find_file(own, first->files[i].name);
        identity *mine = at < 0 ? NULL : &own->files[at];
        bool same = true;
        if (mine != NULL && mine->bytes == first->files[i].bytes) /* other sizes need no reading to differ */
            mine->hashed = !is_same_file(mine, &first->files[i]);
        status = weft_process_group_all_true(peers, &same, mine == NULL || mine->hashed == 0, err);
        first->files[i].hashed = !same;
        if (peers->rank == 0) own->files[i].hashed = !same;
    }
    return status;
}

static weft_status hash_own(listing *own, const weft_tensor_file *files, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < own->n && status == WEFT_OK; i++)
        if (own->files[i].hashed != 0)
            status = weft_hash_file(own->files[i].hex, files[i].descriptor, files[i].path, err);
    return status;
}

/* Rank 0's hashes; they count for who has its file, too. */
static weft_status take_hashes(listing *first, listing *own, const weft_process_group *peers, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < first->n && status == WEFT_OK; i++) {
        const int64_t at = find_file(own, first->files[i].name);
        if (first->files[i].hashed == 0) continue;
        if (peers->rank == 0) memcpy(first->files[i].hex, own->files[i].hex, sizeof first->files[i].hex);
        status = weft_process_group_broadcast(peers, first->files[i].hex, (int64_t)sizeof first->files[i].hex, err);
        if (status == WEFT_OK && at >= 0 && is_same_file(&own->files[at], &first->files[i]))
            memcpy(own->files[at].hex, first->files[i].hex, sizeof own->files[at].hex);
    }
    return status;
}

weft_status weft_files_add(weft_facts *facts, const weft_process_group *peers, const weft_tensor_file *files, int32_t n,
                           weft_error *err) {
    listing own = {0}, first = {0};
    weft_status status = weft_process_group_agree(peers, list_own(&own, files, n, err), err);
    if (status == WEFT_OK) status = share_first(&first, &own, peers, err);
    if (status == WEFT_OK) status = choose_files_to_hash(&first, &own, peers, err);
    if (status == WEFT_OK) status = weft_process_group_agree(peers, hash_own(&own, files, err), err);
    if (status == WEFT_OK) status = take_hashes(&first, &own, peers, err);
    for (int64_t i = 0; i < own.n && status == WEFT_OK; i++)
        weft_facts_add(facts, own.files[i].name, "%lld bytes%s%s", (long long)own.files[i].bytes,
                       own.files[i].hex[0] == '\0' ? "" : ", sha256 ", own.files[i].hex);
    free(own.files);
    free(first.files);
    return status;
}
