/* host/program/plan.c: see plan.h. */
#include "program/plan.h"

#include <stdlib.h>

static void close_mode_plan(weft_mode_plan *mode_plan) {
    weft_program_destroy(mode_plan->program);
    weft_program_destroy(mode_plan->shown);
    weft_terms_destroy(mode_plan->terms);
    weft_slices_destroy(mode_plan->slices);
    free(mode_plan->sums);
    free(mode_plan->losses);
    weft_job_destroy(mode_plan->job);
    weft_graph_set_destroy(mode_plan->graphs);
}

static void close_holds(weft_plan *self) {
    for (int32_t what = 0; what < WEFT_N_HOLDS; what++) {
        weft_hold_destroy(self->holds[what]);
        free(self->apart[what]);
    }
}

void weft_plan_close(weft_plan *self) {
    close_mode_plan(&self->train);
    close_mode_plan(&self->evaluate);
    close_mode_plan(&self->generate);
    close_holds(self);
    free(self->in_products);
    weft_layout_destroy(self->layout);
    weft_declared_destroy(self->declared);
}

weft_plan weft_plan_as_rank(const weft_plan *self, int32_t rank) {
    weft_plan other = *self;
    weft_mode_plan *stages[] = {&other.train, &other.evaluate, &other.generate};
    other.rank = rank;
    for (int32_t what = 0; what < WEFT_N_HOLDS; what++) {
        other.holds[what] = NULL;
        other.apart[what] = NULL;
    }
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        stages[i]->terms = NULL;
        stages[i]->sums = NULL;
    }
    return other;
}

void weft_plan_drop_rank(weft_plan *self) {
    weft_terms_destroy(self->train.terms);
    free(self->train.sums);
    close_holds(self);
}

int64_t weft_plan_table_rows(const weft_plan_spec *spec) {
    int64_t rows = spec->cache_rows;
    for (int32_t i = 0; i < spec->n_lengths; i++)
        if (spec->lengths[i] > rows) rows = spec->lengths[i];
    return rows;
}

int32_t weft_plan_most_instructions(const weft_plan *self) {
    const int32_t train = self->train.program != NULL ? self->train.program->n_instructions : 0;
    const int32_t evaluate = self->evaluate.program != NULL ? self->evaluate.program->n_instructions : 0;
    return train > evaluate ? train : evaluate;
}

int32_t weft_plan_most_micro_batches(const weft_plan *self) {
    const int32_t train = self->train.program != NULL ? self->train.program->micro_batches : 0;
    const int32_t evaluate = self->evaluate.program != NULL ? self->evaluate.program->micro_batches : 0;
    return train > evaluate ? train : evaluate;
}

int32_t weft_plan_most_slots(const weft_plan *self) {
    const int32_t train = self->train.program != NULL ? self->train.program->n_slots : 0;
    const int32_t evaluate = self->evaluate.program != NULL ? self->evaluate.program->n_slots : 0;
    return train > evaluate ? train : evaluate;
}
