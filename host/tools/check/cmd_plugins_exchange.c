/* host/tools/check/cmd_plugins_exchange.c: `weft plugins exchange`: a communicator alone, among its ranks. */
#include "cli/spawn.h"

#include "tools/check/exchanges.h"
#include "tools/check/newer_abi.h"
#include "plugin/services.h"

static const weft_flag flags[] = {
    {"ranks", "N", false,
     "Number of ranks (default 3): start them on this machine, or check that a launcher started N."},
    {"seconds", "N", false, "Time limit of one exchange (default 60)."},
    {"at-once", NULL, false, "Start sixteen exchanges before the first one is completed."},
    {"later", NULL, false, "Act as a newer host of the same major version, whose structs are longer."},
    {NULL, NULL, false, NULL},
};

static weft_status exchange(const weft_args *args, double seconds, weft_error *err) {
    const bool later = weft_args_has(args, "later");
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    weft_run *run = NULL;
    weft_process_context *process_context = NULL;
    weft_status status = weft_run_open(&run, weft_args_config(args), overrides, n, WEFT_NEEDS_ALL, err);
    weft_part *comm = status == WEFT_OK ? &run->parts[WEFT_PART_COMM] : NULL;
    if (comm != NULL && later && comm->loaded != NULL) comm->loaded = weft_newer_abi_loaded(comm->loaded);
    if (status == WEFT_OK) status = weft_process_context_open(&process_context, run, err);
    if (status == WEFT_OK) status = weft_exchanges_try(process_context, weft_args_has(args, "at-once"), seconds, err);
    if (status == WEFT_OK && later) status = weft_newer_abi_check(WEFT_OK, true, "", err);
    weft_process_context_close(process_context, status != WEFT_OK);
    weft_run_close(run);
    return status;
}

static weft_exit run_exchange(const weft_args *args, weft_error *err) {
    weft_exit launched = WEFT_EXIT_DONE;
    int64_t ranks = 0;
    double seconds = 0;
    if (!weft_args_i64(args, &ranks, "ranks", "[2,65536]", 3, err) ||
        !weft_args_f64(args, &seconds, "seconds", "(0,inf)", 60, err))
        return WEFT_EXIT_USAGE;
    (void)weft_services_log_level(WEFT_LOG_WARN);
    if (!weft_command_is_rank(&launched, args, (int32_t)ranks, WEFT_RANKS_RUN_MANY, err)) return launched;
    return weft_exit_from(exchange(args, seconds, err));
}

const weft_command weft_command_plugins_exchange = {
    .name = "plugins exchange",
    .usage = "run.ini [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .flags = flags,
    .more = "Runs every exchange with known numbers, for 0, 1 and odd counts, among all ranks and between two of them, "
            "and completes each by wait, by test and by join. With --at-once, sixteen of them are in flight, in six "
            "orders that differ between ranks. Prints no output on success.",
    .examples = "  weft plugins exchange run.ini --ranks 4\n"
                "  weft plugins exchange run.ini --at-once\n",
    .run = run_exchange,
};
