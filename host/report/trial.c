/* host/report/trial.c: see trial.h. */
#include "report/trial.h"

#include "program/make_plan.h"
#include "program/show.h"
#include "plugin/services.h"

#include <stdlib.h>

/* Excludes the parts that the session has opened, unless the file names them. */
#define NEEDS                                                                                                          \
    (WEFT_NEEDS_ALL & ~(WEFT_NEEDS(WEFT_PART_DATA) | WEFT_NEEDS(WEFT_PART_TOKENIZER) | WEFT_NEEDS(WEFT_PART_COMM)))

static weft_status open_run(weft_run **out, const weft_fit_question *question, const weft_trial *trial,
                            weft_error *err) {
    const size_t n = question->n_overrides;
    const char **overrides = calloc(n + WEFT_TRIAL_KEYS, sizeof *overrides);
    weft_status status = WEFT_OK;
    if (overrides == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for other settings");
    if (n > 0) memcpy(overrides, question->overrides, n * sizeof *overrides);
    for (int32_t i = 0; i < trial->n_keys; i++) overrides[n + (size_t)i] = trial->keys[i];
    status =
        weft_run_open(out, question->path, overrides, n + (size_t)trial->n_keys, NEEDS | WEFT_NEEDS_NO_PINNED, err);
    if (status == WEFT_OK && question->session->kind != WEFT_SESSION_EVALUATE)
        status = weft_settings_for_steps(&(*out)->settings, (*out)->config, err);
    free(overrides);
    return status;
}

static weft_status make_plan(weft_required_memory *out, const weft_fit_question *question, const weft_run *run,
                             const weft_trial *trial, weft_error *err) {
    const weft_engine *engine = question->session->engine;
    const weft_plan_spec spec = weft_session_spec(question->session, &run->settings.train);
    weft_plan plan = {.world = trial->ranks, .nodes = trial->nodes};
    weft_status status = WEFT_OK;
    memcpy(plan.states, engine->plan.states, sizeof plan.states);
    plan.n_states = engine->plan.n_states;
    plan.hp_bytes = engine->plan.hp_bytes;
    status = weft_plan_open(&plan, run, err);
    if (status == WEFT_OK) status = weft_plan_make(&plan, engine->kernels, engine->device, &spec, err);
    if (status == WEFT_OK) status = weft_required_memory_plan(out, &plan, &question->room, err);
    weft_plan_close(&plan);
    return status;
}

weft_status weft_trial_plan(weft_required_memory *out, const weft_fit_question *question, const weft_trial *trial,
                            weft_error *err) {
    const int32_t level = weft_services_log_level(WEFT_LOG_ERROR); /* suppresses repeated messages of the session */
    weft_run *run = NULL;
    weft_status status = WEFT_OK;
    weft_show_want(-1, -1, NULL); /* the session's setting is stored already */
    status = open_run(&run, question, trial, err);
    if (status == WEFT_OK) status = make_plan(out, question, run, trial, err);
    weft_run_close(run);
    (void)weft_services_log_level(level);
    return status;
}
