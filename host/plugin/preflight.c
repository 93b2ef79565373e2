/* host/plugin/preflight.c: see preflight.h. The note is lines of key=value; its first line names the format. */
#include "plugin/preflight.h"

#include "base/text.h"
#include "plugin/elf.h"

#include <ctype.h>
#include <gnu/libc-version.h>
#include <stdbool.h>
#include <stdlib.h>
#include <weft/comm.h>

#define NOTE_NAME   "weft_plugin_note"
#define ENTRY_NAME  "weft_plugin_entry"
#define NOTE_FORMAT "weft-plugin/1"
#define MOST_NEEDED 256

/* Finds the two exports; rejects a third one by name. */
static weft_status find_exports(const weft_elf *elf, weft_elf_symbol *note, weft_elf_symbol *entry, weft_error *err) {
    uint64_t i;
    for (i = 1; i < elf->n_symbols; i++) { /* 0 is the empty symbol */
        weft_elf_symbol symbol;
        const int found = weft_elf_export(elf, &symbol, i);
        if (found < 0) return weft_error_set(err, WEFT_E_PLUGIN, "has a symbol without a name; it is damaged.");
        if (found == 0) continue;
        if (strcmp(symbol.name, NOTE_NAME) == 0 && symbol.is_object) {
            *note = symbol;
        } else if (strcmp(symbol.name, ENTRY_NAME) == 0 && symbol.is_function) {
            *entry = symbol;
        } else {
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "exports %.200s; a plugin exports " NOTE_NAME " (a char array) and " ENTRY_NAME
                                  " (a function) only. Build it with weft_add_plugin or the flags of "
                                  "weft.pc, which hide the rest.",
                                  symbol.name);
        }
    }
    if (note->name == NULL && entry->name == NULL)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "is a shared object without " NOTE_NAME " and " ENTRY_NAME ", so it is no Weft plugin.");
    if (note->name == NULL || entry->name == NULL) {
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "lacks the export %s. WEFT_PLUGIN defines it; the SDK's linker flags keep it visible.",
                              note->name == NULL ? NOTE_NAME : ENTRY_NAME);
    }
    return WEFT_OK;
}

/* Rejects imports that end or replace the process silently. exit is detected when it happens (crash.h), and abort is
 * reported as a crash. */
static weft_status check_imports(const weft_elf *elf, weft_error *err) {
    static const char *const ends[] = {"_exit", "_Exit",  "quick_exit", "execl",   "execle",   "execlp",
                                       "execv", "execve", "execvp",     "execvpe", "execveat", "fexecve"};
    for (uint64_t i = 1; i < elf->n_symbols; i++) {
        const char *name = weft_elf_import(elf, i);
        for (size_t k = 0; name != NULL && k < sizeof ends / sizeof *ends; k++)
            if (strcmp(name, ends[k]) == 0)
                return weft_error_set(err, WEFT_E_PLUGIN,
                                      "calls %s, which would end the process without a message. A plugin returns an "
                                      "error instead%s.",
                                      name, strstr(name, "exec") != NULL ? ", and starts no program" : "");
    }
    return WEFT_OK;
}

/* Copies the note's text from the file. */
static weft_status read_note(weft_preflight *out, const weft_elf *elf, const weft_elf_symbol *symbol, weft_error *err) {
    const unsigned char *text = weft_elf_at(elf, symbol->address, symbol->size);
    size_t i, n = (size_t)symbol->size;
    if (text == NULL || n == 0 || n > sizeof out->note || text[n - 1] != 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "has a " NOTE_NAME
                              " that cannot be read: it must be a constant text of less than %zu bytes.",
                              sizeof out->note);
    for (i = 0; i + 1 < n; i++) {
        if (text[i] != '\n' && (text[i] < 32 || text[i] > 126))
            return weft_error_set(err, WEFT_E_PLUGIN, "has a " NOTE_NAME " with bytes that are no plain text.");
    }
    memcpy(out->note, text, n);
    return WEFT_OK;
}

/* Parses "1000" -> 1000. Returns false for an invalid SDK number. */
static int parse_sdk(uint32_t *out, const char *text) {
    char *end = NULL;
    const unsigned long value = isdigit((unsigned char)text[0]) ? strtoul(text, &end, 10) : 0;
    if (value < 1000 || value > 999999 || end == NULL || *end != 0) return 0;
    *out = (uint32_t)value;
    return 1;
}

/* Parses "optimizer/1 lion 0.1.0". */
static weft_status parse_plugin(weft_preflight *out, const char *text, weft_error *err) {
    weft_note_plugin *plugin = &out->plugins[out->n_plugins];
    int end = 0;
    if (out->n_plugins == WEFT_FILE_PLUGINS)
        return weft_error_set(err, WEFT_E_PLUGIN, "has a note with more than %d plugins.", WEFT_FILE_PLUGINS);
    if (sscanf(text, "%15[a-z0-9_]/%4u %63[a-z0-9_-] %31[!-~]%n", plugin->kind, &plugin->interface_major, plugin->id,
               plugin->version, &end) != 4 ||
        text[end] != 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "has a note whose line \"plugin=%.100s\" is not <kind>/<interface> <id> <version>, with "
                              "an id of [a-z0-9_-].",
                              text);
    out->n_plugins++;
    return WEFT_OK;
}

/* Parses "/usr/bin/mpiexec -n {ranks}": an absolute program, and {ranks} once among its words; or "weft {ranks}"; or
 * "as mpi-mpich". */
static weft_status parse_launch(weft_preflight *out, const char *text, weft_error *err) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-", as[] = WEFT_LAUNCH_AS;
    const char *ranks = strstr(text, "{ranks}");
    const char *other = strncmp(text, as, sizeof as - 1) == 0 ? text + sizeof as - 1 : "";
    const bool is_command = (text[0] == '/' || strcmp(text, WEFT_LAUNCH_BY_HOST) == 0) && ranks != NULL &&
                            strstr(ranks + 1, "{ranks}") == NULL;
    if (out->launch[0] != 0 || (!is_command && (*other == 0 || other[strspn(other, letters)] != 0)))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "has a note whose line \"launch=%.200s\" is not the one command that starts ranks: an "
                              "absolute path, and {ranks} once among what follows it, or \"" WEFT_LAUNCH_BY_HOST
                              "\", or \"" WEFT_LAUNCH_AS "\" and another's id.",
                              text);
    (void)snprintf(out->launch, sizeof out->launch, "%s", text);
    return WEFT_OK;
}

/* Parses "PMI_RANK PMI_SIZE": pairs of names separated by one space. */
static weft_status parse_launched(weft_preflight *out, const char *text, weft_error *err) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    int names = 0;
    bool good = out->launched[0] == 0, has_more = true;
    for (const char *at = text; good && has_more; names++) {
        const size_t n = strspn(at, letters);
        good = n > 0 && !isdigit((unsigned char)at[0]) && (at[n] == ' ' || at[n] == 0);
        has_more = at[n] == ' ';
        at += n + 1;
    }
    if (!good || names % 2 != 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "has a note whose line \"launched=%.200s\" is not a single list of pairs of environment "
                              "variables, rank and size, in capitals, separated by one space.",
                              text);
    (void)snprintf(out->launched, sizeof out->launched, "%s", text);
    return WEFT_OK;
}

static weft_status parse_line(weft_preflight *out, const char *line, weft_error *err) {
    int good = 1;
    if (strcmp(line, "math=fast") == 0) out->fast_math = 1;
    if (strncmp(line, "plugin=", 7) == 0) return parse_plugin(out, line + 7, err);
    if (strncmp(line, "launch=", 7) == 0) return parse_launch(out, line + 7, err);
    if (strncmp(line, "launched=", 9) == 0) return parse_launched(out, line + 9, err);
    if (strncmp(line, "sdk=", 4) == 0) good = parse_sdk(&out->sdk, line + 4);
    if (strncmp(line, "min_sdk=", 8) == 0) good = parse_sdk(&out->min_sdk, line + 8);
    if (!good)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "has a note whose line \"%.100s\" names no SDK (major * 1000 + minor, such as 1000).",
                              line);
    return WEFT_OK; /* keys of a later SDK are ignored */
}

weft_status weft_note_parse(weft_preflight *out, const char *note, weft_error *err) {
    weft_status status = WEFT_OK;
    const char *at = note;
    int first = 1;
    out->sdk = out->min_sdk = out->n_plugins = 0;
    out->launch[0] = out->launched[0] = 0;
    while (*at != 0 && status == WEFT_OK) {
        char line[WEFT_NOTE_LINE];
        const size_t n = strcspn(at, "\n");
        if (n >= sizeof line) return weft_error_set(err, WEFT_E_PLUGIN, "has a note with a line that is too long.");
        memcpy(line, at, n);
        line[n] = 0;
        if (first && strcmp(line, NOTE_FORMAT) != 0) {
            return weft_error_set(err, WEFT_E_PLUGIN, "has a note that starts with \"%.100s\"; this host reads %s.",
                                  line, NOTE_FORMAT);
        }
        if (!first) status = parse_line(out, line, err);
        first = 0;
        at += at[n] == '\n' ? n + 1 : n;
    }
    if (status == WEFT_OK && (out->sdk == 0 || out->min_sdk == 0 || out->n_plugins == 0)) {
        status = weft_error_set(err, WEFT_E_PLUGIN, "has a note without its %s line.",
                                out->sdk == 0       ? "sdk="
                                : out->min_sdk == 0 ? "min_sdk="
                                                    : "plugin=");
    }
    return status;
}

static weft_status check_versions(const weft_preflight *note, const weft_elf *elf, weft_error *err) {
    const unsigned host = WEFT_SDK_HEADERS;
    const char *here = gnu_get_libc_version();
    int major = 0, minor = 0, needed_major = 0, needed_minor = 0;
    weft_status status = WEFT_OK;
    if (note->sdk / 1000 != host / 1000)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "is built for SDK %u, and this host has SDK %u.%u. Build it with this host's headers.",
                              note->sdk / 1000, host / 1000, host % 1000);
    if (note->min_sdk > host)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "needs at least SDK %u.%u, and this host has SDK %u.%u. Install a newer host.",
                              note->min_sdk / 1000, note->min_sdk % 1000, host / 1000, host % 1000);
    for (uint32_t i = 0; status == WEFT_OK && i < note->n_plugins; i++) status = weft_kind_fits(&note->plugins[i], err);
    if (status == WEFT_OK) status = check_imports(elf, err);
    if (status == WEFT_OK) status = weft_elf_glibc(elf, &needed_major, &needed_minor, err);
    if (status != WEFT_OK || sscanf(here, "%4d.%4d", &major, &minor) != 2) return status;
    if (needed_major > major || (needed_major == major && needed_minor > minor))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "needs GLIBC_%d.%d, and this system has %s. Build it on a system as old as this one.",
                              needed_major, needed_minor, here);
    return WEFT_OK;
}

weft_status weft_preflight_read(weft_preflight *out, const void *image, size_t size, weft_error *err) {
    weft_elf elf;
    weft_elf_symbol note = {0}, entry = {0};
    const char *needed = NULL;
    weft_status status = weft_elf_open(&elf, image, size, err);
    if (status == WEFT_OK) status = find_exports(&elf, &note, &entry, err);
    if (status == WEFT_OK) status = read_note(out, &elf, &note, err);
    if (status == WEFT_OK) status = weft_note_parse(out, out->note, err);
    if (status == WEFT_OK) status = check_versions(out, &elf, err);
    out->needed[0] = 0;
    for (uint64_t i = 0;
         status == WEFT_OK && i < MOST_NEEDED && (needed = weft_elf_text(&elf, WEFT_ELF_NEEDED, i)) != NULL; i++)
        weft_words_append(out->needed, sizeof out->needed, "%s%s", i == 0 ? "" : ", ", needed);
    return status;
}
