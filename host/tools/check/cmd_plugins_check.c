/* host/tools/check/cmd_plugins_check.c: weft plugins check. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/text.h"
#include "config/settings.h"
#include "config/value.h"
#include "tools/check/rule.h"
#include "plugin/load.h"
#include "tools/common/plugins.h"
#include "tools/common/messages.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_OVERRIDES = 32, MOST_OVERRIDE = 1024 };

/* State of one `weft plugins check` command. */
typedef struct check {
    const weft_args *args;
    weft_plugin_under_test_options options;
    const char *given; /* path of `file` as given or found */
    char file[PATH_MAX], directory[WEFT_PATH_BYTES];
    char *overrides[MOST_OVERRIDES];
    size_t n_overrides;
    json_t *files;
    int32_t worst, n_refused;
    weft_error refused; /* first reason why a file cannot be checked */
    bool lacks;         /* an applicable rule was not run */
    bool json;
} check;

static bool is_override(const char *word) {
    const char *equals = strchr(word, '=');
    return equals != NULL && memchr(word, '/', (size_t)(equals - word)) == NULL;
}

/* Adds the section of the plugin's kind to overrides without one: "lr=1". */
static weft_status set_overrides(check *c, const char *kind, weft_error *err) {
    for (size_t i = 0; i < c->n_overrides; i++) free(c->overrides[i]);
    c->n_overrides = 0;
    for (size_t i = 0; weft_args_extra(c->args, i) != NULL; i++) {
        const char *word = weft_args_extra(c->args, i);
        if (!is_override(word)) continue;
        if (c->n_overrides == MOST_OVERRIDES)
            return weft_error_set(err, WEFT_E_USER, "more than %d keys are set", MOST_OVERRIDES);
        c->overrides[c->n_overrides++] =
            memchr(word, '.', strcspn(word, "=")) != NULL ? weft_strdup(word) : weft_text_of("%s.%s", kind, word);
    }
    c->options.is_given = c->n_overrides > 0;
    return WEFT_OK;
}

/* Returns the key of "section.key=value": of the plugin under test or of the host; NULL: of neither. */
static const weft_key *find_key(const check *c, const weft_plugin_description *plugin, const char *override) {
    const size_t section = strcspn(override, "."), n = strcspn(override, "=");
    weft_settings_section table;
    char name[64];
    const weft_key *key = NULL;
    if (section >= n || n - section > sizeof name) return NULL;
    (void)snprintf(name, sizeof name, "%.*s", (int)(n - section - 1), override + section + 1);
    if (strlen(c->options.kind) == section && strncmp(c->options.kind, override, section) == 0)
        key = weft_plugin_description_key(plugin, name);
    for (size_t i = 0; key == NULL && weft_settings_table(&table, i); i++) {
        if (strlen(table.section) != section || strncmp(table.section, override, section) != 0) continue;
        for (uint64_t k = 0; k < table.n; k++)
            if (strcmp(table.keys[k].name, name) == 0) key = &table.keys[k];
    }
    return key;
}

/* Makes a path value absolute. Keeps a value that the key does not accept; the rules report it. */
static void make_absolute(char **override, const weft_key *key, const char *directory) {
    weft_value value = {{0}, NULL};
    char *made = NULL;
    const int head = (int)strcspn(*override, "=");
    if (key == NULL || (key->type != WEFT_KEY_PATH && (key->flags & WEFT_PATHS) == 0)) return;
    if (weft_value_parse(&value, key, *override + head + 1, directory, NULL) != WEFT_OK) return;
    made = weft_text_of("%.*s=%s", head, *override, value.text);
    weft_value_free(&value);
    free(*override);
    *override = made;
}

/* Resolves paths against the current directory, because each rule runs in a directory of its own. */
static weft_status resolve_paths(check *c, weft_error *err) {
    weft_plugin_description *plugin = NULL;
    char *directory = NULL;
    weft_status status = WEFT_OK;
    if (c->n_overrides == 0) return WEFT_OK;
    directory = weft_path_home(NULL);
    if (directory == NULL) return weft_error_set(err, WEFT_E_SYSTEM, "the working directory cannot be found");
    status = weft_plugin_describe_file(&plugin, NULL, c->options.kind, c->options.id, c->file, err);
    for (size_t i = 0; status == WEFT_OK && i < c->n_overrides; i++)
        make_absolute(&c->overrides[i], find_key(c, plugin, c->overrides[i]), directory);
    weft_plugin_description_free(plugin);
    free(directory);
    return status;
}

/* Sets a required key for which the small model has a value: data.path. */
static weft_status offer_text(check *c, weft_error *err) {
    if (strcmp(c->options.kind, "data") != 0) return WEFT_OK;
    for (size_t i = 0; i < c->n_overrides; i++)
        if (strncmp(c->overrides[i], "data.path=", 10) == 0) return WEFT_OK;
    if (c->n_overrides == MOST_OVERRIDES)
        return weft_error_set(err, WEFT_E_USER, "more than %d keys are set", MOST_OVERRIDES - 1);
    c->overrides[c->n_overrides++] = weft_text_of("data.path=%s/text.txt", c->options.directory);
    return WEFT_OK;
}

/* Finds the small model's directory: --directory, else try/ next to the plugin file, else the templates'. */
static weft_status find_directory(check *c, weft_error *err) {
    const char *asked = weft_args_value(c->args, "directory");
    char beside[WEFT_PATH_BYTES], real[PATH_MAX];
    struct stat info;
    (void)snprintf(beside, sizeof beside, "%s", asked == NULL ? c->options.file : asked);
    if (asked == NULL) {
        char *slash = strrchr(beside, '/');
        (void)snprintf(slash, sizeof beside - (size_t)(slash - beside), "/try");
    }
    if (realpath(beside, real) != NULL && stat(real, &info) == 0 && S_ISDIR(info.st_mode)) {
        (void)snprintf(c->directory, sizeof c->directory, "%s", real);
        return WEFT_OK;
    }
    if (asked != NULL) return weft_error_set(err, WEFT_E_USER, "--directory %s is no directory", asked);
    return weft_templates_find(c->directory, "new/common/try", err);
}

/* ---- output ---- */

/* Prints the reason indented below its rule. An empty reason prints no line. */
static void print_reason(const char *why) {
    while (*why != '\0') {
        const int n = (int)strcspn(why, "\n");
        weft_words_print(stdout, "                %.*s\n", n, why);
        why += n + (why[n] == '\n');
    }
}

static void keep(check *c, json_t *rules, const weft_trial *trial) {
    if (trial->verdict > c->worst) c->worst = trial->verdict;
    c->lacks = c->lacks || trial->verdict == WEFT_VERDICT_UNTRIED;
    (void)json_array_append_new(rules, json_pack("{s:s, s:s, s:s, s:s}", "rule", trial->rule->number, "says",
                                                 trial->rule->says, "verdict", weft_verdict_name(trial->verdict),
                                                 "reason", trial->why));
    if (c->json) return;
    (void)printf("  %-4s %-8s %s\n", trial->rule->number, weft_verdict_name(trial->verdict), trial->rule->says);
    print_reason(trial->why);
    (void)fflush(stdout);
}

/* Lists the warnings that the host prints when it loads the file; they do not change the exit status. */
static json_t *find_trust_warnings(const check *c, const weft_preflight *note, const weft_note_plugin *plugin) {
    json_t *warnings = json_array();
    weft_trust_warnings found;
    weft_trust_warnings_find(&found, c->options.file, c->given, note->fast_math != 0, plugin->kind, plugin->id);
    for (int i = 0; i < found.n; i++) {
        (void)json_array_append_new(warnings, json_string(found.text[i]));
        if (!c->json) weft_words_print(stdout, "  warning       %s\n", found.text[i]);
    }
    return warnings;
}

/* Records a file that is not a plugin or does not match the keys. The other files are still checked. */
static void refuse(check *c, json_t *object, const weft_error *why) {
    if (c->n_refused++ == 0) c->refused = *why;
    (void)json_object_set_new(object, "refused", json_string(why->text));
    if (!c->json) weft_words_print(stdout, "  refused       %s\n", why->text);
}

static weft_status try_rules(check *c, json_t *rules, weft_error *err) {
    const char *only = weft_args_value(c->args, "rule");
    const weft_rule *rule = NULL;
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && (rule = weft_rule_at(c->options.kind, i)) != NULL; i++) {
        weft_trial trial;
        if (only != NULL && strcmp(only, rule->number) != 0) continue;
        status = weft_rule_try(&trial, rule, &c->options, err);
        if (status == WEFT_OK) keep(c, rules, &trial);
        if (i == 0 && trial.verdict != WEFT_VERDICT_HOLDS) break; /* the other rules would fail for the same reason */
    }
    return status;
}

static void check_plugin(check *c, const weft_preflight *note, const weft_note_plugin *plugin) {
    json_t *rules = json_array(), *object = NULL;
    weft_error err = WEFT_ERROR_INIT;
    weft_status status = set_overrides(c, plugin->kind, &err);
    c->options.kind = plugin->kind;
    c->options.id = plugin->id;
    if (!c->json)
        weft_words_print(stdout, "%s:%s %s (%s)\n", plugin->kind, plugin->id, plugin->version, c->options.file);
    object = json_pack("{s:s, s:s, s:s, s:o, s:o}", "file", c->options.file, "kind", plugin->kind, "id", plugin->id,
                       "warnings", find_trust_warnings(c, note, plugin), "rules", rules);
    if (status == WEFT_OK) status = resolve_paths(c, &err);
    if (status == WEFT_OK) status = find_directory(c, &err);
    c->options.directory = c->directory;
    if (status == WEFT_OK) status = offer_text(c, &err);
    c->options.overrides = (const char *const *)c->overrides;
    c->options.n_overrides = c->n_overrides;
    if (status == WEFT_OK) status = try_rules(c, rules, &err);
    if (status != WEFT_OK) refuse(c, object, &err);
    (void)json_array_append_new(c->files, object);
}

/* ---- rule selection ---- */

static bool has_rule(const char *kind, const char *number) {
    const weft_rule *rule = NULL;
    for (size_t i = 0; (rule = weft_rule_at(kind, i)) != NULL; i++)
        if (strcmp(rule->number, number) == 0) return true;
    return false;
}

static weft_status refuse_rule(const weft_preflight *note, const char *path, const char *number, weft_error *err) {
    char list[1024] = "";
    size_t n = 0;
    for (uint32_t p = 0; p < note->n_plugins; p++) {
        const weft_rule *rule = NULL;
        for (size_t i = 0; (rule = weft_rule_at(note->plugins[p].kind, i)) != NULL && n < sizeof list; i++)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n == 0 ? "" : ", ", rule->number);
    }
    return weft_error_set(err, WEFT_E_USER, "--rule %s: no such rule is of kind %s; those of %s are %s", number,
                          note->plugins[0].kind, path, list);
}

/* Validates --rule before the first rule runs. A file with several kinds has the rules of all its kinds. */
static weft_status check_rule(const weft_args *args, weft_error *err) {
    const char *number = weft_args_value(args, "rule"), *path = NULL;
    weft_status status = WEFT_OK;
    for (size_t i = 0; number != NULL && status == WEFT_OK && (path = weft_args_extra(args, i)) != NULL; i++) {
        weft_preflight note;
        bool has = false;
        if (is_override(path)) continue;
        if (weft_plugin_file_note(&note, path, NULL, NULL) != WEFT_OK) continue; /* check_file reports it */
        for (uint32_t p = 0; p < note.n_plugins; p++) has = has || has_rule(note.plugins[p].kind, number);
        if (!has) status = refuse_rule(&note, path, number, err);
    }
    return status;
}

/* Checks all plugins of a file. */
static void check_file(check *c, const char *path) {
    weft_preflight note;
    weft_error err = WEFT_ERROR_INIT;
    weft_status status = weft_plugin_file_note(&note, path, NULL, &err);
    if (status == WEFT_OK && realpath(path, c->file) == NULL)
        status = weft_error_set(&err, WEFT_E_USER, "%s is not there", path);
    if (status != WEFT_OK) {
        json_t *object = json_pack("{s:s}", "file", path);
        if (!c->json) weft_words_print(stdout, "%s\n", path);
        refuse(c, object, &err);
        (void)json_array_append_new(c->files, object);
        return;
    }
    c->options.file = c->file;
    c->given = path;
    for (uint32_t i = 0; i < note.n_plugins; i++) check_plugin(c, &note, &note.plugins[i]);
}

static weft_exit exit_of(const check *c, weft_error *err) {
    if (c->n_refused == 1) *err = c->refused;
    if (c->n_refused > 1)
        (void)weft_error_set(err, (weft_status)c->refused.code,
                             "%d cannot be tested, with the reasons above: %.1900s, ...", c->n_refused,
                             c->refused.text);
    if (c->n_refused > 0) return WEFT_EXIT_FAILED;
    if (c->lacks && c->worst < WEFT_VERDICT_BROKEN) return (weft_exit)(WEFT_EXIT_ANSWER + 3);
    return c->worst < WEFT_VERDICT_BROKEN ? WEFT_EXIT_DONE
                                          : (weft_exit)(WEFT_EXIT_ANSWER + c->worst - WEFT_VERDICT_BROKEN);
}

static weft_exit check_run(const weft_args *args, weft_error *err) {
    check c = {.args = args, .files = json_array(), .json = weft_args_has(args, "json")};
    bool any = false;
    if (!weft_args_f64(args, &c.options.seconds, "seconds", "(0,inf)", 120, err) || check_rule(args, err) != WEFT_OK) {
        json_decref(c.files);
        return WEFT_EXIT_USAGE;
    }
    for (size_t i = 0; weft_args_extra(args, i) != NULL; i++) {
        if (is_override(weft_args_extra(args, i))) continue;
        any = true;
        check_file(&c, weft_args_extra(args, i));
    }
    if (!any) {
        (void)weft_error_set(err, WEFT_E_USER, "no file is named; weft plugins check FILE.so");
        json_decref(c.files);
        return WEFT_EXIT_USAGE;
    }
    if (c.json) {
        (void)json_dumpf(c.files, stdout, JSON_INDENT(2));
        (void)printf("\n");
    }
    for (size_t i = 0; i < c.n_overrides; i++) free(c.overrides[i]);
    json_decref(c.files);
    return exit_of(&c, err);
}

static const weft_flag check_flags[] = {
    {"directory", "DIR", false,
     "Directory of a small model with run.ini to train with (default: try/ next to the file)."},
    {"rule", "RN", false, "Check this rule only."},
    {"seconds", "N", false, "Time limit of a rule (default 120); ten times for rules that train."},
    {"json", NULL, false, "Print an array of objects instead of text."},
    {NULL, NULL, false, NULL},
};

static const weft_command weft_command_plugins_check = {
    .name = "plugins check",
    .usage = "FILE... [key=value ...]",
    .takes = WEFT_TAKES_ARGUMENTS,
    .min_extra = 1,
    .max_extra = -1,
    .flags = check_flags,
    .more = "docs/sdk-rules.md lists the rules by number. Keys without a default are required. A warning repeats a "
            "run's warning; it breaks no rule.\n\nExit status: 0 all applicable rules pass; 1 a file cannot be "
            "checked, because it is no plugin for this host or a key is invalid; 2 wrong usage; 10 a rule is broken, "
            "11 a rule ends the process, 12 a rule hangs (the largest of these); 13 otherwise, if a rule could not be "
            "checked. The file runs with your rights: this is no sandbox.",
    .examples = "  weft plugins check ./mine.so\n"
                "  weft plugins check ./mine.so rank=4 --rule R27\n",
    .run = check_run,
};

extern const weft_command weft_command_plugins_exchange;

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_plugins_check, &weft_command_plugins_exchange, NULL};
    return weft_cli_main(argc, argv, commands);
}
