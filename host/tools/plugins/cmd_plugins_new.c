/* host/tools/plugins/cmd_plugins_new.c: weft plugins new. */
#include "base/text.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/directory.h"
#include "config/nearest.h"
#include "plugin/plugin.h"
#include "tools/common/plugins.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Creates the directory of a new plugin from the installed templates.
 *
 * Templates are files of the installation, share/weft/template/new: those of a kind and those of all kinds (`common`).
 * In their text and names `weftnew-kind` is replaced by the kind, `weftnew-id` by the id, and `weftnew` and `WEFTNEW`
 * by a C name derived from the id. */

enum { ID_BYTES = 48 }; /* bytes of an id, including the zero */

enum { MOST_BYTES = 1 << 20 };

#define ALL_KINDS "common"

/* ---- checks ---- */

/* Checks that the kind has a template. WEFT_E_USER: it has no template; the message lists the existing ones. */
static weft_status check_kind(const char *templates, const char *kind, weft_error *err) {
    struct dirent **entries = NULL;
    const int n = scandir(templates, &entries, NULL, alphasort);
    weft_nearest near = {kind, "", 0};
    char known[512] = "", meant[128];
    bool found = false;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (name[0] == '.' || strcmp(name, ALL_KINDS) == 0) continue;
        found = found || strcmp(name, kind) == 0;
        weft_nearest_offer(&near, name, strlen(name));
        weft_words_append(known, sizeof known, "%s%s", known[0] == '\0' ? "" : ", ", name);
    }
    for (int i = 0; i < n; i++) free(entries[i]);
    free(entries);
    weft_nearest_print(&near, meant, sizeof meant);
    if (found) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "no template exists for the kind '%.60s'%s. Allowed: %s", kind, meant,
                          known);
}

/* Checks an id. WEFT_E_USER: invalid for a new plugin. */
static weft_status check_id(const char *id, weft_error *err) {
    const size_t n = strlen(id);
    if (n > 0 && n < ID_BYTES && islower((unsigned char)id[0]) &&
        strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_-") == n && strncmp(id, "weft", 4) != 0)
        return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_USER,
        "'%.60s' cannot be a plugin's id: allowed are at most %d of a-z, 0-9, _ and -, of which the first is a "
        "letter, and no beginning with weft, which is the SDK's",
        id, ID_BYTES - 1);
}

/* ---- substitution of names ---- */

typedef struct names {
    const char *kind, *id;
    char small[ID_BYTES], large[ID_BYTES]; /* C names: my_opt, MY_OPT */
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
                status = weft_is_directory(source) ? write_tree(source, target, n, err)
                                                   : write_file(source, target, n, err);
        }
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* Writes the directory `into` atomically; it must not exist. */
static weft_status write_skeleton(const char *templates, const char *kind, const char *id, const char *into,
                                  weft_error *err) {
    const names n = names_of(kind, id);
    weft_error ignored = WEFT_ERROR_INIT;
    char making[WEFT_PATH_BYTES], from[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    const int length = snprintf(making, sizeof making, "%s.%ld.tmp", into, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof making)
        return weft_error_set(err, WEFT_E_USER, "%.200s...: the path is too long", into);
    if (access(into, F_OK) == 0)
        return weft_error_set(err, WEFT_E_USER, "%s exists already: choose another id, or a directory with --into",
                              into);
    /* the files of all kinds, then those of the kind, which may replace them */
    status = weft_path_join(from, templates, ALL_KINDS, err);
    if (status == WEFT_OK) status = write_tree(from, making, &n, err);
    if (status == WEFT_OK) status = weft_path_join(from, templates, kind, err);
    if (status == WEFT_OK) status = write_tree(from, making, &n, err);
    if (status == WEFT_OK && rename(making, into) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be made: %s", into, strerror(errno));
    if (status != WEFT_OK) (void)weft_tree_remove(making, &ignored);
    return status;
}

/* Rejects an id that a search already finds: one would hide the other. */
static weft_status refuse_taken(const char *kind, const char *id, weft_error *err) {
    weft_plugins *plugins = NULL;
    char file[WEFT_PATH_BYTES];
    weft_status status = weft_plugins_create(&plugins, &(const weft_plugins_settings){.path = NULL}, err);
    if (status == WEFT_OK && weft_plugins_has(plugins, file, sizeof file, kind, id))
        status = weft_error_set(err, WEFT_E_USER, "%s:%s exists already, as %s: choose another id", kind, id, file);
    weft_plugins_destroy(plugins);
    return status;
}

static weft_exit new_plugin(const weft_args *args, weft_error *err) {
    const char *kind = weft_args_extra(args, 0), *id = weft_args_extra(args, 1);
    const char *into = weft_args_value(args, "into");
    char templates[WEFT_PATH_BYTES];
    weft_status status = weft_templates_find(templates, "new", err);
    if (status == WEFT_OK && check_kind(templates, kind, err) != WEFT_OK) return WEFT_EXIT_USAGE;
    if (status == WEFT_OK && check_id(id, err) != WEFT_OK) return WEFT_EXIT_USAGE;
    if (into == NULL) into = id;
    if (status == WEFT_OK) status = refuse_taken(kind, id, err);
    if (status == WEFT_OK) status = write_skeleton(templates, kind, id, into, err);
    if (status != WEFT_OK) return weft_exit_from(status);
    (void)printf("%s:%s is in %s and works unchanged:\n\n"
                 "    cd %s && make && make check\n\n"
                 "README.md has the details.\n",
                 kind, id, into, into);
    return WEFT_EXIT_DONE;
}

static const weft_flag new_flags[] = {
    {"into", "DIR", false, "Directory to create (default ./ID)."},
    {NULL, NULL, false, NULL},
};

const weft_command weft_command_plugins_new = {
    .name = "plugins new",
    .usage = "KIND ID",
    .takes = WEFT_TAKES_ARGUMENTS,
    .min_extra = 2,
    .max_extra = 2,
    .flags = new_flags,
    .more = "KIND is model, policy, strategy, optimizer, data, tokenizer, adapter, device or comm; the last two wrap "
            "another plugin of their kind. The result builds with make or CMake; `make check` trains, resumes and "
            "proves with it.",
    .examples = "  weft plugins new policy mine\n"
                "  weft plugins new optimizer lion2 --into lion2-plugin\n",
    .run = new_plugin,
};
