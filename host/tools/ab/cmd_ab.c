/* host/tools/ab/cmd_ab.c: `weft ab`: compares configurations of a run and measures which one is better. */
#include "cli/flags.h"

#include "tools/ab/comparison_table.h"
#include "base/alloc.h"
#include "base/text.h"
#include "launch/world.h"
#include "plugin/crash.h"
#include "plugin/services.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const weft_flag flags[] = {
    {"ranks", "N", false, "Start N ranks on this machine, or check that a launcher started N."},
    {"vary", "KEY=V,V...", false,
     "The arms: this key with each of these values. A list of values for a key `plugin` means the same."},
    {"minutes", "M", false, "Time limit (default 5); the run ends earlier when all arms are decided."},
    {"steps", "K", false, "Optimizer steps of a block (default: half a second)."},
    {"rounds", "N", false, "Maximum number of rounds (default 1024)."},
    {"seed", "S", false, "Seed for the order of blocks (default 1)."},
    {"learn", "STEPS", false,
     "Train each arm for so many steps and compare the losses (default 100 if the arms compute different numbers); 0: "
     "never."},
    {"seeds", "N", false, "Repeat that with N seeds, from [run] seed on (default 1)."},
    {"within", "P", false, "Report no result if a difference above P % could remain undetected (default 10)."},
    {"html", "FILE", false, "Write a page with charts too."},
    {"json", NULL, false, "Print an object instead of a table."},
    {NULL, NULL, false, NULL},
};

/* Arms from the command line; owns the memory that their specs point to. */
typedef struct arms {
    weft_ab_spec specs[WEFT_AB_MOST_ARMS];
    int32_t n;
    char values[WEFT_AB_MOST_ARMS][512];       /* "strategy.plugin=ddp" */
    const char **overrides[WEFT_AB_MOST_ARMS]; /* per arm, freed at the end */
} arms;

/* ---- varied settings ---- */

/* True for a list of plugins: "strategy.plugin=a,b". */
static bool is_axis(const char *override) {
    const size_t n = strcspn(override, "=");
    static const char plugin[] = ".plugin";
    return n > sizeof plugin - 1 && memcmp(override + n - (sizeof plugin - 1), plugin, sizeof plugin - 1) == 0 &&
           strchr(override + n, ',') != NULL;
}

/* Writes the n-th value of "key=a,b,c" as "key=value". Returns false after the last value. */
static bool value_of(char *out, size_t size, const char *axis, int32_t n) {
    const size_t key = strcspn(axis, "=");
    const char *at = axis + key + 1;
    for (; n > 0 && *at != '\0'; n--) {
        at += strcspn(at, ",");
        if (*at == '\0') return false;
        at++;
    }
    (void)snprintf(out, size, "%.*s=%.*s", (int)key, axis, (int)strcspn(at, ","), at);
    return true;
}

/* True for an empty value: "key=a,,b" or "key=a,". */
static bool has_gap(const char *axis) {
    const char *at = axis + strcspn(axis, "=") + 1;
    for (; strchr(at, ',') != NULL; at = strchr(at, ',') + 1)
        if (*at == ',') return true;
    return *at == '\0';
}

static bool find_axis(const weft_args *args, const char **axis, size_t *at, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    *axis = weft_args_value(args, "vary");
    *at = n; /* no axis found */
    for (size_t i = 0; i < n; i++) {
        if (!is_axis(overrides[i])) continue;
        if (*axis != NULL) {
            (void)weft_error_set(
                err, WEFT_E_USER,
                "%.100s and %.100s both have a list of values. An A/B test varies one key. Fix: keep one list", *axis,
                overrides[i]);
            return false;
        }
        *axis = overrides[i];
        *at = i;
    }
    if (*axis != NULL && (strchr(*axis, '=') == NULL || strchr(*axis, ',') == NULL)) {
        (void)weft_error_set(
            err, WEFT_E_USER,
            "--vary %.100s: not valid. Allowed: a key and two or more values, as in --vary strategy.prefetch=0,1",
            *axis);
        return false;
    }
    if (*axis != NULL && has_gap(*axis)) {
        (void)weft_error_set(
            err, WEFT_E_USER,
            "%.100s: a value between the commas is empty. Allowed: one or more values, as in strategy.plugin=ddp,fsdp",
            *axis);
        return false;
    }
    return true;
}

/* True for the sections that do not affect text, tokens and sequences. */
static bool keeps_data(const char *axis) {
    static const char *const sections[] = {"strategy.", "policy.", "optimizer.", "comm.", "device."};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (strncmp(axis, sections[i], strlen(sections[i])) == 0) return true;
    return false;
}

/* Fills an arm's overrides: all that are given except the one at `skip`, and the arm's own value. */
static void fill_arm(arms *out, const weft_args *args, const char *path, size_t skip, bool has_value) {
    size_t n = 0;
    const char *const *given = weft_args_overrides(args, &n);
    weft_ab_spec *spec = &out->specs[out->n];
    const char **all = weft_alloc(n + 1, sizeof *all);
    spec->path = path;
    spec->overrides = out->overrides[out->n] = all;
    for (size_t i = 0; i < n; i++)
        if (i != skip) all[spec->n_overrides++] = given[i];
    if (has_value) all[spec->n_overrides++] = out->values[out->n];
    (void)snprintf(spec->label, sizeof spec->label, "%s", has_value ? out->values[out->n] : path);
    weft_words_sanitize(spec->label);
    out->n++;
}

static bool too_many(weft_error *err) {
    (void)weft_error_set(err, WEFT_E_USER, "there are more than %d arms", (int)WEFT_AB_MOST_ARMS);
    return false;
}

static bool vary_key(arms *out, const weft_args *args, const char *axis, size_t at, weft_error *err) {
    const char *path = weft_args_config(args);
    char one_more[512];
    for (int32_t i = 0; i < WEFT_AB_MOST_ARMS && value_of(out->values[i], sizeof out->values[i], axis, i); i++)
        fill_arm(out, args, path, at, true);
    if (value_of(one_more, sizeof one_more, axis, WEFT_AB_MOST_ARMS)) return too_many(err);
    for (int32_t i = 1; i < out->n; i++) out->specs[i].shares_data = keeps_data(axis);
    return true;
}

static bool vary_files(arms *out, const weft_args *args, weft_error *err) {
    fill_arm(out, args, weft_args_config(args), SIZE_MAX, false);
    for (size_t i = 0; weft_args_extra(args, i) != NULL; i++) {
        if (out->n == WEFT_AB_MOST_ARMS) return too_many(err);
        fill_arm(out, args, weft_args_extra(args, i), SIZE_MAX, false);
    }
    return true;
}

/* Returns the first override with several values, which the user must confirm as an axis. NULL: not found. */
static const char *find_list(const weft_args *args) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    for (size_t i = 0; i < n; i++)
        if (strchr(overrides[i] + strcspn(overrides[i], "="), ',') != NULL) return overrides[i];
    return NULL;
}

static bool make_arms(arms *out, const weft_args *args, weft_error *err) {
    const char *axis = NULL;
    size_t at = 0;
    if (!find_axis(args, &axis, &at, err)) return false;
    if (axis != NULL && weft_args_extra(args, 0) != NULL) {
        (void)weft_error_set(err, WEFT_E_USER,
                             "%.100s has a list of values, and %.100s is a second file. Fix: remove one of the two",
                             axis, weft_args_extra(args, 0));
        return false;
    }
    if (axis != NULL) return vary_key(out, args, axis, at, err);
    if (!vary_files(out, args, err)) return false;
    if (out->n > 1) return true;
    if (find_list(args) != NULL) {
        (void)weft_error_set(
            err, WEFT_E_USER,
            "an experiment needs at least two arms. If the values of %.200s are the arms: --vary %.200s",
            find_list(args), find_list(args));
        return false;
    }
    (void)weft_error_set(err, WEFT_E_USER,
                         "an experiment needs at least two arms. Fix: add a second INI file, or a list as in "
                         "strategy.plugin=ddp,fsdp or --vary train.micro_batch=1,2");
    return false;
}

static void free_arms(arms *self) {
    for (int32_t i = 0; i < self->n; i++) free((void *)self->overrides[i]);
}

/* ---- the command ---- */

/* Exit statuses without a winner. The winner's is WEFT_EXIT_ANSWER plus the arm's index. */
enum { NOT_COMPARABLE = WEFT_EXIT_ANSWER + 10, UNDECIDED = WEFT_EXIT_ANSWER + 11, DIVERGED = WEFT_EXIT_ANSWER + 12 };

static weft_status report(const weft_ab_experiment *experiment, const weft_args *args, weft_error *err) {
    FILE *to = weft_log_prefix_plain();
    const char *page = weft_args_value(args, "html");
    weft_status status = WEFT_OK;
    if (experiment->meeting.process_context->comm_info.rank != 0) return WEFT_OK; /* only rank 0 reports */
    if (weft_args_has(args, "json")) status = weft_ab_print_json(experiment, to, err);
    else weft_ab_print(experiment, to);
    if (status == WEFT_OK && (fflush(to) != 0 || ferror(to)))
        status = weft_error_set(err, WEFT_E_SYSTEM, "the output cannot be written: %s", strerror(errno));
    return status == WEFT_OK && page != NULL ? weft_ab_page_save(experiment, page, err) : status;
}

static int answer_of(const weft_ab_experiment *experiment) {
    const int32_t winner = weft_ab_winner(experiment);
    bool unknown = false;
    if (winner > 0) return WEFT_EXIT_ANSWER + winner;
    for (int32_t i = 0; i < experiment->n; i++)
        if (experiment->arms[i].diverged.step > 0) return DIVERGED;
    if (winner == 0) return WEFT_EXIT_ANSWER;
    for (int32_t i = 1; i < experiment->n; i++) {
        if (experiment->arms[i].outcome == WEFT_AB_NOT_COMPARABLE) return NOT_COMPARABLE;
        unknown = unknown || experiment->arms[i].outcome == WEFT_AB_UNKNOWN;
    }
    return unknown ? UNDECIDED : WEFT_EXIT_DONE;
}

/* Called by another thread while the main thread is in a plugin call. Only the main thread could report the results. */
static void give_up(bool stopped, const char *call) {
    const struct timespec moment = {0, 300000000}; /* MPICH's launcher drops output that it has not forwarded yet */
    if (stopped)
        (void)fprintf(stderr, "weft ab: stopped by a signal in a call that does not return: %s; no result\n", call);
    else
        (void)fprintf(stderr,
                      "weft ab: --minutes have passed in a call that does not return: %s; no result. Fix: correct the "
                      "plugin, or increase --minutes or [plugins] call_seconds if the call is slow\n",
                      call);
    (void)fflush(stderr);
    if (weft_world_get()->size > 1) (void)nanosleep(&moment, NULL);
    weft_crash_crumb(NULL); /* the host ends the process, not a plugin */
    _exit(stopped ? WEFT_EXIT_STOPPED : WEFT_EXIT_FAILED);
}

static weft_exit compare(const arms *all, const weft_ab_options *options, const weft_args *args, weft_error *err) {
    weft_ab_experiment experiment;
    int answer = WEFT_EXIT_DONE;
    weft_status status = weft_ab_run(&experiment, all->specs, all->n, options, err);
    if (status == WEFT_OK) status = report(&experiment, args, err);
    if (status == WEFT_OK) answer = answer_of(&experiment);
    weft_ab_close(&experiment);
    return status == WEFT_OK ? (weft_exit)answer : weft_exit_from(status);
}

static weft_exit run_ab(const weft_args *args, weft_error *err) {
    weft_ab_options options = {.progress = true, .give_up = give_up};
    arms all = {.n = 0};
    int64_t asked = 0, seed = 1;
    weft_exit status = WEFT_EXIT_USAGE;
    if (!weft_args_i64(args, &options.steps, "steps", "[1,1000]", 0, err) ||
        !weft_args_f64(args, &options.minutes, "minutes", "(0,inf)", 5, err) ||
        !weft_args_i64(args, &options.rounds, "rounds", "[1,1024]", WEFT_AB_MOST_ROUNDS, err) ||
        !weft_args_i64(args, &options.learn, "learn", "[0,inf)",
                       weft_args_has(args, "seeds") ? WEFT_AB_LEARN_STEPS : -1, err) ||
        !weft_args_i64(args, &options.seeds, "seeds", "[1,64]", 1, err) ||
        !weft_args_i64(args, &seed, "seed", "[0,inf)", 1, err) ||
        !weft_args_f64(args, &options.within, "within", "(0,inf)", 10, err) ||
        !weft_args_i64(args, &asked, "ranks", "[1,65536]", 0, err))
        return WEFT_EXIT_USAGE;
    options.seed = (uint64_t)seed;
    options.page = weft_args_value(args, "html");
    (void)weft_services_log_level(WEFT_LOG_WARN);
    if (make_arms(&all, args, err)) {
        const weft_overrides first = {all.specs[0].overrides, all.specs[0].n_overrides};
        if (weft_command_is_rank(&status, args, &first, (int32_t)asked, WEFT_RANKS_RUN_MANY, err))
            status = compare(&all, &options, args, err);
    }
    free_arms(&all);
    return status;
}

static const weft_command weft_command_ab = {
    .name = "ab",
    .usage = "run.ini strategy.plugin=A,B [section.key=value ...]",
    .takes = WEFT_TAKES_CONFIG,
    .min_extra = 0,
    .max_extra = WEFT_AB_MOST_ARMS - 1,
    .flags = flags,
    .more =
        "The arms are one configuration with each value of a list, or several INI files. They train alternately in one "
        "process group, in blocks of steps, in random order. A runs against itself first, and two times in each round, "
        "to measure the machine's noise. No file is written: [run] out is unchanged. The run ends when the speed of "
        "each arm differs from A by more than the noise, or is within 1 % of A. Arms that compute different numbers "
        "are trained again and compared micro-batch by micro-batch on [data] validation.\n\nExit status: 0 no "
        "difference found, 10 A is better, 11 B, ..., 20 not comparable, 21 too few rounds, 22 an arm diverges.",
    .examples = "  weft ab run.ini strategy.plugin=ddp,fsdp --ranks 2\n"
                "  weft ab run.ini --vary optimizer.lr=1e-4,3e-4 --seeds 3\n",
    .run = run_ab,
};

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_ab, NULL};
    return weft_cli_main(argc, argv, commands);
}
