/* host/run/list.c: finding, judging and removing checkpoints by their names. */
#include "run/list.h"

#include "base/join.h"
#include "base/tree.h"
#include "run/checkpoint.h"
#include "run/leavings.h"
#include "run/manifest.h"
#include "run/run_record.h"
#include "run/staging.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

weft_status weft_step_path(char *path, const char *directory, uint64_t step, weft_error *err) {
    char name[40];
    (void)snprintf(name, sizeof name, "step-%" PRIu64, step);
    return weft_path_join(path, directory, name, err);
}

/* "step-N" exactly as it is written. */
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
    weft_step_list *list = context;
    uint64_t step = 0, *steps = NULL;
    if (!parse_name(found, &step)) return WEFT_OK;
    steps = realloc(list->steps, (list->n + 1) * sizeof *steps);
    if (steps == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of checkpoints");
    list->steps = steps;
    steps[list->n++] = step;
    return WEFT_OK;
}

weft_status weft_step_list_read(weft_step_list *out, const char *directory, weft_error *err) {
    weft_step_list list = {0};
    weft_status status = weft_tree_visit(directory, recover_if_moved, (void *)(uintptr_t)directory, err);
    if (status == WEFT_OK) status = weft_tree_visit(directory, add_if_checkpoint, &list, err);
    if (status == WEFT_OK && list.n > 0) qsort(list.steps, list.n, sizeof *list.steps, newest_first);
    if (status == WEFT_OK) *out = list;
    else free(list.steps);
    return status;
}

/* ---- the newest that is whole ---- */

static weft_status judge_checkpoint(weft_checkpoint_state *state, const char *path, uint64_t step,
                                    const weft_process_group *peers, weft_error *err) {
    char file[WEFT_PATH_BYTES];
    weft_record record = {0};
    weft_status status = weft_manifest_verify(path, step, peers, err);
    if (status != WEFT_OK) return status;
    status = weft_path_join(file, path, "state/run.json", err);
    if (status == WEFT_OK) status = weft_record_load(&record, file, err);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) *state = record.state;
    weft_record_clear(&record);
    return status;
}

/* Rank 0's list, so that all ranks judge the same directories whatever each of them sees. */
static weft_status share_list(weft_step_list *list, const char *directory, const weft_process_group *peers,
                              weft_error *err) {
    uint64_t n = 0;
    weft_status status = weft_process_group_is_rank_0(peers) ? weft_step_list_read(list, directory, err) : WEFT_OK;
    status = weft_process_group_agree(peers, status, err);
    n = list->n;
    if (status == WEFT_OK) status = weft_process_group_broadcast(peers, &n, (int64_t)sizeof n, err);
    if (status != WEFT_OK || weft_process_group_is_single(peers) || n == 0) return status;
    list->n = n;
    if (list->steps == NULL) list->steps = calloc(n, sizeof *list->steps);
    if (list->steps == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of checkpoints");
    status = weft_process_group_agree(peers, status, err);
    return status == WEFT_OK ? weft_process_group_broadcast(peers, list->steps, (int64_t)(n * sizeof *list->steps), err)
                             : status;
}

static weft_status refuse_none_found(const char *directory, const weft_step_list *list, weft_error *err) {
    if (list->n == 0)
        return weft_error_set(err, WEFT_E_USER, "%s holds no checkpoint to resume from: start again with --overwrite",
                              directory);
    return weft_error_set(err, WEFT_E_USER,
                          "%s holds no whole checkpoint: each of the %zu there is broken, as the "
                          "lines above say; start again with --overwrite",
                          directory, list->n);
}

weft_status weft_checkpoint_newest(char *path, size_t size, weft_checkpoint_state *state, const char *directory,
                                   const weft_process_group *peers, const weft_host *host, weft_error *err) {
    weft_step_list list = {0};
    char at[WEFT_PATH_BYTES] = "";
    bool found = false;
    weft_status status = share_list(&list, directory, peers, err);
    for (size_t i = 0; i < list.n && status == WEFT_OK && !found; i++) {
        weft_error why = WEFT_ERROR_INIT;
        status = weft_step_path(at, directory, list.steps[i], err);
        if (status != WEFT_OK) break;
        status = judge_checkpoint(state, at, list.steps[i], peers, &why);
        if (status == WEFT_E_SYSTEM) { /* it could not be read: that does not mean that it is broken */
            (void)weft_error_set(err, status, "%s", why.text);
            break;
        }
        found = status == WEFT_OK;
        status = WEFT_OK;
        if (!found && weft_process_group_is_rank_0(peers))
            weft_log(host, WEFT_LOG_WARN, "%s is passed over: %s", at, why.text);
    }
    if (found && strlen(at) >= size) status = weft_error_set(err, WEFT_E_HOST, "%s: the path is too long", at);
    else if (found) memcpy(path, at, strlen(at) + 1);
    if (status == WEFT_OK && !found) status = refuse_none_found(directory, &list, err);
    free(list.steps);
    return weft_process_group_agree(peers, status, err);
}

/* ---- which ones stay ---- */

static weft_status remove_temporary(void *context, const char *found, weft_error *err) {
    char name[64], path[WEFT_PATH_BYTES], final[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    if (!parse_hidden(found, ".tmp", name)) return WEFT_OK;
    status = weft_path_join(path, context, found, err);
    if (status == WEFT_OK) status = weft_path_join(final, context, name, err);
    if (status == WEFT_OK) status = weft_leavings_keep(path, final, err);
    return status == WEFT_OK ? weft_tree_remove(path, err) : status;
}

/* Removes the name first, so that a half-removed checkpoint is never taken for one. One that holds files which no run
 * wrote is kept, with a warning. */
static weft_status remove_checkpoint(const char *directory, uint64_t step, const weft_host *host, weft_error *err) {
    char path[WEFT_PATH_BYTES], hidden[WEFT_PATH_BYTES], foreign[WEFT_PATH_BYTES] = "", name[48];
    weft_status status = weft_step_path(path, directory, step, err);
    if (status == WEFT_OK) status = weft_leavings_find_in_checkpoint(foreign, path, err);
    if (status == WEFT_OK && foreign[0] != '\0') {
        weft_log(host, WEFT_LOG_WARN,
                 "%s: this old checkpoint is kept, because no run wrote %s. Fix: move that file away", path, foreign);
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
    weft_step_list list = {0};
    weft_status status = weft_step_list_read(&list, directory, err);
    if (status == WEFT_OK) status = weft_tree_visit(directory, remove_temporary, (void *)(uintptr_t)directory, err);
    for (size_t i = 0; i < list.n && status == WEFT_OK; i++) {
        const uint64_t at = list.steps[i];
        if (at > step) continue;
        if (kept >= keep) {
            if (at != best_step || best_step == 0) status = remove_checkpoint(directory, at, host, err);
            continue;
        }
        status = weft_step_path(path, directory, at, err);
        if (status == WEFT_OK && weft_manifest_glance(path, at, NULL) == WEFT_OK) kept++;
    }
    free(list.steps);
    return status;
}
