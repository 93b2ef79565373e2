/* host/command/config.c: weft config check | explain | describe. */
#include "command/cli.h"
#include "train/run.h"

/* A file with [train] needs every part, given or by default; one without, for `weft generate` alone, only what it
 * names. */
static weft_status open_run(weft_run **out, const weft_args *args, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    weft_config *config = NULL;
    uint32_t needs = 0;
    const weft_status status = weft_config_load(&config, weft_args_config(args), overrides, n, err);
    if (status != WEFT_OK) return status;
    if (weft_config_has_section(config, "train")) needs = WEFT_NEEDS_ALL;
    weft_config_free(config);
    return weft_run_open(out, weft_args_config(args), overrides, n, needs, err);
}

static weft_exit check(const weft_args *args, weft_error *err) {
    weft_run *run = NULL;
    weft_status status = open_run(&run, args, err);
    if (status == WEFT_OK && weft_config_has_section(run->config, "train")) {
        status = weft_settings_for_training(&run->settings, run->config, err);
    }
    if (status == WEFT_OK) (void)printf("%s: fine\n", weft_config_name(run->config));
    weft_run_close(run);
    return weft_exit_from(status);
}

static weft_exit explain(const weft_args *args, weft_error *err) {
    weft_run *run = NULL;
    weft_status status = open_run(&run, args, err);
    if (status == WEFT_OK) status = weft_config_explain(run->config, stdout, weft_args_has(args, "json"), err);
    weft_run_close(run);
    return weft_exit_from(status);
}

static weft_exit describe(const weft_args *args, weft_error *err) {
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

static const weft_flag explain_flags[] = {{"json", NULL, false, "Print an array of objects instead of a table."},
                                          {NULL, NULL, false, NULL}};

const weft_command weft_command_config_check = {"config check",
                                                "Judge a configuration and all its plugins' keys, and run nothing.",
                                                "run.ini [section.key=value ...]",
                                                WEFT_TAKES_CONFIG,
                                                0,
                                                0,
                                                NULL,
                                                NULL,
                                                check};

const weft_command weft_command_config_explain = {"config explain",
                                                  "Print every key's value and where it comes from.",
                                                  "run.ini [section.key=value ...]",
                                                  WEFT_TAKES_CONFIG,
                                                  0,
                                                  0,
                                                  explain_flags,
                                                  NULL,
                                                  explain};

const weft_command weft_command_config_describe = {
    "config describe",
    "Print the host's own keys with default, range and help.",
    "[SECTION]",
    WEFT_TAKES_ARGUMENTS,
    0,
    1,
    NULL,
    "A plugin's keys stand in the same sections: weft plugins describe KIND:ID.",
    describe};
