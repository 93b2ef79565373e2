/* host/config/nearest.h: which known name a misspelt one most likely means.
 *
 *     weft_nearest near = {"warmpu", "", 0};
 *     for (...) weft_nearest_offer(&near, names[i], strlen(names[i]));
 *     if (*near.best != '\0') "did you mean %s?"
 */
#ifndef WEFT_HOST_CONFIG_NEAREST_H
#define WEFT_HOST_CONFIG_NEAREST_H

#include <stddef.h>

typedef struct weft_nearest {
    const char *word;
    char best[64];   /* empty: nothing that was offered is near */
    size_t distance; /* of best */
} weft_nearest;

/* name: n letters; longer ones than fit are not near anything. The first of equally near names stays. Case does not
 * count, nor do blank, `-` and `_` among themselves. No number is near another: 4 is no slip of 3. */
void weft_nearest_offer(weft_nearest *self, const char *name, size_t n);

/* "; did you mean NAME?", or nothing. */
void weft_nearest_print(const weft_nearest *self, char *out, size_t size);

/* Letters to insert, remove, replace or swap with their neighbour until a is b; both are cut after 63 letters. */
size_t weft_edit_distance(const char *a, const char *b);

#endif
