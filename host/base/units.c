/* host/base/units.c: see units.h. */
#include "base/units.h"

#include <stdio.h>
#include <string.h>

char *weft_unit_count(char text[WEFT_UNIT_SIZE], int64_t value) {
    char digits[WEFT_UNIT_SIZE];
    size_t n = 0, out = 0;
    (void)snprintf(digits, sizeof digits, "%lld", (long long)value);
    n = strlen(digits);
    for (size_t i = 0; i < n && out + 2 < WEFT_UNIT_SIZE; i++) {
        text[out++] = digits[i];
        if (digits[i] != '-' && (n - i - 1) % 3 == 0 && i + 1 < n) text[out++] = ',';
    }
    text[out] = '\0';
    return text;
}

char *weft_unit_counted(char text[WEFT_UNIT_SIZE], int64_t value, const char *noun) {
    size_t n = 0;
    (void)weft_unit_count(text, value);
    n = strlen(text);
    (void)snprintf(text + n, WEFT_UNIT_SIZE - n, " %s%s", noun, value == 1 ? "" : "s");
    return text;
}

char *weft_unit_bytes(char text[WEFT_UNIT_SIZE], int64_t bytes) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024.0 && unit < 4) {
        value /= 1024.0;
        unit++;
    }
    (void)snprintf(text, WEFT_UNIT_SIZE, unit == 0 ? "%.0f %s" : "%.1f %s", value, names[unit]);
    return text;
}

char *weft_unit_seconds(char text[WEFT_UNIT_SIZE], double seconds) {
    const long whole = (long)(seconds + 0.5);
    if (seconds < 1.0) (void)snprintf(text, WEFT_UNIT_SIZE, "%.0f ms", seconds * 1e3);
    else if (seconds < 100.0) (void)snprintf(text, WEFT_UNIT_SIZE, "%.1f s", seconds);
    else if (whole < 3600) (void)snprintf(text, WEFT_UNIT_SIZE, "%ld min %02ld s", whole / 60, whole % 60);
    else (void)snprintf(text, WEFT_UNIT_SIZE, "%ld h %02ld min", whole / 3600, whole / 60 % 60);
    return text;
}
