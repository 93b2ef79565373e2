/* host/config/nearest.c: optimal string alignment distance, and the selection by it. */
#include "config/nearest.h"

#include "base/units.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LONGEST 63

static int fold_letter(char c) {
    if (c == '-' || c == ' ') return '_';
    return tolower((unsigned char)c);
}

int64_t weft_edit_distance(const char *a, const char *b) {
    const int64_t n = (int64_t)strnlen(a, LONGEST), m = (int64_t)strnlen(b, LONGEST);
    int64_t rows[3][LONGEST + 1]; /* rows[i % 3][j]: from the first i letters of a to the first j of b */
    for (int64_t j = 0; j <= m; j++) rows[0][j] = j;
    for (int64_t i = 1; i <= n; i++) {
        int64_t *row = rows[i % 3];
        const int64_t *above = rows[(i - 1) % 3];
        const int64_t *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int64_t j = 1; j <= m; j++) {
            const int64_t differ = fold_letter(a[i - 1]) != fold_letter(b[j - 1]);
            row[j] = weft_smaller(weft_smaller(above[j], row[j - 1]) + 1, above[j - 1] + differ);
            if (i > 1 && j > 1 && fold_letter(a[i - 1]) == fold_letter(b[j - 2]) &&
                fold_letter(a[i - 2]) == fold_letter(b[j - 1]))
                row[j] = weft_smaller(row[j], above2[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

static bool is_number(const char *text) {
    return *text != '\0' && text[strspn(text, "0123456789")] == '\0';
}

void weft_nearest_offer(weft_nearest *self, const char *name, size_t n) {
    const int64_t allowed = n < 6 ? 1 : (int64_t)n / 3;
    char copy[LONGEST + 1];
    int64_t distance = 0;
    if (n > LONGEST || n == 0) return;
    memcpy(copy, name, n);
    copy[n] = '\0';
    if (is_number(copy) && is_number(self->word)) return;
    distance = weft_edit_distance(self->word, copy);
    if (distance > allowed || (*self->best != '\0' && distance >= self->distance)) return;
    memcpy(self->best, copy, n + 1);
    self->distance = distance;
}

void weft_nearest_print(const weft_nearest *self, char *out, size_t size) {
    *out = '\0';
    if (*self->best != '\0') (void)snprintf(out, size, "; did you mean %s?", self->best);
}
