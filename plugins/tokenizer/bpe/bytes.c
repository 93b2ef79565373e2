/* bytes.c: alphabet of byte-level BPE. A printable byte of Latin-1 maps to itself. The other 68 bytes map to the
 * characters from U+0100 on, in order (Radford and others, GPT-2, encoder.py). */
#include "split.h"

static bool printable(int32_t byte) {
    return (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
}

/* Returns the number of unprintable bytes below `byte`: 33 up to the blank, 34 from 7F to A0, and AD. */
static int32_t hidden_before(int32_t byte) {
    if (byte <= 0x20) return byte;
    return byte <= 0xa0 ? 33 + (byte - 0x7f) : 67;
}

int32_t bpe_byte_character(unsigned char byte) {
    return printable(byte) ? byte : 0x100 + hidden_before(byte);
}

int32_t bpe_character_byte(int32_t point) {
    const int32_t hidden = point - 0x100;
    if (point >= 0 && point < 0x100) return printable(point) ? point : -1;
    if (hidden < 0 || hidden > 67) return -1;
    if (hidden <= 0x20) return hidden;
    return hidden < 67 ? hidden - 33 + 0x7f : 0xad;
}
