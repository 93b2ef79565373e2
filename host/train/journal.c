/* host/train/journal.c: see journal.h. */
#include "train/journal.h"

#include "base/ahead.h"
#include "report/summary.h"
#include "run/session.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Returns the participants of the run, without its results. */
static json_t *run_json(const weft_session *session) {
    static const char *const outcome[] = {"steps", "first_loss", "last_loss", "last_lr"};
    const weft_run_result none = {0};
    json_t *object = weft_run_object(session, &none);
    for (size_t i = 0; i < sizeof outcome / sizeof *outcome; i++) (void)json_object_del(object, outcome[i]);
    return object;
}

/* Returns the object on rank 0. planned: of weft_planned_array; ownership is transferred. The path of the model and the
 * configuration are null if they are not UTF-8, which JSON cannot represent. */
static json_t *start_json(const weft_session *session, bool resumed, json_t *planned) {
    const weft_declared *declared = session->engine->plan.declared;
    const weft_train_settings *train = &session->run->settings.train;
    const weft_split_info *split = &session->train_info, *validation = &session->validation_info;
    const weft_plan_spec *spec = &session->engine->plan.spec;
    const weft_device_info *info = &session->engine->device_info;
    char host[256] = "";
    json_t *model = json_pack("{s:o?, s:I, s:I}", "path", json_string(session->run->settings.model.path), "parameters",
                              (json_int_t)weft_declared_numel(declared, false), "trained",
                              (json_int_t)weft_declared_numel(declared, true));
    json_t *data = json_pack("{s:I, s:I, s:I, s:I, s:I}", "documents", (json_int_t)split->documents, "rows",
                             (json_int_t)split->rows, "targets", (json_int_t)split->targets, "validation_documents",
                             (json_int_t)validation->documents, "validation_targets", (json_int_t)validation->targets);
    json_t *batch = json_pack("{s:I, s:I, s:i}", "global", (json_int_t)train->global_batch, "micro",
                              (json_int_t)train->micro_batch, "places", (int)spec->lengths[spec->n_lengths - 1]);
    json_t *device = json_pack("{s:s, s:s, s:s, s:i, s:I}", "name", info->name, "isa", info->isa, "backend",
                               info->backend, "threads", (int)info->threads, "memory", (json_int_t)info->memory);
    (void)gethostname(host, sizeof host - 1);
    return json_pack("{s:s, s:s, s:b, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o?}", "weft", WEFT_VERSION, "host", host,
                     "resumed", (int)resumed, "steps", (json_int_t)session->steps, "run", run_json(session), "model",
                     model, "data", data, "batch", batch, "device", device, "planned", planned, "config",
                     weft_config_array(session->run->config));
}

/* Nine digits represent an fp32 number exactly; seven are enough for people
 * to compare. */

static void print_row(void *context, const weft_value_row *row) {
    const int64_t n = row->n < WEFT_VALUES_SHOWN ? row->n : WEFT_VALUES_SHOWN;
    char what[200];
    (void)context;
    (void)snprintf(what, sizeof what, "%s%s%s", row->name, row->part[0] == '\0' ? "" : ", ", row->part);
    (void)printf("step %llu  %-28s  %-28s", (unsigned long long)row->step, row->instruction, what);
    for (int64_t i = 0; i < n; i++) (void)printf("  %14.7g", row->numbers[i]);
    if (n < row->n) (void)printf("  ... of %lld", (long long)row->n);
    (void)putchar('\n');
}

const weft_value_sink *weft_value_rows_to_stdout(void) {
    static const weft_value_sink sink = {.report = print_row};
    return &sink;
}

/* Adds the object's text without its braces. Takes ownership of the object; NULL: it has text that is not UTF-8. */
static weft_status add_object(weft_journal *self, int32_t kind, uint64_t step, json_t *object, weft_error *err) {
    char *text = object == NULL ? NULL : json_dumps(object, JSON_REAL_PRECISION(9));
    weft_status status = WEFT_OK;
    json_decref(object);
    if (text == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "a line of %s has text that is not UTF-8", weft_record_name(kind));
    text[strlen(text) - 1] = '\0';
    status = weft_records_add(&self->records, kind, step, text + 1, err);
    free(text);
    return status;
}

static weft_status open_events(weft_journal *self, const char *directory, const weft_checkpoint_state *resumed_from,
                               weft_error *err) {
    char path[3800];
    const int n = snprintf(path, sizeof path, "%s/tensorboard", directory);
    if (self->session->run->settings.run.tensorboard == 0) return WEFT_OK;
    if (n < 0 || (size_t)n >= sizeof path)
        return weft_error_set(err, WEFT_E_USER, "[run] out: the path %s/tensorboard is too long", directory);
    return weft_event_file_open(&self->events, path, resumed_from == NULL ? 0 : resumed_from->step + 1, err);
}

weft_status weft_journal_open(weft_journal *self, const weft_session *session, const char *directory,
                              const weft_checkpoint_state *resumed_from, double begin, weft_error *err) {
    const weft_process_group *peers = &session->engine->peers;
    json_t *planned = NULL;
    weft_status status = WEFT_OK;
    const weft_records_end end = {.step = resumed_from == NULL ? 0 : resumed_from->step,
                                  .is_evaluated = resumed_from != NULL && !isnan(resumed_from->eval_loss),
                                  .metrics_every = session->run->settings.run.metrics_every};
    memset(self, 0, sizeof *self);
    self->session = session;
    if (weft_process_group_is_rank_0(peers))
        status = weft_records_open(&self->records, directory, resumed_from == NULL ? NULL : &end, begin,
                                   session->run->host, err);
    if (status == WEFT_OK && weft_process_group_is_rank_0(peers))
        status = open_events(self, directory, resumed_from, err);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = weft_planned_array(&planned, session, err);
    if (status == WEFT_OK && weft_process_group_is_rank_0(peers))
        status = add_object(self, WEFT_RECORD_STARTS, resumed_from == NULL ? 0 : resumed_from->step,
                            start_json(session, resumed_from != NULL, planned), err);
    return weft_process_group_agree(peers, status, err);
}

void weft_journal_close(weft_journal *self) {
    weft_records_close(&self->records);
    weft_event_file_close(&self->events);
}

static void add_step(weft_rank_row *row, const weft_session *session, const weft_step_result *result, double seconds) {
    row->n_steps++;
    row->steps += seconds;
    row->data += result->data_seconds;
    if (!result->replayed) weft_phases_add(row->phases, session->stepper->trace, session->engine->plan.train.program);
}

/* A line of metrics: the result of a step, and the totals since the last line. */
typedef struct metrics {
    double loss, lr, norm, epoch, speed, resident;
    double scale; /* 0: no loss scaling */
    int64_t targets, skipped;
    bool overflowed;
} metrics;

static metrics make_metrics(const weft_journal *self, uint64_t step, const weft_step_result *r) {
    const weft_session *session = self->session;
    const weft_metrics_span *span = &self->since_line;
    const double rows = (double)step * (double)session->run->settings.train.global_batch;
    const metrics out = {
        .loss = r->n_targets > 0 ? r->loss_sum / (double)r->n_targets : 0.0,
        .lr = r->lr,
        .norm = r->norm,
        .epoch = rows / (double)session->train_info.rows,
        .speed = span->row.steps > 0.0 ? (double)span->targets / span->row.steps : 0.0,
        .resident = (double)weft_resident_now(),
        .scale = r->scale,
        .targets = r->n_targets,
        .skipped = session->engine->scale.skipped,
        .overflowed = r->overflowed,
    };
    return out;
}

/* Uses the names of Hugging Face's Trainer. */
static weft_status write_metrics_events(weft_journal *self, uint64_t step, const metrics *m, weft_error *err) {
    const weft_scalar all[] = {
        {"train/loss", m->loss},
        {"train/learning_rate", m->lr},
        {"train/grad_norm", m->norm},
        {"train/epoch", m->epoch},
        {"train/tokens_per_second", m->speed},
        {"memory/resident", m->resident},
        {"train/loss_scale", m->scale > 0.0 ? m->scale : NAN},
        {"train/skipped_steps", m->scale > 0.0 ? (double)m->skipped : NAN},
    };
    enum { N = sizeof all / sizeof *all };
    weft_scalar scalars[N];
    int32_t n = 0;
    for (int i = 0; i < N; i++)
        if (isfinite(all[i].value)) scalars[n++] = all[i];
    return weft_event_file_add(&self->events, step, scalars, n, err);
}

/* Writes null for a number that JSON cannot represent: a skipped step's norm, and its loss if that overflowed. */
static const char *write_number(char out[40], double x) {
    (void)snprintf(out, 40, isfinite(x) ? "%.17g" : "null", x);
    return out;
}

/* Writes a line of metrics. The first fields are bit-identical in every repetition of the run; the others depend on the
 * machine. */
static weft_status write_metrics(weft_journal *self, uint64_t step, const weft_step_result *result, weft_error *err) {
    const metrics m = make_metrics(self, step, result);
    char fields[1024], loss[40], norm[40], scale[120] = "";
    json_t *seconds = weft_rank_row_seconds(&self->since_line.row);
    char *phases = json_dumps(seconds, JSON_REAL_PRECISION(6));
    weft_status status = WEFT_OK;
    json_decref(seconds);
    if (m.scale > 0.0) /* only for fp16 */
        (void)snprintf(scale, sizeof scale, ", \"loss_scale\": %.9g, \"skipped\": %s, \"skipped_steps\": %lld", m.scale,
                       m.overflowed ? "true" : "false", (long long)m.skipped);
    (void)snprintf(fields, sizeof fields,
                   "\"loss\": %s, \"lr\": %.17g, \"grad_norm\": %s, \"tokens\": %lld%s, \"epoch\": %.6g, "
                   "\"tokens_per_second\": %.1f, \"resident\": %.0f, \"phases\": %s",
                   write_number(loss, m.loss), m.lr, write_number(norm, m.norm), (long long)m.targets, scale, m.epoch,
                   m.speed, m.resident, phases);
    free(phases);
    status = weft_records_add(&self->records, WEFT_RECORD_METRICS, step, fields, err);
    memset(&self->since_line, 0, sizeof self->since_line);
    return status == WEFT_OK ? write_metrics_events(self, step, &m, err) : status;
}

weft_status weft_journal_step(weft_journal *self, uint64_t step, const weft_step_result *result, double seconds,
                              weft_error *err) {
    add_step(&self->since_row, self->session, result, seconds);
    if (!weft_process_group_is_rank_0(&self->session->engine->peers)) return WEFT_OK;
    add_step(&self->since_line.row, self->session, result, seconds);
    self->since_line.targets += result->n_targets;
    if (step != 1 && step != (uint64_t)self->session->steps &&
        step % (uint64_t)self->session->run->settings.run.metrics_every != 0)
        return WEFT_OK;
    return write_metrics(self, step, result, err);
}

weft_status weft_journal_evaluation(weft_journal *self, uint64_t step, const weft_evaluation *evaluation,
                                    weft_error *err) {
    weft_scalar scalars[3] = {{"eval/loss", evaluation->loss}};
    int32_t n = 1;
    char perplexity[48] = "null", similarity[64] = "", fields[320];
    weft_status status = WEFT_OK;
    if (isfinite(evaluation->perplexity)) {
        (void)snprintf(perplexity, sizeof perplexity, "%.17g", evaluation->perplexity);
        scalars[n++] = (weft_scalar){"eval/perplexity", evaluation->perplexity};
    }
    if (isfinite(evaluation->similarity)) {
        (void)snprintf(similarity, sizeof similarity, ", \"similarity\": %.17g", evaluation->similarity);
        scalars[n++] = (weft_scalar){"eval/similarity", evaluation->similarity};
    }
    (void)snprintf(fields, sizeof fields, "\"loss\": %.17g, \"perplexity\": %s, \"tokens\": %lld%s, \"took\": %.6f",
                   evaluation->loss, perplexity, (long long)evaluation->tokens, similarity, evaluation->seconds);
    status = weft_records_add(&self->records, WEFT_RECORD_EVALUATIONS, step, fields, err);
    return status == WEFT_OK ? weft_event_file_add(&self->events, step, scalars, n, err) : status;
}

weft_status weft_journal_save(weft_journal *self, uint64_t step, const char *what, double held, double beside,
                              bool best, weft_error *err) {
    char fields[160];
    (void)snprintf(fields, sizeof fields, "\"what\": \"%s\", \"best\": %s, \"took\": %.6f, \"beside\": %.6f", what,
                   best ? "true" : "false", held, beside);
    return weft_records_add(&self->records, WEFT_RECORD_CHECKPOINTS, step, fields, err);
}

weft_status weft_journal_phases(weft_journal *self, uint64_t step, weft_error *err) {
    const weft_process_group *peers = &self->session->engine->peers;
    json_t *rows = NULL;
    weft_status status = WEFT_OK;
    const int64_t n = self->since_row.n_steps;
    if (n == 0) return WEFT_OK; /* identical on all ranks */
    status = weft_rank_rows_array(&rows, self->session, &self->since_row, err);
    memset(&self->since_row, 0, sizeof self->since_row);
    if (status == WEFT_OK && weft_process_group_is_rank_0(peers))
        status = add_object(self, WEFT_RECORD_PHASES, step,
                            json_pack("{s:I, s:o}", "steps", (json_int_t)n, "ranks", rows), err);
    return status;
}

weft_status weft_journal_sync(weft_journal *self, weft_error *err) {
    const weft_status status = weft_records_sync(&self->records, err);
    return status == WEFT_OK ? weft_event_file_sync(&self->events, err) : status;
}
