/* tests/common/device_choice.c: see device_choice.h. */
#include "device_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *device_choice(void) {
    const char *name = getenv("WEFT_TEST_DEVICE");
    return name == NULL ? "cpu" : name;
}

size_t device_choice_overrides(const char *out[DEVICE_CHOICE_MOST]) {
    static char texts[DEVICE_CHOICE_MOST][512];
    const char *given = getenv("WEFT_TEST_KEYS");
    char *copy = strdup(given == NULL ? "" : given), *rest = copy, *key = NULL;
    size_t n = 0;
    (void)snprintf(texts[n++], sizeof *texts, "device.plugin=%s", device_choice());
    while ((key = strtok_r(rest, " ", &rest)) != NULL) {
        if (n == DEVICE_CHOICE_MOST) abort(); /* also called outside of Check suites */
        (void)snprintf(texts[n++], sizeof *texts, "device.%s", key);
    }
    for (size_t i = 0; i < n; i++) out[i] = texts[i];
    free(copy);
    return n;
}
