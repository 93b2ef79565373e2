/* host/base/joined.c: see joined.h. */
#include "base/joined.h"

#include "base/units.h"

#include <stdlib.h>
#include <weft/blocks.h>

enum {
    AT_ONCE = 32, /* blocks assembled per read */
    SCALED = 64,  /* numbers per scale in the blocks; more in some files */
    NF4 = 1024    /* numbers of an nf4 block */
};

static int64_t cut(int64_t n, int64_t pieces) {
    return (n + pieces - 1) / pieces;
}

void weft_joined_describe(weft_tensor *out, const weft_joined *self) {
    const int64_t numel = self->rows * self->columns, block = weft_dtype_block(self->dtype);
    const bool flat = weft_dtype_is_flat(self->dtype);
    out->dtype = WEFT_U8;
    out->rank = flat ? 2 : 3;
    out->dims[0] = flat ? cut(numel, block) : self->rows;
    if (!flat) out->dims[1] = self->columns / block;
    out->dims[out->rank - 1] = weft_dtype_bytes(self->dtype);
    out->numel = out->bytes = weft_dtype_span(self->dtype, numel);
}

/* ---- 4 bits ---- */

/* Copies the codes of n numbers and pads up to `room` like the packer. */
static void put_codes(uint8_t *out, int64_t room, const uint8_t *codes, int64_t n) {
    memset(out, 0x77, (size_t)room);
    memcpy(out, codes, (size_t)cut(n, 2));
    if (n % 2 == 1) out[n / 2] = (uint8_t)((out[n / 2] & 0xF0) | 0x07);
}

/* The stored data of some blocks. */
typedef struct nf4_parts {
    uint8_t codes[AT_ONCE * NF4 / 2], scales[AT_ONCE * NF4 / SCALED];
    float shared[AT_ONCE + 1];
    int64_t first, end, scale, group; /* numbers; the first scale, and the first group of scales */
} nf4_parts;

static weft_status read_nf4_parts(nf4_parts *out, const weft_safetensors *files, const weft_joined *self, int64_t first,
                                  int64_t n, weft_error *err) {
    int64_t n_scales = 0, n_groups = 0;
    weft_status status = WEFT_OK;
    out->first = first * NF4;
    out->end = weft_smaller(out->first + n * NF4, self->rows * self->columns);
    out->scale = out->first / self->each;
    n_scales = cut(out->end, self->each) - out->scale;
    out->group = out->scale / self->among;
    n_groups = cut(out->scale + n_scales, self->among) - out->group;
    status = weft_safetensors_read(files, out->codes, &self->codes, out->first / 2, cut(out->end - out->first, 2), err);
    if (status == WEFT_OK) status = weft_safetensors_read(files, out->scales, &self->scales, out->scale, n_scales, err);
    if (status == WEFT_OK)
        status = weft_safetensors_read(files, out->shared, &self->shared, out->group * (int64_t)sizeof(float),
                                       n_groups * (int64_t)sizeof(float), err);
    return status;
}

/* Assembles block i of these. */
static void put_nf4(weft_nf4 *out, const nf4_parts *parts, const weft_joined *self, int64_t i) {
    const int64_t first = parts->first + i * NF4, n = weft_smaller(NF4, parts->end - first);
    out->scale = parts->shared[first / self->each / self->among - parts->group];
    out->added = self->added;
    memset(out->scales, 0, sizeof out->scales);
    for (int64_t k = 0; k * SCALED < n; k++)
        out->scales[k] = parts->scales[(first + k * SCALED) / self->each - parts->scale];
    put_codes(out->codes, sizeof out->codes, parts->codes + i * (NF4 / 2), n);
}

static weft_status make_nf4(void *out, const weft_safetensors *files, const weft_joined *self, int64_t first, int64_t n,
                            weft_error *err) {
    nf4_parts parts;
    const weft_status status = read_nf4_parts(&parts, files, self, first, n, err);
    for (int64_t i = 0; i < n && status == WEFT_OK; i++) {
        weft_nf4 block;
        put_nf4(&block, &parts, self, i);
        memcpy((char *)out + i * (int64_t)sizeof block, &block, sizeof block);
    }
    return status;
}

static weft_status make_nf4x64(void *out, const weft_safetensors *files, const weft_joined *self, int64_t first,
                               int64_t n, weft_error *err) {
    const int64_t begin = first * SCALED, end = weft_smaller(begin + n * SCALED, self->rows * self->columns);
    const int64_t scale = begin / self->each, n_scales = cut(end, self->each) - scale;
    uint8_t codes[AT_ONCE * SCALED / 2];
    float scales[AT_ONCE];
    weft_status status = weft_safetensors_read(files, codes, &self->codes, begin / 2, cut(end - begin, 2), err);
    if (status == WEFT_OK)
        status = weft_safetensors_read(files, scales, &self->scales, scale * (int64_t)sizeof(float),
                                       n_scales * (int64_t)sizeof(float), err);
    for (int64_t at = begin; at < end && status == WEFT_OK; at += SCALED) {
        weft_nf4x64 block;
        block.scale = scales[at / self->each - scale];
        put_codes(block.codes, sizeof block.codes, codes + (at - begin) / 2, weft_smaller(SCALED, end - at));
        memcpy((char *)out + (at - begin) / SCALED * (int64_t)sizeof block, &block, sizeof block);
    }
    return status;
}

/* ---- int8 ---- */

static weft_status make_int8(void *out, const weft_safetensors *files, const weft_joined *self, int64_t first,
                             int64_t n, weft_error *err) {
    const int64_t in_row = self->columns / SCALED, row = first / in_row, n_rows = cut(first + n, in_row) - row;
    int8_t codes[AT_ONCE * SCALED];
    float largest[AT_ONCE + 1];
    weft_status status = weft_safetensors_read(files, codes, &self->codes, first * SCALED, n * SCALED, err);
    if (status == WEFT_OK)
        status = weft_safetensors_read(files, largest, &self->scales, row * (int64_t)sizeof(float),
                                       n_rows * (int64_t)sizeof(float), err);
    for (int64_t i = 0; i < n && status == WEFT_OK; i++) {
        weft_i8x64 block;
        block.scale = largest[(first + i) / in_row - row] / 127.0f;
        memcpy(block.q, codes + i * SCALED, sizeof block.q);
        memcpy((char *)out + i * (int64_t)sizeof block, &block, sizeof block);
    }
    return status;
}

/* ---- all ---- */

weft_status weft_joined_read(const weft_safetensors *files, void *out, const weft_joined *self, int64_t offset,
                             int64_t bytes, weft_error *err) {
    const int64_t width = weft_dtype_bytes(self->dtype), end = offset + bytes;
    unsigned char blocks[AT_ONCE * sizeof(weft_nf4)];
    weft_status status = WEFT_OK;
    for (int64_t at = offset; at < end && status == WEFT_OK;) {
        const int64_t first = at / width, n = weft_smaller(AT_ONCE, cut(end, width) - first);
        const int64_t some = weft_smaller(end, (first + n) * width) - at;
        if (self->dtype == WEFT_NF4) status = make_nf4(blocks, files, self, first, n, err);
        else if (self->dtype == WEFT_NF4X64) status = make_nf4x64(blocks, files, self, first, n, err);
        else status = make_int8(blocks, files, self, first, n, err);
        if (status == WEFT_OK) memcpy((char *)out + (at - offset), blocks + (at - first * width), (size_t)some);
        at += some;
    }
    return status;
}

void weft_joined_free(weft_joined *self) {
    if (self == NULL) return;
    free(self->codes.name);
    free(self->scales.name);
    free(self->shared.name);
    free(self);
}
