/* plain.c: see plain.h. Based on Intel's description of LDTILECFG, TILEZERO, TILELOADD, TILESTORED and TDPBF16PS. */
#include "plain.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Per thread, as in the processor. */
typedef struct tiles {
    amx_configuration as; /* palette 0: not configured */
    unsigned char at[AMX_TILES][AMX_ROWS][AMX_BYTES];
} tiles;

static _Thread_local tiles mine;

static void misuse(const char *instruction, int tile, const char *what) {
    (void)fprintf(stderr, "plain.c: %s of tile %d: %s\n", instruction, tile, what);
    abort();
}

static void expect_configured(const char *instruction, int tile) {
    if (mine.as.palette != 1) misuse(instruction, tile, "this thread has loaded no configuration");
    if (tile < 0 || tile >= AMX_TILES) misuse(instruction, tile, "there is no such tile");
    if (mine.as.rows[tile] == 0 || mine.as.row_bytes[tile] == 0) misuse(instruction, tile, "it has no rows");
}

void plain_configure(const amx_configuration *c) {
    if (c->palette != 1) misuse("ldtilecfg", 0, "palette 1 alone has tiles");
    if (c->start_row != 0) misuse("ldtilecfg", 0, "a load that was interrupted is not there to be gone on with");
    for (size_t i = 0; i < sizeof c->reserved; i++)
        if (c->reserved[i] != 0) misuse("ldtilecfg", 0, "reserved bytes are set");
    for (int i = 0; i < 16; i++) {
        if (i >= AMX_TILES && (c->rows[i] != 0 || c->row_bytes[i] != 0)) misuse("ldtilecfg", i, "there are eight");
        if (c->rows[i] > AMX_ROWS || c->row_bytes[i] > AMX_BYTES) misuse("ldtilecfg", i, "16 rows of 64 bytes at most");
        if ((c->rows[i] == 0) != (c->row_bytes[i] == 0)) misuse("ldtilecfg", i, "rows without bytes, or bytes alone");
    }
    if (mine.as.palette != 0) misuse("ldtilecfg", 0, "the one before was not released");
    memset(&mine, 0, sizeof mine);
    mine.as = *c;
}

void plain_release(void) {
    if (mine.as.palette == 0) misuse("tilerelease", 0, "nothing is configured");
    memset(&mine, 0, sizeof mine);
}

void plain_zero(int tile) {
    expect_configured("tilezero", tile);
    memset(mine.at[tile], 0, sizeof mine.at[tile]);
}

void plain_load(int tile, const void *at, int64_t apart) {
    expect_configured("tileloadd", tile);
    memset(mine.at[tile], 0, sizeof mine.at[tile]);
    for (int row = 0; row < mine.as.rows[tile]; row++)
        memcpy(mine.at[tile][row], (const char *)at + row * apart, mine.as.row_bytes[tile]);
}

void plain_store(int tile, void *at, int64_t apart) {
    expect_configured("tilestored", tile);
    for (int row = 0; row < mine.as.rows[tile]; row++)
        memcpy((char *)at + row * apart, mine.at[tile][row], mine.as.row_bytes[tile]);
}

/* ---- multiplication ---- */

#define INLINE static inline __attribute__((always_inline))

/* Flushes numbers below the smallest normal one to zero, keeping the sign. */
INLINE float flushed(float x) {
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

INLINE float of_bf16(uint32_t half) {
    const uint32_t bits = half << 16;
    float x = 0;
    memcpy(&x, &bits, sizeof x);
    return flushed(x);
}

/* The first values of b's words in one array per row, the second values in another. */
typedef struct pairs {
    float first[AMX_WORDS][AMX_WORDS], second[AMX_WORDS][AMX_WORDS];
} pairs;

static void split(pairs *out, int b) {
    for (int k = 0; k < AMX_WORDS; k++) {
        for (int n = 0; n < AMX_WORDS; n++) {
            uint32_t word = 0;
            memcpy(&word, mine.at[b][k] + 4 * n, sizeof word);
            out->first[k][n] = of_bf16(word & 0xFFFFu);
            out->second[k][n] = of_bf16(word >> 16);
        }
    }
}

/* Computes one row of sums: two chains, each from zero, are added to each other and then to the previous sum. */
INLINE void dot_row(unsigned char *to, const unsigned char *a, const pairs *b, int words) {
    float first[AMX_WORDS] = {0}, second[AMX_WORDS] = {0}, sum[AMX_WORDS];
    for (int k = 0; k < words; k++) {
        uint32_t word = 0;
        float x = 0, y = 0;
        memcpy(&word, a + 4 * k, sizeof word);
        x = of_bf16(word & 0xFFFFu);
        y = of_bf16(word >> 16);
        for (int n = 0; n < AMX_WORDS; n++) {
            first[n] = flushed(fmaf(x, b->first[k][n], first[n]));
            second[n] = flushed(fmaf(y, b->second[k][n], second[n]));
        }
    }
    memcpy(sum, to, sizeof sum);
    for (int n = 0; n < AMX_WORDS; n++) sum[n] = flushed(flushed(sum[n]) + flushed(first[n] + second[n]));
    memcpy(to, sum, sizeof sum);
}

INLINE void dot_rows(int sum, int a, const pairs *b) {
    for (int row = 0; row < mine.as.rows[sum]; row++)
        dot_row(mine.at[sum][row], mine.at[a][row], b, mine.as.row_bytes[a] / 4);
}
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void dot_rows_fused(int sum, int a, const pairs *b) {
    dot_rows(sum, a, b);
}
#endif

void plain_dot(int sum, int a, int b) {
    const amx_configuration *as = &mine.as;
    pairs right;
    expect_configured("tdpbf16ps", sum);
    expect_configured("tdpbf16ps", a);
    expect_configured("tdpbf16ps", b);
    if (sum == a || sum == b || a == b) misuse("tdpbf16ps", sum, "its three tiles are not three");
    if (as->row_bytes[a] % 4 != 0 || as->row_bytes[b] % 4 != 0) misuse("tdpbf16ps", sum, "a word is cut");
    if (as->rows[a] != as->rows[sum]) misuse("tdpbf16ps", sum, "a has other rows than the sums");
    if (as->row_bytes[b] != as->row_bytes[sum]) misuse("tdpbf16ps", sum, "b has other columns than the sums");
    if (as->row_bytes[a] / 4 != as->rows[b]) misuse("tdpbf16ps", sum, "a has other words than b");
    split(&right, b);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) {
        dot_rows_fused(sum, a, &right);
        return;
    }
#endif
    dot_rows(sum, a, &right);
}
