/* host/model/region_write.c: writes parameters of a region as one safetensors file. Every rank iterates over all chunks
 * of the file in file order, so that all ranks call the same collectives. Only the rank that stores a chunk reads and
 * writes it. A failed rank continues to the end without reads or writes, and the ranks agree on the status there. */
#include "model/region.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/units.h"
#include "model/convert.h"

#include <stdlib.h>

/* ---- extents ---- */

static void add_extent(weft_file_extents *self, weft_file_extent next) {
    self->items = weft_grow(self->items, self->n);
    self->items[self->n++] = next;
}

weft_file_extents weft_file_extents_make(const weft_region_file *file, const weft_tensor_writer *writer) {
    weft_file_extents out = {0};
    add_extent(&out, (weft_file_extent){.tensor = -1, .end = weft_tensor_writer_offset(writer, 0)});
    for (int32_t t = 0; t < file->n; t++) {
        const int32_t parameter = file->parameters[t];
        const int32_t dtype = parameter < 0 ? 0 : weft_region_file_dtype(file, t);
        const int64_t numel = parameter < 0 ? 0 : file->region->declared->parameters[parameter].numel;
        const int64_t at = weft_tensor_writer_offset(writer, t);
        for (int64_t first = 0, end = 0; first < numel; first = end) {
            const int32_t keeper = weft_region_written_by(file->region, parameter, first, &end);
            add_extent(&out, (weft_file_extent){t, keeper, first, end - first, at + weft_dtype_span(dtype, first),
                                                at + weft_dtype_span(dtype, end)});
        }
    }
    return out;
}

/* Returns the lowest rank that stores bytes of a page, which extent i overlaps. */
static int32_t find_page_writer(const weft_file_extents *self, int32_t i, int64_t page) {
    int32_t lowest = self->items[i].keeper;
    for (int32_t k = i - 1; k >= 0 && self->items[k].end > page * WEFT_PAGE; k--)
        if (self->items[k].keeper < lowest) lowest = self->items[k].keeper;
    for (int32_t k = i + 1; k < self->n && self->items[k].begin < (page + 1) * WEFT_PAGE; k++)
        if (self->items[k].keeper < lowest) lowest = self->items[k].keeper;
    return lowest;
}

static int64_t clamp_to(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

int weft_file_extent_split(weft_file_part out[WEFT_FILE_EXTENT_PARTS], const weft_file_extents *self, int32_t i,
                           int64_t begin, int64_t end) {
    const weft_file_extent *s = &self->items[i];
    const int64_t up = (s->begin + WEFT_PAGE - 1) / WEFT_PAGE * WEFT_PAGE;
    const int64_t down = i + 1 == self->n ? s->end : s->end / WEFT_PAGE * WEFT_PAGE;
    /* Three parts: the extent's bytes on its first page, on complete pages, and on its last page. */
    const int64_t solid = clamp_to(up, s->begin, s->end), tail = clamp_to(down, solid, s->end);
    const int64_t cuts[WEFT_FILE_EXTENT_PARTS + 1] = {s->begin, solid, tail, s->end};
    int n = 0;
    for (int k = 0; k < WEFT_FILE_EXTENT_PARTS; k++) {
        const weft_file_part part = {clamp_to(cuts[k], begin, end), clamp_to(cuts[k + 1], begin, end), s->keeper};
        if (part.begin == part.end) continue;
        out[n] = part;
        if (k != 1) out[n].writer = find_page_writer(self, i, part.begin / WEFT_PAGE);
        n++;
    }
    return n;
}

/* ---- state ---- */

/* Limits between two exchanges, for all ranks together: messages and their bytes, exceeded by at most those of one
 * chunk. */
enum { NOTES = 512, BYTES = 4 << 20, CHUNK_NOTES = WEFT_FILE_EXTENT_PARTS + 1, SMALLEST_GRID = 64 };
enum { MOST_BYTES = BYTES + WEFT_REGION_PIECE / SMALLEST_GRID * WEFT_HASH_BYTES + WEFT_FILE_EXTENT_PARTS * WEFT_PAGE };

/* A message: part of a boundary page for the rank that writes it, or the hashes of a chunk's cells for rank 0. All
 * ranks note all messages in the same order. A rank keeps the bytes of its own until the next exchange. */
typedef struct note {
    int32_t from, to;
    int32_t tensor; /* tensor of the hashes; -1: bytes of the file */
    int64_t at, n;  /* offset in the file; bytes of the message */
} note;

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

    note *notes; /* [NOTES + CHUNK_NOTES] */
    int32_t n_notes;
    int64_t noted, n_kept;         /* bytes of all messages, and of this rank's */
    char *kept, *sent, *received;  /* [MOST_BYTES] in one block. kept: in the order of notes */
    weft_message_buffer *in, *out; /* [world] */
    weft_hash root;
    int32_t tensor; /* tensor that `root` belongs to; -1: unset */

    weft_status status; /* first failure of this rank, with its message */
    weft_error err;
    bool cut_off; /* an exchange failed: ranks cannot agree on a status */
} writing;

static void put_bytes(writing *self, int64_t at, const void *bytes, int64_t n) {
    if (self->status == WEFT_OK) self->status = weft_tensor_writer_put(self->writer, at, bytes, n, &self->err);
}

/* ---- messages ---- */

/* Returns memory for the message if this rank sends it, else NULL. */
static char *add_note(writing *self, note next) {
    char *bytes = self->kept + self->n_kept;
    self->notes[self->n_notes++] = next;
    self->noted += next.n;
    if (next.from != self->peers->rank) return NULL;
    self->n_kept += next.n;
    return bytes;
}

static void finish_root(writing *self) {
    char hex[65];
    if (self->tensor < 0 || self->status != WEFT_OK) return;
    self->status = weft_hash_finish_hex(&self->root, hex, &self->err);
    if (self->status != WEFT_OK) return;
    self->status = self->roots->tell(self->roots->context, self->file->path, self->file->specs[self->tensor].name, hex,
                                     &self->err);
}

/* Writes the part of a page, or appends the hashes to the tensor's root. */
static void take_message(writing *self, const note *message, const char *bytes) {
    if (message->tensor < 0) {
        put_bytes(self, message->at, bytes, message->n);
        return;
    }
    if (message->tensor != self->tensor) {
        finish_root(self);
        self->tensor = message->tensor;
        if (self->status == WEFT_OK) self->status = weft_hash_start(&self->root, &self->err);
    }
    if (self->status == WEFT_OK) weft_hash_put(&self->root, bytes, (size_t)message->n);
}

/* Sets the buffers of an exchange with rank r: its messages are consecutive, in the order of notes. */
static void prepare_exchange(writing *self, int32_t r, char **sent, char **received) {
    const int32_t rank = self->peers->rank;
    const char *kept = self->kept;
    self->out[r] = (weft_message_buffer){*sent, 0};
    self->in[r] = (weft_message_buffer){*received, 0};
    for (const note *i = self->notes; i < self->notes + self->n_notes; i++) {
        if (i->from == rank && i->to == r) {
            memcpy(*sent, kept, (size_t)i->n);
            *sent += i->n;
            self->out[r].n += i->n;
        } else if (i->from == r && i->to == rank) {
            *received += i->n;
            self->in[r].n += i->n;
        }
        if (i->from == rank) kept += i->n;
    }
}

/* Exchanges the noted messages, and handles those for this rank in their order. */
static weft_status exchange_with_peers(writing *self) {
    const int32_t rank = self->peers->rank;
    char *sent = self->sent, *received = self->received;
    weft_status status = WEFT_OK;
    for (int32_t r = 0; r < self->peers->world; r++)
        if (r != rank) prepare_exchange(self, r, &sent, &received);
    if (self->n_notes > 0 && !weft_process_group_is_single(self->peers))
        status = self->peers->swap(self->peers->context, self->in, self->out, &self->err);
    self->in[rank].bytes = self->kept;
    for (const note *i = self->notes; i < self->notes + self->n_notes && status == WEFT_OK; i++) {
        char *bytes = self->in[i->from].bytes;
        if (i->to == rank) take_message(self, i, bytes);
        if (i->to == rank || i->from == rank) self->in[i->from].bytes = bytes + i->n;
    }
    self->n_notes = 0;
    self->noted = self->n_kept = 0;
    if (status != WEFT_OK) self->status = status;
    self->cut_off = status != WEFT_OK;
    return status;
}

/* ---- chunks ---- */

/* Starts the transfer of the next chunk that this rank stores. */
static void query_ahead(writing *self) {
    const weft_file_extent *s = NULL;
    for (; self->query_from < self->extents.n; self->query_from++, self->query_first = 0) {
        s = &self->extents.items[self->query_from];
        if (s->keeper == self->peers->rank && self->query_first < s->n) break;
    }
    if (self->query_from >= self->extents.n || self->status != WEFT_OK) return;
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
    if (self->status == WEFT_OK)
        self->status = weft_region_take(self->file->region, &self->double_buffer, self->ahead, parameter, first,
                                        &values, &self->err);
    if (dtype == kept) return values;
    if (self->status == WEFT_OK) (void)weft_convert(self->converted, dtype, values, kept, n);
    return self->converted;
}

static void write_piece(writing *self, int32_t i, int64_t first, int64_t n) {
    const weft_file_extent *s = &self->extents.items[i];
    const int32_t dtype = weft_region_file_dtype(self->file, s->tensor);
    const int64_t begin = s->begin + weft_dtype_span(dtype, first - s->first), size = weft_dtype_span(dtype, n);
    const int64_t hashes = (n + self->grid - 1) / self->grid * WEFT_HASH_BYTES;
    const bool mine = s->keeper == self->peers->rank;
    const char *bytes = mine ? read_piece(self, s, first, n) : NULL;
    weft_file_part parts[WEFT_FILE_EXTENT_PARTS];
    const int n_parts = weft_file_extent_split(parts, &self->extents, i, begin, begin + size);
    for (int k = 0; k < n_parts; k++) {
        const int64_t at = parts[k].begin, part = parts[k].end - at;
        char *kept = NULL;
        if (parts[k].writer != s->keeper) kept = add_note(self, (note){s->keeper, parts[k].writer, -1, at, part});
        else if (mine) put_bytes(self, at, bytes + (at - begin), part);
        if (kept != NULL) memcpy(kept, bytes + (at - begin), (size_t)part);
    }
    if (self->roots != NULL) {
        char *digests = add_note(self, (note){s->keeper, 0, s->tensor, 0, hashes});
        if (mine && self->status == WEFT_OK)
            self->status =
                weft_hash_cells((unsigned char *)digests, bytes, size, weft_dtype_span(dtype, self->grid), &self->err);
    }
}

static void write_extents(writing *self) {
    self->query_from = 1; /* after the header */
    query_ahead(self);
    for (int32_t i = 1; i < self->extents.n; i++) {
        const weft_file_extent *s = &self->extents.items[i];
        for (int64_t first = 0; first < s->n; first += WEFT_REGION_PIECE) {
            write_piece(self, i, s->first + first, weft_smaller(WEFT_REGION_PIECE, s->n - first));
            if (self->noted < BYTES && self->n_notes < NOTES) continue;
            if (exchange_with_peers(self) != WEFT_OK) return;
        }
    }
    if (exchange_with_peers(self) == WEFT_OK) finish_root(self);
}

/* ---- the file ---- */

/* Rank 0 creates the file before the other ranks open it. */
static weft_status open_file(writing *self) {
    const weft_region_file *file = self->file;
    const weft_region *region = file->region;
    const weft_process_group *peers = region->peers;
    weft_status status = WEFT_OK;
    self->converted = malloc((size_t)weft_f32_bytes(WEFT_REGION_PIECE));
    self->kept = malloc((size_t)3 * MOST_BYTES);
    if (self->converted == NULL || self->kept == NULL)
        status = weft_error_set(&self->err, WEFT_E_MEMORY, "%s: no memory for its buffers", file->path);
    else {
        self->sent = self->kept + MOST_BYTES;
        self->received = self->sent + MOST_BYTES;
    }
    self->notes = weft_alloc(NOTES + CHUNK_NOTES, sizeof *self->notes);
    self->in = weft_alloc(self->peers->world, sizeof *self->in);
    self->out = weft_alloc(self->peers->world, sizeof *self->out);
    if (status == WEFT_OK)
        status = weft_double_buffer_open(&self->double_buffer, region->kernels, region->device,
                                         weft_f32_bytes(WEFT_REGION_PIECE), &self->err);
    if (status == WEFT_OK && weft_process_group_is_rank_0(peers))
        status = weft_tensor_writer_open(&self->writer, file->path, file->specs, file->n, true, &self->err);
    status = weft_process_group_agree(peers, status, &self->err);
    if (status != WEFT_OK) return status;
    if (!weft_process_group_is_rank_0(peers))
        status = weft_tensor_writer_open(&self->writer, file->path, file->specs, file->n, false, &self->err);
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
        if (self.status == WEFT_OK) self.status = weft_tensor_writer_finish(self.writer, &self.err);
        else weft_tensor_writer_cancel(self.writer);
        if (!self.cut_off) self.status = weft_process_group_agree(peers, self.status, &self.err);
    } else {
        weft_tensor_writer_cancel(self.writer);
    }
    if (self.status != WEFT_OK && err != NULL) *err = self.err;
    weft_hash_free(&self.root);
    (void)weft_double_buffer_close(&self.double_buffer, NULL);
    free(self.extents.items);
    free(self.out);
    free(self.in);
    free(self.notes);
    free(self.kept);
    free(self.converted);
    return self.status;
}
