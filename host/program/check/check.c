/* host/program/check/check.c: the proof that the programs of all ranks are together what the job asks for; program.h
 * says what is proved, check.h how the work is split. */
#include "program/check/check.h"

#include <stdlib.h>

weft_status weft_check_refuse_at(weft_checker *check, int32_t rank, int32_t instruction, const char *format, ...) {
    char text[256], reason[1200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    check->refused_rank = rank;
    check->refused_instruction = instruction;
    weft_instruction_describe(text, sizeof text, &check->programs[rank]->instructions[instruction], check->job);
    return weft_error_set(check->err, WEFT_E_PLUGIN, "rank %d, instruction %d, %s: %s", (int)rank, (int)instruction,
                          text, reason);
}

weft_status weft_check_once(weft_checker *check, int32_t *done) {
    if (*done >= 0)
        return weft_check_refuse(check, "instruction %d has done this already: it must come once", (int)*done);
    *done = check->at;
    return WEFT_OK;
}

/* n times -1. NULL: no memory. */
static void *allocate_blank(size_t n, size_t size) {
    void *out = malloc(n * size + 1);
    if (out != NULL) memset(out, 0xFF, n * size);
    return out;
}

static weft_status make_room_for_ranks(weft_checker *check) {
    const weft_strategy_job *view = &check->job->view;
    const size_t micro_batches = (size_t)check->micro_batches, segments = (size_t)view->n_segments * micro_batches;
    const size_t units = (size_t)view->n_units * micro_batches, transfers = 2 * segments + units;
    int32_t most = 0;
    for (int32_t rank = 0; rank < check->world; rank++)
        if (check->programs[rank]->n_instructions > most) most = check->programs[rank]->n_instructions;
    check->forward = allocate_blank(segments, sizeof *check->forward);
    check->recompute = allocate_blank(segments, sizeof *check->recompute);
    check->backward = allocate_blank(segments, sizeof *check->backward);
    check->begun[0] = calloc(2 * units + 1, sizeof *check->begun[0]);
    check->terms = allocate_blank(units, sizeof *check->terms);
    check->units = calloc((size_t)view->n_units + 1, sizeof *check->units);
    check->uses = calloc((size_t)view->n_units + 1, sizeof *check->uses);
    check->waited = calloc((size_t)most + 1, 1);
    if (weft_job_spec_owned(check->job)) {
        check->sent = allocate_blank(transfers, sizeof *check->sent);
        check->received = allocate_blank(transfers, sizeof *check->received);
        check->arrived = calloc(transfers + 1, 1);
        if (check->sent == NULL || check->received == NULL || check->arrived == NULL) goto failed;
    }
    if (check->forward != NULL && check->recompute != NULL && check->backward != NULL && check->begun[0] != NULL &&
        check->terms != NULL && check->units != NULL && check->uses != NULL && check->waited != NULL) {
        check->begun[1] = check->begun[0] + units;
        return WEFT_OK;
    }
failed:
    return weft_error_set(check->err, WEFT_E_MEMORY, "no memory to check the programs of %d ranks", (int)check->world);
}

static void free_room(weft_checker *check) {
    free(check->forward);
    free(check->recompute);
    free(check->backward);
    free(check->begun[0]);
    free(check->terms);
    free(check->units);
    free(check->uses);
    free(check->waited);
    free(check->sent);
    free(check->received);
    free(check->arrived);
}

static void learn_units(weft_checker *check) {
    for (int32_t u = 0; u < check->job->view.n_units; u++) {
        weft_check_unit *facts = &check->units[u];
        facts->trains = weft_job_spec_trains(check->job, u);
        facts->owner = facts->borrower = -1;
        if (!weft_job_spec_owned(check->job)) continue;
        facts->owner = check->job->view.placements[u].owner;
        if (facts->trains) facts->borrower = weft_job_spec_borrower(check->job, u);
    }
}

/* Programs of another job would be judged by tables of the wrong size. */
static weft_status check_programs(const weft_checker *check) {
    for (int32_t rank = 0; rank < check->world; rank++) {
        const weft_program *program = check->programs[rank];
        if (program->mode != check->job->view.mode || program->micro_batches != check->micro_batches ||
            program->rank != rank)
            return weft_error_set(
                check->err, WEFT_E_HOST,
                "the program of rank %d, mode %d and %d micro-batches stands in the place of rank %d in a job "
                "of mode %d and %d micro-batches",
                (int)program->rank, (int)program->mode, (int)program->micro_batches, (int)rank,
                (int)check->job->view.mode, (int)check->micro_batches);
    }
    return WEFT_OK;
}

/* Each replica has run its share and each micro-batch runs once, so that all micro-batches have: an owner's end says
 * so by itself. */
static weft_status check_all(weft_checker *check, weft_coverage *out) {
    weft_status status = WEFT_OK;
    for (int32_t rank = 0; rank < check->world && status == WEFT_OK; rank++) status = weft_check_rank(check, rank);
    if (status == WEFT_OK) status = weft_check_matches(check);
    if (status == WEFT_OK) status = weft_check_transfers_in_order(check);
    out->covered = true;
    if (status == WEFT_OK && weft_check_trains(check)) status = weft_check_sums_order(check, out);
    return status;
}

/* Without an instruction that is refused, one is missing at the end of the program that was looked at. */
static void say_where(const weft_checker *check, weft_coverage *out) {
    const bool at_instruction = check->refused_rank >= 0;
    out->refused_rank = at_instruction ? check->refused_rank : check->rank;
    out->refused_instruction = at_instruction ? check->refused_instruction
                                              : check->programs[check->rank]->n_instructions;
}

weft_status weft_programs_check(weft_coverage *out, const weft_program *const *programs, const weft_job_spec *job,
                                weft_error *err) {
    weft_checker check = {.programs = programs, .job = job, .err = err, .refused_rank = -1};
    weft_status status = weft_job_spec_check(job, err);
    memset(out, 0, sizeof *out);
    out->refused_rank = -1;
    if (status == WEFT_OK) status = weft_job_spec_check_placed(job, err);
    if (status != WEFT_OK) return status;
    check.world = job->view.world;
    check.micro_batches = weft_job_spec_micro_batches(job);
    status = check_programs(&check);
    if (status == WEFT_OK) status = make_room_for_ranks(&check);
    if (status == WEFT_OK) {
        learn_units(&check);
        status = check_all(&check, out);
        if (status == WEFT_E_PLUGIN) say_where(&check, out);
    }
    free_room(&check);
    return status;
}
