/* host/command/cmd_data.c: weft data show | stats: the training data of a run, before the run. */
#include "cli/cli.h"

#include "report/data_table.h"
#include "run/session.h"

static const weft_flag show_flags[] = {
    {"n", "N", false, "Number of sequences (default 3)."},
    {"first", "ROW", false, "First sequence, from 0 (default 0)."},
    {"validation", NULL, false, "Print sequences of the validation split."},
    {"tokens", NULL, false, "Print one line per token: position, id, weight as a target, text."},
    {NULL, NULL, false, NULL},
};

static weft_exit show_rows(const weft_args *args, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    const int32_t split = weft_args_has(args, "validation") ? WEFT_SPLIT_VALIDATION : WEFT_SPLIT_TRAIN;
    int64_t rows = 0, first = 0;
    weft_session *session = NULL;
    weft_status status = WEFT_OK;
    if (!weft_args_i64(args, &rows, "n", "[1,1000000]", 3, err) ||
        !weft_args_i64(args, &first, "first", "[0,inf)", 0, err))
        return WEFT_EXIT_USAGE;
    status = weft_session_open(&session, weft_args_config(args), overrides, n, WEFT_SESSION_EVALUATE, err);
    if (status == WEFT_OK)
        status = weft_data_show(session, split, (uint64_t)first, (uint64_t)rows, weft_args_has(args, "tokens"), err);
    weft_session_close(session);
    return weft_exit_from(status);
}

static weft_exit print_stats(const weft_args *args, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    weft_session *session = NULL;
    weft_status status = weft_session_open(&session, weft_args_config(args), overrides, n, WEFT_SESSION_EVALUATE, err);
    if (status == WEFT_OK) status = weft_data_stats(session, err);
    weft_session_close(session);
    return weft_exit_from(status);
}

const weft_command weft_command_data_show = {
    .name = "data show",
    .summary = "Print sequences as the model sees them, with their targets.",
    .usage = "run.ini [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .flags = show_flags,
    .more = "Targets are green on a terminal and between [[ and ]] elsewhere. Special tokens are printed by name. "
            "Sequences have the order in which training reads them.",
    .examples = "  weft data show run.ini --n 5\n"
                "  weft data show run.ini --tokens --validation\n",
    .run = show_rows,
};

const weft_command weft_command_data_stats = {
    .name = "data stats",
    .summary = "Print document counts, lengths, truncation and packing gain.",
    .usage = "run.ini [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .examples = "  weft data stats run.ini\n"
                "  weft data stats run.ini data.context=1024\n",
    .run = print_stats,
};
