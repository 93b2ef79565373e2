/* host/tools/plugins/cmd_plugins.c: weft plugins list | describe. */
#include "cli/cli.h"

#include "base/text.h"
#include "config/config.h"
#include "plugin/load.h"
#include "plugin/plugin.h"
#include "program/run.h"
#include "tools/common/plugins.h"
#include "tools/common/messages.h"
#include <stdlib.h>

/* --- list --- */

static const char *text_of(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text == NULL ? "" : text;
}

static int widest_cell(const json_t *rows, const char *key, const char *title) {
    size_t i, width = strlen(title);
    for (i = 0; i < json_array_size(rows); i++) {
        const size_t n = strlen(text_of(json_array_get(rows, i), key));
        if (n > width) width = n;
    }
    return (int)width;
}

/* Prints a line per file, with a reason below it. */
static void print_table(const json_t *rows) {
    static const char *const keys[] = {"kind", "id", "version", "status"};
    int widths[4];
    size_t i, k;
    for (k = 0; k < 4; k++) widths[k] = widest_cell(rows, keys[k], keys[k]);
    (void)printf("%-*s  %-*s  %-*s  %-*s  file\n", widths[0], "kind", widths[1], "id", widths[2], "version", widths[3],
                 "status");
    for (i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        for (k = 0; k < 4; k++) weft_words_print(stdout, "%-*s  ", widths[k], text_of(row, keys[k]));
        weft_words_print(stdout, "%s\n", text_of(row, "file"));
        if (text_of(row, "reason")[0] != 0) weft_words_print(stdout, "    %s\n", text_of(row, "reason"));
    }
}

/* Returns true if the output was written. */
static bool print_value_json(const json_t *value) {
    const bool done = json_dumpf(value, stdout, JSON_INDENT(2)) == 0;
    (void)printf("\n");
    return done;
}

static weft_exit list(const weft_args *args, weft_error *err) {
    weft_plugins *plugins = NULL;
    json_t *rows = json_array();
    weft_status status = weft_plugins_create(&plugins, &(const weft_plugins_settings){.path = NULL}, err);
    if (status == WEFT_OK) status = weft_plugins_scan(rows, plugins, WEFT_PROBE_SECONDS, err);
    if (status == WEFT_OK && weft_args_has(args, "json")) {
        if (!print_value_json(rows)) status = weft_error_set(err, WEFT_E_SYSTEM, "the list cannot be written.");
    } else if (status == WEFT_OK && json_array_size(rows) > 0) {
        print_table(rows);
    } else if (status == WEFT_OK) {
        (void)printf("no plugin was found in\n");
        for (size_t i = 0; weft_plugins_directory(plugins, i) != NULL; i++)
            (void)printf("  %s\n", weft_plugins_directory(plugins, i));
    }
    weft_plugins_destroy(plugins);
    json_decref(rows);
    return weft_exit_from(status);
}

/* --- describe --- */

static const weft_key *key_at(const weft_plugin *plugin, uint64_t i) {
    return (const weft_key *)(const void *)((const char *)plugin->keys + i * plugin->key_stride);
}

enum { MOST_CAPABILITIES = 8 };

/* Lists the host keys that the plugin offers; returns their number. */
static uint64_t list_capabilities(weft_key out[MOST_CAPABILITIES], const weft_loaded *loaded) {
    const int32_t part = weft_part_of(loaded->plugin->kind);
    const weft_key *row = NULL;
    uint64_t n = 0;
    uint32_t flag = 0;
    for (size_t i = 0; (row = weft_capability_at(part, i, &flag)) != NULL && n < MOST_CAPABILITIES; i++)
        if ((weft_capabilities_of(loaded) & flag) != 0) out[n++] = *row;
    return n;
}

static void print_keys(const weft_loaded *loaded) {
    const weft_plugin *plugin = loaded->plugin;
    weft_key capabilities[MOST_CAPABILITIES];
    const uint64_t n = list_capabilities(capabilities, loaded);
    if (plugin->n_keys == 0) {
        (void)printf("It has no keys of its own.\n");
    } else {
        (void)printf("[%s] or [%s.%s]\n", plugin->kind, plugin->kind, plugin->id);
        weft_key_table_print(plugin->keys, plugin->n_keys, plugin->key_stride, stdout);
    }
    if (n == 0) return;
    (void)printf("\nof the host's keys it offers\n");
    weft_key_table_print(capabilities, n, (uint32_t)sizeof capabilities[0], stdout);
}

static void print_plugin(const weft_loaded *loaded, const weft_preflight *file) {
    const weft_plugin *plugin = loaded->plugin;
    weft_words_print(stdout, "%s:%s %s (%s/%u)\n%s\n\n", plugin->kind, plugin->id, plugin->version, plugin->kind,
                     plugin->interface_major, plugin->help);
    weft_words_print(stdout, "file    %s\nsha256  %s\n", loaded->path, loaded->sha256);
    (void)printf("sdk     built with %u.%u, needs %u.%u\n", file->sdk / 1000, file->sdk % 1000, file->min_sdk / 1000,
                 file->min_sdk % 1000);
    weft_words_print(stdout, "needs   %s\n\n", file->needed[0] == 0 ? "no library" : file->needed);
    print_keys(loaded);
}

static json_t *key_object(const weft_key *key) {
    static const char *const types[] = {"", "i64", "f64", "bool", "str", "path", "enum", "list"};
    return json_pack("{s:s, s:s, s:s?, s:s, s:s, s:s, s:b, s:b}", "name", key->name, "type", types[key->type],
                     "default", key->fallback, "range", key->range, "unit", key->unit, "help", key->help, "required",
                     key->fallback == NULL, "same_on_all_ranks", (key->flags & WEFT_SAME) != 0);
}

static json_t *plugin_object(const weft_loaded *loaded, const weft_preflight *file) {
    const weft_plugin *plugin = loaded->plugin;
    json_t *keys = json_array(), *capabilities = json_array();
    weft_key offered[MOST_CAPABILITIES];
    const uint64_t n = list_capabilities(offered, loaded);
    uint64_t i;
    for (i = 0; i < plugin->n_keys; i++)
        if ((key_at(plugin, i)->flags & WEFT_REMOVED) == 0)
            (void)json_array_append_new(keys, key_object(key_at(plugin, i)));
    for (i = 0; i < n; i++) (void)json_array_append_new(capabilities, json_string(offered[i].name));
    return json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:i, s:i, s:s, s:o, s:o}", "kind", plugin->kind, "id",
                     plugin->id, "version", plugin->version, "interface", (int)plugin->interface_major, "help",
                     plugin->help, "file", loaded->path, "sha256", loaded->sha256, "sdk", (int)file->sdk, "min_sdk",
                     (int)file->min_sdk, "needs", file->needed, "keys", keys, "offers", capabilities);
}

static weft_exit describe_plugin(const weft_args *args, weft_error *err) {
    const weft_plugins_settings options = {.path = NULL};
    const char *wanted = weft_args_extra(args, 0), *colon = strchr(wanted, ':');
    const weft_loaded *loaded = NULL;
    weft_plugins *plugins = NULL;
    weft_preflight file;
    char kind[32] = "";
    json_t *object = NULL;
    weft_status status;
    if (colon == NULL || colon == wanted || colon[1] == 0 || (size_t)(colon - wanted) >= sizeof kind) {
        (void)weft_error_set(err, WEFT_E_USER, "%.200s is not KIND:ID, such as optimizer:adamw.", wanted);
        return WEFT_EXIT_USAGE;
    }
    memcpy(kind, wanted, (size_t)(colon - wanted));
    status = weft_plugins_create(&plugins, &options, err);
    if (status == WEFT_OK) status = weft_plugins_get(plugins, &loaded, kind, colon + 1, err);
    if (status == WEFT_OK) status = weft_plugin_file_note(&file, loaded->path, NULL, err);
    if (status == WEFT_OK && weft_args_has(args, "json")) {
        object = plugin_object(loaded, &file);
        if (!print_value_json(object))
            status = weft_error_set(err, WEFT_E_SYSTEM, "the description cannot be written.");
    } else if (status == WEFT_OK) {
        print_plugin(loaded, &file);
    }
    json_decref(object);
    weft_plugins_destroy(plugins);
    return weft_exit_from(status);
}

static const weft_flag list_flags[] = {
    {"json", NULL, false, "Print an array of objects instead of a table."},
    {NULL, NULL, false, NULL},
};
static const weft_flag describe_flags[] = {
    {"json", NULL, false, "Print an object instead of a page."},
    {NULL, NULL, false, NULL},
};

static const weft_command weft_command_plugins_list = {
    .name = "plugins list",
    .usage = "",
    .takes = WEFT_TAKES_ARGUMENTS,
    .min_extra = 0,
    .max_extra = 0,
    .flags = list_flags,
    .more = "Each file is loaded in a subprocess. Search order: WEFT_PLUGIN_PATH, ~/.local/share/weft/plugins, "
            "~/.local/lib/weft/plugins, the directories of the installation. [plugins] path of a run comes first.",
    .examples = "  weft plugins list\n"
                "  WEFT_PLUGIN_PATH=$PWD weft plugins list\n",
    .run = list,
};

static const weft_command weft_command_plugins_describe = {
    .name = "plugins describe",
    .usage = "KIND:ID",
    .takes = WEFT_TAKES_ARGUMENTS,
    .min_extra = 1,
    .max_extra = 1,
    .flags = describe_flags,
    .more = "ID may be the path of a file.",
    .examples = "  weft plugins describe optimizer:adamw\n"
                "  weft plugins describe policy:./mine.so\n",
    .run = describe_plugin,
};

extern const weft_command weft_command_plugins_new;

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_plugins_list, &weft_command_plugins_describe,
                                                   &weft_command_plugins_new, NULL};
    return weft_cli_main(argc, argv, commands);
}
