/* embedding.c: embedding lookup, and its gradient: a sum per id in row order.
 *
 * The backward first sorts row numbers by id: a stable counting sort in the workspace, begin (vocab + 1), order (rows),
 * both int32. Each id then owns its rows. Threads process different ids, so no two threads add to the same row, and
 * each sum follows the order of the rows. */
#include "cpu.h"

#define COLUMNS 256 /* elements of a row summed or converted at a time */
#define IDS     64  /* ids per task */

/* Copies a row of the table to y, rounded if y is narrower. */
static void copy_row_of_table(const weft_device *device, const weft_embedding *args, void *y, const void *row) {
    float wide[COLUMNS];
    int64_t at = 0;
    if (args->dtype == args->dtype_table) {
        memcpy(y, row, (size_t)(args->width * weft_dtype_bytes(args->dtype)));
        return;
    }
    for (at = 0; at < args->width; at += COLUMNS) {
        const int64_t some = size_min(COLUMNS, args->width - at);
        const void *from = cpu_from(row, at, weft_dtype_bytes(args->dtype_table));
        cpu_cells_of(device, args->dtype_table)->take(wide, from, some, 0);
        cpu_cells_of(device, args->dtype)->put(cpu_at(y, at, weft_dtype_bytes(args->dtype)), wide, some, 0);
    }
}

/* Row numbers and ids are int32. */
static void check_embedding_sizes(operands *c, const weft_embedding *args) {
    operands_size(c, "rows", args->rows, 0);
    operands_size(c, "vocab", args->vocab, 0);
    operands_size(c, "width", args->width, 0);
    if (c->status != WEFT_OK || (args->rows <= INT32_MAX && args->vocab <= INT32_MAX)) return;
    c->status = weft_error_set(c->err, WEFT_E_HOST,
                               "%s on device cpu: %lld rows and a table of %lld exceed the limit of 2^31 - 1.",
                               c->kernel, (long long)args->rows, (long long)args->vocab);
}

CPU_KERNEL(embedding, weft_embedding) {
    operands c = OPERANDS("embedding", weft_embedding, args, err);
    const int64_t width = args->width;
    const int32_t *ids = NULL;
    const void *table = NULL;
    void *y = NULL;
    int64_t bytes = 0, table_bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    check_embedding_sizes(&c, args);
    bytes = operands_dtype(&c, "dtype", args->dtype);
    table_bytes = operands_dtype(&c, "dtype_table", args->dtype_table);
    ids = operands_need(&c, args->ids, "ids", args->rows, 1, 4);
    table = operands_need(&c, args->table, "table", args->vocab, width, table_bytes);
    y = operands_need(&c, args->y, "y", args->rows, width, bytes);
    cpu_check_indices(&c, "ids", ids, NULL, args->rows, args->vocab);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < args->rows; r++) {
        copy_row_of_table(device, args, cpu_at(y, r * width, bytes), cpu_from(table, ids[r] * width, table_bytes));
    }
    return WEFT_OK;
}

int64_t cpu_embedding_backward_workspace(const weft_device *device, const weft_embedding *args) {
    (void)device;
    return cpu_floats(size_max(args->vocab, 0) + 1) + cpu_floats(size_max(args->rows, 0));
}

/* Sorts: id v has the rows order[begin[v]] .. order[begin[v + 1] - 1]. */
static void sort_rows_by_id(int32_t *begin, int32_t *order, const int32_t *ids, int64_t rows, int64_t vocab) {
    int64_t i = 0;
    memset(begin, 0, (size_t)(vocab + 1) * sizeof *begin);
    for (i = 0; i < rows; i++) begin[ids[i]]++;
    for (i = 1; i <= vocab; i++) begin[i] += begin[i - 1];
    for (i = rows - 1; i >= 0; i--) order[--begin[ids[i]]] = (int32_t)i;
}

/* Sums the `n` rows of dy listed in `order` into one id's gradient row. */
static void sum_rows_of_id(const weft_device *device, const weft_embedding *args, float *out, const void *dy,
                           const int32_t *order, int64_t n) {
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const int64_t width = args->width, bytes = weft_dtype_bytes(args->dtype);
    float sum[COLUMNS];
    int64_t at = 0, i = 0;
    for (at = 0; at < width; at += COLUMNS) {
        const int64_t some = size_min(COLUMNS, width - at);
        memset(sum, 0, sizeof sum);
        for (i = 0; i < n; i++) cells->take(sum, cpu_from(dy, order[i] * width + at, bytes), some, 1);
        device->loops->f32.put(out + at, sum, some, args->accumulate);
    }
}

/* Computes all ids' gradient rows; unused ids become zero. */
static void sum_rows_of_all_ids(const weft_device *device, const weft_embedding *args, float *dtable, const void *dy,
                                const int32_t *begin, const int32_t *order) {
    const int64_t width = args->width;
#pragma omp parallel for schedule(dynamic, IDS) num_threads(device->threads)
    for (int64_t v = 0; v < args->vocab; v++) {
        const int64_t n = args->has_padding && v == args->padding ? 0 : begin[v + 1] - begin[v];
        if (n > 0) {
            sum_rows_of_id(device, args, dtable + v * width, dy, order + begin[v], n);
        } else if (!args->accumulate) {
            memset(dtable + v * width, 0, (size_t)width * sizeof *dtable);
        }
    }
}

CPU_KERNEL(embedding_backward, weft_embedding) {
    operands c = OPERANDS("embedding_backward", weft_embedding, args, err);
    const int64_t width = args->width;
    const int32_t *ids = NULL;
    int32_t *begin = NULL, *order = NULL;
    const void *dy = NULL;
    float *dtable = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    check_embedding_sizes(&c, args);
    bytes = operands_dtype(&c, "dtype", args->dtype);
    ids = operands_need(&c, args->ids, "ids", args->rows, 1, 4);
    dy = operands_need(&c, args->dy, "dy", args->rows, width, bytes);
    dtable = operands_need(&c, args->dtable, "dtable", args->vocab, width, 4);
    begin = operands_need_workspace(&c, args->workspace, cpu_embedding_backward_workspace(device, args));
    cpu_check_indices(&c, "ids", ids, NULL, args->rows, args->vocab);
    if (c.status != WEFT_OK) return c.status;
    order = begin + cpu_floats(args->vocab + 1) / 4;
    sort_rows_by_id(begin, order, ids, args->rows, args->vocab);
    sum_rows_of_all_ids(device, args, dtable, dy, begin, order);
    return WEFT_OK;
}
