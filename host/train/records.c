/* host/train/records.c: see records.h. */
#include "train/records.h"

#include "base/units.h"
#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ---- a message ---- */

/* Wire types of protocol buffers (protobuf.dev/programming-guides/encoding). */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { MESSAGE_BYTES = 1024 };

/* Never overflows: tags are the host's own, and short. */
typedef struct message {
    unsigned char bytes[MESSAGE_BYTES];
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

static void put_key(message *self, uint32_t field, uint32_t type) {
    put_varint(self, field << 3 | type);
}

/* Appends a number's bytes in little-endian order on any machine. */
static void put_little(message *self, uint64_t value, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)(value >> (8 * i));
        put_bytes(self, &byte, 1);
    }
}

static void put_double(message *self, uint32_t field, double value) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    put_key(self, field, FIXED64);
    put_little(self, bits, 8);
}

static void put_float(message *self, uint32_t field, float value) {
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    put_key(self, field, FIXED32);
    put_little(self, bits, 4);
}

static void put_text(message *self, uint32_t field, const void *text, size_t n) {
    put_key(self, field, BYTES);
    put_varint(self, n);
    put_bytes(self, text, n);
}

static double unix_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Writes wall_time and step, the fields of every event. */
static message begin_event(uint64_t step) {
    message event = {.n = 0};
    put_double(&event, 1, unix_seconds());
    put_key(&event, 2, VARINT);
    put_varint(&event, step);
    return event;
}

/* ---- a record ---- */

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

static weft_status write_record(weft_event_file *self, const message *event, weft_error *err) {
    message head = {.n = 0}, tail = {.n = 0};
    put_little(&head, event->n, 8);
    put_little(&head, masked_crc(head.bytes, 8), 4);
    put_little(&tail, masked_crc(event->bytes, event->n), 4);
    if (fwrite(head.bytes, 1, head.n, self->file) == head.n &&
        fwrite(event->bytes, 1, event->n, self->file) == event->n &&
        fwrite(tail.bytes, 1, tail.n, self->file) == tail.n && fflush(self->file) == 0)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", self->path, strerror(errno));
}

/* ---- the file ---- */

/* Writes the version that readers expect first, and this process's start step. */
static weft_status write_beginning(weft_event_file *self, uint64_t step, weft_error *err) {
    static const char version[] = "brain.Event:2";
    static const unsigned char start[] = {1 << 3 | VARINT, 1};
    message event = begin_event(0);
    weft_status status = WEFT_OK;
    put_text(&event, 3, version, sizeof version - 1);
    status = write_record(self, &event, err);
    event = begin_event(step);
    put_text(&event, 7, start, sizeof start);
    return status == WEFT_OK ? write_record(self, &event, err) : status;
}

weft_status weft_event_file_open(weft_event_file *self, const char *directory, uint64_t step, weft_error *err) {
    char host[128] = "";
    weft_status status = weft_tree_make(directory, err);
    memset(self, 0, sizeof *self);
    if (status != WEFT_OK) return status;
    (void)gethostname(host, sizeof host - 1);
    /* Readers sort a directory's files by name, so the name starts with ten digits of time. */
    (void)snprintf(self->path, sizeof self->path, "%s/events.out.tfevents.%010lld.%s.%ld", directory,
                   (long long)time(NULL), host, (long)getpid());
    self->file = fopen(self->path, "wxe");
    if (self->file == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", self->path, strerror(errno));
    return write_beginning(self, step, err);
}

void weft_event_file_close(weft_event_file *self) {
    if (self->file != NULL) (void)fclose(self->file);
    self->file = NULL;
}

weft_status weft_event_file_add(weft_event_file *self, uint64_t step, const weft_scalar *scalars, int32_t n,
                                weft_error *err) {
    message event = begin_event(step), summary = {.n = 0};
    if (self->file == NULL) return WEFT_OK;
    for (int32_t i = 0; i < n && i < WEFT_MAX_SCALARS; i++) {
        message value = {.n = 0};
        put_text(&value, 1, scalars[i].tag, strlen(scalars[i].tag));
        put_float(&value, 2, (float)scalars[i].value);
        put_text(&summary, 1, value.bytes, value.n);
    }
    put_text(&event, 5, summary.bytes, summary.n);
    return write_record(self, &event, err);
}

weft_status weft_event_file_sync(weft_event_file *self, weft_error *err) {
    if (self->file == NULL || (fflush(self->file) == 0 && fsync(fileno(self->file)) == 0)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", self->path, strerror(errno));
}

const char *weft_record_name(int32_t kind) {
    static const char *const names[WEFT_N_RECORDS] = {"starts.jsonl", "metrics.jsonl", "evaluations.jsonl",
                                                      "checkpoints.jsonl", "phases.jsonl"};
    return kind >= 0 && kind < WEFT_N_RECORDS ? names[kind] : "?";
}

static weft_status record_path(char path[4096], const weft_records *self, int32_t kind, weft_error *err) {
    const int n = snprintf(path, 4096, "%s/%s", self->directory, weft_record_name(kind));
    if (n > 0 && n < 4096) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "[run] out: the path %s/%s is too long", self->directory,
                          weft_record_name(kind));
}

/* ---- truncation ---- */

/* State of the truncation. */
typedef struct cut {
    const weft_records_end *end; /* NULL: keep no lines */
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

static bool belongs(const cut *self, uint64_t step) {
    if (self->end == NULL || step > self->end->step) return false;
    return self->kind != WEFT_RECORD_EVALUATIONS || step < self->end->step || self->end->is_evaluated;
}

/* Returns false if the line is dropped. */
static bool keep_line(cut *self, const char *line, size_t n, int64_t number) {
    json_t *record = read_line(self, line, n, number);
    const json_int_t step = json_integer_value(json_object_get(record, "step"));
    const double seconds = json_number_value(json_object_get(record, "seconds"));
    const bool stays = record != NULL && step >= 0 && belongs(self, (uint64_t)step);
    if (stays && self->kind == WEFT_RECORD_STARTS) take_start(self, record);
    if (stays && self->kind == WEFT_RECORD_METRICS) report_gap(self, (uint64_t)step);
    json_decref(record);
    if (stays && seconds > self->seconds) self->seconds = seconds;
    return stays;
}

static weft_status copy_lines(cut *self, FILE *to, FILE *from, weft_error *err) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n = 0;
    weft_status status = WEFT_OK;
    for (int64_t number = 1; (n = getline(&line, &capacity, from)) > 0; number++)
        if (keep_line(self, line, (size_t)n, number))
            (void)fwrite(line, 1, (size_t)n, to); /* commit detects a
                                                                                             * failure */
    if (!feof(from)) status = weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be read: %s", self->path, strerror(errno));
    free(line);
    return status;
}

/* Writes the kept lines to a new file that replaces the old one. */
static weft_status cut_back(cut *self, weft_error *err) {
    weft_file file;
    weft_status status = WEFT_OK;
    FILE *to = NULL, *from = fopen(self->path, "re");
    if (from == NULL && errno == ENOENT) return WEFT_OK; /* for metrics that is a gap */
    if (from == NULL) return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be read: %s", self->path, strerror(errno));
    to = weft_file_begin(&file, self->path, err);
    status = to == NULL ? WEFT_E_SYSTEM : copy_lines(self, to, from, err);
    (void)fclose(from);
    if (to != NULL && status == WEFT_OK) return weft_file_commit(&file, err);
    if (to != NULL) weft_file_cancel(&file);
    return status;
}

/* Checks the end: at most `every` - 1 lines may be missing before the last step. */
static void report_end(cut *kept) {
    const uint64_t last = kept->end->step;
    if (kept->previous < last && (kept->previous == 0 || last - kept->previous >= (uint64_t)kept->every))
        report_gap(kept, last + 1);
}

static weft_status open_record(weft_records *self, int32_t kind, cut *kept, weft_error *err) {
    char path[4096];
    weft_status status = record_path(path, self, kind, err);
    kept->path = path;
    kept->kind = kind;
    if (status == WEFT_OK) status = cut_back(kept, err);
    if (status == WEFT_OK && kind == WEFT_RECORD_METRICS && kept->end != NULL) report_end(kept);
    kept->path = NULL;
    if (status != WEFT_OK) return status;
    self->files[kind] = fopen(path, "ae");
    if (self->files[kind] != NULL) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", path, strerror(errno));
}

weft_status weft_records_open(weft_records *self, const char *directory, const weft_records_end *end, double begin,
                              const weft_host *host, weft_error *err) {
    cut kept = {.end = end, .host = host, .every = end == NULL ? 0 : end->metrics_every};
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->directory = directory;
    for (int32_t kind = 0; kind < WEFT_N_RECORDS && status == WEFT_OK; kind++)
        status = open_record(self, kind, &kept, err);
    self->begin = begin - kept.seconds;
    return status;
}

void weft_records_close(weft_records *self) {
    for (int32_t kind = 0; kind < WEFT_N_RECORDS; kind++)
        if (self->files[kind] != NULL) (void)fclose(self->files[kind]);
    memset(self, 0, sizeof *self);
}

/* ---- writing ---- */

weft_status weft_records_add(weft_records *self, int32_t kind, uint64_t step, const char *fields, weft_error *err) {
    FILE *file = self->files[kind];
    if (file == NULL) return WEFT_OK;
    if (fprintf(file, "{\"step\": %llu, %s, \"seconds\": %.3f, \"time\": %.3f}\n", (unsigned long long)step, fields,
                weft_clock_seconds() - self->begin, unix_seconds()) > 0 &&
        fflush(file) == 0)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s/%s cannot be written: %s", self->directory, weft_record_name(kind),
                          strerror(errno));
}

weft_status weft_records_sync(weft_records *self, weft_error *err) {
    for (int32_t kind = 0; kind < WEFT_N_RECORDS; kind++) {
        FILE *file = self->files[kind];
        if (file != NULL && (fflush(file) != 0 || fsync(fileno(file)) != 0))
            return weft_error_set(err, WEFT_E_SYSTEM, "the records in %s cannot be written: %s", self->directory,
                                  strerror(errno));
    }
    return WEFT_OK;
}
