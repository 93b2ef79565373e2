/* host/run/list.c: finds, verifies and removes checkpoints by their names. */

#include "base/alloc.h"
#include "base/file.h"
#include "run/save.h"
#include "run/staging.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct step_list {
    uint64_t *steps; /* of directories called step-N, newest first; the caller frees them */
    size_t n;
} step_list;

/* "directory/step-N"; path: WEFT_PATH_BYTES. */
static weft_status step_path(char *path, const char *directory, uint64_t step, weft_error *err) {
    char name[40];
    (void)snprintf(name, sizeof name, "step-%" PRIu64, step);
    return weft_path_join(path, directory, name, err);
}

/* "step-N" exactly. */
static bool parse_name(const char *name, uint64_t *step) {
    char again[40], *end = NULL;
    if (strncmp(name, "step-", 5) != 0 || !isdigit((unsigned char)name[5])) return false;
    *step = strtoull(name + 5, &end, 10);
    (void)snprintf(again, sizeof again, "step-%" PRIu64, *step);
    return strcmp(again, name) == 0;
}

/* ".step-N.old" or ".step-N.tmp": the part between the dots into name. */
static bool parse_hidden(const char *found, const char *end, char name[64]) {
    const size_t n = strlen(found), m = strlen(end);
    uint64_t step = 0;
    if (n <= m + 1 || n - m > 60 || found[0] != '.' || strcmp(found + n - m, end) != 0) return false;
    (void)snprintf(name, 64, "%.*s", (int)(n - m - 1), found + 1);
    return parse_name(name, &step);
}

static int newest_first(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static weft_status recover_if_moved(void *context, const char *found, weft_error *err) {
    char name[64];
    return parse_hidden(found, ".old", name) ? weft_staging_recover(context, name, err) : WEFT_OK;
}

static weft_status add_if_checkpoint(void *context, const char *found, weft_error *err) {
    step_list *list = context;
    uint64_t step = 0;
    (void)err;
    if (!parse_name(found, &step)) return WEFT_OK;
    list->steps = weft_realloc(list->steps, list->n + 1, sizeof *list->steps);
    list->steps[list->n++] = step;
    return WEFT_OK;
}

/* A missing directory has none. First restores checkpoints that a crash left as .step-N.old. */
static weft_status read_step_list(step_list *out, const char *directory, weft_error *err) {
    step_list list = {0};
    weft_status status = weft_tree_visit(directory, recover_if_moved, (void *)(uintptr_t)directory, err);
    if (status == WEFT_OK) status = weft_tree_visit(directory, add_if_checkpoint, &list, err);
    if (status == WEFT_OK && list.n > 0) qsort(list.steps, list.n, sizeof *list.steps, newest_first);
    if (status == WEFT_OK) *out = list;
    else free(list.steps);
    return status;
}

/* Rank 0's list on all ranks, which may see different directories. */
static weft_status share_list(step_list *list, const char *directory, const weft_process_group *peers,
                              weft_error *err) {
    step_list own = {0};
    void *steps = NULL;
    int64_t n = 0;
    weft_status status = weft_process_group_is_rank_0(peers) ? read_step_list(&own, directory, err) : WEFT_OK;
    *list = own;
    if (weft_process_group_is_single(peers)) return status;
    n = (int64_t)own.n;
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = weft_share_array(peers, &steps, &n, own.steps, sizeof *own.steps, 0, err);
    free(own.steps);
    *list = (step_list){steps, status == WEFT_OK ? (size_t)n : 0};
    return status;
}

weft_status weft_checkpoint_newest(char path[WEFT_PATH_BYTES], weft_checkpoint_state *state, const char *directory,
                                   const weft_process_group *peers, const weft_host *host, weft_error *err) {
    step_list list = {0};
    char file[WEFT_PATH_BYTES];
    bool found = false;
    weft_status status = share_list(&list, directory, peers, err);
    for (size_t i = 0; i < list.n && status == WEFT_OK && !found; i++) {
        weft_error why = WEFT_ERROR_INIT;
        weft_record record = {0};
        status = step_path(path, directory, list.steps[i], err);
        if (status != WEFT_OK) break;
        status = weft_manifest_verify(path, list.steps[i], peers, &why);
        if (status == WEFT_OK) {
            status = weft_path_join(file, path, "state/run.json", &why);
            if (status == WEFT_OK) status = weft_record_load(&record, file, &why);
            status = weft_process_group_agree(peers, status, &why);
            if (status == WEFT_OK) *state = record.state;
            weft_record_clear(&record);
        }
        if (status == WEFT_E_SYSTEM) { /* not readable is not broken */
            (void)weft_error_set(err, status, "%s", why.text);
            break;
        }
        found = status == WEFT_OK;
        status = WEFT_OK;
        if (!found && weft_process_group_is_rank_0(peers))
            weft_log(host, WEFT_LOG_WARN, "%s is skipped: %s", path, why.text);
    }
    if (status == WEFT_OK && !found && list.n == 0)
        status = weft_error_set(err, WEFT_E_USER,
                                "%s contains no checkpoint to resume from. Fix: start again with --overwrite",
                                directory);
    else if (status == WEFT_OK && !found)
        status =
            weft_error_set(err, WEFT_E_USER,
                           "%s contains no complete checkpoint: all %zu are broken, see above. Fix: start again with "
                           "--overwrite",
                           directory, list.n);
    free(list.steps);
    return weft_process_group_agree(peers, status, err);
}

static weft_status remove_temporary(void *context, const char *found, weft_error *err) {
    char name[64], path[WEFT_PATH_BYTES], final[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    if (!parse_hidden(found, ".tmp", name)) return WEFT_OK;
    status = weft_path_join(path, context, found, err);
    if (status == WEFT_OK) status = weft_path_join(final, context, name, err);
    if (status == WEFT_OK) status = weft_unknown_files_keep(path, final, err);
    return status == WEFT_OK ? weft_tree_remove(path, err) : status;
}

/* Renames it first, so a partly removed checkpoint is never used. One with foreign files is kept, with a warning. */
static weft_status remove_checkpoint(const char *directory, uint64_t step, const weft_host *host, weft_error *err) {
    char path[WEFT_PATH_BYTES], hidden[WEFT_PATH_BYTES], foreign[WEFT_PATH_BYTES] = "", name[48];
    weft_status status = step_path(path, directory, step, err);
    if (status == WEFT_OK) status = weft_unknown_files_find_in_checkpoint(foreign, path, err);
    if (status == WEFT_OK && foreign[0] != '\0') {
        weft_log(host, WEFT_LOG_WARN, "%s: this old checkpoint is kept, because no run wrote %s. Fix: move that file",
                 path, foreign);
        return WEFT_OK;
    }
    (void)snprintf(name, sizeof name, ".step-%" PRIu64 ".tmp", step);
    if (status == WEFT_OK) status = weft_path_join(hidden, directory, name, err);
    if (status != WEFT_OK) return status;
    if (rename(path, hidden) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be removed: %s", path, strerror(errno));
    return weft_tree_remove(hidden, err);
}

weft_status weft_checkpoint_retain(const char *directory, uint64_t step, int64_t keep, uint64_t best_step,
                                   const weft_host *host, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    int64_t kept = 0;
    step_list list = {0};
    weft_status status = read_step_list(&list, directory, err);
    if (status == WEFT_OK) status = weft_tree_visit(directory, remove_temporary, (void *)(uintptr_t)directory, err);
    for (size_t i = 0; i < list.n && status == WEFT_OK; i++) {
        const uint64_t at = list.steps[i];
        if (at > step) continue;
        if (kept >= keep) {
            if (at != best_step || best_step == 0) status = remove_checkpoint(directory, at, host, err);
            continue;
        }
        status = step_path(path, directory, at, err);
        if (status == WEFT_OK && weft_manifest_glance(path, at, NULL) == WEFT_OK) kept++;
    }
    free(list.steps);
    return status;
}

static weft_status drop_link(const char *path, weft_error *err) {
    if (unlink(path) == 0 || errno == ENOENT) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be removed: %s", path, strerror(errno));
}

weft_status weft_best_point(const char *directory, uint64_t best_step, const weft_host *host, weft_error *err) {
    char path[WEFT_PATH_BYTES], target[WEFT_PATH_BYTES], temporary[WEFT_PATH_BYTES];
    struct stat info;
    bool exists = false;
    weft_status status = weft_path_join(path, directory, WEFT_BEST_NAME, err);
    if (status == WEFT_OK) status = step_path(target, directory, best_step, err);
    if (status == WEFT_OK) status = weft_path_join(temporary, directory, "." WEFT_BEST_NAME ".tmp", err);
    if (status == WEFT_OK) status = weft_file_exists(&exists, target, err);
    if (status != WEFT_OK) return status;
    if (lstat(path, &info) == 0 && !S_ISLNK(info.st_mode)) {
        weft_log(host, WEFT_LOG_WARN, "%s is not a link of this run, so the run does not change it. Fix: move it",
                 path);
        return WEFT_OK;
    }
    if (best_step == 0 || !exists) return drop_link(path, err);
    status = drop_link(temporary, err); /* its rename replaces the link in one step */
    if (status != WEFT_OK) return status;
    if (symlink(strrchr(target, '/') + 1, temporary) == 0 && rename(temporary, path) == 0)
        return weft_directory_sync(directory, err);
    weft_log(host, WEFT_LOG_WARN, "%s cannot be linked to %s: %s", path, target, strerror(errno));
    return WEFT_OK;
}
