/* host/report/batches.c: prints the sequences of each rank, and their first ids; see world_line.h. */
#include "report/world_line.h"

#include "run/row.h"

#include <stdlib.h>

enum { SHOWN_RANKS = 16, SHOWN_MICRO_BATCHES = 8, SHOWN_IDS = 64 };

/* Prints the sequences of a rank; those of a micro-batch are consecutive. */
static void print_batch_rows(const weft_engine *engine, int32_t rank, FILE *to) {
    const int32_t rows = engine->plan.spec.rows;
    const char *separator = "";
    int32_t shown = 0;
    for (int32_t micro_batch = 0; micro_batch < engine->plan.train.program->micro_batches; micro_batch++) {
        if (engine->plan.train.losses[micro_batch].rank != rank) continue;
        if (shown++ == SHOWN_MICRO_BATCHES) {
            (void)fprintf(to, ", ...");
            break;
        }
        if (rows == 1) (void)fprintf(to, "%s%d", separator, (int)micro_batch);
        else (void)fprintf(to, "%s%d-%d", separator, (int)(micro_batch * rows), (int)((micro_batch + 1) * rows - 1));
        separator = ", ";
    }
}

/* Returns the first micro-batch that a rank runs to the end; -1: another rank of its replica does. */
static int32_t first_micro_batch(const weft_engine *engine, int32_t rank) {
    for (int32_t micro_batch = 0; micro_batch < engine->plan.train.program->micro_batches; micro_batch++)
        if (engine->plan.train.losses[micro_batch].rank == rank) return micro_batch;
    return -1;
}

/* Prints the ranks: those of one replica process the same sequences. */
static void print_who(const weft_engine *engine, int32_t rank, FILE *to) {
    const weft_strategy_job *job = &engine->plan.train.job->spec.view;
    if (job->replicas > 1 || job->world == 1) (void)fprintf(to, "rank %d: ", (int)rank);
    else (void)fprintf(to, "all ranks: ");
}

static void print_batch(const weft_engine *engine, int32_t rank, FILE *to) {
    const weft_strategy_job *job = &engine->plan.train.job->spec.view;
    print_who(engine, rank, to);
    (void)fprintf(to,
                  "Mini-batch size: %d of the %d rows of a step: ", (int)(job->micro_batches * engine->plan.spec.rows),
                  (int)(job->micro_batches * engine->plan.spec.rows * job->replicas));
    print_batch_rows(engine, rank, to);
    (void)fputc('\n', to);
}

/* Returns the end of the printed ranks: each prints itself, and rank 0 as many as fit. */
static int32_t end_told(const weft_engine *engine) {
    const int32_t world = engine->plan.train.job->spec.view.world;
    if (engine->ranks.rank > 0) return engine->ranks.rank + 1;
    return world < SHOWN_RANKS ? world : SHOWN_RANKS;
}

static void print_rest(const weft_engine *engine, FILE *to) {
    const int32_t left = engine->plan.train.job->spec.view.world - SHOWN_RANKS;
    if (engine->ranks.rank == 0 && left > 0) (void)fprintf(to, "  and so on for %d more\n", (int)left);
}

void weft_batches_print(const weft_session *session, FILE *to) {
    const weft_engine *engine = session->engine;
    if (engine->plan.train.job->spec.view.replicas == 1) return;
    for (int32_t rank = engine->ranks.rank; rank < end_told(engine); rank++) {
        (void)fputs("  ", to);
        print_batch(engine, rank, to);
    }
    print_rest(engine, to);
}

/* Reads the first ids of a sequence to out; n: their number. */
static weft_status read_sample(const weft_session *session, int32_t out[SHOWN_IDS], int32_t *n, uint64_t row,
                               weft_error *err) {
    weft_micro_batch micro_batch;
    const weft_status status = weft_session_row(&micro_batch, session, WEFT_SPLIT_TRAIN, row, err);
    *n = status == WEFT_OK ? micro_batch.length : 0;
    for (int32_t i = 0; i < *n && i < SHOWN_IDS; i++) out[i] = micro_batch.ids[i];
    if (status == WEFT_OK) free(micro_batch.ids);
    return status;
}

static void print_ids(const int32_t *ids, int32_t n, FILE *to) {
    (void)fprintf(to, "1st data in mini-batch: [");
    for (int32_t i = 0; i < n && i < SHOWN_IDS; i++) (void)fprintf(to, "%s%d", i == 0 ? "" : ", ", (int)ids[i]);
    if (n > SHOWN_IDS) (void)fprintf(to, ", ...] of %d ids\n", (int)n);
    else (void)fprintf(to, "]\n");
}

static weft_status print_sample(const weft_session *session, int64_t step, int32_t rank, FILE *to, weft_error *err) {
    const weft_engine *engine = session->engine;
    const int32_t micro_batch = first_micro_batch(engine, rank);
    const uint64_t micro_batches = (uint64_t)engine->plan.train.program->micro_batches;
    const uint64_t row = ((uint64_t)(step - 1) * micro_batches + (uint64_t)micro_batch) *
                         (uint64_t)engine->plan.spec.rows;
    int32_t ids[SHOWN_IDS], n = 0;
    weft_status status = WEFT_OK;
    if (micro_batch < 0) return WEFT_OK;
    status = read_sample(session, ids, &n, row, err);
    if (status != WEFT_OK) return status;
    (void)fprintf(to, "Step %lld: ", (long long)step);
    print_who(engine, rank, to);
    print_ids(ids, n, to);
    return WEFT_OK;
}

weft_status weft_samples_print(const weft_session *session, int64_t step, FILE *to, weft_error *err) {
    const weft_engine *engine = session->engine;
    const bool together = engine->plan.train.job->spec.view.replicas == 1;
    int32_t rank = together ? engine->plan.train.losses[0].rank : engine->ranks.rank;
    const int32_t end = together ? rank + 1 : end_told(engine);
    weft_status status = WEFT_OK;
    for (; rank < end && status == WEFT_OK; rank++) {
        (void)fprintf(to, "Step %lld: ", (long long)step);
        print_batch(engine, rank, to);
        status = print_sample(session, step, rank, to, err);
    }
    if (!together) print_rest(engine, to);
    return status;
}
