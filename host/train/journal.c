/* host/train/journal.c: see journal.h. */
#include "train/journal.h"

#include "base/machine.h"
#include "train/summary.h"
#include "run/session.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Returns the object on rank 0. planned: of weft_planned_array; ownership is transferred. The path of the model and the
 * configuration are null if they are not UTF-8, which JSON cannot represent. */
static json_t *start_json(const weft_session *session, bool resumed, json_t *planned) {
    const weft_declared *declared = session->engine->plan.declared;
    const weft_train_settings *train = &session->run->settings.train;
    const weft_split_info *split = &session->train_info, *validation = &session->validation_info;
    const weft_plan_spec *spec = &session->engine->plan.spec;
    const weft_device_info *info = &session->engine->device_info;
    char host[256] = "";
    json_t *run = weft_run_object(session, NULL);
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
                     "resumed", (int)resumed, "steps", (json_int_t)session->steps, "run", run, "model", model, "data",
                     data, "batch", batch, "device", device, "planned", planned, "config",
                     weft_config_array(session->run->config));
}

/* Nine digits represent an fp32 number exactly; seven are enough for people to compare. */
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

const weft_value_sink weft_value_rows_to_stdout = {.report = print_row};

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

weft_status weft_journal_open(weft_journal *self, const weft_session *session, const char *directory,
                              const weft_checkpoint_state *resumed_from, double begin, weft_error *err) {
    const weft_process_group *peers = &session->engine->peers;
    const bool writes = weft_process_group_is_rank_0(peers), resumed = resumed_from != NULL;
    const weft_records_end end = {.step = resumed ? resumed_from->step : 0,
                                  .is_evaluated = resumed && !isnan(resumed_from->eval_loss),
                                  .metrics_every = session->run->settings.run.metrics_every};
    json_t *planned = NULL;
    weft_status status = WEFT_OK;
    *self = (weft_journal){.session = session};
    if (writes)
        status = weft_records_open(&self->records, directory, resumed ? &end : NULL, begin,
                                   session->run->settings.run.tensorboard != 0, session->run->host, err);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = weft_planned_array(&planned, session, err);
    if (status == WEFT_OK && writes)
        status = add_object(self, WEFT_RECORD_STARTS, end.step, start_json(session, resumed, planned), err);
    return weft_process_group_agree(peers, status, err);
}

static void add_step(weft_rank_row *row, const weft_session *session, const weft_step_result *result, double seconds) {
    row->n_steps++;
    row->steps += seconds;
    row->data += result->data_seconds;
    if (!result->replayed) weft_phases_add(row->phases, session->stepper->trace, session->engine->plan.train.program);
}

/* Writes null for a number that JSON cannot represent: a skipped step's norm, and its loss if that overflowed. */
static const char *write_number(char out[40], double x) {
    (void)snprintf(out, 40, isfinite(x) ? "%.17g" : "null", x);
    return out;
}

/* Writes a line of metrics, and scalars with the names of Hugging Face's Trainer. The first fields are bit-identical in
 * every repetition of the run; the others depend on the machine. */
static weft_status write_metrics(weft_journal *self, uint64_t step, const weft_step_result *r, weft_error *err) {
    const weft_session *session = self->session;
    const double rows = (double)step * (double)session->run->settings.train.global_batch;
    const double loss = r->n_targets > 0 ? r->loss_sum / (double)r->n_targets : 0.0;
    const double epoch = rows / (double)session->train_info.rows, resident = (double)weft_resident_now();
    const double speed = self->since_line.steps > 0.0 ? (double)self->targets / self->since_line.steps : 0.0;
    const int64_t skipped = session->engine->scale.skipped;
    const bool scales = r->scale > 0.0; /* only for fp16 */
    const weft_scalar scalars[] = {{"train/loss", loss},
                                   {"train/learning_rate", r->lr},
                                   {"train/grad_norm", r->norm},
                                   {"train/epoch", epoch},
                                   {"train/tokens_per_second", speed},
                                   {"memory/resident", resident},
                                   {"train/loss_scale", scales ? r->scale : NAN},
                                   {"train/skipped_steps", scales ? (double)skipped : NAN}};
    char fields[1024], loss_text[40], norm_text[40], scale[120] = "";
    json_t *seconds = weft_rank_row_seconds(&self->since_line);
    char *phases = json_dumps(seconds, JSON_REAL_PRECISION(6));
    weft_status status = WEFT_OK;
    json_decref(seconds);
    if (scales)
        (void)snprintf(scale, sizeof scale, ", \"loss_scale\": %.9g, \"skipped\": %s, \"skipped_steps\": %lld",
                       r->scale, r->overflowed ? "true" : "false", (long long)skipped);
    (void)snprintf(fields, sizeof fields,
                   "\"loss\": %s, \"lr\": %.17g, \"grad_norm\": %s, \"tokens\": %lld%s, \"epoch\": %.6g, "
                   "\"tokens_per_second\": %.1f, \"resident\": %.0f, \"phases\": %s",
                   write_number(loss_text, loss), r->lr, write_number(norm_text, r->norm), (long long)r->n_targets,
                   scale, epoch, speed, resident, phases);
    free(phases);
    status = weft_records_add(&self->records, WEFT_RECORD_METRICS, step, fields, err);
    memset(&self->since_line, 0, sizeof self->since_line);
    self->targets = 0;
    if (status != WEFT_OK) return status;
    return weft_records_add_scalars(&self->records, step, scalars, sizeof scalars / sizeof *scalars, err);
}

weft_status weft_journal_step(weft_journal *self, uint64_t step, const weft_step_result *result, double seconds,
                              weft_error *err) {
    add_step(&self->since_row, self->session, result, seconds);
    if (!weft_process_group_is_rank_0(&self->session->engine->peers)) return WEFT_OK;
    add_step(&self->since_line, self->session, result, seconds);
    self->targets += result->n_targets;
    if (step != 1 && step != (uint64_t)self->session->steps &&
        step % (uint64_t)self->session->run->settings.run.metrics_every != 0)
        return WEFT_OK;
    return write_metrics(self, step, result, err);
}

weft_status weft_journal_evaluation(weft_journal *self, uint64_t step, const weft_evaluation *evaluation,
                                    weft_error *err) {
    const weft_scalar scalars[] = {{"eval/loss", evaluation->loss},
                                   {"eval/perplexity", evaluation->perplexity},
                                   {"eval/similarity", evaluation->similarity}};
    char perplexity[40], similarity[64] = "", fields[320];
    weft_status status = WEFT_OK;
    if (isfinite(evaluation->similarity))
        (void)snprintf(similarity, sizeof similarity, ", \"similarity\": %.17g", evaluation->similarity);
    (void)snprintf(fields, sizeof fields, "\"loss\": %.17g, \"perplexity\": %s, \"tokens\": %lld%s, \"took\": %.6f",
                   evaluation->loss, write_number(perplexity, evaluation->perplexity), (long long)evaluation->tokens,
                   similarity, evaluation->seconds);
    status = weft_records_add(&self->records, WEFT_RECORD_EVALUATIONS, step, fields, err);
    return status == WEFT_OK ? weft_records_add_scalars(&self->records, step, scalars, 3, err) : status;
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
