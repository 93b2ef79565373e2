/* made.c: serializes corpora and sequences to one buffer, which one rank of a machine writes and all its ranks map. */
#include "rows.h"

enum { CORPUS_ARRAYS = 3, ROWS_ARRAYS = 2, N_ARRAYS = DATA_N_CORPORA * CORPUS_ARRAYS + DATA_N_SPLITS * ROWS_ARRAYS };
enum { ALIGNMENT = 64 };

/* Header of the buffer. Its pointers are invalid. */
typedef struct head {
    data_stream stream;
    data_corpus corpora[DATA_N_CORPORA];
    int64_t corpus_of[DATA_N_SPLITS];
    uint64_t bytes[N_ARRAYS], more_bytes, peak;
} head;

typedef struct array_view {
    const void *data;
    const data_array *array; /* NULL: not a growing array */
    size_t bytes;
} array_view;

static array_view view_array(const data_array *array, size_t element_bytes) {
    const array_view view = {array->data, array, array->data == NULL ? 0 : array->n * element_bytes};
    return view;
}

static void list_arrays(array_view out[N_ARRAYS], const data_made *made) {
    for (int i = 0; i < DATA_N_CORPORA; i++, out += CORPUS_ARRAYS) {
        const data_corpus *corpus = &made->corpora[i];
        out[0] = view_array(&corpus->ids.array, data_ids_width(&corpus->ids));
        out[1] = view_array(&corpus->weights, 1);
        out[2] = view_array(&corpus->starts, sizeof(int64_t));
    }
    for (int i = 0; i < DATA_N_SPLITS; i++, out += ROWS_ARRAYS) {
        const data_rows *rows = &made->stream.rows[i];
        const size_t first = rows->pieces != NULL ? rows->n_rows + 1 : 0;
        const array_view pieces = {rows->pieces, NULL, rows->n_pieces * sizeof *rows->pieces};
        const array_view firsts = {rows->first, NULL, first * sizeof *rows->first};
        out[0] = pieces;
        out[1] = firsts;
    }
}

static void set_arrays(data_made *made, void *const at[N_ARRAYS]) {
    for (int i = 0; i < DATA_N_CORPORA; i++, at += CORPUS_ARRAYS) {
        made->corpora[i].ids.array.data = at[0];
        made->corpora[i].weights.data = at[1];
        made->corpora[i].starts.data = at[2];
    }
    for (int i = 0; i < DATA_N_SPLITS; i++, at += ROWS_ARRAYS) {
        made->stream.rows[i].pieces = at[0];
        made->stream.rows[i].first = at[1];
    }
}

static size_t padding(size_t bytes) {
    return (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;
}

enum { PART = 1 << 22 };

/* Writes the bytes and zero padding to a multiple of ALIGNMENT. Releases pages of a mapping after writing them. */
static weft_status write_array(const weft_bytes_sink *sink, const void *data, size_t bytes, const data_array *from) {
    static const char zeros[ALIGNMENT] = {0};
    weft_status status = WEFT_OK;
    for (size_t at = 0; at < bytes && status == WEFT_OK; at += PART) {
        const size_t n = bytes - at < PART ? bytes - at : PART;
        status = sink->put(sink->context, (const char *)data + at, n);
        if (from != NULL) data_array_forget(from, at, at + n);
    }
    return status == WEFT_OK && padding(bytes) > 0 ? sink->put(sink->context, zeros, padding(bytes)) : status;
}

static weft_status write_made(const data_maker *maker, const weft_bytes_sink *sink) {
    data_made *made = maker->made;
    array_view arrays[N_ARRAYS];
    head front;
    weft_status status = WEFT_OK;
    memset(&front, 0, sizeof front);
    list_arrays(arrays, made);
    /* The sequences and one part of the other arrays are in memory twice. */
    data_made_note(made,
                   data_stream_bytes(&made->stream) + (data_made_bytes(made) < PART ? data_made_bytes(made) : PART));
    front.peak = made->peak;
    front.stream = made->stream;
    memcpy(front.corpora, made->corpora, sizeof front.corpora);
    for (int i = 0; i < DATA_N_SPLITS; i++) front.corpus_of[i] = made->stream.rows[i].corpus == &made->corpora[1];
    for (int i = 0; i < N_ARRAYS; i++) front.bytes[i] = arrays[i].bytes;
    front.more_bytes = maker->more_bytes;
    status = write_array(sink, &front, sizeof front, NULL);
    if (status == WEFT_OK) status = write_array(sink, maker->more, maker->more_bytes, NULL);
    for (int i = 0; i < N_ARRAYS && status == WEFT_OK; i++)
        status = write_array(sink, arrays[i].data, arrays[i].bytes, arrays[i].array);
    data_made_free(made, maker->host);
    memset(made, 0, sizeof *made);
    return status;
}

static weft_status make_and_write(void *context, const weft_bytes_sink *sink, weft_error *err) {
    const data_maker *maker = context;
    const weft_status status = maker->make(maker->context, err);
    return status == WEFT_OK ? write_made(maker, sink) : status;
}

/* Points the arrays into the buffer. Returns false if another plugin wrote the buffer. */
static int take_bytes(const data_maker *maker, const char *bytes, size_t n) {
    data_made *made = maker->made;
    void *arrays[N_ARRAYS];
    head front;
    size_t at = sizeof front + padding(sizeof front);
    if (n < at) return 0;
    memcpy(&front, bytes, sizeof front);
    made->stream = front.stream;
    memcpy(made->corpora, front.corpora, sizeof front.corpora);
    made->is_shared = 1;
    made->peak = front.peak;
    for (int i = 0; i < DATA_N_SPLITS; i++) made->stream.rows[i].corpus = &made->corpora[front.corpus_of[i]];
    if (front.more_bytes != maker->more_bytes || n - at < front.more_bytes) return 0;
    if (front.more_bytes > 0) memcpy(maker->more, bytes + at, front.more_bytes);
    at += front.more_bytes + padding(front.more_bytes);
    for (int i = 0; i < N_ARRAYS; i++) {
        if (n - at < front.bytes[i]) return 0;
        arrays[i] = front.bytes[i] > 0 ? (void *)(uintptr_t)(bytes + at) : NULL;
        at += front.bytes[i] + padding(front.bytes[i]);
    }
    set_arrays(made, arrays);
    return at == n;
}

weft_status data_made_share(const data_maker *maker, const weft_data_job *job, weft_error *err) {
    const void *bytes = NULL;
    size_t n = 0;
    weft_status status = WEFT_OK;
    if (!WEFT_HAS(job, share) || job->share == NULL) return maker->make(maker->context, err);
    status = job->share(job, make_and_write, (void *)(uintptr_t)maker, &bytes, &n, err);
    if (status != WEFT_OK || take_bytes(maker, bytes, n)) return status;
    return weft_error_set(err, WEFT_E_HOST, "the data shared by another rank are incomplete");
}

uint64_t data_made_bytes(const data_made *made) {
    uint64_t bytes = data_stream_bytes(&made->stream);
    for (int i = 0; i < DATA_N_CORPORA; i++) bytes += data_corpus_bytes(&made->corpora[i]);
    return bytes;
}

void data_made_note(data_made *made, uint64_t temporary) {
    data_peak_raise(&made->peak, data_made_bytes(made) + temporary);
}

void data_made_free(data_made *made, const weft_host *host) {
    if (made->is_shared) return;
    data_stream_free(&made->stream, host);
    for (int i = 0; i < DATA_N_CORPORA; i++) data_corpus_free(&made->corpora[i], host);
}
