/* dialogue.c: a data plugin for a custom format: each line is a dialogue, "question | answer | question | answer". The
 * tokenizer's chat template encodes it and marks the ids of answers; each dialogue is a sequence. */
#include <weft/data.h>
#include <weft/random.h>

/* clang-format off */
#define DIALOGUE_KEYS(K)                                                                                               \
    K(PATH, path,    NULL,  "", "", WEFT_SAME, "A line is a dialogue: question | answer | ...")                        \
    K(I64,  context, "256", "[1,1M]", "tokens", WEFT_SAME, "Positions of a sequence.")
/* clang-format on */
WEFT_KEYS(dialogue_config, DIALOGUE_KEYS)

enum { MOST_TURNS = 64, MOST_LINE = 4096 };

typedef struct row {
    int32_t *ids, *answers; /* context + 1 of each */
    int32_t n, targets;     /* number of inputs, and of those with a target */
} row;

struct weft_data {
    const weft_host *host;
    dialogue_config config;
    uint64_t seed, n_rows, tokens, targets, hash;
    row *rows;
};

static void *zeros(const weft_host *host, size_t bytes) {
    void *memory = host->alloc(host, bytes, 64);
    return memory == NULL ? NULL : memset(memory, 0, bytes);
}

/* Appends ids to the last sequence, which counts them in n during encoding. */
static weft_status take(void *context, const int32_t *ids, const int32_t *answers, size_t n) {
    const weft_data *data = context;
    row *to = &data->rows[data->n_rows - 1];
    if ((int64_t)n > data->config.context + 1 - to->n) return WEFT_E_DATA;
    memcpy(to->ids + to->n, ids, n * sizeof *ids);
    memcpy(to->answers + to->n, answers, n * sizeof *answers);
    to->n += (int32_t)n;
    return WEFT_OK;
}

static weft_status add_row(weft_data *data, const weft_data_job *job, const weft_chat_message *turns, uint64_t n,
                           weft_error *err) {
    row *to = &data->rows[data->n_rows++];
    const weft_chat_sink sink = {data, take};
    const weft_chat chat = {(uint32_t)sizeof chat, 0, turns, n, (uint32_t)sizeof *turns, 0, NULL, NULL, 0, 0};
    to->ids = zeros(data->host, 2 * ((size_t)data->config.context + 1) * sizeof *to->ids);
    if (to->ids == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a dialogue");
    to->answers = to->ids + data->config.context + 1;
    if (job->chat(job, &sink, &chat, err) != WEFT_OK)
        return weft_error_prefix(err, "%s:%llu: in %lld positions: ", data->config.path,
                                 (unsigned long long)data->n_rows, (long long)data->config.context);
    for (int32_t i = 1; i < to->n; i++) to->targets += to->answers[i] >= 0;
    for (int32_t i = 0; i < to->n; i++) data->hash = (data->hash ^ (uint64_t)to->ids[i]) * 0x9E3779B97F4A7C15u;
    data->tokens += (uint64_t)to->n;
    data->targets += (uint64_t)to->targets;
    to->n -= to->n > 0;
    return WEFT_OK;
}

static weft_status read_file(weft_data *data, const weft_data_job *job, FILE *file, weft_error *err) {
    static char text[MOST_LINE];
    weft_status status = WEFT_OK;
    size_t most = 1;
    for (int c = 0; (c = fgetc(file)) != EOF;) most += c == '\n';
    rewind(file);
    data->rows = zeros(data->host, most * sizeof *data->rows);
    if (data->rows == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for dialogues");
    while (status == WEFT_OK && fgets(text, MOST_LINE, file) != NULL) {
        weft_chat_message turns[MOST_TURNS];
        uint64_t n = 0;
        if (strlen(text) == MOST_LINE - 1)
            return weft_error_set(err, WEFT_E_DATA, "%s:%llu: has more than %d bytes", data->config.path,
                                  (unsigned long long)data->n_rows + 1, MOST_LINE - 2);
        text[strcspn(text, "\r\n")] = '\0';
        for (const char *at = text, *bar = NULL; at != NULL && n < MOST_TURNS; at = bar != NULL ? bar + 3 : NULL) {
            const char *role = n % 2 == 0 ? "user" : "assistant";
            bar = strstr(at, " | ");
            turns[n++] = (weft_chat_message){
                (uint32_t)sizeof *turns, 0, role, at, bar != NULL ? (uint64_t)(bar - at) : strlen(at), NULL, 0};
        }
        status = add_row(data, job, turns, n, err);
    }
    if (status == WEFT_OK && data->targets == 0)
        status = weft_error_set(err, WEFT_E_DATA, "[data] path = %s has no answer to train on", data->config.path);
    return status;
}

static void dialogue_destroy(weft_data *data) {
    for (uint64_t i = 0; i < data->n_rows; i++) data->host->release(data->host, data->rows[i].ids);
    data->host->release(data->host, data->rows);
    data->host->release(data->host, data);
}

static weft_status dialogue_create(weft_data **out, const weft_host *host, const void *config, const weft_data_job *job,
                                   weft_error *err) {
    weft_data *data = zeros(host, sizeof *data);
    FILE *file = NULL;
    weft_status status = WEFT_OK;
    if (data == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the data");
    data->host = host;
    data->config = *(const dialogue_config *)config;
    data->seed = job->seed;
    file = fopen(data->config.path, "rb");
    status = file != NULL ? read_file(data, job, file, err)
                          : weft_error_set(err, WEFT_E_USER, "[data] path = %s cannot be read", data->config.path);
    if (file != NULL) (void)fclose(file);
    if (status == WEFT_OK) *out = data;
    else dialogue_destroy(data);
    return status;
}

static void dialogue_info(const weft_data *data, weft_data_info *out) {
    out->n_lengths = 1;
    out->lengths[0] = (int32_t)data->config.context;
    out->fingerprint = data->hash ^ data->seed;
}

static void dialogue_split_info(const weft_data *data, int32_t split, weft_split_info *out) {
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

static weft_status dialogue_shape(const weft_data *data, weft_micro_batch *out, const weft_micro_batch_request *request,
                                  weft_error *err) {
    (void)err;
    out->rows = request->rows;
    out->length = (int32_t)data->config.context;
    out->n_targets = 0;
    for (int32_t r = 0; r < request->rows; r++)
        out->n_targets += row_of(data, request, r) == NULL ? 0 : row_of(data, request, r)->targets;
    return WEFT_OK;
}

static weft_status dialogue_micro_batch(const weft_data *data, weft_micro_batch *out,
                                        const weft_micro_batch_request *request, weft_error *err) {
    const weft_status status = dialogue_shape(data, out, request, err);
    for (int32_t k = 0; k < out->rows * out->length; k++) {
        const row *from = row_of(data, request, k / out->length);
        const int32_t t = k % out->length, is = from != NULL && t < from->n;
        const int learned = is && from->answers[t + 1] >= 0;
        out->ids[k] = is ? from->ids[t] : 0;
        out->targets[k] = learned ? from->ids[t + 1] : 0;
        out->weights[k] = learned ? 1.0f : 0.0f;
        out->starts[k] = is ? 0 : t;
        out->positions[k] = is ? t : 0;
    }
    return status;
}

/* clang-format off */
static const weft_data_plugin dialogue_table = {
    (uint32_t)sizeof(weft_data_plugin), 0, dialogue_create, dialogue_destroy, dialogue_info, dialogue_split_info,
    dialogue_shape, dialogue_micro_batch, NULL};
/* clang-format on */

WEFT_PLUGIN(data, 1, "dialogue", "0.1.0", "Dialogues, a line each, learning the answers.", dialogue_config, NULL,
            dialogue_table)
