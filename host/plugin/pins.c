/* host/plugin/pins.c: see pins.h. */
#include "plugin/pins.h"

#include "plugin/writable.h"
#include <errno.h>
#include <stdlib.h>
#include <strings.h>

/* Splits one "kind:id=hash" up to its comma. Returns false for another form. */
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

/* Returns the pinned hash of kind:id, or NULL. */
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

/* --- the list --- */

enum { LIST_BYTES = 1 << 20 };

static int is_hash(const char *text) {
    size_t i = 0;
    while (i < 64 && text[i] != 0 && strchr("0123456789abcdefABCDEF", text[i]) != NULL) i++;
    return i == 64 && (text[64] == 0 || strchr(" \t\r\n", text[64]) != NULL);
}

static weft_status check_list(const char *text, const char *path, weft_error *err) {
    int number = 1;
    for (const char *at = text; *at != 0; number++) {
        const size_t blank = strspn(at, " \t\r"), n = strcspn(at, "\n");
        if (blank < n && at[blank] != '#' && !is_hash(at + blank))
            return weft_error_set(err, WEFT_E_USER,
                                  "[plugins] pin_list: line %d of %s is no line of sha256sum: write 64 hexadecimal "
                                  "digits, two spaces and the file's name; what follows a # is not read",
                                  number, path);
        at += at[n] != 0 ? n + 1 : n;
    }
    return WEFT_OK;
}

weft_status weft_pins_read_list(char **out, const char *path, weft_error *err) {
    char *text = calloc(1, LIST_BYTES + 1);
    FILE *file = text == NULL ? NULL : fopen(path, "re");
    size_t n = 0;
    weft_status status = WEFT_OK;
    if (text == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of pins");
    if (file != NULL) n = fread(text, 1, LIST_BYTES + 1, file);
    if (file == NULL || ferror(file) != 0)
        status = weft_error_set(err, WEFT_E_USER, "[plugins] pin_list: %s cannot be read: %s", path, strerror(errno));
    else if (n > LIST_BYTES)
        status = weft_error_set(err, WEFT_E_USER, "[plugins] pin_list: %s is longer than %d bytes", path, LIST_BYTES);
    else if (memchr(text, 0, n) != NULL)
        status = weft_error_set(err, WEFT_E_USER, "[plugins] pin_list: %s is no text", path);
    else status = check_list(text, path, err);
    if (file != NULL) (void)fclose(file);
    if (status == WEFT_OK) *out = text;
    else free(text);
    return status;
}

weft_status weft_pins_guard_list(const char *path, weft_error *err) {
    char why[WEFT_WRITABLE_TEXT];
    if (!weft_writable_by_others(why, path)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "[plugins] pin_list: %.600s %.1200s. Under [plugins] trust = pinned nothing runs by a list "
                          "that others can change.",
                          path, why);
}

static int is_listed(const char *list, const char sha256[65]) {
    for (const char *at = list; at != NULL && *at != 0;) {
        const size_t blank = strspn(at, " \t\r"), n = strcspn(at, "\n");
        if (blank < n && strncasecmp(at + blank, sha256, 64) == 0) return 1;
        at += at[n] != 0 ? n + 1 : n;
    }
    return 0;
}

static int is_pinned(const char *pins, const char sha256[65]) {
    for (const char *at = pins; at != NULL && *at != 0;) {
        const size_t n = strcspn(at, ",");
        const char *hash = NULL;
        size_t name = 0;
        if (pin_split(at, n, &name, &hash) && strncasecmp(hash, sha256, 64) == 0) return 1;
        at += at[n] == ',' ? n + 1 : n;
    }
    return 0;
}

/* --- checking --- */

static weft_status refuse_unpinned(const weft_trust *trust, const weft_preflight *note, const char sha256[65],
                                   const char *path, weft_error *err) {
    const weft_note_plugin *plugin = &note->plugins[0];
    return weft_error_set(err, WEFT_E_USER,
                          "is not pinned, and [plugins] trust = pinned runs nothing else. Its SHA-256 is %s. If you "
                          "know where it comes from, write [plugins] pin = %s:%s=%s, or append what `sha256sum %s` "
                          "prints to %s.",
                          sha256, plugin->kind, plugin->id, sha256, path,
                          trust->list_path != NULL ? trust->list_path : "a file that [plugins] pin_list names");
}

static weft_status match_pins(const char *pins, const weft_preflight *note, const char sha256[65], weft_error *err) {
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

int weft_trust_holds(const weft_trust *trust, const char sha256[65]) {
    return is_pinned(trust->pins, sha256) || is_listed(trust->list, sha256);
}

weft_status weft_trust_judge(const weft_trust *trust, const weft_preflight *note, const char sha256[65],
                             const char *path, weft_error *err) {
    weft_status status = WEFT_OK;
    if (trust == NULL) return WEFT_OK;
    status = match_pins(trust->pins, note, sha256, err);
    if (status != WEFT_OK || !trust->pinned) return status;
    if (weft_trust_holds(trust, sha256)) return WEFT_OK;
    return refuse_unpinned(trust, note, sha256, path, err);
}
