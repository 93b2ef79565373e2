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

/* Copies the codes of n numbers and pads up to `room` like the packer. */
static void put_codes(uint8_t *out, int64_t room, const uint8_t *codes, int64_t n) {
    memset(out, 0x77, (size_t)room);
    memcpy(out, codes, (size_t)cut(n, 2));
    if (n % 2 == 1) out[n / 2] = (uint8_t)((out[n / 2] & 0xF0) | 0x07);
}

/* The stored data of some blocks. */
typedef struct parts {
    uint8_t codes[AT_ONCE * NF4 / 2];
    uint8_t nf4_scales[AT_ONCE * NF4 / SCALED];
    float scales[AT_ONCE + 1]; /* of other types; nf4: the scales of nf4_scales */
} parts;

/* Assembles blocks [first, first + n). The numbers of a matrix share a scale in runs of `each`. */
static weft_status make_blocks(char *out, const weft_safetensors *files, const weft_joined *self, int64_t first,
                               int64_t n, weft_error *err) {
    const bool is_nf4 = self->dtype == WEFT_NF4;
    const int64_t block = weft_dtype_block(self->dtype), per_byte = self->dtype == WEFT_I8X64 ? 1 : 2;
    const int64_t begin = first * block, end = weft_smaller(begin + n * block, self->rows * self->columns);
    const int64_t each = self->each, scale = begin / each, n_scales = cut(end, each) - scale;
    const int64_t group = is_nf4 ? scale / self->among : scale;
    const int64_t n_groups = is_nf4 ? cut(scale + n_scales, self->among) - group : n_scales;
    parts p;
    weft_status status =
        weft_safetensors_read(files, p.codes, &self->codes, begin / per_byte, cut(end - begin, per_byte), err);
    if (status == WEFT_OK && is_nf4)
        status = weft_safetensors_read(files, p.nf4_scales, &self->scales, scale, n_scales, err);
    if (status == WEFT_OK)
        status = weft_safetensors_read(files, p.scales, is_nf4 ? &self->shared : &self->scales,
                                       group * (int64_t)sizeof(float), n_groups * (int64_t)sizeof(float), err);
    for (int64_t at = begin; at < end && status == WEFT_OK; at += block, out += weft_dtype_bytes(self->dtype)) {
        const int64_t numbers = weft_smaller(block, end - at);
        const uint8_t *codes = p.codes + (at - begin) / per_byte;
        if (is_nf4) {
            weft_nf4 nf4 = {.scale = p.scales[at / each / self->among - group], .added = self->added};
            for (int64_t k = 0; k * SCALED < numbers; k++)
                nf4.scales[k] = p.nf4_scales[(at + k * SCALED) / each - scale];
            put_codes(nf4.codes, sizeof nf4.codes, codes, numbers);
            memcpy(out, &nf4, sizeof nf4);
        } else if (self->dtype == WEFT_NF4X64) {
            weft_nf4x64 nf4x64 = {.scale = p.scales[at / each - scale]};
            put_codes(nf4x64.codes, sizeof nf4x64.codes, codes, numbers);
            memcpy(out, &nf4x64, sizeof nf4x64);
        } else {
            weft_i8x64 i8 = {.scale = p.scales[at / each - scale] / 127.0f};
            memcpy(i8.q, codes, sizeof i8.q);
            memcpy(out, &i8, sizeof i8);
        }
    }
    return status;
}

weft_status weft_joined_read(const weft_safetensors *files, void *out, const weft_joined *self, int64_t offset,
                             int64_t bytes, weft_error *err) {
    const int64_t width = weft_dtype_bytes(self->dtype), end = offset + bytes;
    char blocks[AT_ONCE * sizeof(weft_nf4)];
    weft_status status = WEFT_OK;
    for (int64_t at = offset; at < end && status == WEFT_OK;) {
        const int64_t first = at / width, n = weft_smaller(AT_ONCE, cut(end, width) - first);
        const int64_t some = weft_smaller(end, (first + n) * width) - at;
        status = make_blocks(blocks, files, self, first, n, err);
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
