/* host/command/cmd_train.c: `weft train`. */
#include "cli/flags.h"

#include "plugin/services.h"
#include "train/trainer.h"

static const weft_flag flags[] = {
    {"resume", "inexact", true,
     "Continue from the newest valid checkpoint in [run] out; =inexact accepts and prints differences."},
    {"overwrite", NULL, false, "Delete the files of the earlier run in [run] out and start again."},
    {"ranks", "N", false, "Train on N ranks: start them on this machine, or check that a launcher started N."},
    WEFT_FIT_FLAG,
    WEFT_NO_FIT_FLAG,
    {"quiet", NULL, false, "Print warnings and errors only."},
    {"verbose", NULL, false, "Print plugins, wrapping, ranks, sums and memory of each rank too."},
    {"print-wrapping", NULL, false, "Print every module with its unit before the first step."},
    {"print-sharding", NULL, false, "Print how much of the first and last 15 units and parameters the rank keeps."},
    {"print-batches", NULL, false, "Print the sequences of the first step of each rank."},
    {"print-values", "N", false, "Print the result of each instruction of the first N steps; for one rank."},
    {NULL, NULL, false, NULL},
};

/* Rejects incompatible flags. */
static weft_status check_flags(const weft_args *args, const weft_train_options *options, int64_t asked,
                               weft_error *err) {
    const char *kind = weft_args_value(args, "resume");
    if (weft_args_has(args, "resume") && weft_args_has(args, "overwrite"))
        return weft_error_set(err, WEFT_E_USER, "--resume continues a run and --overwrite removes it: use one of them");
    if (kind != NULL && strcmp(kind, "inexact") != 0)
        return weft_error_set(err, WEFT_E_USER, "--resume=%s: only --resume and --resume=inexact exist", kind);
    if (options->quiet && (options->tables != 0 || options->values != 0))
        return weft_error_set(err, WEFT_E_USER, "--quiet prints no tables: leave it or the --print-... out");
    if (options->quiet && options->verbose)
        return weft_error_set(err, WEFT_E_USER, "--quiet and --verbose exclude each other: use one of them");
    if (options->values != 0 && asked > 1)
        return weft_error_set(err, WEFT_E_USER,
                              "--print-values follows one rank, and --ranks asks for %lld: leave one of the two out",
                              (long long)asked);
    return WEFT_OK;
}

static weft_exit run_train(const weft_args *args, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    const char *kind = weft_args_value(args, "resume");
    weft_train_options options = {.quiet = weft_args_has(args, "quiet"),
                                  .verbose = weft_args_has(args, "verbose"),
                                  .tables =
                                      (weft_args_has(args, "print-wrapping") ? (uint32_t)WEFT_SHOWN_WRAPPING : 0) |
                                      (weft_args_has(args, "print-sharding") ? (uint32_t)WEFT_SHOWN_SHARDING : 0) |
                                      (weft_args_has(args, "print-batches") ? (uint32_t)WEFT_SHOWN_SAMPLES : 0)};
    weft_exit status = WEFT_EXIT_DONE;
    int64_t asked = 0;
    if (!weft_args_i64(args, &asked, "ranks", "[1,65536]", 0, err) || !weft_command_room(args, &options.room, err))
        return WEFT_EXIT_USAGE;
    if (!weft_args_i64(args, &options.values, "print-values", "[1,inf)", 0, err)) return WEFT_EXIT_USAGE;
    if (check_flags(args, &options, asked, err) != WEFT_OK) return WEFT_EXIT_USAGE;
    options.any_room = weft_args_has(args, "no-fit");
    if (weft_args_has(args, "resume")) options.mode = WEFT_OUTPUT_RESUME;
    if (weft_args_has(args, "overwrite")) options.mode = WEFT_OUTPUT_OVERWRITE;
    options.inexact = kind != NULL;
    if (options.quiet) (void)weft_services_log_level(WEFT_LOG_WARN);
    if (options.verbose) (void)weft_services_log_level(WEFT_LOG_DEBUG);
    if (!weft_command_is_rank(&status, args, NULL, (int32_t)asked, WEFT_RANKS_RUN_ONE, err)) return status;
    return weft_exit_from(weft_train(weft_args_config(args), overrides, n, &options, err));
}

const weft_command weft_command_train = {
    .name = "train",
    .usage = "run.ini [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .flags = flags,
    .more = "Exit status 75: a signal stopped the run after it saved its step; --resume continues.",
    .examples = "  weft train run.ini --ranks 4 strategy.plugin=fsdp\n"
                "  weft train run.ini train.steps=500 --resume\n",
    .run = run_train,
};
