/* host/tools/report/scaling.c: tables of comparison.h with numbers of each run, formatted or plain. */
#include "tools/report/comparison.h"

#include "base/units.h"

#include <math.h>

/* ---- formatted cells ---- */

enum { CELL = 64 };
typedef void cell_maker(char out[CELL], const weft_digest *run, const weft_digest *first);

static void put_factor(char out[CELL], double factor) {
    if (isnan(factor) || isinf(factor)) (void)snprintf(out, CELL, "-");
    else (void)snprintf(out, CELL, factor < 0.1 ? "%.3fx" : "%.2fx", factor);
}

static void put_seconds(char out[CELL], double seconds) {
    char text[WEFT_UNIT_SIZE];
    (void)snprintf(out, CELL, "%s", isnan(seconds) ? "-" : weft_unit_seconds(text, seconds));
}

static void put_bytes(char out[CELL], double bytes) {
    char text[WEFT_UNIT_SIZE];
    (void)snprintf(out, CELL, "%s", isnan(bytes) ? "-" : weft_unit_bytes(text, (int64_t)bytes));
}

static void put_number(char out[CELL], const char *format, double value) WEFT_PRINTF(2, 0);
static void put_number(char out[CELL], const char *format, double value) {
    if (isnan(value)) (void)snprintf(out, CELL, "-");
    else (void)snprintf(out, CELL, format, value);
}

static void cell_ranks(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    put_number(out, "%.0f", run->ranks);
}

static void cell_strategy(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    (void)snprintf(out, CELL, "%.60s", run->strategy[0] == '\0' ? "-" : run->strategy);
}

static void cell_precision(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    (void)snprintf(out, CELL, "%.15s", run->precision[0] == '\0' ? "-" : run->precision);
}

/* global = micro x accumulated x replicas */
static void cell_batch(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    if (isnan(run->global_batch)) (void)snprintf(out, CELL, "-");
    else
        (void)snprintf(out, CELL, "%.0f = %.0f x %.0f x %.0f", run->global_batch, run->micro_batch, run->micro_batches,
                       run->replicas);
}

static void cell_lr(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    put_number(out, "%.3g", run->lr);
}

static void cell_steps(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    if (run->steps >= run->all_steps || isnan(run->all_steps)) put_number(out, "%.0f", run->steps);
    else (void)snprintf(out, CELL, "%.0f of %.0f", run->steps, run->all_steps);
}

static void cell_epochs(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    put_number(out, "%.3g", run->epochs);
}

static void cell_time(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    put_seconds(out, run->seconds);
}

/* Compares total times, and so only runs with the same number of steps. */
static void cell_speedup(char out[CELL], const weft_digest *run, const weft_digest *first) {
    put_factor(out, run->steps == first->steps ? first->seconds / run->seconds : (double)NAN);
}

static void cell_speed(char out[CELL], const weft_digest *run, const weft_digest *first) {
    char text[WEFT_UNIT_SIZE];
    (void)first;
    (void)snprintf(out, CELL, "%s", isnan(run->speed) ? "-" : weft_unit_count(text, (int64_t)run->speed));
}

static void cell_speed_factor(char out[CELL], const weft_digest *run, const weft_digest *first) {
    put_factor(out, run->speed / first->speed);
}

static void cell_planned(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    put_bytes(out, run->planned);
}

static void cell_resident(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    put_bytes(out, run->resident);
}

static void cell_memory_factor(char out[CELL], const weft_digest *run, const weft_digest *first) {
    put_factor(out, run->planned / first->planned);
}

#define TIME_CELL(name, which)                                                                                         \
    static void cell_##name(char out[CELL], const weft_digest *run, const weft_digest *first) {                        \
        (void)first;                                                                                                   \
        put_seconds(out, run->times[which]);                                                                           \
    }
TIME_CELL(compute, WEFT_TIME_COMPUTE)
TIME_CELL(communication, WEFT_TIME_COMMUNICATION)
TIME_CELL(evaluation, WEFT_TIME_EVALUATION)
TIME_CELL(checkpoint, WEFT_TIME_CHECKPOINT)
TIME_CELL(start, WEFT_TIME_START)

static void cell_loss(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    put_number(out, "%.4f", run->last_loss);
}

static void cell_eval(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    put_number(out, "%.4f", run->eval_loss);
}

static void cell_best(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    if (isnan(run->best_loss)) (void)snprintf(out, CELL, "-");
    else (void)snprintf(out, CELL, "%.4f, step %.0f", run->best_loss, run->best_step);
}

static void cell_similarity(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    put_number(out, "%.4g", run->similarity);
}

static const struct {
    const char *title;
    cell_maker *make;
    bool compares; /* meaningful only for several runs */
} scaling[] = {
    {"ranks", cell_ranks, false},
    {"strategy", cell_strategy, false},
    {"precision", cell_precision, false},
    {"effective batch", cell_batch, false},
    {"learning rate", cell_lr, false},
    {"steps", cell_steps, false},
    {"epochs", cell_epochs, false},
    {"time", cell_time, false},
    {"speed-up", cell_speedup, true},
    {"compute", cell_compute, false},
    {"communication", cell_communication, false},
    {"evaluation", cell_evaluation, false},
    {"checkpoint", cell_checkpoint, false},
    {"start", cell_start, false},
    {"tokens/s", cell_speed, false},
    {"tokens/s, factor", cell_speed_factor, true},
    {"memory planned a rank", cell_planned, false},
    {"memory, factor", cell_memory_factor, true},
    {"memory resident", cell_resident, false},
    {"loss", cell_loss, false},
    {"evaluation loss", cell_eval, false},
    {"best", cell_best, false},
    {"similarity", cell_similarity, false},
};
enum { N_SCALING = (int)(sizeof scaling / sizeof *scaling) };

/* True if a run measured similarity, which few runs do. */
static bool is_measured(const weft_comparison *self) {
    for (size_t i = 0; i < self->n; i++)
        if (!isnan(self->digests[i].similarity)) return true;
    return false;
}

static bool is_shown(const weft_comparison *self, int column) {
    if (scaling[column].make == cell_similarity) return is_measured(self);
    return self->n > 1 || !scaling[column].compares;
}

static size_t count_shown(const weft_comparison *self) {
    size_t n = 0;
    for (int column = 0; column < N_SCALING; column++) n += is_shown(self, column);
    return n;
}

static void put_scaling_cell(const weft_comparison *self, weft_sheet *out, size_t run, int column) {
    char text[CELL];
    scaling[column].make(text, &self->digests[run], &self->digests[0]);
    weft_sheet_put(out, "%s", text);
}

static void put_upright(const weft_comparison *self, weft_sheet *out) {
    for (size_t run = 0; run < self->n; run++) weft_sheet_put(out, "%s", self->names[run]);
    for (int column = 0; column < N_SCALING; column++) {
        if (!is_shown(self, column)) continue;
        weft_sheet_put(out, "%s", scaling[column].title);
        for (size_t run = 0; run < self->n; run++) put_scaling_cell(self, out, run, column);
    }
}

static void put_rows(const weft_comparison *self, weft_sheet *out) {
    for (int column = 0; column < N_SCALING; column++)
        if (is_shown(self, column)) weft_sheet_put(out, "%s", scaling[column].title);
    for (size_t run = 0; run < self->n; run++) {
        weft_sheet_put(out, "%s", self->names[run]);
        for (int column = 0; column < N_SCALING; column++)
            if (is_shown(self, column)) put_scaling_cell(self, out, run, column);
    }
}

void weft_comparison_scaling(const weft_comparison *self, weft_sheet *out, bool upright) {
    weft_sheet_begin(out, 1 + (upright ? self->n : count_shown(self)));
    weft_sheet_put(out, "run");
    if (upright) put_upright(self, out);
    else put_rows(self, out);
}

/* ---- plain numbers ---- */

static const struct {
    const char *title;
    size_t offset;
} numbers[] = {
#define NUMBER(title, field)                                                                                           \
    { title, offsetof(weft_digest, field) }
    NUMBER("ranks", ranks),
    NUMBER("replicas", replicas),
    NUMBER("micro_batch", micro_batch),
    NUMBER("micro_batches", micro_batches),
    NUMBER("global_batch", global_batch),
    NUMBER("lr", lr),
    NUMBER("steps", steps),
    NUMBER("epochs", epochs),
    NUMBER("seconds", seconds),
    NUMBER("compute_seconds", times[WEFT_TIME_COMPUTE]),
    NUMBER("communication_seconds", times[WEFT_TIME_COMMUNICATION]),
    NUMBER("evaluation_seconds", times[WEFT_TIME_EVALUATION]),
    NUMBER("checkpoint_seconds", times[WEFT_TIME_CHECKPOINT]),
    NUMBER("start_seconds", times[WEFT_TIME_START]),
    NUMBER("step_seconds", step_seconds),
    NUMBER("tokens_per_second", speed),
    NUMBER("planned_bytes", planned),
    NUMBER("resident_bytes", resident),
    NUMBER("loss", last_loss),
    NUMBER("eval_loss", eval_loss),
    NUMBER("best_loss", best_loss),
    NUMBER("best_step", best_step),
    NUMBER("similarity", similarity),
#undef NUMBER
};
enum { N_NUMBERS = (int)(sizeof numbers / sizeof *numbers) };

static void put_bare(weft_sheet *out, double value) {
    if (isnan(value)) weft_sheet_put(out, "%s", "");
    else weft_sheet_put(out, "%.*g", value == floor(value) ? 17 : 9, value);
}

void weft_comparison_numbers(const weft_comparison *self, weft_sheet *out) {
    weft_sheet_begin(out, (size_t)N_NUMBERS + 5);
    weft_sheet_put(out, "run");
    weft_sheet_put(out, "strategy");
    weft_sheet_put(out, "precision");
    for (int i = 0; i < N_NUMBERS; i++) weft_sheet_put(out, "%s", numbers[i].title);
    weft_sheet_put(out, "speedup");
    weft_sheet_put(out, "memory_factor");
    for (size_t run = 0; run < self->n; run++) {
        const weft_digest *one = &self->digests[run], *first = &self->digests[0];
        weft_sheet_put(out, "%s", self->runs[run].directory);
        weft_sheet_put(out, "%s", one->strategy);
        weft_sheet_put(out, "%s", one->precision);
        for (int i = 0; i < N_NUMBERS; i++) {
            double value = 0.0;
            memcpy(&value, (const char *)one + numbers[i].offset, sizeof value);
            put_bare(out, value);
        }
        put_bare(out, one->steps == first->steps ? first->seconds / one->seconds : (double)NAN);
        put_bare(out, one->planned / first->planned);
    }
}
