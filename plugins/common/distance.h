/* plugins/common/distance.h: edit distance of names, for "the nearest is ..." in error messages. */
#ifndef WEFT_PLUGINS_DISTANCE_H
#define WEFT_PLUGINS_DISTANCE_H

#include <ctype.h>
#include <string.h>

enum { NAME_SIZE = 128 }; /* longer names are truncated */

/* Returns the Levenshtein distance of two names, ignoring case. */
static inline size_t name_distance(const char *a, const char *b) {
    size_t row[NAME_SIZE], i, j;
    const size_t m = strnlen(b, NAME_SIZE - 1);
    for (j = 0; j <= m; j++) row[j] = j;
    for (i = 0; a[i] != 0; i++) {
        size_t corner = row[0];
        row[0] = i + 1;
        for (j = 0; j < m; j++) {
            const size_t changed = corner + (tolower((unsigned char)a[i]) != tolower((unsigned char)b[j]));
            corner = row[j + 1];
            row[j + 1] = (row[j] < corner ? row[j] : corner) + 1;
            if (changed < row[j + 1]) row[j + 1] = changed;
        }
    }
    return row[m];
}

#endif
