/* host/run/session.c: see session.h. */
#include "run/session.h"

#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/units.h"
#include "base/text.h"
#include "launch/signals.h"
#include "launch/world.h"
#include "model/weights.h"
#include "program/budget.h"
#include "program/plan.h"
#include "plugin/enter.h"
#include "plugin/services.h"
#include "run/coherence.h"
#include "run/validate.h"
#include "run/values.h"

#include <math.h>
#include <stdlib.h>

/* Fails if the tokenizer has ids outside the model's vocabulary. */
static weft_status check_vocabulary(const weft_run *run, const weft_text *text, const weft_declared *declared,
                                    weft_error *err) {
    const int64_t ids = text->info.vocab_size, rows = declared->info.vocab_size;
    if (ids <= rows) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "the tokenizer in %s has %lld ids, but the model in %s has a vocabulary of %lld. Fix: set "
                          "[tokenizer] path to the model's own",
                          text->directory, (long long)ids, run->settings.model.path, (long long)rows);
}

/* Vocabularies are padded to sizes that suit a device; a much larger one belongs to another tokenizer. Also warns of
 * added tokens whose embeddings are frozen. */
static void report_vocabulary(const weft_session *session, bool training) {
    const weft_host *host = session->run->host;
    const weft_declared *declared = session->engine->plan.declared;
    const int64_t ids = session->text.info.vocab_size, rows = declared->info.vocab_size;
    const bool much = (rows - ids) * 8 > rows;
    bool trains = !training || session->run->settings.tokenizer.add[0] == '\0';
    if (session->borrows || weft_world_get()->rank > 0) return;
    if (ids != rows)
        weft_log(host, much ? WEFT_LOG_WARN : WEFT_LOG_INFO,
                 "the tokenizer has %lld ids and the model's vocabulary %lld: %s", (long long)ids, (long long)rows,
                 much ? "check that it is the tokenizer of this model ([tokenizer] path)"
                      : "the ids after the tokenizer's are padding and have no text");
    for (int32_t p = 0; p < declared->n_parameters; p++)
        trains = trains ||
                 (declared->parameters[p].trainable && declared->parameters[p].role == WEFT_WEIGHT_EMBEDDING &&
                  declared->parameters[p].dims[0] == rows);
    if (!trains)
        weft_log(host, WEFT_LOG_WARN,
                 "[train] trainable = %s does not train the embeddings of the added tokens. Fix: add vocabulary to it",
                 session->run->settings.train.trainable);
}

/* Sets the ranks that share the data. A plan for ranks that do not exist shares with itself, which yields the sizes. */
static void begin_share(weft_session *session) {
    const weft_process_group *peers = weft_engine_peers(session->engine);
    session->data_source.text = &session->text;
    session->data_source.share = NULL;
    if (session->borrows || (weft_process_group_is_single(peers) && !weft_world_get()->is_planned)) return;
    session->data_source.share = &session->data_share;
    session->data_share.peers = weft_process_group_is_single(peers) ? NULL : peers;
    session->data_share.node = session->engine->ranks.info.node;
    session->data_share.host = session->run->host;
}

/* Creates the data and counts their memory: as the plugin reports it, else the memory that it has allocated from the
 * host and its shared memory. */
static weft_status open_data(weft_session *session, bool training, weft_error *err) {
    const weft_part *part = &session->run->parts[WEFT_PART_DATA];
    const int64_t before = weft_services_bytes(), limit = INT64_MAX / 4;
    weft_split_info *infos[] = {&session->train_info, &session->validation_info, &session->all_info};
    const int32_t splits[] = {WEFT_SPLIT_TRAIN, WEFT_SPLIT_VALIDATION, WEFT_SPLIT_ALL};
    int64_t shared = 0, all = 0;
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    session->data_plugin = weft_loaded_table(part->loaded, data);
    weft_data_job_fill(&session->data_job, &session->data_source, (uint64_t)session->run->settings.run.seed,
                       &session->engine->plan.declared->info);
    weft_plugin_call_begin(&call, part->loaded, "create");
    status = session->data_plugin->create(&session->data, session->run->host, part->config, &session->data_job, err);
    status =
        weft_run_located(session->run, WEFT_PART_DATA, weft_plugin_call_made(&call, status, session->data, err), err);
    if (status != WEFT_OK) return status;
    session->data_info.struct_size = (uint32_t)sizeof session->data_info;
    WEFT_PLUGIN_NOTIFY(session->data_plugin, info, session->data, &session->data_info);
    shared = (int64_t)session->data_share.bytes;
    all = shared + weft_larger(0, weft_services_bytes() - before);
    if (session->data_info.memory > 0)
        all = session->data_info.memory < (uint64_t)limit ? (int64_t)session->data_info.memory : limit;
    session->data_shared = session->data_share.is_apart ? 0 : weft_smaller(shared, all);
    session->data_bytes = all - session->data_shared;
    session->data_peak = session->data_info.peak < (uint64_t)limit ? (int64_t)session->data_info.peak : limit;
    for (int i = 0; i < 3; i++) {
        infos[i]->struct_size = (uint32_t)sizeof *infos[i];
        WEFT_PLUGIN_NOTIFY(session->data_plugin, split_info, session->data, splits[i], infos[i]);
    }
    status = weft_data_validate(&session->data_info, infos, session->data_job.max_context, training, err);
    status = weft_plugin_blame(session->data_plugin, status, err);
    return status == WEFT_OK && training ? weft_text_end_decide(&session->text, session->run, err) : status;
}

double weft_schedule_factor(const weft_schedule *schedule, int64_t step) {
    const int64_t x = step - 1, after = x - schedule->warmup;
    const int64_t span = schedule->steps > schedule->warmup ? schedule->steps - schedule->warmup : 1;
    const double done = (double)after / (double)span;
    if (after < 0) return (double)x / (double)schedule->warmup;
    switch (schedule->kind) {
    case WEFT_SCHEDULE_LINEAR: return done < 1.0 ? (double)(schedule->steps - x) / (double)span : 0.0;
    case WEFT_SCHEDULE_COSINE: return done < 1.0 ? 0.5 * (1.0 + cos(3.14159265358979323846 * done)) : 0.0;
    case WEFT_SCHEDULE_STEP: return pow(schedule->gamma, (double)(after / schedule->every));
    default: return 1.0;
    }
}

double weft_lr_scale(const weft_train_settings *train) {
    const double ratio = (double)train->global_batch / (double)train->lr_batch;
    if (train->lr_scaling == WEFT_LR_AS_IT_IS) return 1.0;
    return train->lr_scaling == WEFT_LR_LINEAR ? ratio : sqrt(ratio);
}

static void decide_training(weft_session *session) {
    const weft_train_settings *keys = &session->run->settings.train;
    weft_schedule *schedule = &session->schedule;
    session->steps = keys->steps;
    if (keys->steps == WEFT_NONE_I64)
        session->steps = (int64_t)ceil(keys->epochs * (double)session->train_info.rows / (double)keys->global_batch);
    if (session->steps < 1) session->steps = 1;
    schedule->kind = (int32_t)keys->schedule;
    schedule->steps = session->steps;
    schedule->warmup = weft_warmup_resolve(keys->warmup, session->steps);
    schedule->every = keys->step_every == WEFT_NONE_I64 ? 1 : keys->step_every;
    schedule->gamma = keys->gamma;
    session->clip = keys->clip == WEFT_NONE_F64 ? 0.0 : keys->clip;
    session->base_lr = 1.0;
    (void)weft_engine_lr(session->engine, &session->base_lr);
    session->base_lr *= weft_lr_scale(keys);
}

weft_plan_spec weft_session_spec(const weft_session *session, const weft_train_settings *keys) {
    const weft_session_kind kind = session->kind;
    weft_plan_spec spec = {.training = kind != WEFT_SESSION_EVALUATE};
    const int64_t every = weft_interval_resolve(&session->run->settings.checkpoint_every, session->steps);
    spec.saves = spec.training && kind != WEFT_SESSION_STEPS && every > 0 && every < session->steps;
    spec.rows = (int32_t)keys->micro_batch;
    spec.micro_batches = kind == WEFT_SESSION_EVALUATE ? 1 : (int32_t)(keys->global_batch / keys->micro_batch);
    if (kind == WEFT_SESSION_EVALUATE || (kind != WEFT_SESSION_STEPS && session->validation_info.rows > 0))
        spec.evaluate_rows = spec.rows;
    spec.n_lengths = session->data_info.n_lengths;
    memcpy(spec.lengths, session->data_info.lengths, sizeof spec.lengths);
    spec.data_bytes = session->data_bytes;
    spec.data_shared = session->data_shared;
    spec.data_peak = session->data_peak;
    if (weft_plan_printing.mode == WEFT_MODE_EVALUATE) spec.evaluate_rows = spec.rows;
    if (weft_plan_printing.mode == WEFT_MODE_GENERATE)
        spec.cache_rows = spec.prompt_rows = spec.lengths[spec.n_lengths - 1];
    return spec;
}

static weft_status open_text(weft_session *session, const weft_session *plugin_lookup, weft_error *err) {
    if (plugin_lookup == NULL) return weft_text_open(&session->text, session->run, err);
    session->borrows = true;
    session->text = plugin_lookup->text;
    session->data_plugin = plugin_lookup->data_plugin;
    session->data = plugin_lookup->data;
    session->data_info = plugin_lookup->data_info;
    session->train_info = plugin_lookup->train_info;
    session->validation_info = plugin_lookup->validation_info;
    session->all_info = plugin_lookup->all_info;
    return WEFT_OK;
}

/* Checks the headers of the model's files, and of the adapter that is continued. */
static weft_status check_files(const weft_session *session, weft_error *err) {
    const weft_settings *settings = &session->run->settings;
    const weft_declared *declared = session->engine->plan.declared;
    weft_status status = WEFT_OK;
    if (settings->model.start != WEFT_START_FRESH) status = weft_weights_check(declared, settings->model.path, err);
    if (status != WEFT_OK || settings->adapter_from[0] == '\0') return status;
    return weft_adapter_check(declared, settings->adapter_from,
                              WEFT_ADAPTER_SOME | (session->kind == WEFT_SESSION_TRAIN ? WEFT_ADAPTER_SAVED : 0), err);
}

weft_status weft_session_check(weft_run *run, weft_error *err) {
    weft_engine engine = {.plan = {.world = 1, .nodes = 1}};
    weft_session session = {.kind = WEFT_SESSION_TRAIN, .run = run, .engine = &engine};
    weft_status status = open_text(&session, NULL, err);
    if (status == WEFT_OK) status = weft_plan_open(&engine.plan, run, err);
    if (status == WEFT_OK) status = check_files(&session, err);
    if (status == WEFT_OK) status = check_vocabulary(run, &session.text, engine.plan.declared, err);
    begin_share(&session);
    if (status == WEFT_OK) status = open_data(&session, true, err);
    if (session.data != NULL) WEFT_PLUGIN_NOTIFY(session.data_plugin, destroy, session.data);
    weft_data_share_close(&session.data_share);
    weft_plan_close(&engine.plan);
    weft_text_close(&session.text);
    return status;
}

/* The positions of a text follow those of a prefix; both together must fit the model's context. */
static weft_status check_prefix(const weft_session *session, weft_error *err) {
    const weft_plan *plan = &session->engine->plan;
    const int64_t prefix = weft_budget_prefix_rows(plan), context = plan->spec.lengths[plan->spec.n_lengths - 1];
    const int64_t most = plan->declared->info.max_context;
    const char *section = "adapter"; /* of the adapter that attends to the prefix */
    char advice[96] = "train a shorter prefix";
    if (prefix <= 0 || prefix + context <= most) return WEFT_OK;
    for (int32_t i = plan->declared->n_sites - 1; i >= 0; i--) {
        const weft_declared_site *site = &plan->declared->sites[i];
        const weft_part *part = &session->run->parts[WEFT_PART_ADAPTER + (site->claimed > 0 ? site->claimed - 1 : 0)];
        if (site->claimed > 0 && site->view.kind == WEFT_SITE_ATTENTION && part->section[0] != '\0')
            section = part->section;
    }
    if (prefix < most)
        (void)snprintf(advice, sizeof advice, "set context to at most %lld, or train a shorter prefix",
                       (long long)(most - prefix));
    (void)weft_error_set(
        err, WEFT_E_USER,
        "[data] context = %lld and the %lld positions of the adapter's prefix ([%s] length) exceed the "
        "model's %lld positions. Fix: %s",
        (long long)context, (long long)prefix, section, (long long)most, advice);
    (void)weft_config_locate(session->run->config, "data", err);
    return WEFT_E_USER;
}

weft_status weft_session_open(weft_session **out, const char *path, const char *const *overrides, size_t n_overrides,
                              weft_session_kind kind, const weft_session_place *place, weft_error *err) {
    const bool training = kind != WEFT_SESSION_EVALUATE,
               starts = kind == WEFT_SESSION_TRAIN || kind == WEFT_SESSION_RESUME;
    const uint32_t needs = (training ? WEFT_NEEDS_ALL : WEFT_NEEDS_ALL & ~WEFT_NEEDS(WEFT_PART_OPTIMIZER)) |
                           (place == NULL ? 0 : WEFT_NEEDS_NO_PINNED);
    weft_plan_spec spec = {0};
    weft_status status = WEFT_OK;
    weft_session *session = weft_alloc(1, sizeof *session);
    session->kind = kind;
    status = weft_run_open(&session->run, path, overrides, n_overrides, needs, err);
    if (status == WEFT_OK && starts)
        status = weft_settings_for_training(&session->run->settings, session->run->config, err);
    else if (status == WEFT_OK && training)
        status = weft_settings_for_steps(&session->run->settings, session->run->config, err);
    if (status == WEFT_OK) status = open_text(session, place == NULL ? NULL : place->plugin_lookup, err);
    if (status == WEFT_OK)
        status = weft_engine_open(&session->engine, session->run, place == NULL ? NULL : &place->rank_span, err);
    if (status == WEFT_OK) {
        if (kind != WEFT_SESSION_STEPS && kind != WEFT_SESSION_RESUME) status = check_files(session, err);
        if (status == WEFT_OK)
            status = check_vocabulary(session->run, &session->text, session->engine->plan.declared, err);
        if (status == WEFT_OK) report_vocabulary(session, training);
        begin_share(session);
        if (status == WEFT_OK && !session->borrows) status = open_data(session, training, err);
        if (session->data_source.share != NULL) status = weft_data_share_end(&session->data_share, status, err);
        status = weft_coherence_data(weft_engine_peers(session->engine), session->engine->plan.declared,
                                     session->data_info.fingerprint, status, err);
    }
    if (status == WEFT_OK && training) decide_training(session);
    if (status == WEFT_OK) {
        spec = weft_session_spec(session, &session->run->settings.train);
        status = weft_engine_prepare(session->engine, &spec, err);
    }
    if (status == WEFT_OK)
        status = weft_process_group_agree(weft_engine_peers(session->engine), check_prefix(session, err), err);
    if (status == WEFT_OK) *out = session;
    else weft_session_close(session);
    return status;
}

weft_status weft_session_start(weft_session *session, weft_error *err) {
    const weft_train_settings *keys = &session->run->settings.train;
    weft_status status = weft_engine_allocate(session->engine, err);
    if (status == WEFT_E_MEMORY && err != NULL)
        weft_words_append(err->text, sizeof err->text,
                          " Fix: lower [train] micro_batch (%lld now) or [data] context%s; weft plan shows the memory.",
                          (long long)keys->micro_batch,
                          session->engine->plan.spec.training && !keys->activation_checkpointing
                              ? ", or set [train] activation_checkpointing = yes"
                              : "");
    if (status == WEFT_OK)
        status = weft_stepper_create(&session->stepper, session->engine, session->data_plugin, session->data, err);
    return status;
}

void weft_session_close(weft_session *session) {
    if (session == NULL) return;
    weft_engine_abandon(session->engine);
    weft_stepper_destroy(session->stepper);
    weft_engine_close(session->engine);
    if (session->data != NULL && !session->borrows) WEFT_PLUGIN_NOTIFY(session->data_plugin, destroy, session->data);
    weft_data_share_close(&session->data_share);
    if (!session->borrows) weft_text_close(&session->text);
    weft_run_close(session->run);
    free(session);
}

double weft_session_lr(const weft_session *session, int64_t step) {
    return session->base_lr * weft_schedule_factor(&session->schedule, step - session->engine->scale.skipped);
}

/* No micro-batch of the split had a target, as its plugin declares, or contrary to that. */
static weft_status reject_evaluation(const weft_session *session, int32_t split, weft_error *err) {
    const weft_split_info *info = split == WEFT_SPLIT_ALL ? &session->all_info : &session->validation_info;
    const char *id = session->engine->plan.run->parts[WEFT_PART_DATA].loaded->plugin->id;
    const char *name = split == WEFT_SPLIT_ALL ? "all" : "validation";
    if (info->targets == 0)
        return weft_error_set(err, WEFT_E_USER,
                              "no evaluation: [data] plugin = %s declares no target for the %llu rows of split %s", id,
                              (unsigned long long)info->rows, name);
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "no evaluation: the %llu rows of split %s from [data] plugin = %s have no target, but its "
                          "split_info declares %llu; `weft plugins check` of its file tests that (R74)",
                          (unsigned long long)info->rows, name, id, (unsigned long long)info->targets);
}

weft_status weft_session_evaluate(weft_session *session, weft_evaluation *out, int32_t split, weft_error *err) {
    const uint64_t rows = split == WEFT_SPLIT_ALL ? session->all_info.rows : session->validation_info.rows;
    const weft_engine *engine = session->engine;
    const uint64_t per_pass = (uint64_t)engine->plan.spec.evaluate_rows *
                              (uint64_t)engine->plan.evaluate.program->micro_batches;
    const double begin = weft_clock_seconds();
    weft_step_result result = {0};
    int64_t tokens = 0;
    weft_status status = WEFT_OK;
    weft_hidden_begin(session->stepper->hidden);
    for (uint64_t row = 0; row < rows && status == WEFT_OK; row += per_pass) {
        if (weft_signals_stop()) status = weft_error_set(err, WEFT_E_STOPPED, "stopped during evaluation");
        status = weft_process_group_agree(&engine->peers, status, err);
        if (status == WEFT_OK) status = weft_stepper_evaluate(session->stepper, &result, split, row, err);
        if (status == WEFT_OK) tokens += result.n_targets;
        if (status == WEFT_OK && session->watch != NULL && tokens > 0)
            session->watch(session->watch_context, row + per_pass < rows ? row + per_pass : rows, rows,
                           result.loss_sum / (double)tokens, tokens);
    }
    if (status == WEFT_OK && tokens == 0) status = reject_evaluation(session, split, err);
    if (status != WEFT_OK) return status;
    out->loss = result.loss_sum / (double)tokens;
    out->perplexity = exp(out->loss);
    out->tokens = tokens;
    out->seconds = weft_clock_seconds() - begin;
    out->similarity = NAN;
    return WEFT_OK;
}

weft_status weft_session_row(weft_micro_batch *out, const weft_session *session, int32_t split, uint64_t row,
                             weft_error *err) {
    const int64_t part = 4 * (int64_t)session->data_info.lengths[session->data_info.n_lengths - 1];
    const weft_micro_batch_request request = {
        .struct_size = (uint32_t)sizeof request, .split = split, .rows = 1, .first_row = row};
    void *memory = weft_alloc(WEFT_MICRO_BATCH_PARTS * part, 1);
    const weft_status status = weft_micro_batch_fetch(out, memory, part, session->data_plugin, session->data, &request,
                                                      &session->engine->plan, NULL, err);
    if (status != WEFT_OK) free(memory);
    return status;
}
