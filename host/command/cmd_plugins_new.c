/* host/command/cmd_plugins_new.c: weft plugins new. */
#include "base/templates.h"
#include "cli/cli.h"
#include "command/skeleton.h"
#include "plugin/search.h"

/* Rejects an id that a search already finds: one would hide the other. */
static weft_status refuse_taken(const char *kind, const char *id, weft_error *err) {
    weft_search search = {{NULL}, 0};
    char file[WEFT_PATH_BYTES];
    weft_status status = weft_search_open(&search, NULL, err);
    if (status == WEFT_OK && weft_search_find(&search, file, sizeof file, kind, id))
        status = weft_error_set(err, WEFT_E_USER, "%s:%s is there already, as %s: choose another id", kind, id, file);
    weft_search_close(&search);
    return status;
}

static weft_exit new_plugin(const weft_args *args, weft_error *err) {
    const char *kind = weft_args_extra(args, 0), *id = weft_args_extra(args, 1);
    const char *into = weft_args_value(args, "into");
    char templates[WEFT_PATH_BYTES];
    weft_status status = weft_templates_find(templates, "new", err);
    if (status == WEFT_OK && weft_skeleton_kind(templates, kind, err) != WEFT_OK) return WEFT_EXIT_USAGE;
    if (status == WEFT_OK && weft_skeleton_id(id, err) != WEFT_OK) return WEFT_EXIT_USAGE;
    if (into == NULL) into = id;
    if (status == WEFT_OK) status = refuse_taken(kind, id, err);
    if (status == WEFT_OK) status = weft_skeleton_write(templates, kind, id, into, err);
    if (status != WEFT_OK) return weft_exit_from(status);
    (void)printf("%s:%s in %s, which works as it stands:\n\n"
                 "    cd %s && make && make check\n\n"
                 "README.md says the rest.\n",
                 kind, id, into, into);
    return WEFT_EXIT_DONE;
}

static const weft_flag new_flags[] = {
    {"into", "DIR", false, "Directory to create (default ./ID)."},
    {NULL, NULL, false, NULL},
};

const weft_command weft_command_plugins_new = {
    .name = "plugins new",
    .summary = "Write the source of a new plugin, with build and test.",
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
