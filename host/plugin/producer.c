/* host/plugin/producer.c: see producer.h. */
#include "plugin/producer.h"

#include <string.h>

/* Searches strings like "GNU C17 12.2.0 -mtune=generic -O2 -ffast-math", up to their end. */
int weft_producer_reorders(const void *image, size_t size) {
    static const char *const flags[] = {" -ffast-math", " -Ofast", " -funsafe-math-optimizations",
                                        " -fassociative-math"};
    const char *at = image, *end = at + size;
    while ((at = memmem(at, (size_t)(end - at), "GNU C", 5)) != NULL) {
        const size_t n = strnlen(at, (size_t)(end - at));
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            if (memmem(at, n, flags[i], strlen(flags[i])) != NULL) return 1;
        at += n;
    }
    return 0;
}
