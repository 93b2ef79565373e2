/* host/tools/prove/cmd_prove.c: `weft prove`: the same run under many strategies, compared to the bit. */
#include "cli/fit_flags.h"
#include "cli/spawn.h"

#include "launch/log_prefix.h"
#include "plugin/services.h"
#include "tools/prove/proof.h"

#include <errno.h>

static const weft_flag flags[] = {
    {"grid", "small|full", false, "small: all pairs of settings, in a few dozen cells (default); full: all cells."},
    {"ranks", "N", false,
     "Up to N ranks a cell: start them on this machine, or check that a launcher started N (default 4 if possible)."},
    {"steps", "N", false, "Optimizer steps of each cell (default: those of the configuration, at most 50)."},
    {"json", NULL, false, "Print an object instead of a table."},
    WEFT_FIT_FLAG,
    WEFT_NO_FIT_FLAG,
    {NULL, NULL, false, NULL},
};

enum { OFFERED = 4 }; /* ranks, where nobody says how many */

static weft_status report(const weft_proof *proof, bool json, weft_error *err) {
    FILE *to = weft_log_prefix_plain();
    weft_status status = WEFT_OK;
    if (weft_process_context_rank(proof->meeting.process_context) != 0) return WEFT_OK; /* rank 0 says it for all */
    if (json) status = weft_proof_print_json(proof, to, err);
    else weft_proof_print(proof, to);
    if (status == WEFT_OK && (fflush(to) != 0 || ferror(to)))
        status = weft_error_set(err, WEFT_E_SYSTEM, "the output cannot be written: %s", strerror(errno));
    return status == WEFT_OK ? weft_proof_judge(proof, err) : status;
}

static weft_exit run_prove(const weft_args *args, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    const char *grid = weft_args_value(args, "grid");
    const bool json = weft_args_has(args, "json");
    weft_prove_options options = {.full = grid != NULL && strcmp(grid, "full") == 0,
                                  .progress = true,
                                  .any_room = weft_args_has(args, "no-fit")};
    weft_proof proof;
    weft_exit launched = WEFT_EXIT_DONE;
    int64_t asked = 0;
    bool is_rank = true;
    weft_status status = WEFT_OK;
    if (grid != NULL && !options.full && strcmp(grid, "small") != 0) {
        (void)weft_error_set(err, WEFT_E_USER, "--grid %.40s: only --grid small and --grid full exist", grid);
        return WEFT_EXIT_USAGE;
    }
    if (!weft_args_i64(args, &options.steps, "steps", "[1,10000]", 0, err) ||
        !weft_args_i64(args, &asked, "ranks", "[1,65536]", 0, err) || !weft_command_room(args, &options.room, err))
        return WEFT_EXIT_USAGE;
    (void)weft_services_log_level(WEFT_LOG_WARN);
    if (asked > 0) is_rank = weft_command_is_rank(&launched, args, (int32_t)asked, WEFT_RANKS_RUN_MANY, err);
    else is_rank = weft_command_offers_ranks(&launched, options.alone, sizeof options.alone, args, OFFERED, err);
    if (!is_rank) return launched;
    status = weft_prove(&proof, weft_args_config(args), overrides, n, &options, err);
    if (status == WEFT_OK) status = report(&proof, json, err);
    weft_proof_close(&proof);
    return weft_exit_from(status);
}

static const weft_command weft_command_prove = {
    .name = "prove",
    .usage = "run.ini [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .flags = flags,
    .more = "Trains the run for a few steps under each strategy, with several policies, prefetch depths, numbers of "
            "ranks and activation checkpointing, and writes no file: [run] out stays as it is. Batch, micro-batch and "
            "`reduce` do not change. Exit status 1: results differ that docs/numbers.md guarantees to be equal.",
    .examples = "  weft prove run.ini\n"
                "  weft prove run.ini --ranks 2 --grid full\n",
    .run = run_prove,
};

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_prove, NULL};
    return weft_cli_main(argc, argv, commands);
}
