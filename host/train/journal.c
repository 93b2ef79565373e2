/* host/train/journal.c: see journal.h. */
#include "train/journal.h"

#include "base/resident.h"
#include "report/start_facts.h"

#include <math.h>
#include <stdlib.h>

/* The object's text without its braces, to be freed; takes the object over. NULL: no memory. */
static char *json_fields(json_t *object) {
    char *text = object == NULL ? NULL : json_dumps(object, JSON_REAL_PRECISION(9));
    const size_t n = text == NULL ? 0 : strlen(text);
    json_decref(object);
    if (n < 3) {
        free(text);
        return NULL;
    }
    memmove(text, text + 1, n - 2);
    text[n - 2] = '\0';
    return text;
}

static weft_status add_object(weft_journal *self, int32_t kind, uint64_t step, json_t *object, weft_error *err) {
    char *fields = json_fields(object);
    weft_status status = WEFT_OK;
    if (fields == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for a line of %s", weft_record_name(kind));
    else status = weft_records_add(&self->records, kind, step, fields, err);
    free(fields);
    return status;
}

weft_status weft_journal_open(weft_journal *self, const weft_session *session, const char *directory,
                              const uint64_t *resumed_from, double begin, weft_error *err) {
    const weft_peers *peers = &session->engine->peers;
    json_t *planned = NULL;
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->session = session;
    if (weft_peers_first(peers))
        status = weft_records_open(&self->records, directory, resumed_from, begin, session->run->host, err);
    status = weft_peers_agree(peers, status, err);
    if (status == WEFT_OK) status = weft_planned_array(&planned, session, err);
    if (status == WEFT_OK && weft_peers_first(peers))
        status = add_object(self, WEFT_RECORD_STARTS, resumed_from == NULL ? 0 : *resumed_from,
                            weft_start_facts(session, resumed_from != NULL, planned), err);
    return weft_peers_agree(peers, status, err);
}

void weft_journal_close(weft_journal *self) {
    weft_records_close(&self->records);
}

static void add_step(weft_rank_row *row, const weft_session *session, const weft_step_result *result, double seconds) {
    row->n_steps++;
    row->steps += seconds;
    row->data += result->data_seconds;
    weft_phases_add(row->phases, session->stepper->trace, session->engine->plan.train.program);
}

static bool line_is_due(const weft_session *session, uint64_t step) {
    return step == 1 || step == (uint64_t)session->steps ||
           step % (uint64_t)session->run->settings.run.metrics_every == 0;
}

/* The first fields are the run's, with the same bits whenever it is made again; the others are this machine's. */
static weft_status write_metrics(weft_journal *self, uint64_t step, const weft_step_result *r, weft_error *err) {
    const weft_session *session = self->session;
    const weft_metrics_span *span = &self->since_line;
    const double rows = (double)step * (double)session->run->settings.train.global_batch;
    char fields[1024];
    char *phases = json_dumps(weft_rank_row_seconds(&span->row), JSON_REAL_PRECISION(6));
    weft_status status = WEFT_OK;
    if (phases == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a line of metrics.jsonl");
    (void)snprintf(fields, sizeof fields,
                   "\"loss\": %.17g, \"lr\": %.17g, \"grad_norm\": %.17g, \"tokens\": %lld, \"epoch\": %.6g, "
                   "\"tokens_per_second\": %.1f, \"resident\": %lld, \"phases\": %s",
                   r->n_targets > 0 ? r->loss_sum / (double)r->n_targets : 0.0, r->lr, r->norm, (long long)r->n_targets,
                   rows / (double)session->train_info.rows,
                   span->row.steps > 0.0 ? (double)span->targets / span->row.steps : 0.0,
                   (long long)weft_resident_now(), phases);
    free(phases);
    status = weft_records_add(&self->records, WEFT_RECORD_METRICS, step, fields, err);
    memset(&self->since_line, 0, sizeof self->since_line);
    return status;
}

weft_status weft_journal_step(weft_journal *self, uint64_t step, const weft_step_result *result, double seconds,
                              weft_error *err) {
    add_step(&self->since_row, self->session, result, seconds);
    if (!weft_peers_first(&self->session->engine->peers)) return WEFT_OK;
    add_step(&self->since_line.row, self->session, result, seconds);
    self->since_line.targets += result->n_targets;
    return line_is_due(self->session, step) ? write_metrics(self, step, result, err) : WEFT_OK;
}

weft_status weft_journal_evaluation(weft_journal *self, uint64_t step, const weft_evaluation *evaluation,
                                    weft_error *err) {
    char perplexity[48] = "null", fields[256];
    if (isfinite(evaluation->perplexity))
        (void)snprintf(perplexity, sizeof perplexity, "%.17g", evaluation->perplexity);
    (void)snprintf(fields, sizeof fields, "\"loss\": %.17g, \"perplexity\": %s, \"tokens\": %lld, \"took\": %.6f",
                   evaluation->loss, perplexity, (long long)evaluation->tokens, evaluation->seconds);
    return weft_records_add(&self->records, WEFT_RECORD_EVALUATIONS, step, fields, err);
}

weft_status weft_journal_save(weft_journal *self, uint64_t step, const char *what, double took, bool best,
                              weft_error *err) {
    char fields[160];
    (void)snprintf(fields, sizeof fields, "\"what\": \"%s\", \"best\": %s, \"took\": %.6f", what,
                   best ? "true" : "false", took);
    return weft_records_add(&self->records, WEFT_RECORD_CHECKPOINTS, step, fields, err);
}

weft_status weft_journal_phases(weft_journal *self, uint64_t step, weft_error *err) {
    const weft_peers *peers = &self->session->engine->peers;
    json_t *rows = NULL;
    weft_status status = WEFT_OK;
    const int64_t n = self->since_row.n_steps;
    if (n == 0) return WEFT_OK; /* alike on all ranks */
    weft_rank_row_memory(&self->since_row, self->session);
    status = weft_rank_rows_array(&rows, self->session, &self->since_row, err);
    memset(&self->since_row, 0, sizeof self->since_row);
    if (status == WEFT_OK && weft_peers_first(peers))
        status = add_object(self, WEFT_RECORD_PHASES, step,
                            json_pack("{s:I, s:o}", "steps", (json_int_t)n, "ranks", rows), err);
    return status;
}

weft_status weft_journal_sync(weft_journal *self, weft_error *err) {
    return weft_records_sync(&self->records, err);
}
