/* host/tools/config/cmd_config.c: weft config check | explain | describe. */
#include "cli/cli.h"
#include "run/session.h"
#include "tools/common/plugins.h"
#include "tools/config/explain.h"

#include <errno.h>
#include <sys/stat.h>

/* *trains: whether the file or an override has a section [train]; a file without one is for `weft generate`. */
static weft_status is_for_training(bool *trains, const weft_args *args, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    weft_config *config = NULL;
    const weft_status status = weft_config_load(&config, weft_args_config(args), overrides, n, err);
    if (status == WEFT_OK) *trains = weft_config_has_section(config, "train");
    weft_config_free(config);
    return status;
}

static weft_status open_run(weft_run **out, const weft_args *args, uint32_t needs, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    return weft_run_open(out, weft_args_config(args), overrides, n, needs, err);
}

static weft_status check_path(const weft_run *run, const char *section, const char *key, const char *path,
                              weft_error *err) {
    struct stat about;
    if (path == NULL || path[0] != '/' || stat(path, &about) == 0) return WEFT_OK;
    return weft_config_reject(run->config, section, key, err, "(%s): %s", path, strerror(errno));
}

typedef struct checking {
    const weft_run *run;
    const char *section;
} checking;

static weft_status check_key(void *context, const char *key, const char *path, weft_error *err) {
    const checking *self = context;
    return check_path(self->run, self->section, key, path, err);
}

static weft_status check_part(const weft_run *run, int32_t part, weft_error *err) {
    checking self = {run, weft_part_name(part)};
    return weft_part_each_path(&run->parts[part], check_key, &self, err);
}

/* Fails if a path does not exist: the directories of the model and the tokenizer, and the paths in the keys of the
 * tokenizer and data plugins. */
static weft_status check_paths(const weft_run *run, weft_error *err) {
    weft_status status = check_path(run, "model", "path", run->settings.model.path, err);
    if (status == WEFT_OK) status = check_path(run, "tokenizer", "path", run->settings.tokenizer.path, err);
    if (status == WEFT_OK) status = check_part(run, WEFT_PART_TOKENIZER, err);
    return status == WEFT_OK ? check_part(run, WEFT_PART_DATA, err) : status;
}

/* Checks the requirements of `weft train`. */
static weft_status check_training(const weft_args *args, weft_error *err) {
    weft_run *run = NULL;
    weft_status status = open_run(&run, args, WEFT_NEEDS_ALL, err);
    if (status == WEFT_OK) status = weft_settings_for_training(&run->settings, run->config, err);
    if (status == WEFT_OK) status = check_paths(run, err);
    if (status == WEFT_OK) status = weft_session_check(run, err);
    weft_run_close(run);
    return status;
}

static weft_exit check_config(const weft_args *args, weft_error *err) {
    weft_error lacks = WEFT_ERROR_INIT;
    weft_run *run = NULL;
    bool trains = false;
    weft_status status = is_for_training(&trains, args, err);
    if (status == WEFT_OK && trains) status = check_training(args, err);
    else if (status == WEFT_OK) status = open_run(&run, args, WEFT_NEEDS_TEXT, err);
    if (status == WEFT_OK && run != NULL) status = check_paths(run, err);
    if (status == WEFT_OK && trains) (void)printf("%s: fine for weft train\n", weft_args_config(args));
    else if (status == WEFT_OK && check_training(args, &lacks) != WEFT_OK)
        (void)printf("%s: fine for weft generate; for weft train something is missing: %s\n", weft_args_config(args),
                     lacks.text);
    weft_run_close(run);
    return weft_exit_from(status);
}

static weft_exit explain(const weft_args *args, weft_error *err) {
    weft_run *run = NULL;
    bool trains = false;
    weft_status status = is_for_training(&trains, args, err);
    if (status == WEFT_OK) status = open_run(&run, args, trains ? WEFT_NEEDS_ALL : 0, err);
    if (status == WEFT_OK) status = weft_config_explain(run->config, stdout, weft_args_has(args, "json"), err);
    weft_run_close(run);
    return weft_exit_from(status);
}

static weft_exit describe_keys(const weft_args *args, weft_error *err) {
    const char *wanted = weft_args_extra(args, 0);
    weft_settings_section table;
    bool found = false;
    char sections[200] = "";
    for (size_t i = 0; weft_settings_table(&table, i); i++) {
        const size_t n = strlen(sections);
        (void)snprintf(sections + n, sizeof sections - n, "%s%s", n == 0 ? "" : ", ", table.section);
        if (wanted != NULL && strcmp(wanted, table.section) != 0) continue;
        (void)printf("%s[%s]\n", found && wanted == NULL ? "\n" : "", table.section);
        weft_key_table_print(table.keys, table.n, (uint32_t)sizeof(weft_key), stdout);
        found = true;
    }
    if (found) return WEFT_EXIT_DONE;
    (void)weft_error_set(err, WEFT_E_USER,
                         "the host has no keys of its own in [%.60s], only in: %s; `weft plugins describe KIND:ID` "
                         "prints a plugin's",
                         wanted, sections);
    return WEFT_EXIT_FAILED;
}

static const weft_flag explain_flags[] = {
    {"json", NULL, false, "Print an array of objects instead of a table."},
    {NULL, NULL, false, NULL},
};

static const weft_command weft_command_config_check = {
    .name = "config check",
    .usage = "run.ini [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .more =
        "A file with a section [train] must hold what weft train needs; a file without it, what weft generate needs. "
        "The command loads the plugins, so their constructors run.",
    .examples = "  weft config check run.ini\n"
                "  weft config check run.ini data.context=512\n",
    .run = check_config,
};

static const weft_command weft_command_config_explain = {
    .name = "config explain",
    .usage = "run.ini [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .flags = explain_flags,
    .examples = "  weft config explain run.ini\n"
                "  weft config explain run.ini --json\n",
    .run = explain,
};

static const weft_command weft_command_config_describe = {
    .name = "config describe",
    .usage = "[SECTION]",
    .takes = WEFT_TAKES_ARGUMENTS,
    .min_extra = 0,
    .max_extra = 1,
    .more = "A plugin's keys are in the same sections: weft plugins describe KIND:ID.",
    .examples = "  weft config describe\n"
                "  weft config describe train\n",
    .run = describe_keys,
};

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_config_check, &weft_command_config_describe,
                                                   &weft_command_config_explain, NULL};
    return weft_cli_main(argc, argv, commands);
}
