/* host/tools/prove/proof.c: see proof.h. */
#include "tools/prove/proof.h"

#include "base/units.h"

#include <jansson.h>

static const char *const verdicts[WEFT_N_VERDICTS] = {"equal", "not covered", "DIFFERENT", "NOT TRAINED"};
static const char *const verdict_ids[WEFT_N_VERDICTS] = {"equal", "not covered", "different", "not trained"};

/* ---- differences ---- */

static const char *parameter_of(const weft_proof *proof, int32_t checksum) {
    const weft_declared *declared = proof->plugin_lookup->engine->plan.declared;
    return declared->parameters[checksum % declared->n_parameters].name;
}

/* NULL: the parameter itself. */
static const char *state_of(const weft_proof *proof, int32_t checksum) {
    const weft_engine *engine = proof->plugin_lookup->engine;
    return checksum < engine->plan.declared->n_parameters
               ? NULL
               : engine->plan.states[checksum / engine->plan.declared->n_parameters - 1].name;
}

static void describe_difference(char *text, size_t size, const weft_proof *proof,
                                const weft_verification_run_end *end) {
    char copy[64] = "";
    const char *state = NULL;
    if (end->step < 0) (void)snprintf(text, size, "in its last hash alone");
    if (end->step < 0) return;
    if (end->checksum < 0) (void)snprintf(text, size, "from step %d on: the loss", (int)end->step);
    if (end->checksum < 0) return;
    state = state_of(proof, end->checksum);
    if (end->copy >= 0) (void)snprintf(copy, sizeof copy, ", in the copy of rank %d", (int)end->copy);
    if (end->step == 0)
        (void)snprintf(text, size, "before step 1: %s%s%s%s", state == NULL ? "" : state, state == NULL ? "" : " of ",
                       parameter_of(proof, end->checksum), copy);
    else
        (void)snprintf(text, size, "from step %d on: %s%s%s%s", (int)end->step, state == NULL ? "" : state,
                       state == NULL ? "" : " of ", parameter_of(proof, end->checksum), copy);
}

/* ---- a table ---- */

/* Cells that are not covered for the same reason share a note; 0: this one is the first with its. */
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
        (void)fprintf(to, "left out: %d cells whose programs are those of another\n", (int)proof->left_out);
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

void weft_proof_print(const weft_proof *proof, FILE *to) {
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

/* ---- an object ---- */

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

weft_status weft_proof_print_json(const weft_proof *proof, FILE *to, weft_error *err) {
    json_t *cells = json_array(), *object = NULL;
    for (int32_t i = 0; i < proof->grid.n; i++) (void)json_array_append_new(cells, cell_object(proof, i));
    object = json_pack("{s:s, s:i, s:I, s:o, s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:f}", "reduce", proof->reduce, "ranks",
                       (int)weft_process_context_size(proof->meeting.process_context), "steps",
                       (json_int_t)proof->spec.steps, "cells", cells, "equal", (int)proof->count[WEFT_VERDICT_EQUAL],
                       "not_covered", (int)proof->count[WEFT_VERDICT_NOT_COVERED], "different",
                       (int)proof->count[WEFT_VERDICT_DIFFERENT], "not_trained", (int)proof->count[WEFT_VERDICT_IDLE],
                       "left_out", (int)proof->left_out, "missing", proof->missing, "omitted",
                       omitted_array(&proof->omitted), "seconds", proof->seconds);
    if (object == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the object that is printed");
    (void)json_dumpf(object, to, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    (void)fputc('\n', to);
    json_decref(object);
    return WEFT_OK;
}
