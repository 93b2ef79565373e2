/* host/config/nearest.h: finds the most likely intended name of a misspelt one.
 *
 *     weft_nearest near = {"warmpu", "", 0};
 *     for (...) weft_nearest_offer(&near, names[i], strlen(names[i]));
 *     if (*near.best != '\0') "did you mean %s?"
 */
#ifndef WEFT_HOST_CONFIG_NEAREST_H
#define WEFT_HOST_CONFIG_NEAREST_H

#include <stddef.h>
#include <stdint.h>

typedef struct weft_nearest {
    const char *word;
    char best[64];    /* empty: no candidate is near */
    int64_t distance; /* of best */
} weft_nearest;

/* Adds a candidate of n letters; overlong names are never near. The first of equally near names wins. Case is ignored,
 * and blank, `-` and `_` are equal. Numbers are never near each other: 4 is no typo of 3. */
void weft_nearest_offer(weft_nearest *self, const char *name, size_t n);

/* Formats "; did you mean NAME?", or an empty string. */
void weft_nearest_print(const weft_nearest *self, char *out, size_t size);

/* Returns the number of letters to insert, remove, replace or swap with their neighbour to turn a into b. Both are
 * truncated after 63 letters. */
int64_t weft_edit_distance(const char *a, const char *b);

#endif
