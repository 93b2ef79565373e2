/* host/report/summary.c: see summary.h. */
#include "report/summary.h"

#include "base/units.h"
#include "base/machine.h"
#include "report/world_line.h"
#include "report/stages.h"
#include "report/tables.h"

#include <math.h>

void weft_schedule_warn(const weft_session *session) {
    if (session->schedule.warmup < session->steps) return;
    weft_log(session->run->host, WEFT_LOG_WARN,
             "the warm-up of %lld steps is not over when the run of %lld steps ends: the learning rate never gets to "
             "%g",
             (long long)session->schedule.warmup, (long long)session->steps, session->base_lr);
}

/* Prints the stages. They are omitted if they cannot be planned. */
static void print_stages(const weft_engine *engine, FILE *to) {
    weft_all_rank_plan *all_rank_plan = NULL;
    weft_stages stages = {0};
    if (!weft_stages_exist(&engine->plan) || weft_all_rank_plan_create(&all_rank_plan, &engine->plan, NULL) != WEFT_OK)
        return;
    weft_stages_make(&stages, &engine->plan, all_rank_plan);
    weft_stages_print(&stages, to);
    weft_stages_free(&stages);
    weft_all_rank_plan_destroy(all_rank_plan);
}

static void print_model(const weft_session *session, FILE *to) {
    const weft_declared *declared = session->engine->plan.declared;
    const int64_t all = weft_declared_numel(declared, false), trained = weft_declared_numel(declared, true);
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    (void)fprintf(to, "model      %s, %s parameters", session->run->settings.model.path, weft_unit_count(a, all));
    if (trained == all) (void)fprintf(to, ", all trained\n");
    else
        (void)fprintf(to, ", %s trained (%.4g %%)\n", weft_unit_count(b, trained),
                      100.0 * (double)trained / (double)all);
}

static void print_data(const weft_session *session, FILE *to) {
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE];
    (void)fprintf(to, "data       %s, %s, %s an epoch",
                  weft_unit_counted(a, (int64_t)session->train_info.documents, "document"),
                  weft_unit_counted(b, (int64_t)session->train_info.rows, "row"),
                  weft_unit_counted(c, (int64_t)session->train_info.targets, "target"));
    if (session->validation_info.rows > 0)
        (void)fprintf(to, "; validation %s, %s",
                      weft_unit_counted(a, (int64_t)session->validation_info.documents, "document"),
                      weft_unit_counted(b, (int64_t)session->validation_info.targets, "target"));
    (void)fputc('\n', to);
}

static bool sets_lr(const weft_run *run) {
    char own[100];
    (void)snprintf(own, sizeof own, "optimizer.%s", weft_run_id(run, WEFT_PART_OPTIMIZER));
    return weft_config_has_key(run->config, "optimizer", "lr") || weft_config_has_key(run->config, own, "lr");
}

void weft_lr_print(const weft_session *session, int width, FILE *to) {
    const weft_train_settings *train = &session->run->settings.train;
    const double scale = weft_lr_scale(train);
    if (train->lr_scaling == WEFT_LR_AS_IT_IS) return;
    (void)fprintf(to, "%-*s%g for %lld rows, times %g for %lld (%s): %g\n", width, "lr", session->base_lr / scale,
                  (long long)train->lr_batch, scale, (long long)train->global_batch,
                  train->lr_scaling == WEFT_LR_LINEAR ? "linear" : "sqrt", session->base_lr);
}

/* Prints a default learning rate, and its scaling. */
static void print_lr(const weft_session *session, FILE *to) {
    double lr = 0;
    if (!sets_lr(session->run) && weft_engine_lr(session->engine, &lr))
        (void)fprintf(to, "lr         %g is the default of %s: [optimizer] lr is not set\n", lr,
                      weft_run_id(session->run, WEFT_PART_OPTIMIZER));
    weft_lr_print(session, 11, to);
}

static void print_batch(const weft_session *session, FILE *to) {
    const weft_train_settings *train = &session->run->settings.train;
    const int32_t micro_batches = session->engine->plan.spec.micro_batches;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    (void)fprintf(to, "batch      %s = %d %s of %lld, %s = %.3g epochs\n",
                  weft_unit_counted(a, train->global_batch, "row"), micro_batches,
                  micro_batches == 1 ? "micro-batch" : "micro-batches", (long long)train->micro_batch,
                  weft_unit_counted(b, session->steps, "step"),
                  (double)session->steps * (double)train->global_batch / (double)session->train_info.rows);
}

/* Prints the training method in one line: the content of the run and world lines of --verbose. */
static void print_method(const weft_session *session, FILE *to) {
    const weft_run *run = session->run;
    const int32_t world = session->engine->ranks.world;
    char a[WEFT_UNIT_SIZE];
    (void)fprintf(to, "method     %s, lr %g, %s, strategy %s", weft_run_id(run, WEFT_PART_OPTIMIZER), session->base_lr,
                  weft_dtype_name(weft_precision_dtype(&run->settings.train)), weft_run_id(run, WEFT_PART_STRATEGY));
    if (world > 1) (void)fprintf(to, " on %s", weft_unit_counted(a, world, "rank"));
    (void)fputc('\n', to);
}

void weft_train_header_print(const weft_session *session, const weft_memory_snapshot *planned, bool verbose, FILE *to) {
    if (!verbose) {
        print_model(session, to);
        print_data(session, to);
        print_batch(session, to);
        print_method(session, to);
        print_lr(session, to);
    } else {
        const weft_plan *plan = &session->engine->plan;
        weft_wrapped wrapped = weft_wrapped_make(plan->declared, plan->layout);
        weft_run_print(session, NULL, 11, to);
        print_lr(session, to);
        print_model(session, to);
        weft_wrapped_print_line(&wrapped, plan->declared, plan->layout, weft_run_id(session->run, WEFT_PART_POLICY), 11,
                                to);
        weft_wrapped_free(&wrapped);
        print_data(session, to);
        print_batch(session, to);
        weft_world_print(session, 11, to);
        weft_batches_print(session, to);
        /* a warning is printed otherwise */
        if (session->engine->plan.train.coverage.covered) weft_sums_print(session, 11, to);
    }
    weft_device_line_print(&session->engine->device_info, to);
    weft_memory_snapshots_print_planned(planned, session, 11, to);
    if (verbose) print_stages(session->engine, to);
    (void)fflush(to);
}

static void time_line(FILE *to, const char *name, double seconds, double whole) {
    char text[WEFT_UNIT_SIZE];
    (void)fprintf(to, "  %-12s %10s  %5.1f %%\n", name, weft_unit_seconds(text, seconds), 100.0 * seconds / whole);
}

static void print_times(const weft_train_summary *s, FILE *to) {
    const double whole = weft_clock_seconds() - s->begin;
    const double named = s->compute_seconds + s->data_seconds + s->evaluate_seconds + s->checkpoint_seconds;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE], d[WEFT_UNIT_SIZE];
    const double busy = s->compute_seconds + s->data_seconds;
    (void)fprintf(to, "trained    %s on %s in %s (%s targets/s while training)\n",
                  weft_unit_counted(a, s->result.steps, "step"), weft_unit_counted(b, s->tokens, "target"),
                  weft_unit_seconds(c, whole),
                  weft_unit_count(d, busy > 0.0 ? (int64_t)((double)s->tokens / busy) : 0));
    time_line(to, "compute", s->compute_seconds, whole);
    time_line(to, "data", s->data_seconds, whole);
    time_line(to, "evaluation", s->evaluate_seconds, whole);
    time_line(to, "checkpoints", s->checkpoint_seconds, whole);
    time_line(to, "start", whole - named, whole);
}

/* Prints the losses. A resumed run begins at its start step, which is printed. */
static void print_losses(const weft_train_summary *s, FILE *to) {
    char at[40] = "";
    if (s->first_eval_step > 0) (void)snprintf(at, sizeof at, " after step %lld", (long long)s->first_eval_step);
    if (s->evaluations > 1)
        (void)fprintf(to, "loss       %.4f%s -> %.4f on validation\n", s->first_eval_loss, at, s->last_eval_loss);
    else if (s->evaluations == 1) (void)fprintf(to, "loss       %.4f on validation\n", s->last_eval_loss);
}

void weft_train_summary_print(const weft_train_summary *s, const weft_session *session, bool verbose, FILE *to) {
    const weft_engine *engine = session->engine;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE], d[WEFT_UNIT_SIZE], e[WEFT_UNIT_SIZE];
    const int64_t live = session->stepper->trace->high_water;
    const int64_t held = weft_account_held(&engine->account);
    char who[24] = "";
    if (engine->ranks.world > 1) (void)snprintf(who, sizeof who, "rank %d: ", (int)engine->ranks.rank);
    (void)fprintf(to, "\n");
    print_times(s, to);
    print_losses(s, to);
    if (weft_plan_scales(&engine->plan))
        (void)fprintf(to, "loss scale %g at the end; %lld step%s skipped, %llu updates made\n",
                      (double)engine->scale.scale, (long long)engine->scale.skipped,
                      engine->scale.skipped == 1 ? "" : "s", (unsigned long long)engine->updates);
    if (!isnan(s->similarity))
        (void)fprintf(to, "similarity %.4g, 1 less the cosine of the mean last hidden states before and after\n",
                      s->similarity);
    (void)fprintf(to, "memory     %s%s planned, %s taken; of the arena of %s, %s were live at most; libraries %s", who,
                  weft_unit_bytes(a, engine->plan.bytes.total), weft_unit_bytes(b, engine->account.most),
                  weft_unit_bytes(c, engine->plan.bytes.line[WEFT_ACCOUNT_ARENA]), weft_unit_bytes(d, live),
                  weft_unit_bytes(e, weft_library_bytes()));
    if (held > 0) (void)fprintf(to, ", and %s of the device with its context", weft_unit_bytes(a, held));
    (void)fprintf(to, "\n");
    if (verbose) weft_run_print(session, &s->result, 11, to);
    if (verbose) weft_world_print(session, 11, to);
    (void)fprintf(to, "model      %s\n", s->model_path);
}
