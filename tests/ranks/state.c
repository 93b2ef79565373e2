/* One rank of a run, for test_checkpoints.py: trains, and writes the rank's hash of the run's state, and the memory
 * growth in KiB while all ranks saved, to DIRECTORY/rank.N:
 *
 *     state DIRECTORY STEPS run.ini [section.key=value ...] */
#include "run/checkpoint.h"
#include "tools/common/checksums.h"
#include "launch/find.h"
#include "run/session.h"

#include <math.h>
#include <stdlib.h>

/* Returns a value of /proc/self/status, in KiB. */
static long memory(const char *name) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0) kib = strtol(line + strlen(name), NULL, 10);
    if (file != NULL) (void)fclose(file);
    return kib;
}

/* Resets the peak memory. */
static weft_status forget_peak(weft_error *err) {
    FILE *file = fopen("/proc/self/clear_refs", "we");
    const bool good = file != NULL && fputs("5", file) >= 0;
    if ((file != NULL && fclose(file) != 0) || !good)
        return weft_error_set(err, WEFT_E_SYSTEM, "/proc/self/clear_refs cannot be written");
    return WEFT_OK;
}

static weft_status train(const weft_session *session, uint64_t steps, weft_error *err) {
    weft_status status = weft_engine_load(session->engine, err);
    for (uint64_t step = 1; step <= steps && status == WEFT_OK; step++) {
        weft_step_result result = {0};
        status = weft_stepper_train(session->stepper, &result, step, weft_session_lr(session, (int64_t)step),
                                    session->clip, err);
    }
    return status;
}

static weft_status save(const weft_session *session, const char *directory, uint64_t steps, long *grown,
                        weft_error *err) {
    const weft_checkpoint_state state = {.step = steps, .eval_loss = NAN, .best_loss = NAN};
    weft_identities identities;
    long before = 0;
    weft_status status = weft_identities_collect(&identities, session->engine, session->data_info.fingerprint, err);
    if (status == WEFT_OK) status = forget_peak(err);
    before = memory("VmRSS:");
    if (status == WEFT_OK) status = weft_checkpoint_save(session->engine, directory, &state, &identities, NULL, err);
    *grown = memory("VmHWM:") - before;
    weft_identities_clear(&identities);
    return status;
}

static weft_status run(const char *directory, uint64_t steps, const char *path, const char *const *overrides, size_t n,
                       weft_error *err) {
    weft_session *session = NULL;
    char hex[65] = "", name[4096];
    long grown = 0;
    FILE *out = NULL;
    weft_status status = weft_session_open(&session, path, overrides, n, WEFT_SESSION_TRAIN, NULL, err);
    if (status == WEFT_OK) status = weft_session_start(session, err);
    if (status == WEFT_OK) status = train(session, steps, err);
    if (status == WEFT_OK) status = weft_engine_hash(hex, session->engine, err);
    if (status == WEFT_OK) status = save(session, directory, steps, &grown, err);
    if (status == WEFT_OK) {
        (void)snprintf(name, sizeof name, "%s/rank.%d", directory, (int)session->engine->ranks.rank);
        out = fopen(name, "we");
        if (out == NULL || fprintf(out, "%s %ld\n", hex, grown) < 0 || fclose(out) != 0)
            status = weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written", name);
    }
    weft_session_close(session);
    return status;
}

int main(int argc, char **argv) {
    weft_error err = WEFT_ERROR_INIT;
    if (argc < 4) return 2;
    weft_launch_want(WEFT_RANKS_TRAINED, 0);
    if (run(argv[1], strtoull(argv[2], NULL, 10), argv[3], (const char *const *)argv + 4, (size_t)argc - 4, &err) ==
        WEFT_OK)
        return 0;
    (void)fprintf(stderr, "%s\n", err.text);
    return 1;
}
