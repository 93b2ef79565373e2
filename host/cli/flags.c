/* host/cli/flags.c: see flags.h. */
#include "cli/flags.h"

#include "config/number.h"
#include "launch/watchdog.h"
#include "model/weights.h"
#include "plugin/services.h"
#include "program/sections.h"
#include "run/engine.h"

/* ---- memory ---- */

bool weft_command_room(const weft_args *args, int64_t *bytes, weft_error *err) {
    const char *text = weft_args_value(args, "fit");
    *bytes = 0;
    if (text != NULL && !weft_number_bytes(bytes, text)) {
        (void)weft_error_set(
            err, WEFT_E_USER,
            "--fit '%.80s' is not a size. Allowed: a number with its unit, as 80GB, 24GiB or 512MB (GB: "
            "powers of 1000; GiB: of 1024)",
            text);
        return false;
    }
    if (text != NULL && weft_args_declares(args, "no-fit") && weft_args_has(args, "no-fit")) {
        (void)weft_error_set(err, WEFT_E_USER,
                             "--fit sets the available memory and --no-fit ignores it: use one of them");
        return false;
    }
    return true;
}

weft_fit_question weft_command_question(const weft_args *args, const weft_session *session, int64_t bytes) {
    weft_fit_question out = {.session = session, .path = weft_args_config(args)};
    out.overrides = weft_args_overrides(args, &out.n_overrides);
    out.room = weft_available_memory_find(bytes, &session->engine->device_info);
    return out;
}

weft_status weft_command_check_room(const weft_args *args, const weft_session *session, int64_t bytes,
                                    weft_error *err) {
    const weft_fit_question question = weft_command_question(args, session, bytes);
    weft_fit fit;
    if (weft_args_has(args, "no-fit")) return WEFT_OK;
    weft_fit_check(&fit, &question, NULL);
    weft_fit_warn(&fit, session->run->host);
    return fit.fits ? WEFT_OK : weft_fit_refuse(&fit, err);
}

/* ---- ranks ---- */

/* Returns whether the weights are read: a resumed run may read a checkpoint instead. */
static bool reads_weights(const weft_args *args, const weft_run *run) {
    const bool resumes = weft_args_declares(args, "resume") && weft_args_has(args, "resume");
    return run->settings.model.start != WEFT_START_FRESH && !resumes;
}

/* Checks the combination of strategy, batch and ranks. No data has been read, so micro-batches have an arbitrary
 * length, which only affects sizes; these are not checked here. */
static weft_status validate_programs(const weft_run *run, weft_engine *engine, weft_error *err) {
    enum { SOME_LENGTH = 16 };
    const weft_train_settings *keys = &run->settings.train;
    const int64_t most = engine->plan.declared->info.max_context;
    weft_plan_spec spec = {.training = true, .n_lengths = 1};
    weft_status status = weft_settings_for_steps(&run->settings, run->config, err);
    if (status != WEFT_OK) return status;
    spec.rows = spec.evaluate_rows = (int32_t)keys->micro_batch;
    spec.micro_batches = (int32_t)(keys->global_batch / keys->micro_batch);
    spec.lengths[0] = most < SOME_LENGTH ? (int32_t)most : SOME_LENGTH;
    return weft_engine_prepare(engine, &spec, err);
}

/* Checks the run before the ranks start, so that errors that every rank would hit are reported once. Covers errors in
 * the configuration, in the files of tokenizer and model (with the weights, unless a checkpoint may replace them), and,
 * for RUN_ONE, in the combination of strategy, batch and ranks. Log level and requested ranks are not restored: this
 * process only starts and watches the ranks afterwards. */
static weft_status validate_run(const weft_args *args, const weft_overrides *with, int32_t n,
                                weft_ranks_purpose purpose, weft_error *err) {
    weft_run *run = NULL;
    weft_text text = {0};
    weft_engine *engine = NULL;
    weft_status status = WEFT_OK;
    weft_launch_want(WEFT_RANKS_PLANNED, n);
    (void)weft_services_log_level(WEFT_LOG_ERROR); /* the ranks print warnings */
    status = weft_run_open(&run, weft_args_config(args), with->items, with->n, WEFT_NEEDS_ALL, err);
    if (status == WEFT_OK) weft_watchdog_output(run->settings.run.out);
    if (status == WEFT_OK) status = weft_text_open(&text, run, err);
    if (status == WEFT_OK) status = weft_engine_open(&engine, run, NULL, err);
    if (status == WEFT_OK && reads_weights(args, run))
        status = weft_weights_check(engine->plan.declared, run->settings.model.path, err);
    if (status == WEFT_OK && purpose == WEFT_RANKS_RUN_ONE) status = validate_programs(run, engine, err);
    weft_engine_close(engine);
    weft_text_close(&text);
    weft_run_close(run);
    return status;
}

/* Starts the ranks; they have reported all errors themselves. */
static weft_exit start_ranks(const weft_launch *ranks, const weft_args *args, const weft_overrides *with,
                             weft_ranks_purpose purpose, weft_error *err) {
    const int32_t n = ranks->world.size;
    int ended = 0;
    if (ranks->why[0] != '\0') weft_log(weft_services(), WEFT_LOG_DEBUG, "%s", ranks->why);
    if (validate_run(args, with, n, purpose, err) != WEFT_OK) return WEFT_EXIT_FAILED;
    if (weft_launch_start(&ended, ranks, err) != WEFT_OK) return WEFT_EXIT_FAILED;
    if (ended == WEFT_EXIT_DONE) return WEFT_EXIT_DONE;
    if (weft_exit_answers(ended)) return (weft_exit)ended;
    if (ended == WEFT_EXIT_STOPPED) {
        (void)weft_error_set(err, WEFT_E_STOPPED, "the %d ranks were stopped by a signal%s", (int)n,
                             weft_args_declares(args, "resume") ? ": --resume goes on" : "; no state was saved");
        return WEFT_EXIT_STOPPED;
    }
    (void)weft_error_set(err, WEFT_E_PEER, "the %d ranks ended with status %d; their errors are printed above", (int)n,
                         ended);
    return WEFT_EXIT_FAILED;
}

bool weft_command_find_ranks(weft_exit *status, weft_launch *ranks, const weft_args *args, const weft_overrides *with,
                             weft_ranks_purpose purpose, weft_error *err) {
    weft_overrides own;
    own.items = weft_args_overrides(args, &own.n);
    if (with == NULL) with = &own;
    *status = weft_exit_from(weft_run_ranks(ranks, weft_args_config(args), with->items, with->n, err));
    if (*status != WEFT_EXIT_DONE) return false;
    if (ranks->must_launch) *status = start_ranks(ranks, args, with, purpose, err);
    return !ranks->must_launch;
}

bool weft_command_is_rank(weft_exit *status, const weft_args *args, const weft_overrides *with, int32_t asked,
                          weft_ranks_purpose purpose, weft_error *err) {
    weft_launch ranks;
    weft_launch_want(WEFT_RANKS_TRAINED, asked);
    weft_watchdog_resumes(weft_args_declares(args, "resume"));
    if (asked < 2) return true; /* the run determines its world itself */
    return weft_command_find_ranks(status, &ranks, args, with, purpose, err);
}
