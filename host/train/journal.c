/* host/train/journal.c: see journal.h. */
#include "train/journal.h"

#include "base/file.h"
#include "base/machine.h"
#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

const char *weft_record_name(int32_t kind) {
    static const char *const names[WEFT_N_RECORDS] = {"starts.jsonl", "metrics.jsonl", "evaluations.jsonl",
                                                      "checkpoints.jsonl", "phases.jsonl"};
    return kind >= 0 && kind < WEFT_N_RECORDS ? names[kind] : "?";
}

static weft_status write_failure(const char *path, weft_error *err) {
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", path, strerror(errno));
}

static double unix_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- events ----
 *
 * A file of events is a sequence of TFRecords (tensorflow/core/lib/io/record_writer.h): the length of a message as 8
 * bytes, 4 bytes of masked CRC32C of these, the message, 4 bytes of masked CRC32C of it; all little-endian. A message
 * is an Event of tensorflow/core/util/event.proto with these fields:
 *
 *     double wall_time = 1;  int64 step = 2;
 *     one of:  string file_version = 3;  Summary summary = 5;  SessionLog session_log = 7;
 *     Summary: repeated Value value = 1;   Value: string tag = 1, float simple_value = 2
 *     SessionLog: Status status = 1, with START = 1
 *
 * A START at step N makes TensorBoard discard the data of earlier files in the directory from step N on. */

/* Wire types of protocol buffers (protobuf.dev/programming-guides/encoding). */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* Never overflows: tags are the host's own, and short. */
typedef struct message {
    unsigned char bytes[1024];
    size_t n;
} message;

static void put_bytes(message *self, const void *bytes, size_t n) {
    if (n > sizeof self->bytes - self->n) n = sizeof self->bytes - self->n;
    memcpy(self->bytes + self->n, bytes, n);
    self->n += n;
}

static void put_varint(message *self, uint64_t value) {
    do {
        const unsigned char byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put_bytes(self, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_little(message *self, uint64_t value, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)(value >> (8 * i));
        put_bytes(self, &byte, 1);
    }
}

static void put_text(message *self, uint32_t field, const void *text, size_t n) {
    put_varint(self, field << 3 | BYTES);
    put_varint(self, n);
    put_bytes(self, text, n);
}

/* Writes wall_time and step, the fields of every event. */
static message begin_event(uint64_t step) {
    const union {
        double value;
        uint64_t bits;
    } now = {unix_seconds()};
    message event = {.n = 0};
    put_varint(&event, 1 << 3 | FIXED64);
    put_little(&event, now.bits, 8);
    put_varint(&event, 2 << 3 | VARINT);
    put_varint(&event, step);
    return event;
}

/* Computes the masked CRC32C (Castagnoli, reflected). The mask is for checksums of data that contains checksums. Events
 * are few and small, so one bit at a time is fast enough. */
static uint32_t masked_crc(const unsigned char *bytes, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static weft_status write_event(weft_journal *self, const message *event, weft_error *err) {
    message head = {.n = 0}, tail = {.n = 0};
    put_little(&head, event->n, 8);
    put_little(&head, masked_crc(head.bytes, 8), 4);
    put_little(&tail, masked_crc(event->bytes, event->n), 4);
    if (fwrite(head.bytes, 1, head.n, self->events) == head.n &&
        fwrite(event->bytes, 1, event->n, self->events) == event->n &&
        fwrite(tail.bytes, 1, tail.n, self->events) == tail.n && fflush(self->events) == 0)
        return WEFT_OK;
    return write_failure(self->events_path, err);
}

/* Writes the version that readers expect first, and this process's start step. Readers sort a directory's files by
 * name, so the name starts with ten digits of time. */
static weft_status open_events(weft_journal *self, uint64_t step, weft_error *err) {
    static const char version[] = "brain.Event:2";
    static const unsigned char start[] = {1 << 3 | VARINT, 1};
    message event = begin_event(0);
    char host[128] = "";
    const int n = snprintf(self->events_path, sizeof self->events_path, "%s/tensorboard", self->directory);
    weft_status status = weft_tree_make(self->events_path, err);
    if (status != WEFT_OK) return status;
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(self->events_path + n, sizeof self->events_path - (size_t)n, "/events.out.tfevents.%010lld.%s.%ld",
                   (long long)time(NULL), host, (long)getpid());
    self->events = fopen(self->events_path, "wxe");
    if (self->events == NULL) return write_failure(self->events_path, err);
    put_text(&event, 3, version, sizeof version - 1);
    status = write_event(self, &event, err);
    event = begin_event(step);
    put_text(&event, 7, start, sizeof start);
    return status == WEFT_OK ? write_event(self, &event, err) : status;
}

typedef struct scalar {
    const char *tag; /* "train/loss" */
    double value;
} scalar;

/* Adds an event with the finite ones of n values, at most 8. */
static weft_status add_scalars(weft_journal *self, uint64_t step, const scalar *scalars, int32_t n, weft_error *err) {
    message event = begin_event(step), summary = {.n = 0};
    if (self->events == NULL) return WEFT_OK;
    for (int32_t i = 0; i < n; i++) {
        const union {
            float value;
            uint32_t bits;
        } x = {(float)scalars[i].value};
        message value = {.n = 0};
        if (!isfinite(scalars[i].value)) continue;
        put_text(&value, 1, scalars[i].tag, strlen(scalars[i].tag));
        put_varint(&value, 2 << 3 | FIXED32);
        put_little(&value, x.bits, 4);
        put_text(&summary, 1, value.bytes, value.n);
    }
    put_text(&event, 5, summary.bytes, summary.n);
    return write_event(self, &event, err);
}

typedef struct cut {
    const weft_checkpoint_state *end; /* that the run resumed from; NULL: keep no lines */
    int32_t kind;
    const char *path;
    const weft_host *host;
    double seconds;    /* the latest of the kept lines */
    int64_t every;     /* largest interval between two lines of metrics under any start of the run; 0: unknown */
    uint64_t previous; /* step of the last kept metrics line */
    bool warned;       /* about a damaged line since then */
} cut;

/* Parses a record; NULL: invalid. A last line without a newline is from an interrupted run. */
static json_t *read_line(cut *self, const char *line, size_t n, int64_t number) {
    json_t *record = NULL;
    if (line[n - 1] == '\n') (void)weft_json_parse(&record, line, n, 0, self->path, NULL);
    if (json_is_integer(json_object_get(record, "step"))) return record;
    json_decref(record);
    if (line[n - 1] != '\n') return NULL;
    self->warned = true;
    weft_log(self->host, WEFT_LOG_WARN, "%s:%lld is no complete record and is left out", self->path, (long long)number);
    return NULL;
}

/* Raises `every` to the interval configured in a line of starts.jsonl. */
static void take_start(cut *self, const json_t *record) {
    const json_t *keys = json_object_get(record, "config");
    int64_t every = 0;
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const json_t *key = json_array_get(keys, i);
        const char *name = json_string_value(json_object_get(key, "key"));
        if (name != NULL && strcmp(name, "run.metrics_every") == 0)
            every = (int64_t)json_integer_value(json_object_get(key, "value"));
    }
    if (every == 0) self->every = 0;
    else if (self->every != 0 && every > self->every) self->every = every;
}

/* Reports a gap before `next`: the step of the following metrics line, or one more than the last step. */
static void report_gap(cut *self, uint64_t next) {
    const uint64_t first = self->previous + 1, most = self->previous == 0 ? 1 : (uint64_t)self->every;
    if (self->every > 0 && !self->warned && next > self->previous + most)
        weft_log(self->host, WEFT_LOG_WARN, "%s: the records of steps %llu to %llu are missing", self->path,
                 (unsigned long long)first, (unsigned long long)next - 1);
    self->previous = next;
    self->warned = false;
}

/* Returns false if the line is dropped. */
static bool keep_line(cut *self, const char *line, size_t n, int64_t number) {
    json_t *record = read_line(self, line, n, number);
    const json_int_t step = json_integer_value(json_object_get(record, "step"));
    const double seconds = json_number_value(json_object_get(record, "seconds"));
    const weft_checkpoint_state *end = self->end;
    const bool stays = record != NULL && end != NULL && step >= 0 && (uint64_t)step <= end->step &&
                       (self->kind != WEFT_RECORD_EVALUATIONS || (uint64_t)step < end->step || !isnan(end->eval_loss));
    if (stays && self->kind == WEFT_RECORD_STARTS) take_start(self, record);
    if (stays && self->kind == WEFT_RECORD_METRICS) report_gap(self, (uint64_t)step);
    json_decref(record);
    if (stays && seconds > self->seconds) self->seconds = seconds;
    return stays;
}

/* Writes the kept lines to a new file that replaces the old one. */
static weft_status cut_back(cut *self, weft_error *err) {
    weft_file file;
    weft_status status = WEFT_OK;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n = 0;
    FILE *to = NULL, *from = fopen(self->path, "re");
    if (from == NULL && errno == ENOENT) return WEFT_OK; /* for metrics that is a gap */
    if (from == NULL) return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be read: %s", self->path, strerror(errno));
    to = weft_file_begin(&file, self->path, err);
    for (int64_t number = 1; to != NULL && (n = getline(&line, &capacity, from)) > 0; number++)
        if (keep_line(self, line, (size_t)n, number))
            (void)fwrite(line, 1, (size_t)n, to); /* commit detects a failure */
    if (to == NULL) status = WEFT_E_SYSTEM;
    else if (!feof(from))
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be read: %s", self->path, strerror(errno));
    free(line);
    (void)fclose(from);
    if (status == WEFT_OK) return weft_file_commit(&file, err);
    if (to != NULL) weft_file_cancel(&file);
    return status;
}

static weft_status open_record(weft_journal *self, int32_t kind, cut *kept, weft_error *err) {
    char path[4096];
    weft_status status = WEFT_OK;
    (void)snprintf(path, sizeof path, "%s/%s", self->directory, weft_record_name(kind));
    kept->path = path;
    kept->kind = kind;
    status = cut_back(kept, err);
    if (status != WEFT_OK) return status;
    if (kind == WEFT_RECORD_METRICS && kept->end != NULL) { /* at most `every` - 1 lines may be missing at the end */
        const uint64_t last = kept->end->step;
        if (kept->previous < last && (kept->previous == 0 || last - kept->previous >= (uint64_t)kept->every))
            report_gap(kept, last + 1);
    }
    self->files[kind] = fopen(path, "ae");
    return self->files[kind] != NULL ? WEFT_OK : write_failure(path, err);
}

/* Truncates all files to `end` (NULL: to empty) and opens them for appending, and if configured a new file of events. A
 * torn last line is dropped silently: a process was killed while it wrote it. Any other invalid line is dropped with a
 * warning. A gap in the steps of metrics.jsonl is a warning, too. begin: start of this process's work. Time continues
 * at the end of the kept lines. */
static weft_status open_records(weft_journal *self, const weft_checkpoint_state *end, double begin, weft_error *err) {
    const weft_run *run = self->session->run;
    cut kept = {.end = end, .host = run->host, .every = end == NULL ? 0 : run->settings.run.metrics_every};
    weft_status status = WEFT_OK;
    for (int32_t kind = 0; kind < WEFT_N_RECORDS && status == WEFT_OK; kind++)
        status = open_record(self, kind, &kept, err);
    self->begin = begin - kept.seconds;
    if (status != WEFT_OK || run->settings.run.tensorboard == 0) return status;
    return open_events(self, end == NULL ? 0 : end->step + 1, err);
}

void weft_journal_close(weft_journal *self) {
    for (int32_t kind = 0; kind < WEFT_N_RECORDS; kind++)
        if (self->files[kind] != NULL) (void)fclose(self->files[kind]);
    if (self->events != NULL) (void)fclose(self->events);
    memset(self, 0, sizeof *self);
}

weft_status weft_journal_add(weft_journal *self, int32_t kind, uint64_t step, const char *fields, weft_error *err) {
    FILE *file = self->files[kind];
    if (file == NULL) return WEFT_OK;
    if (fprintf(file, "{\"step\": %llu, %s, \"seconds\": %.3f, \"time\": %.3f}\n", (unsigned long long)step, fields,
                weft_clock_seconds() - self->begin, unix_seconds()) > 0 &&
        fflush(file) == 0)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s/%s cannot be written: %s", self->directory, weft_record_name(kind),
                          strerror(errno));
}

weft_status weft_journal_sync(weft_journal *self, weft_error *err) {
    for (int32_t kind = 0; kind <= WEFT_N_RECORDS; kind++) {
        FILE *file = kind < WEFT_N_RECORDS ? self->files[kind] : self->events;
        if (file != NULL && (fflush(file) != 0 || fsync(fileno(file)) != 0))
            return weft_error_set(err, WEFT_E_SYSTEM, "the records in %s cannot be written: %s", self->directory,
                                  strerror(errno));
    }
    return WEFT_OK;
}

/* ---- the journal ---- */

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

/* Adds the object's text without its braces. Takes ownership of the object; NULL: it has text that is not UTF-8. */
static weft_status add_object(weft_journal *self, int32_t kind, uint64_t step, json_t *object, weft_error *err) {
    char *text = object == NULL ? NULL : json_dumps(object, JSON_REAL_PRECISION(9));
    weft_status status = WEFT_OK;
    json_decref(object);
    if (text == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "a line of %s has text that is not UTF-8", weft_record_name(kind));
    text[strlen(text) - 1] = '\0';
    status = weft_journal_add(self, kind, step, text + 1, err);
    free(text);
    return status;
}

weft_status weft_journal_open(weft_journal *self, const weft_session *session, const char *directory,
                              const weft_checkpoint_state *resumed_from, double begin, weft_error *err) {
    const weft_process_group *peers = &session->engine->peers;
    const bool writes = weft_process_group_is_rank_0(peers), resumed = resumed_from != NULL;
    json_t *planned = NULL;
    weft_status status = WEFT_OK;
    *self = (weft_journal){.session = session, .directory = directory};
    if (writes) status = open_records(self, resumed_from, begin, err);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = weft_planned_array(&planned, session, err);
    if (status == WEFT_OK && writes)
        status = add_object(self, WEFT_RECORD_STARTS, resumed ? resumed_from->step : 0,
                            start_json(session, resumed, planned), err);
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
    const scalar scalars[] = {{"train/loss", loss},
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
    status = weft_journal_add(self, WEFT_RECORD_METRICS, step, fields, err);
    memset(&self->since_line, 0, sizeof self->since_line);
    self->targets = 0;
    if (status != WEFT_OK) return status;
    return add_scalars(self, step, scalars, sizeof scalars / sizeof *scalars, err);
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
    const scalar scalars[] = {{"eval/loss", evaluation->loss},
                              {"eval/perplexity", evaluation->perplexity},
                              {"eval/similarity", evaluation->similarity}};
    char perplexity[40], similarity[64] = "", fields[320];
    weft_status status = WEFT_OK;
    if (isfinite(evaluation->similarity))
        (void)snprintf(similarity, sizeof similarity, ", \"similarity\": %.17g", evaluation->similarity);
    (void)snprintf(fields, sizeof fields, "\"loss\": %.17g, \"perplexity\": %s, \"tokens\": %lld%s, \"took\": %.6f",
                   evaluation->loss, write_number(perplexity, evaluation->perplexity), (long long)evaluation->tokens,
                   similarity, evaluation->seconds);
    status = weft_journal_add(self, WEFT_RECORD_EVALUATIONS, step, fields, err);
    return status == WEFT_OK ? add_scalars(self, step, scalars, 3, err) : status;
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
