/* host/tools/profile/cmd_profile.c: `weft profile`: time of a training step by operation. */
#include "cli/flags.h"

#include "base/units.h"
#include "base/machine.h"
#include "tools/profile/profile.h"
#include "train/summary.h"

static const weft_flag flags[] = {
    {"json", NULL, false, "Print an object instead of tables."},
    {"roofline", NULL, false, "Also measure the device's peak rates, and print each row's share of its bound."},
    {"steps", "N", false, "Steps to measure (default 10)."},
    {"warmup", "N", false, "Steps before the measurement (default 2)."},
    WEFT_FIT_FLAG,
    WEFT_NO_FIT_FLAG,
    {NULL, NULL, false, NULL},
};

typedef struct options {
    int64_t steps, warmup;
    bool json, roofline;
} options;

/* Returns the learning rate; steps beyond the configured ones use the last one. */
static double lr_of(const weft_session *session, int64_t step) {
    return weft_session_lr(session, step < session->steps ? step : session->steps);
}

static weft_status train(weft_profile *profile, const weft_session *session, const options *o, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int64_t i = 1; i <= o->warmup + o->steps && status == WEFT_OK; i++)
        status = weft_profile_train(profile, (uint64_t)i, lr_of(session, i), session->clip, i > o->warmup, err);
    return status;
}

static weft_status report(const weft_profile *profile, const weft_session *session, const weft_arrival *start,
                          const options *o, weft_error *err) {
    weft_roofline roofline;
    weft_profile_report report = {
        .session = session, .start = start, .profile = profile, .resident_peak = weft_resident_peak()};
    weft_status status = WEFT_OK;
    if (o->roofline) {
        status = weft_roofline_measure(&roofline, session->engine, profile, err);
        report.roofline = &roofline;
    }
    if (status != WEFT_OK) return status;
    if (o->json) return weft_profile_print_json(&report, stdout, err);
    weft_profile_print(&report, stdout);
    return WEFT_OK;
}

static weft_status profile_session(weft_session *session, const options *o, double begin, weft_error *err) {
    weft_profile *profile = NULL;
    weft_arrival start;
    weft_status status = weft_arrival_measure(&start, session, begin, err);
    if (status == WEFT_OK) profile = weft_profile_create(session->stepper, o->steps);
    if (status == WEFT_OK) status = train(profile, session, o, err);
    if (status == WEFT_OK) status = report(profile, session, &start, o, err);
    weft_profile_destroy(profile);
    return status;
}

static weft_exit run_profile(const weft_args *args, weft_error *err) {
    const double begin = weft_clock_seconds();
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    options o = {.json = weft_args_has(args, "json"), .roofline = weft_args_has(args, "roofline")};
    weft_session *session = NULL;
    int64_t room = 0;
    weft_status status = WEFT_OK;
    if (!weft_args_i64(args, &o.steps, "steps", "[1,10000]", 10, err) ||
        !weft_args_i64(args, &o.warmup, "warmup", "[0,10000]", 2, err) || !weft_command_room(args, &room, err))
        return WEFT_EXIT_USAGE;
    status = weft_session_open(&session, weft_args_config(args), overrides, n, WEFT_SESSION_PROFILE, NULL, err);
    if (status == WEFT_OK) status = weft_command_check_room(args, session, room, err);
    if (status == WEFT_OK) status = profile_session(session, &o, begin, err);
    weft_session_close(session);
    return weft_exit_from(status);
}

static const weft_command weft_command_profile = {
    .name = "profile",
    .usage = "run.ini [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .flags = flags,
    .more =
        "Trains for a few steps from the configured weights and writes no file: [run] out is unchanged. The times "
        "add up to the step of median time. FLOPs are those of matmuls and attention (causal attention counts "
        "half); bytes are those that a kernel must read and write. The bound of a row is the longer of its FLOPs at "
        "the peak rate and its bytes at the memory's bandwidth.",
    .examples = "  weft profile run.ini --roofline\n"
                "  weft profile run.ini --steps 3 --json\n",
    .run = run_profile,
};

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_profile, NULL};
    return weft_cli_main(argc, argv, commands);
}
