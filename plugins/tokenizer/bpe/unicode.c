/* unicode.c: UTF-8 of RFC 3629 (no surrogates, no overlong forms), and character classes from a table. */
#include "unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "unicode_table.h"

static bool follows(unsigned char byte, unsigned char low, unsigned char high) {
    return byte >= low && byte <= high;
}

size_t bpe_utf8_long(const char *bytes, size_t n, int32_t *point) {
    const unsigned char *b = (const unsigned char *)bytes;
    const unsigned char first = b[0];
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    /* The second byte excludes overlong forms, surrogates and code points above 10FFFF. */
    const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    int32_t value = 0;
    *point = -1;
    if (first < 0xc2 || first > 0xf4 || n < length || !follows(b[1], low, high)) return 1;
    value = (int32_t)(first & (0x7f >> length)) << 6 | (b[1] & 0x3f);
    for (size_t i = 2; i < length; i++) {
        if (!follows(b[i], 0x80, 0xbf)) return 1;
        value = value << 6 | (b[i] & 0x3f);
    }
    *point = value;
    return length;
}

size_t bpe_utf8_put(char *out, int32_t point) {
    const size_t length = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    const int32_t lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length; i-- > 1;) {
        out[i] = (char)(0x80 | (point & 0x3f));
        point >>= 6;
    }
    out[0] = (char)(lead[length] | point);
    return length;
}

size_t bpe_valid_prefix(const char *bytes, size_t n) {
    const uint64_t high = 0x8080808080808080u;
    size_t i = 0;
    while (i < n) {
        uint64_t eight = 0;
        int32_t point = 0;
        size_t length = 0;
        if (n - i >= 8) {
            memcpy(&eight, bytes + i, 8);
            if ((eight & high) == 0) {
                i += 8;
                continue;
            }
        }
        length = bpe_utf8(bytes + i, n - i, &point);
        if (point < 0) break;
        i += length;
    }
    return i;
}

size_t bpe_stray_prefix(const char *bytes, size_t n) {
    size_t i = 0;
    while (i < n) {
        int32_t point = 0;
        (void)bpe_utf8(bytes + i, n - i, &point);
        if (point >= 0) break;
        i++;
    }
    return i;
}

bool bpe_is_space(int32_t point) {
    if (point < 0x80) return point == ' ' || (point >= 9 && point <= 13);
    return point == 0x85 || point == 0xa0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200a) ||
           point == 0x2028 || point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

/* ---- categories ---- */

static const char category_names[][3] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                         "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                         "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cn", "Co"};
enum { N_CATEGORIES = sizeof category_names / sizeof category_names[0], PUNCTUATION = 0x20, UNICODE_9 = 0x80 };

static size_t run_of(int32_t point) {
    size_t low = 0, high = sizeof runs / sizeof runs[0];
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if ((int32_t)(runs[middle] >> 8) <= point) low = middle;
        else high = middle;
    }
    return low;
}

int32_t bpe_category(int32_t point) {
    return (int32_t)(runs[run_of(point)] & 0x1f);
}

int32_t bpe_category_end(int32_t point) {
    const size_t run = run_of(point);
    return run + 1 < sizeof runs / sizeof runs[0] ? (int32_t)(runs[run + 1] >> 8) - 1 : BPE_N_POINTS - 1;
}

bool bpe_category_is(int32_t category, const char *name) {
    return category_names[category][0] == name[0] && (name[1] == 0 || category_names[category][1] == name[1]);
}

bool bpe_category_known(const char *name) {
    int32_t i = 0;
    while (i < N_CATEGORIES && !bpe_category_is(i, name)) i++;
    return i < N_CATEGORIES;
}

bool bpe_is_word(int32_t point) {
    int32_t category = 0;
    if (point < 0) return false;
    category = bpe_category(point);
    if (bpe_category_is(category, "L") || bpe_category_is(category, "M") || bpe_category_is(category, "Nd") ||
        bpe_category_is(category, "Nl") || bpe_category_is(category, "Pc"))
        return true;
    /* Joiners, and circled and squared letters, which are alphabetic symbols. */
    return point == 0x200c || point == 0x200d || (point >= 0x24b6 && point <= 0x24e9) ||
           (point >= 0x1f130 && point <= 0x1f149) || (point >= 0x1f150 && point <= 0x1f169) ||
           (point >= 0x1f170 && point <= 0x1f189);
}

bool bpe_is_numeric(int32_t point) {
    if (point < 0x80) return point >= '0' && point <= '9';
    /* Unicode 17.0 has two more ranges. */
    return bpe_category_is(bpe_category(point), "N") || (point >= 0x11de0 && point <= 0x11de9) ||
           (point >= 0x16ff4 && point <= 0x16ff6);
}

bool bpe_is_punctuation(int32_t point) {
    return (runs[run_of(point)] & PUNCTUATION) != 0;
}

bool bpe_in_unicode_9(int32_t point) {
    return point < 0x80 || (runs[run_of(point)] & UNICODE_9) != 0;
}

int32_t bpe_lower(int32_t point) {
    /* Lower case that utf8proc lacks. */
    static const struct {
        int32_t first, last, lower;
    } later[] = {{0x1c89, 0x1c89, 0x1c8a},   {0xa7cb, 0xa7cb, 0x264},  {0xa7cc, 0xa7cc, 0xa7cd},
                 {0xa7ce, 0xa7ce, 0xa7cf},   {0xa7d2, 0xa7d2, 0xa7d3}, {0xa7d4, 0xa7d4, 0xa7d5},
                 {0xa7da, 0xa7da, 0xa7db},   {0xa7dc, 0xa7dc, 0x19b},  {0x10d50, 0x10d65, 0x10d70},
                 {0x16ea0, 0x16eb8, 0x16ebb}};
    if (point < 0x80) return point >= 'A' && point <= 'Z' ? point + 32 : point;
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
        if (point >= later[i].first && point <= later[i].last) return later[i].lower + (point - later[i].first);
    return bpe_category_is(bpe_category(point), "Cn") ? point : utf8proc_tolower(point);
}
