/* host/tools/prove/cmd_prove.c: `weft prove`: trains a run under many strategies and compares the bits. */
#include "base/units.h"
#include "cli/flags.h"
#include "launch/world.h"
#include "plugin/services.h"
#include "tools/prove/prove.h"

#include <errno.h>
#include <jansson.h>

static const char *const verdicts[WEFT_N_VERDICTS] = {"equal", "not covered", "DIFFERENT", "NOT TRAINED"};
static const char *const verdict_ids[WEFT_N_VERDICTS] = {"equal", "not covered", "different", "not trained"};

/* ---- differences ---- */

static const char *parameter_of(const weft_proof *proof, int32_t checksum) {
    const weft_declared *declared = proof->plugin_lookup->engine->plan.declared;
    return declared->parameters[checksum % declared->n_parameters].name;
}

/* Returns the name of the state; NULL: the parameter itself. */
static const char *state_of(const weft_proof *proof, int32_t checksum) {
    const weft_engine *engine = proof->plugin_lookup->engine;
    return checksum < engine->plan.declared->n_parameters
               ? NULL
               : engine->plan.states[checksum / engine->plan.declared->n_parameters - 1].name;
}

static void describe_difference(char *text, size_t size, const weft_proof *proof,
                                const weft_verification_run_end *end) {
    char when[40] = "before step 1", copy[64] = "";
    const char *state = end->checksum < 0 ? NULL : state_of(proof, end->checksum);
    if (end->step > 0) (void)snprintf(when, sizeof when, "from step %d on", (int)end->step);
    if (end->copy >= 0) (void)snprintf(copy, sizeof copy, ", in the copy of rank %d", (int)end->copy);
    if (end->step < 0) (void)snprintf(text, size, "only in its last hash");
    else if (end->checksum < 0) (void)snprintf(text, size, "%s: the loss", when);
    else
        (void)snprintf(text, size, "%s: %s%s%s%s", when, state == NULL ? "" : state, state == NULL ? "" : " of ",
                       parameter_of(proof, end->checksum), copy);
}

/* ---- table ---- */

/* Returns the first cell with the same reason for no guarantee. Such cells share a note. */
static int32_t first_with(const weft_proof *proof, int32_t cell) {
    const weft_cell *cells = proof->grid.cells;
    int32_t i = 0;
    while (cells[i].coverage.covered || strcmp(cells[i].coverage.why, cells[cell].coverage.why) != 0) i++;
    return i;
}

static int32_t note_of(const weft_proof *proof, int32_t cell) {
    const int32_t first = first_with(proof, cell);
    int32_t note = 1;
    for (int32_t i = 0; i < first; i++) note += !proof->grid.cells[i].coverage.covered && first_with(proof, i) == i;
    return note;
}

static void print_verdict(const weft_proof *proof, int32_t cell, FILE *to) {
    const weft_verdict verdict = weft_proof_verdict(proof, cell);
    char text[700];
    if (verdict == WEFT_VERDICT_NOT_COVERED) (void)snprintf(text, sizeof text, " [%d]", (int)note_of(proof, cell));
    else if (verdict == WEFT_VERDICT_DIFFERENT) {
        text[0] = ' ';
        describe_difference(text + 1, sizeof text - 1, proof, &proof->ends[cell]);
    } else text[0] = '\0';
    (void)fprintf(to, "%s%s%s\n", verdicts[verdict], text, cell == 0 ? " (the reference)" : "");
}

static void print_cell(const weft_proof *proof, int32_t i, int width[2], FILE *to) {
    const weft_cell *cell = &proof->grid.cells[i];
    char strategy[160], prefetch[16] = "-", split[32];
    (void)snprintf(strategy, sizeof strategy, "%s%s%s", cell->strategy, cell->settings[0] != '\0' ? " " : "",
                   cell->settings);
    if (cell->prefetch >= 0) (void)snprintf(prefetch, sizeof prefetch, "%d", (int)cell->prefetch);
    (void)snprintf(split, sizeof split, "%d x %d", (int)cell->replicas, (int)cell->micro_batches);
    (void)fprintf(to, "%5d  %-*s  %-*s  %8s  %7s  %-13s  %.12s  ", (int)cell->ranks, width[0], strategy, width[1],
                  cell->policy, prefetch, split, cell->checkpointing ? "yes" : "no", proof->ends[i].hash);
    print_verdict(proof, i, to);
}

static void print_notes(const weft_proof *proof, FILE *to) {
    for (int32_t i = 0; i < proof->grid.n; i++)
        if (weft_proof_verdict(proof, i) == WEFT_VERDICT_NOT_COVERED && first_with(proof, i) == i)
            (void)fprintf(to, "[%d] %s\n", (int)note_of(proof, i), proof->grid.cells[i].coverage.why);
    for (int32_t i = 0; i < proof->omitted.n; i++) (void)fprintf(to, "left out: %s\n", proof->omitted.text[i]);
    if (proof->left_out > 0)
        (void)fprintf(to, "skipped: %d cells whose programs equal those of another\n", (int)proof->left_out);
}

static void measure_columns(const weft_proof *proof, int width[2]) {
    width[0] = width[1] = 8;
    for (int32_t i = 0; i < proof->grid.n; i++) {
        const weft_cell *cell = &proof->grid.cells[i];
        const int a = (int)(strlen(cell->strategy) + strlen(cell->settings)) + 1, b = (int)strlen(cell->policy);
        if (a > width[0]) width[0] = a;
        if (b > width[1]) width[1] = b;
    }
}

static void weft_proof_print(const weft_proof *proof, FILE *to) {
    char seconds[WEFT_UNIT_SIZE];
    int width[2];
    measure_columns(proof, width);
    (void)fprintf(to, "%5s  %-*s  %-*s  %8s  %7s  %-13s  %-12s  %s\n", "ranks", width[0], "strategy", width[1],
                  "policy", "prefetch", "R x A", "checkpointing", "hash", "verdict");
    for (int32_t i = 0; i < proof->grid.n; i++) print_cell(proof, i, width, to);
    print_notes(proof, to);
    (void)fprintf(to, "%d cells of %lld step%s with reduce = %s: %d equal, %d not covered, %d different", //
                  (int)proof->grid.n, (long long)proof->spec.steps, proof->spec.steps == 1 ? "" : "s", proof->reduce,
                  (int)proof->count[WEFT_VERDICT_EQUAL], (int)proof->count[WEFT_VERDICT_NOT_COVERED],
                  (int)proof->count[WEFT_VERDICT_DIFFERENT]);
    if (proof->count[WEFT_VERDICT_IDLE] > 0)
        (void)fprintf(to, ", %d not trained", (int)proof->count[WEFT_VERDICT_IDLE]);
    (void)fprintf(to, "; %s\n", weft_unit_seconds(seconds, proof->seconds));
}

/* ---- JSON object ---- */

static json_t *difference_object(const weft_proof *proof, const weft_verification_run_end *end) {
    return json_pack("{s:i, s:s?, s:s?, s:o}", "step", (int)end->step, "parameter",
                     end->checksum < 0 ? NULL : parameter_of(proof, end->checksum), "state",
                     end->checksum < 0 ? NULL : state_of(proof, end->checksum), "copy_of_rank",
                     end->copy < 0 ? json_null() : json_integer(end->copy));
}

static json_t *losses_array(const weft_proof *proof, int32_t cell) {
    json_t *array = json_array();
    for (int64_t s = 0; s < proof->spec.steps; s++)
        (void)json_array_append_new(array,
                                    json_real(proof->losses[(size_t)cell * (size_t)proof->spec.steps + (size_t)s]));
    return array;
}

static json_t *cell_object(const weft_proof *proof, int32_t i) {
    const weft_cell *cell = &proof->grid.cells[i];
    const weft_verification_run_end *end = &proof->ends[i];
    const weft_verdict verdict = weft_proof_verdict(proof, i);
    char program[24];
    json_t *object = NULL;
    (void)snprintf(program, sizeof program, "%016llx", (unsigned long long)cell->identity);
    object = json_pack("{s:i, s:s, s:s, s:s, s:o, s:i, s:i, s:b, s:s, s:s, s:s, s:f, s:o}", "ranks", (int)cell->ranks,
                       "strategy", cell->strategy, "settings", cell->settings, "policy", cell->policy, "prefetch",
                       cell->prefetch < 0 ? json_null() : json_integer(cell->prefetch), "replicas", (int)cell->replicas,
                       "accumulation", (int)cell->micro_batches, "activation_checkpointing", (int)cell->checkpointing,
                       "program", program, "hash", end->hash, "verdict", verdict_ids[verdict], "seconds", end->seconds,
                       "losses", losses_array(proof, i));
    if (object == NULL) return NULL;
    if (!cell->coverage.covered) (void)json_object_set_new(object, "why", json_string(cell->coverage.why));
    if (end->step >= 0) (void)json_object_set_new(object, "difference", difference_object(proof, end));
    return object;
}

static json_t *omitted_array(const weft_omitted *omitted) {
    json_t *array = json_array();
    for (int32_t i = 0; i < omitted->n; i++) (void)json_array_append_new(array, json_string(omitted->text[i]));
    return array;
}

static weft_status weft_proof_print_json(const weft_proof *proof, FILE *to, weft_error *err) {
    json_t *cells = json_array(), *object = NULL;
    for (int32_t i = 0; i < proof->grid.n; i++) (void)json_array_append_new(cells, cell_object(proof, i));
    object = json_pack("{s:s, s:i, s:I, s:o, s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:f}", "reduce", proof->reduce, "ranks",
                       (int)proof->meeting.process_context->comm_info.size, "steps", (json_int_t)proof->spec.steps,
                       "cells", cells, "equal", (int)proof->count[WEFT_VERDICT_EQUAL], "not_covered",
                       (int)proof->count[WEFT_VERDICT_NOT_COVERED], "different",
                       (int)proof->count[WEFT_VERDICT_DIFFERENT], "not_trained", (int)proof->count[WEFT_VERDICT_IDLE],
                       "left_out", (int)proof->left_out, "missing", proof->missing, "omitted",
                       omitted_array(&proof->omitted), "seconds", proof->seconds);
    if (object == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the object that is printed");
    (void)json_dumpf(object, to, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    (void)fputc('\n', to);
    json_decref(object);
    return WEFT_OK;
}

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

enum { OFFERED = 4 }; /* default number of ranks */

static weft_status report(const weft_proof *proof, bool json, weft_error *err) {
    FILE *to = weft_log_prefix_plain();
    weft_status status = WEFT_OK;
    if (proof->meeting.process_context->comm_info.rank != 0) return WEFT_OK; /* only rank 0 reports */
    if (json) status = weft_proof_print_json(proof, to, err);
    else weft_proof_print(proof, to);
    if (status == WEFT_OK && (fflush(to) != 0 || ferror(to)))
        status = weft_error_set(err, WEFT_E_SYSTEM, "the output cannot be written: %s", strerror(errno));
    return status == WEFT_OK ? weft_proof_check(proof, err) : status;
}

/* Without --ranks: starts OFFERED ranks if possible and no launcher has started any. Returns and sets *status as
 * weft_command_is_rank. why: the reason if this is the only process; "": it is not. */
static bool offer_ranks(weft_exit *status, char *why, size_t size, const weft_args *args, weft_error *err) {
    weft_launch ranks;
    bool is_rank = false;
    weft_launch_want(WEFT_RANKS_OFFERED, OFFERED);
    is_rank = weft_command_find_ranks(status, &ranks, args, NULL, WEFT_RANKS_RUN_MANY, err);
    if (is_rank && ranks.world.size == 1) (void)snprintf(why, size, "%s", ranks.why);
    weft_launch_want(WEFT_RANKS_TRAINED, 0); /* repeats the search */
    return is_rank;
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
    if (asked > 0) is_rank = weft_command_is_rank(&launched, args, NULL, (int32_t)asked, WEFT_RANKS_RUN_MANY, err);
    else is_rank = offer_ranks(&launched, options.alone, sizeof options.alone, args, err);
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
            "ranks and activation checkpointing, and writes no file: [run] out is unchanged. Batch, micro-batch and "
            "`reduce` do not change. Exit status 1: results differ that docs/numbers.md guarantees to be equal.",
    .examples = "  weft prove run.ini\n"
                "  weft prove run.ini --ranks 2 --grid full\n",
    .run = run_prove,
};

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_prove, NULL};
    return weft_cli_main(argc, argv, commands);
}
