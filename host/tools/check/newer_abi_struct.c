/* host/tools/check/newer_abi_struct.c: see newer_abi_struct.h. */
#include "tools/check/newer_abi_struct.h"

#include <pthread.h>
#include <stdlib.h>

static char mistake[512]; /* the first one */
static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;

void *weft_newer_abi_copy(const void *from, size_t n, size_t size, uint8_t filler) {
    const uint32_t says = (uint32_t)(size + WEFT_NEWER_ABI_BYTES);
    char *made = malloc(n * says + 1);
    for (size_t i = 0; i < n && made != NULL; i++) {
        char *to = made + i * says;
        memset(to, filler, says);
        memcpy(to, (const char *)from + i * size, size);
        memcpy(to, &says, sizeof says);
    }
    return made;
}

void *weft_newer_abi_structs(const void *from, size_t n, size_t size) {
    void *made = weft_newer_abi_copy(from, n, size, WEFT_NEWER_ABI_PATTERN);
    if (made == NULL) abort(); /* which the parent tells as the end of this process */
    return made;
}

static void keep_mistake(const char *what, const char *type) {
    (void)pthread_mutex_lock(&telling);
    if (mistake[0] == '\0')
        (void)snprintf(mistake, sizeof mistake,
                       "in a later host, whose structs are longer, it writes %s of the %s that it fills: it fills it "
                       "field by field, or by weft_struct_give",
                       what, type);
    (void)pthread_mutex_unlock(&telling);
}

void weft_newer_abi_read(void *to, size_t n, size_t size, void *made, const char *type) {
    for (size_t i = 0; i < n; i++) {
        const char *from = (const char *)made + i * (size + WEFT_NEWER_ABI_BYTES);
        char *known = (char *)to + i * size;
        uint32_t own, says;
        memcpy(&says, from, sizeof says);
        memcpy(&own, known, sizeof own);
        if (says != size + WEFT_NEWER_ABI_BYTES) keep_mistake("struct_size", type);
        for (size_t b = size; b < size + WEFT_NEWER_ABI_BYTES; b++)
            if ((unsigned char)from[b] != WEFT_NEWER_ABI_PATTERN)
                keep_mistake("behind the end, as SDK 1.0 has it,", type);
        memcpy(known, from, size);
        memcpy(known, &own, sizeof own);
    }
    free(made);
}

const char *weft_newer_abi_error(void) {
    return mistake;
}

const weft_host *weft_newer_abi_host(const weft_host *host) {
    static struct {
        weft_host *made;
        const weft_host *of;
    } hosts[2];
    int i = 0;
    while (i < 1 && hosts[i].of != NULL && hosts[i].of != host) i++;
    if (hosts[i].made == NULL) hosts[i].made = weft_newer_abi_structs(host, 1, sizeof *host);
    hosts[i].of = host;
    return hosts[i].made;
}
