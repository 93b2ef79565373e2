/* stream.c: fills micro-batches from sequences: order of the sequences, length and content of a micro-batch. */
#include "rows.h"

#include <math.h>
#include <stdlib.h>

uint64_t data_mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 32);
}

uint64_t data_mix_corpus(uint64_t hash, const data_corpus *corpus) {
    const int64_t n = (int64_t)corpus->ids.array.n;
    const uint8_t *weights = corpus->weights.data;
    hash = data_mix(hash, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) hash = data_mix(hash, (uint64_t)(uint32_t)data_ids_at(&corpus->ids, i));
    for (int64_t i = 0; i < n && weights != NULL; i++) hash = data_mix(hash, weights[i]);
    return hash;
}

uint64_t data_mix_rows(uint64_t hash, const data_rows *rows) {
    hash = data_mix(hash, rows->n_pieces);
    for (size_t i = 0; i < rows->n_pieces; i++) {
        hash = data_mix(hash, (uint64_t)rows->pieces[i].start);
        hash = data_mix(hash, ((uint64_t)(uint32_t)rows->pieces[i].n << 32) | (uint32_t)rows->pieces[i].row);
    }
    return hash;
}

double data_validation_number(const char *text) {
    char *end = NULL;
    const double value = strtod(text, &end);
    if (strcmp(text, "none") == 0) return NAN;
    return end != text && *end == '\0' && text[0] != '/' ? value : -1.0;
}

int data_validation_holds(const char *text) {
    const double value = data_validation_number(text);
    if (isnan(value) || text[0] == '/') return 1;
    return value > 0.0 && (value < 1.0 || value == floor(value)) && value < 1e15;
}

int32_t data_lengths_read(int32_t lengths[WEFT_MAX_LENGTHS], const char *list, int64_t context) {
    const char *at = list;
    int32_t n = 0;
    int64_t before = 0;
    while (*at != '\0') {
        char *end = NULL;
        const long long length = strtoll(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0')) return 0;
        if (n == WEFT_MAX_LENGTHS - 1 || length <= before || length >= context) return 0;
        lengths[n++] = (int32_t)length;
        before = length;
        at = end + (*end == ',');
    }
    lengths[n++] = (int32_t)context;
    return n;
}

const data_rows *data_stream_rows(const data_stream *self, int32_t split) {
    if (split == WEFT_SPLIT_ALL && self->rows[split].pieces == NULL) return &self->rows[WEFT_SPLIT_TRAIN];
    return &self->rows[split];
}

/* Shuffles groups, and sequences inside of a group. Sequences of an incomplete group are last. */
static uint64_t grouped_row(const data_stream *self, uint64_t n, uint64_t place, uint64_t epoch) {
    const uint64_t size = (uint64_t)self->group, groups = n / size, whole = groups * size;
    const uint64_t seed = data_mix(self->seed, epoch);
    uint64_t group = 0;
    if (place >= whole) return place;
    group = weft_random_permute(groups, place / size, self->seed, WEFT_RANDOM_EPOCH, epoch);
    return group * size + weft_random_permute(size, place % size, seed, WEFT_RANDOM_EPOCH, group);
}

/* Maps a sequence of the stream to a packed sequence. -1: after the end of a split with a single pass. */
static int64_t stream_row(const data_stream *self, int32_t split, uint64_t row) {
    const uint64_t n = data_stream_rows(self, split)->n_rows;
    if (split != WEFT_SPLIT_TRAIN) return row < n ? (int64_t)row : -1;
    if (self->group > 0) return (int64_t)grouped_row(self, n, row % n, row / n);
    return (int64_t)weft_random_permute(n, row % n, self->seed, WEFT_RANDOM_EPOCH, row / n);
}

static int64_t piece_targets(const data_corpus *corpus, const data_piece *piece) {
    int64_t n = 0;
    if (corpus->weights.data == NULL) return piece->n;
    for (int32_t i = 1; i <= piece->n; i++) n += data_corpus_is_target(corpus, piece->start + i);
    return n;
}

void data_stream_split_info(const data_stream *self, int32_t split, weft_split_info *out) {
    const weft_split_info *info = &data_stream_rows(self, split)->info;
    out->documents = info->documents;
    out->rows = info->rows;
    out->tokens = info->tokens;
    out->targets = info->targets;
}

weft_status data_context_judge(int64_t context, const weft_data_job *job, weft_error *err) {
    if (context <= job->max_context) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "[data] context = %lld is longer than the model's %lld positions: set at most %lld",
                          (long long)context, (long long)job->max_context, (long long)job->max_context);
}

weft_status data_stream_shape(const data_stream *self, weft_micro_batch *out, const weft_micro_batch_request *request,
                              weft_error *err) {
    const data_rows *rows = NULL;
    int64_t targets = 0, longest = 0;
    int32_t l = 0;
    if (request->split < 0 || request->split >= DATA_N_SPLITS || request->rows < 1)
        return weft_error_set(err, WEFT_E_HOST, "a micro-batch of %d sequences of split %d was requested",
                              request->rows, request->split);
    rows = data_stream_rows(self, request->split);
    for (int32_t r = 0; r < request->rows; r++) {
        const int64_t row = stream_row(self, request->split, request->first_row + (uint64_t)r);
        int64_t places = 0;
        if (row < 0) continue;
        for (int64_t p = rows->first[row]; p < rows->first[row + 1]; p++) {
            places += rows->pieces[p].n;
            targets += piece_targets(rows->corpus, &rows->pieces[p]);
        }
        if (places > longest) longest = places;
    }
    while (self->lengths[l] < longest) l++;
    out->rows = request->rows;
    out->length = self->lengths[l];
    out->n_targets = targets;
    return WEFT_OK;
}

/* Writes a chunk at position `at` of a sequence with arrays that begin at `base`. */
static void fill_piece(weft_micro_batch *out, size_t base, int32_t at, const data_corpus *corpus,
                       const data_piece *piece) {
    for (int32_t i = 0; i < piece->n; i++) {
        const size_t to = base + (size_t)(at + i);
        const int64_t target = piece->start + i + 1;
        const int counts = data_corpus_is_target(corpus, target);
        out->ids[to] = data_ids_at(&corpus->ids, piece->start + i);
        out->targets[to] = counts ? data_ids_at(&corpus->ids, target) : 0;
        out->weights[to] = counts ? 1.0f : 0.0f;
        out->starts[to] = at;
        out->positions[to] = i;
    }
}

static void fill_padding(weft_micro_batch *out, size_t base, int32_t from, int32_t length) {
    for (int32_t t = from; t < length; t++) {
        const size_t to = base + (size_t)t;
        out->ids[to] = out->targets[to] = out->positions[to] = 0;
        out->weights[to] = 0.0f;
        out->starts[to] = t;
    }
}

weft_status data_stream_micro_batch(const data_stream *self, weft_micro_batch *out,
                                    const weft_micro_batch_request *request, weft_error *err) {
    const data_rows *rows = NULL;
    const weft_status status = data_stream_shape(self, out, request, err);
    if (status != WEFT_OK) return status;
    rows = data_stream_rows(self, request->split);
    for (int32_t r = 0; r < request->rows; r++) {
        const int64_t row = stream_row(self, request->split, request->first_row + (uint64_t)r);
        const size_t base = (size_t)r * (size_t)out->length;
        int32_t at = 0;
        for (int64_t p = row < 0 ? 0 : rows->first[row]; row >= 0 && p < rows->first[row + 1]; p++) {
            fill_piece(out, base, at, rows->corpus, &rows->pieces[p]);
            at += rows->pieces[p].n;
        }
        fill_padding(out, base, at, out->length);
    }
    return WEFT_OK;
}

uint64_t data_stream_bytes(const data_stream *self) {
    uint64_t bytes = 0;
    for (int i = 0; i < DATA_N_SPLITS; i++)
        bytes += self->rows[i].n_pieces * sizeof *self->rows[i].pieces + self->rows[i].n_rows * sizeof(int64_t);
    return bytes;
}

void data_stream_free(data_stream *self, const weft_host *host) {
    for (int i = 0; i < DATA_N_SPLITS; i++) data_rows_free(&self->rows[i], host);
}
