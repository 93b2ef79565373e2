/* host/command/skeleton.c: see skeleton.h. */
#include "command/skeleton.h"

#include "base/text.h"
#include "base/tree.h"
#include "base/words.h"
#include "config/nearest.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 20 };

#define ALL_KINDS "common"

/* ---- checks ---- */

static bool is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Lists the directories of the templates in alphabetical order; the caller frees the names and the list. -1:
 * unreadable. */
static int list_kinds(const char *templates, struct dirent ***out) {
    return scandir(templates, out, NULL, alphasort);
}

static bool is_kind(const struct dirent *entry) {
    return entry->d_name[0] != '.' && strcmp(entry->d_name, ALL_KINDS) != 0;
}

weft_status weft_skeleton_kind(const char *templates, const char *kind, weft_error *err) {
    struct dirent **entries = NULL;
    const int n = list_kinds(templates, &entries);
    weft_nearest near = {kind, "", 0};
    char known[512] = "", meant[128];
    bool found = false;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (!is_kind(entries[i])) continue;
        found = found || strcmp(name, kind) == 0;
        weft_nearest_offer(&near, name, strlen(name));
        weft_words_append(known, sizeof known, "%s%s", known[0] == '\0' ? "" : ", ", name);
    }
    for (int i = 0; i < n; i++) free(entries[i]);
    free(entries);
    weft_nearest_print(&near, meant, sizeof meant);
    if (found) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "'%.60s' is no kind that there is a template for%s; there are %s", kind,
                          meant, known);
}

weft_status weft_skeleton_id(const char *id, weft_error *err) {
    const size_t n = strlen(id);
    if (n > 0 && n < WEFT_SKELETON_NAME && islower((unsigned char)id[0]) &&
        strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_-") == n && strncmp(id, "weft", 4) != 0)
        return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_USER,
        "'%.60s' cannot be a plugin's id: allowed are at most %d of a-z, 0-9, _ and -, of which the first is a "
        "letter, and no beginning with weft, which is the SDK's",
        id, WEFT_SKELETON_NAME - 1);
}

/* ---- substitution of names ---- */

typedef struct names {
    const char *kind, *id;
    char small[WEFT_SKELETON_NAME], large[WEFT_SKELETON_NAME]; /* C names: my_opt, MY_OPT */
} names;

static names names_of(const char *kind, const char *id) {
    names made = {.kind = kind, .id = id};
    for (size_t i = 0; id[i] != '\0'; i++) {
        made.small[i] = id[i] == '-' ? '_' : id[i];
        made.large[i] = (char)toupper((unsigned char)made.small[i]);
    }
    return made;
}

/* Substitutes names, longer words first: all begin with weftnew. */
static void put_names(FILE *to, const char *text, const names *n) {
    const struct {
        const char *word, *name;
    } words[] = {{"weftnew-kind", n->kind}, {"weftnew-id", n->id}, {"weftnew", n->small}, {"WEFTNEW", n->large}};
    while (*text != '\0') {
        size_t w = 0;
        while (w < 4 && strncmp(text, words[w].word, strlen(words[w].word)) != 0) w++;
        if (w < 4) (void)fputs(words[w].name, to);
        else (void)fputc(*text, to);
        text += w < 4 ? strlen(words[w].word) : 1;
    }
}

/* ---- writing ---- */

static weft_status write_file(const char *from, const char *to, const names *n, weft_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = NULL;
    weft_status status = weft_text_read(&text, &bytes, from, MOST_BYTES, err);
    if (status != WEFT_OK) return status;
    file = fopen(to, "wb");
    if (file != NULL) put_names(file, text, n);
    if (file == NULL || ferror(file) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", to, strerror(errno));
    if (file != NULL && fclose(file) != 0 && status == WEFT_OK)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", to, strerror(errno));
    free(text);
    return status;
}

/* Returns the name of a template's output file. */
static void name_file(char *out, size_t size, const char *name, const names *n) {
    FILE *to = fmemopen(out, size, "w");
    out[0] = '\0';
    if (to == NULL) return;
    put_names(to, name, n);
    (void)fclose(to);
}

static weft_status write_tree(const char *from, const char *to, const names *n, weft_error *err) {
    struct dirent **entries = NULL;
    weft_status status = weft_tree_make(to, err);
    const int count = status == WEFT_OK ? scandir(from, &entries, NULL, alphasort) : 0;
    if (count < 0) return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be read: %s", from, strerror(errno));
    for (int i = 0; i < count; i++) {
        char source[WEFT_PATH_BYTES], target[WEFT_PATH_BYTES], name[256];
        if (entries[i]->d_name[0] != '.' && status == WEFT_OK) {
            name_file(name, sizeof name, entries[i]->d_name, n);
            status = weft_path_join(source, from, entries[i]->d_name, err);
            if (status == WEFT_OK) status = weft_path_join(target, to, name, err);
            if (status == WEFT_OK)
                status = is_directory(source) ? write_tree(source, target, n, err) : write_file(source, target, n, err);
        }
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* Writes the files of all kinds, then those of the kind, which may replace them. */
static weft_status write_both(const char *templates, const char *to, const names *n, weft_error *err) {
    char from[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(from, templates, ALL_KINDS, err);
    if (status == WEFT_OK) status = write_tree(from, to, n, err);
    if (status == WEFT_OK) status = weft_path_join(from, templates, n->kind, err);
    return status == WEFT_OK ? write_tree(from, to, n, err) : status;
}

weft_status weft_skeleton_write(const char *templates, const char *kind, const char *id, const char *into,
                                weft_error *err) {
    const names n = names_of(kind, id);
    weft_error ignored = WEFT_ERROR_INIT;
    char making[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    const int length = snprintf(making, sizeof making, "%s.%ld.tmp", into, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof making)
        return weft_error_set(err, WEFT_E_USER, "%.200s...: the path is too long", into);
    if (access(into, F_OK) == 0)
        return weft_error_set(err, WEFT_E_USER, "%s is there already: choose another id, or a directory with --into",
                              into);
    status = write_both(templates, making, &n, err);
    if (status == WEFT_OK && rename(making, into) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be made: %s", into, strerror(errno));
    if (status != WEFT_OK) (void)weft_tree_remove(making, &ignored);
    return status;
}
