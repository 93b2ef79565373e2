/* unicode.c: UTF-8 as RFC 3629 has it (no surrogates, nothing overlong), classes from utf8proc's categories. */
#include "unicode.h"

#include <string.h>
#include <utf8proc.h>

static bool follows(unsigned char byte, unsigned char low, unsigned char high) {
    return byte >= low && byte <= high;
}

size_t bpe_utf8_long(const char *bytes, size_t n, int32_t *point) {
    const unsigned char *b = (const unsigned char *)bytes;
    const unsigned char first = b[0];
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    /* The second byte alone tells overlong forms, surrogates and numbers above 10FFFF. */
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

bool bpe_is_word(int32_t point) {
    if (point < 0) return false;
    switch (utf8proc_category(point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
    }
    /* Joiners, and the circled and squared letters, which are alphabetic though their category says symbol. */
    return point == 0x200c || point == 0x200d || (point >= 0x24b6 && point <= 0x24e9) ||
           (point >= 0x1f130 && point <= 0x1f149) || (point >= 0x1f150 && point <= 0x1f169) ||
           (point >= 0x1f170 && point <= 0x1f189);
}

bool bpe_is_numeric(int32_t point) {
    if (point < 0x80) return point >= '0' && point <= '9';
    switch (utf8proc_category(point)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return true;
    default: return false;
    }
}
