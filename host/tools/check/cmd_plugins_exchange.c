/* host/tools/check/cmd_plugins_exchange.c: `weft plugins exchange`: a communicator alone, among its ranks. */
#include "cli/spawn.h"

#include "tools/check/exchanges.h"
#include "tools/check/later.h"
#include "plugin/services.h"

static const weft_flag flags[] = {
    {"ranks", "N", false, "Among N ranks: start them here, or check that a launcher started as many; 3 by default."},
    {"seconds", "N", false, "Longest time of one exchange; 60 by default."},
    {"at-once", NULL, false, "Sixteen under way at once, and not one after the other."},
    {"later", NULL, false, "As a later host of the same major version, whose structs are longer."},
    {NULL, NULL, false, NULL},
};

static weft_status exchange(const weft_args *args, double seconds, weft_error *err) {
    const bool later = weft_args_has(args, "later");
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    weft_run *run = NULL;
    weft_platform *platform = NULL;
    weft_status status = weft_run_open(&run, weft_args_config(args), overrides, n, WEFT_NEEDS_ALL, err);
    weft_part *comm = status == WEFT_OK ? &run->parts[WEFT_PART_COMM] : NULL;
    if (comm != NULL && later && comm->loaded != NULL) comm->loaded = weft_later_loaded(comm->loaded);
    if (status == WEFT_OK) status = weft_platform_open(&platform, run, err);
    if (status == WEFT_OK) status = weft_exchanges_try(platform, weft_args_has(args, "at-once"), seconds, err);
    if (status == WEFT_OK && later) status = weft_later_judge(WEFT_OK, true, "", err);
    weft_platform_close(platform, status != WEFT_OK);
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
    .more = "Numbers that are known before go through each exchange, 0, 1 and odd counts of them, in the world and "
            "between\n"
            "two of its ranks, and each is ended by wait, by test and by join. With --at-once sixteen of them, in the "
            "world\n"
            "and between the two, are under way before the first is ended, in six orders and another on each rank. "
            "Nothing\n"
            "is said where all have come.",
    .run = run_exchange,
};
