/* loops_unpack.h: source of the loops that decode codes, 64 at a time. Each number is its level times the scale,
 * rounded once, so all instruction sets have the same bits. Included over simd.h. */

static void loop_unpack_i8(float *out, const int8_t *codes, float scale) {
    int i;
    for (i = 0; i < 64; i++) out[i] = scale * (float)codes[i];
}

/* Shifts exponent and fraction to fp32's bit positions and changes the bias from 7 to 127. Values below 2^-6 are
 * multiples of 2^-9. */
static void loop_unpack_f8(float *out, const uint8_t *codes, float scale) {
    uint32_t bits[64];
    float numbers[64], small[64];
    int i;
    for (i = 0; i < 64; i++) small[i] = (float)(codes[i] & 0x7F) * 0.001953125f;
    for (i = 0; i < 64; i++) bits[i] = ((uint32_t)(codes[i] & 0x7F) << 20) + (120u << 23);
    memcpy(numbers, bits, sizeof numbers);
    for (i = 0; i < 64; i++) numbers[i] = (codes[i] & 0x7F) < 8 ? small[i] : numbers[i];
    memcpy(bits, numbers, sizeof bits);
    for (i = 0; i < 64; i++) bits[i] |= (uint32_t)(codes[i] & 0x80) << 24 | ((codes[i] & 0x7F) == 0x7F) * 0x7FC00000u;
    memcpy(numbers, bits, sizeof numbers);
    for (i = 0; i < 64; i++) out[i] = scale * numbers[i];
}

/* The high nibble holds the first of two codes. */
#if defined(LOOPS_AVX512)
static void loop_unpack_nf4(float *out, const uint8_t *codes, float scale) {
    static const float levels[16] = {WEFT_NF4_LEVELS};
    const __m512 table = _mm512_loadu_ps(levels), by = _mm512_set1_ps(scale);
    const __m128i half = _mm_set1_epi8(15);
    int i;
    for (i = 0; i < 2; i++) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(codes + 16 * i));
        const __m128i first = _mm_and_si128(_mm_srli_epi16(bytes, 4), half), second = _mm_and_si128(bytes, half);
        const __m512i low = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(first, second));
        const __m512i high = _mm512_cvtepu8_epi32(_mm_unpackhi_epi8(first, second));
        _mm512_storeu_ps(out + 32 * i, _mm512_mul_ps(_mm512_permutexvar_ps(low, table), by));
        _mm512_storeu_ps(out + 32 * i + 16, _mm512_mul_ps(_mm512_permutexvar_ps(high, table), by));
    }
}
#elif defined(LOOPS_AVX2)
/* Tables of the negative and the other levels, selected by bit 3 of the code. */
INLINE vec nf4_levels(__m128i codes, vec below, vec above) {
    const __m256i at = _mm256_cvtepu8_epi32(codes);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(below, at), _mm256_permutevar8x32_ps(above, at),
                            _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
}
static void loop_unpack_nf4(float *out, const uint8_t *codes, float scale) {
    static const float levels[16] = {WEFT_NF4_LEVELS};
    const vec below = vec_load(levels), above = vec_load(levels + 8), by = vec_set(scale);
    const __m128i half = _mm_set1_epi8(15);
    int i;
    for (i = 0; i < 4; i++) {
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(codes + 8 * i));
        const __m128i first = _mm_and_si128(_mm_srli_epi16(bytes, 4), half), second = _mm_and_si128(bytes, half);
        const __m128i both = _mm_unpacklo_epi8(first, second);
        vec_store(out + 16 * i, nf4_levels(both, below, above) * by);
        vec_store(out + 16 * i + 8, nf4_levels(_mm_srli_si128(both, 8), below, above) * by);
    }
}
#else
static void loop_unpack_nf4(float *out, const uint8_t *codes, float scale) {
    static const float levels[16] = {WEFT_NF4_LEVELS};
    int i;
    for (i = 0; i < 32; i++) {
        out[2 * i] = levels[codes[i] >> 4] * scale;
        out[2 * i + 1] = levels[codes[i] & 15] * scale;
    }
}
#endif
