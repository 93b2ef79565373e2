/* weftnew-id: a data plugin: each line of a file is a document, each document is a sequence, and every token is a
 * target.
 *
 * The main thread calls `create` once, which reads and encodes all data. Any thread may call the other functions,
 * several at once, so the data is read-only afterwards. Sequence n of the training stream is always the same: the
 * stream consists of epochs, each a permutation, so a resumed run needs no replay and all ranks see the same data. The
 * host validates every micro-batch before it uses it. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0) /* the oldest supported host; newer declarations are hidden */
#include <weft/data.h>
#include <weft/random.h>

/* The keys of [data]: type, name, default, range, unit, flags, help. They define struct weftnew_config. */
/* clang-format off */
#define WEFTNEW_KEYS(K)                                                                                                \
    K(PATH, path,    NULL,  "",       "",       WEFT_SAME, "A line is a document.")                                    \
    K(I64,  context, "256", "[1,1M]", "tokens", WEFT_SAME, "Positions of a sequence; a longer document is an error.")
/* clang-format on */
WEFT_KEYS(weftnew_config, WEFTNEW_KEYS)

enum { MOST_LINE = 65536 };

typedef struct row {
    int32_t *ids; /* one more than inputs: the last is only a target */
    int32_t n;    /* inputs */
} row;

struct weft_data {
    const weft_host *host;
    weftnew_config config;
    uint64_t seed, n_rows, tokens, targets, hash;
    row *rows;
    int is_full; /* the sequence encoded last exceeds the limit */
};

static void *zeros(const weft_host *host, size_t bytes) {
    void *memory = host->alloc(host, bytes, 64);
    return memory == NULL ? NULL : memset(memory, 0, bytes);
}

/* Appends ids to the last sequence, which counts all of them in n during encoding. */
static weft_status take(void *context, const int32_t *ids, size_t n) {
    weft_data *data = (weft_data *)context;
    row *to = &data->rows[data->n_rows - 1];
    if ((int64_t)n > data->config.context + 1 - to->n) {
        data->is_full = 1;
        return WEFT_E_DATA;
    }
    memcpy(to->ids + to->n, ids, n * sizeof *ids);
    to->n += (int32_t)n;
    return WEFT_OK;
}

static weft_status add_row(weft_data *data, const weft_data_job *job, const char *text, uint64_t line,
                           weft_error *err) {
    row *to = &data->rows[data->n_rows++];
    weft_ids_sink sink;
    weft_status status;
    int32_t i;
    sink.context = data;
    sink.put = take;
    to->ids = (int32_t *)zeros(data->host, ((size_t)data->config.context + 1) * sizeof *to->ids);
    if (to->ids == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for line %llu", (unsigned long long)line);
    status = job->encode(job, &sink, text, strlen(text), err);
    if (status != WEFT_OK && data->is_full)
        return weft_error_set(err, WEFT_E_DATA, "%s:%llu: has more than [data] context = %lld tokens",
                              data->config.path, (unsigned long long)line, (long long)data->config.context);
    if (status != WEFT_OK) return weft_error_prefix(err, "%s:%llu: ", data->config.path, (unsigned long long)line);
    for (i = 0; i < to->n; i++) data->hash = (data->hash ^ (uint64_t)to->ids[i]) * 0x9E3779B97F4A7C15u;
    data->tokens += (uint64_t)to->n;
    to->n -= to->n > 0;
    data->targets += (uint64_t)to->n;
    return WEFT_OK;
}

static weft_status read_lines(weft_data *data, const weft_data_job *job, FILE *file, char *text, weft_error *err) {
    weft_status status = WEFT_OK;
    uint64_t line = 0;
    while (status == WEFT_OK && fgets(text, MOST_LINE, file) != NULL) {
        line++;
        if (strlen(text) == MOST_LINE - 1)
            return weft_error_set(err, WEFT_E_DATA, "%s:%llu: has more than %d bytes", data->config.path,
                                  (unsigned long long)line, MOST_LINE - 2);
        text[strcspn(text, "\r\n")] = '\0';
        if (text[0] != '\0') status = add_row(data, job, text, line, err);
    }
    if (status == WEFT_OK && data->targets == 0)
        status = weft_error_set(err, WEFT_E_DATA, "[data] path = %s has no text to train on", data->config.path);
    return status;
}

static weft_status read_file(weft_data *data, const weft_data_job *job, FILE *file, weft_error *err) {
    weft_status status;
    char *text = (char *)zeros(data->host, MOST_LINE);
    size_t most = 1;
    int c;
    while ((c = fgetc(file)) != EOF) most += c == '\n';
    rewind(file);
    data->rows = (row *)zeros(data->host, most * sizeof *data->rows);
    if (text == NULL || data->rows == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for %zu lines", most);
    else status = read_lines(data, job, file, text, err);
    data->host->release(data->host, text);
    return status;
}

static void weftnew_destroy(weft_data *data) {
    uint64_t i;
    if (data == NULL) return;
    for (i = 0; i < data->n_rows; i++) data->host->release(data->host, data->rows[i].ids);
    data->host->release(data->host, data->rows);
    data->host->release(data->host, data);
}

static weft_status weftnew_create(weft_data **out, const weft_host *host, const void *config, const weft_data_job *job,
                                  weft_error *err) {
    weft_data *data = (weft_data *)zeros(host, sizeof *data);
    FILE *file;
    weft_status status;
    if (data == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the data");
    data->host = host;
    data->config = *(const weftnew_config *)config;
    data->seed = job->seed;
    file = fopen(data->config.path, "rb");
    if (file == NULL) status = weft_error_set(err, WEFT_E_USER, "[data] path = %s cannot be read", data->config.path);
    else status = read_file(data, job, file, err);
    if (file != NULL) (void)fclose(file);
    if (status == WEFT_OK) *out = data;
    else weftnew_destroy(data);
    return status;
}

/* Sets single fields: out may be shorter or longer than this file's struct. */
static void weftnew_info(const weft_data *data, weft_data_info *out) {
    out->n_lengths = 1;
    out->lengths[0] = (int32_t)data->config.context;
    out->fingerprint = data->hash ^ data->seed; /* hash of all inputs of the sequences; resume fails if it differs */
}

static void weftnew_split_info(const weft_data *data, int32_t split, weft_split_info *out) {
    if (split == WEFT_SPLIT_VALIDATION) return; /* no validation data */
    out->documents = out->rows = data->n_rows;
    out->tokens = data->tokens;
    out->targets = data->targets;
}

/* Returns sequence r of a request, or NULL for padding. */
static const row *row_of(const weft_data *data, const weft_micro_batch_request *request, int32_t r) {
    const uint64_t at = request->first_row + (uint64_t)r, n = data->n_rows;
    if (request->split == WEFT_SPLIT_TRAIN)
        return &data->rows[weft_random_permute(n, at % n, data->seed, WEFT_RANDOM_EPOCH, at / n)];
    return request->split == WEFT_SPLIT_ALL && at < n ? &data->rows[at] : NULL;
}

static weft_status weftnew_shape(const weft_data *data, weft_micro_batch *out, const weft_micro_batch_request *request,
                                 weft_error *err) {
    int32_t r;
    (void)err;
    out->rows = request->rows;
    out->length = (int32_t)data->config.context;
    out->n_targets = 0;
    for (r = 0; r < request->rows; r++) {
        const row *from = row_of(data, request, r);
        out->n_targets += from == NULL ? 0 : from->n;
    }
    return WEFT_OK;
}

static weft_status weftnew_micro_batch(const weft_data *data, weft_micro_batch *out,
                                       const weft_micro_batch_request *request, weft_error *err) {
    const weft_status status = weftnew_shape(data, out, request, err);
    int32_t k;
    for (k = 0; k < out->rows * out->length; k++) {
        const row *from = row_of(data, request, k / out->length);
        const int32_t t = k % out->length;
        const int is = from != NULL && t < from->n;
        out->ids[k] = is ? from->ids[t] : 0;
        out->targets[k] = is ? from->ids[t + 1] : 0;
        out->weights[k] = is ? 1.0f : 0.0f;
        out->starts[k] = is ? 0 : t;
        out->positions[k] = is ? t : 0;
    }
    return status;
}

static const weft_data_plugin weftnew_table = {(uint32_t)sizeof(weft_data_plugin),
                                               0,
                                               weftnew_create,
                                               weftnew_destroy,
                                               weftnew_info,
                                               weftnew_split_info,
                                               weftnew_shape,
                                               weftnew_micro_batch,
                                               NULL};

WEFT_PLUGIN(data, 1, "weftnew-id", "0.1.0", "Each line is a document, and each document a sequence.", weftnew_config,
            NULL, weftnew_table)
