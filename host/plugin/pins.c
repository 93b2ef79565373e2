/* host/plugin/pins.c: see pins.h. */
#include "plugin/pins.h"

#include <strings.h>

/* One "kind:id=hash" up to its comma. False: it has another form. */
static int pin_split(const char *pin, size_t n, size_t *name, const char **hash) {
    const char *equals = memchr(pin, '=', n), *colon = memchr(pin, ':', n);
    size_t i;
    if (equals == NULL || colon == NULL || colon > equals || colon == pin || colon + 1 == equals) return 0;
    *name = (size_t)(equals - pin);
    *hash = equals + 1;
    if (n - *name - 1 != 64) return 0;
    for (i = 0; i < 64; i++) {
        if (strchr("0123456789abcdefABCDEF", (*hash)[i]) == NULL) return 0;
    }
    return 1;
}

weft_status weft_pins_check(const char *pins, weft_error *err) {
    const char *at = pins;
    while (at != NULL && *at != 0) {
        const size_t n = strcspn(at, ",");
        const char *hash = NULL;
        size_t name = 0;
        if (!pin_split(at, n, &name, &hash)) {
            return weft_error_set(err, WEFT_E_USER,
                                  "[plugins] pin = %.*s is not kind:id=<64 hexadecimal digits>, such as "
                                  "optimizer:lion=5d41...; `sha256sum FILE` prints the digits.",
                                  (int)(n > 200 ? 200 : n), at);
        }
        at += at[n] == ',' ? n + 1 : n;
    }
    return WEFT_OK;
}

/* The hash that kind:id is pinned to, or NULL. */
static const char *pin_of(const char *pins, const weft_note_plugin *plugin) {
    char wanted[96];
    const char *at = pins;
    const size_t length = (size_t)snprintf(wanted, sizeof wanted, "%s:%s", plugin->kind, plugin->id);
    while (at != NULL && *at != 0) {
        const size_t n = strcspn(at, ",");
        const char *hash = NULL;
        size_t name = 0;
        if (pin_split(at, n, &name, &hash) && name == length && memcmp(at, wanted, length) == 0) return hash;
        at += at[n] == ',' ? n + 1 : n;
    }
    return NULL;
}

weft_status weft_pins_match(const char *pins, const weft_preflight *note, const char sha256[65], weft_error *err) {
    uint32_t i;
    for (i = 0; i < note->n_plugins; i++) {
        const weft_note_plugin *plugin = &note->plugins[i];
        const char *hash = pin_of(pins, plugin);
        if (hash != NULL && strncasecmp(hash, sha256, 64) != 0) {
            return weft_error_set(
                err, WEFT_E_USER,
                "has the SHA-256 %s, but [plugins] pin says %.64s for %s:%s. It is another build: check "
                "where it comes from, then change the pin or the file.",
                sha256, hash, plugin->kind, plugin->id);
        }
    }
    return WEFT_OK;
}
