/* host/model/region_write.c: writes parameters of a region as one safetensors file. Every rank iterates over all chunks
 * of the file in file order, so that all ranks call the same collectives. Only the rank that stores a chunk reads and
 * writes it. A failed rank continues to the end without reads or writes, and the ranks agree on the status there. */
#include "model/region.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/units.h"
#include "model/boundary_pages.h"
#include "model/convert.h"

#include <stdlib.h>

/* Limits between two exchanges: grid cells, exceeded by at most one chunk; chunks. */
enum { CELLS = 1 << 17, PIECES = 1024, SMALLEST_GRID = 64, MORE = WEFT_REGION_PIECE / SMALLEST_GRID };

/* The rank of the next cell hashes. */
typedef struct turn {
    int32_t tensor, keeper;
    int64_t cells;
} turn;

typedef struct writing {
    const weft_region_file *file;
    const weft_process_group *peers;
    const weft_roots *roots;
    weft_tensor_writer *writer;
    weft_file_extents extents;
    int64_t grid;
    weft_double_buffer double_buffer; /* WEFT_REGION_PIECE elements in the storage type */
    void *converted;                  /* the same elements in the file's type */
    int32_t query_from;               /* extent and element from which chunks of this rank have not been requested */
    int64_t query_first;
    int ahead; /* chunks requested but not taken */
    weft_boundary_pages boundary_pages;

    unsigned char *digests; /* [CELLS + MORE] hashes of this rank's cells */
    unsigned char *arrived; /* the same of the other ranks, on rank 0 */
    int64_t own, cells;     /* own cells; cells of all ranks */
    turn *turns;            /* [PIECES] */
    int32_t n_turns;
    weft_message_buffer *in, *out; /* [world] */
    weft_hash cell, root;
    int32_t tensor; /* tensor that `root` belongs to; -1: unset */

    weft_status status; /* first failure of this rank, with its message */
    weft_error err;
    bool cut_off; /* an exchange failed: ranks cannot agree on a status */
} writing;

static bool is_writing_well(const writing *self) {
    return self->status == WEFT_OK;
}

/* ---- roots ---- */

static void hash_cells(writing *self, const char *bytes, int64_t n, int32_t dtype) {
    const int64_t cell = weft_dtype_span(dtype, self->grid);
    for (int64_t at = 0; at < n; at += cell) {
        unsigned char *digest = self->digests + self->own++ * WEFT_HASH_BYTES;
        if (is_writing_well(self)) self->status = weft_hash_start(&self->cell, &self->err);
        if (!is_writing_well(self)) continue;
        weft_hash_put(&self->cell, bytes + at, (size_t)weft_smaller(cell, n - at));
        self->status = weft_hash_finish(&self->cell, digest, &self->err);
    }
}

static void finish_root(writing *self) {
    char hex[65];
    if (self->tensor < 0 || !is_writing_well(self)) return;
    self->status = weft_hash_finish_hex(&self->root, hex, &self->err);
    if (!is_writing_well(self)) return;
    self->status = self->roots->tell(self->roots->context, self->file->path, self->file->specs[self->tensor].name, hex,
                                     &self->err);
}

/* Rank 0: appends the cell hashes of all ranks in the order of the cells. Each rank's hashes are consecutive. */
static void take_turns(writing *self) {
    self->out[0].bytes = self->digests; /* rank 0's own hashes */
    for (int32_t r = 1; r < self->peers->world; r++) self->out[r].bytes = self->in[r].bytes;
    for (int32_t i = 0; i < self->n_turns; i++) {
        const turn *t = &self->turns[i];
        unsigned char *from = self->out[t->keeper].bytes;
        if (t->tensor != self->tensor) {
            finish_root(self);
            self->tensor = t->tensor;
            if (is_writing_well(self)) self->status = weft_hash_start(&self->root, &self->err);
        }
        if (is_writing_well(self)) weft_hash_put(&self->root, from, (size_t)t->cells * WEFT_HASH_BYTES);
        self->out[t->keeper].bytes = from + t->cells * WEFT_HASH_BYTES;
    }
}

static weft_status send_digests(writing *self) {
    unsigned char *arrived = self->arrived;
    weft_status status = WEFT_OK;
    memset(self->in, 0, (size_t)self->peers->world * sizeof *self->in);
    memset(self->out, 0, (size_t)self->peers->world * sizeof *self->out);
    if (!weft_process_group_is_rank_0(self->peers)) {
        self->out[0].bytes = self->digests;
        self->out[0].n = self->own * WEFT_HASH_BYTES;
    }
    for (int32_t r = 1; weft_process_group_is_rank_0(self->peers) && r < self->peers->world; r++) {
        self->in[r].bytes = arrived;
        for (int32_t i = 0; i < self->n_turns; i++)
            if (self->turns[i].keeper == r) self->in[r].n += self->turns[i].cells * WEFT_HASH_BYTES;
        arrived += self->in[r].n;
    }
    if (!weft_process_group_is_single(self->peers))
        status = self->peers->swap(self->peers->context, self->in, self->out, &self->err);
    if (status == WEFT_OK && weft_process_group_is_rank_0(self->peers)) take_turns(self);
    return status;
}

/* ---- chunks ---- */

static void put_bytes(void *context, int64_t at, const void *bytes, int64_t n) {
    writing *self = context;
    if (is_writing_well(self)) self->status = weft_tensor_writer_put(self->writer, at, bytes, n, &self->err);
}

/* Exchanges boundary pages and hashes with the other ranks. */
static weft_status exchange_with_peers(writing *self) {
    weft_status status = WEFT_OK;
    if (!weft_process_group_is_single(self->peers))
        status = weft_boundary_pages_exchange(&self->boundary_pages, put_bytes, self, &self->err);
    if (status == WEFT_OK && self->roots != NULL) status = send_digests(self);
    self->own = self->cells = 0;
    self->n_turns = 0;
    if (status != WEFT_OK) self->status = status;
    self->cut_off = status != WEFT_OK;
    return status;
}

/* Starts the transfer of the next chunk that this rank stores. */
static void query_ahead(writing *self) {
    const weft_file_extent *s = NULL;
    for (; self->query_from < self->extents.n; self->query_from++, self->query_first = 0) {
        s = &self->extents.items[self->query_from];
        if (s->keeper == self->peers->rank && self->query_first < s->n) break;
    }
    if (self->query_from >= self->extents.n || !is_writing_well(self)) return;
    self->status = weft_region_query(self->file->region, &self->double_buffer, self->file->parameters[s->tensor],
                                     s->first + self->query_first,
                                     weft_smaller(WEFT_REGION_PIECE, s->n - self->query_first), &self->err);
    self->query_first += WEFT_REGION_PIECE;
    self->ahead++;
}

/* Returns n elements of an extent in the file's type, while the next chunk is transferred. */
static const char *read_piece(writing *self, const weft_file_extent *s, int64_t first, int64_t n) {
    const int32_t parameter = self->file->parameters[s->tensor], dtype = weft_region_file_dtype(self->file, s->tensor);
    const int32_t kept = weft_region_dtype(self->file->region, parameter);
    const void *values = self->converted;
    query_ahead(self);
    self->ahead--;
    if (is_writing_well(self))
        self->status = weft_region_take(self->file->region, &self->double_buffer, self->ahead, parameter, first,
                                        &values, &self->err);
    if (dtype == kept) return values;
    if (is_writing_well(self)) (void)weft_convert(self->converted, dtype, values, kept, n);
    return self->converted;
}

static void write_piece(writing *self, int32_t i, int64_t first, int64_t n) {
    const weft_file_extent *s = &self->extents.items[i];
    const int32_t dtype = weft_region_file_dtype(self->file, s->tensor);
    const int64_t begin = s->begin + weft_dtype_span(dtype, first - s->first), size = weft_dtype_span(dtype, n);
    const int64_t cells = (n + self->grid - 1) / self->grid;
    const bool mine = s->keeper == self->peers->rank;
    const char *bytes = mine ? read_piece(self, s, first, n) : NULL;
    weft_part parts[WEFT_FILE_EXTENT_PARTS];
    const int n_parts = weft_file_extent_split(parts, &self->extents, i, begin, begin + size);
    for (int k = 0; k < n_parts; k++) {
        const char *part = mine ? bytes + (parts[k].begin - begin) : NULL;
        if (parts[k].writer != s->keeper) weft_boundary_pages_note(&self->boundary_pages, &parts[k], s->keeper, part);
        else if (mine) put_bytes(self, parts[k].begin, part, parts[k].end - parts[k].begin);
    }
    self->turns[self->n_turns++] = (turn){s->tensor, s->keeper, cells};
    self->cells += cells;
    if (mine && self->roots != NULL) hash_cells(self, bytes, size, dtype);
}

static void write_extents(writing *self) {
    self->query_from = 1; /* after the header */
    query_ahead(self);
    for (int32_t i = 1; i < self->extents.n; i++) {
        const weft_file_extent *s = &self->extents.items[i];
        for (int64_t first = 0; first < s->n; first += WEFT_REGION_PIECE) {
            write_piece(self, i, s->first + first, weft_smaller(WEFT_REGION_PIECE, s->n - first));
            if (self->cells < CELLS && self->n_turns < PIECES &&
                self->boundary_pages.noted <= WEFT_BOUNDARY_PAGES - WEFT_FILE_EXTENT_PARTS)
                continue;
            if (exchange_with_peers(self) != WEFT_OK) return;
        }
    }
    if (exchange_with_peers(self) == WEFT_OK && self->roots != NULL && weft_process_group_is_rank_0(self->peers))
        finish_root(self);
}

/* ---- the file ---- */

/* Rank 0 creates the file before the other ranks open it. */
static weft_status open_file(writing *self) {
    const weft_region_file *file = self->file;
    const weft_region *region = file->region;
    const weft_process_group *peers = region->peers;
    weft_status status = WEFT_OK;
    const bool hashes = self->roots != NULL, gathers = hashes && self->peers->world > 1 && self->peers->rank == 0;
    self->converted = malloc((size_t)weft_f32_bytes(WEFT_REGION_PIECE));
    if (hashes) self->digests = malloc((CELLS + MORE) * WEFT_HASH_BYTES);
    if (gathers) self->arrived = malloc((CELLS + MORE) * WEFT_HASH_BYTES);
    if (self->converted == NULL || (hashes && self->digests == NULL) || (gathers && self->arrived == NULL))
        status = weft_error_set(&self->err, WEFT_E_MEMORY, "%s: no memory for its buffers", file->path);
    self->turns = weft_alloc(PIECES, sizeof *self->turns);
    self->in = weft_alloc(self->peers->world, sizeof *self->in);
    self->out = weft_alloc(self->peers->world, sizeof *self->out);
    if (self->peers->world > 1) weft_boundary_pages_open(&self->boundary_pages, self->peers);
    if (status == WEFT_OK)
        status = weft_double_buffer_open(&self->double_buffer, region->kernels, region->device,
                                         weft_f32_bytes(WEFT_REGION_PIECE), &self->err);
    if (status == WEFT_OK && weft_process_group_is_rank_0(peers))
        status = weft_tensor_writer_create(&self->writer, file->path, file->specs, file->n, &self->err);
    status = weft_process_group_agree(peers, status, &self->err);
    if (status != WEFT_OK) return status;
    if (!weft_process_group_is_rank_0(peers))
        status = weft_tensor_writer_join(&self->writer, file->path, file->specs, file->n, &self->err);
    if (status == WEFT_OK) self->extents = weft_file_extents_make(file, self->writer);
    return weft_process_group_agree(peers, status, &self->err);
}

weft_status weft_region_write(const weft_region_file *file, const weft_roots *roots, weft_error *err) {
    static const weft_process_group one = {.world = 1};
    const weft_process_group *peers = file->region->peers;
    writing self = {.file = file,
                    .peers = peers == NULL ? &one : peers,
                    .roots = roots,
                    .grid = file->region->layout->grid,
                    .tensor = -1,
                    .err = WEFT_ERROR_INIT};
    self.status = open_file(&self);
    if (self.status == WEFT_OK) {
        write_extents(&self);
        if (is_writing_well(&self)) self.status = weft_tensor_writer_finish(self.writer, &self.err);
        else weft_tensor_writer_cancel(self.writer);
        if (!self.cut_off) self.status = weft_process_group_agree(peers, self.status, &self.err);
    } else {
        weft_tensor_writer_cancel(self.writer);
    }
    if (self.status != WEFT_OK && err != NULL) *err = self.err;
    weft_hash_free(&self.cell);
    weft_hash_free(&self.root);
    weft_boundary_pages_close(&self.boundary_pages);
    (void)weft_double_buffer_close(&self.double_buffer, NULL);
    free(self.extents.items);
    free(self.arrived);
    free(self.digests);
    free(self.out);
    free(self.in);
    free(self.turns);
    free(self.converted);
    return self.status;
}
