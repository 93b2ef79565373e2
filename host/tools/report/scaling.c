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

static void cell_steps(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    (void)snprintf(out, CELL, run->steps < run->all_steps ? "%.0f of %.0f" : "%.0f", run->steps, run->all_steps);
}

/* Compares total times, and so only runs with the same number of steps. */
static void cell_speedup(char out[CELL], const weft_digest *run, const weft_digest *first) {
    put_factor(out, run->steps == first->steps ? first->seconds / run->seconds : (double)NAN);
}

static void cell_speed_factor(char out[CELL], const weft_digest *run, const weft_digest *first) {
    put_factor(out, run->speed / first->speed);
}

static void cell_memory_factor(char out[CELL], const weft_digest *run, const weft_digest *first) {
    put_factor(out, run->planned / first->planned);
}

static void cell_best(char out[CELL], const weft_digest *run, const weft_digest *first) {
    (void)first;
    if (isnan(run->best_loss)) (void)snprintf(out, CELL, "-");
    else (void)snprintf(out, CELL, "%.4f, step %.0f", run->best_loss, run->best_step);
}

/* A column has a maker, or shows one field of the digest: with a printf format, or in units. */
typedef enum unit { SECONDS, BYTES, COUNT } unit;

static const struct {
    const char *title;
    cell_maker *make;
    bool compares; /* meaningful only for several runs */
    size_t field;
    unit unit;
    const char *format; /* NULL: in units */
} scaling[] = {
#define MADE(title, make, compares)                                                                                    \
    { title, make, compares, 0, SECONDS, NULL }
#define NUMBER_AS(title, field, format)                                                                                \
    { title, NULL, false, offsetof(weft_digest, field), COUNT, format }
#define IN_UNITS(title, field, unit)                                                                                   \
    { title, NULL, false, offsetof(weft_digest, field), unit, NULL }
    NUMBER_AS("ranks", ranks, "%.0f"),
    MADE("strategy", cell_strategy, false),
    MADE("precision", cell_precision, false),
    MADE("effective batch", cell_batch, false),
    NUMBER_AS("learning rate", lr, "%.3g"),
    MADE("steps", cell_steps, false),
    NUMBER_AS("epochs", epochs, "%.3g"),
    IN_UNITS("time", seconds, SECONDS),
    MADE("speed-up", cell_speedup, true),
    IN_UNITS("compute", times[WEFT_TIME_COMPUTE], SECONDS),
    IN_UNITS("communication", times[WEFT_TIME_COMMUNICATION], SECONDS),
    IN_UNITS("evaluation", times[WEFT_TIME_EVALUATION], SECONDS),
    IN_UNITS("checkpoint", times[WEFT_TIME_CHECKPOINT], SECONDS),
    IN_UNITS("start", times[WEFT_TIME_START], SECONDS),
    IN_UNITS("tokens/s", speed, COUNT),
    MADE("tokens/s, factor", cell_speed_factor, true),
    IN_UNITS("memory planned a rank", planned, BYTES),
    MADE("memory, factor", cell_memory_factor, true),
    IN_UNITS("memory resident", resident, BYTES),
    NUMBER_AS("loss", last_loss, "%.4f"),
    NUMBER_AS("evaluation loss", eval_loss, "%.4f"),
    MADE("best", cell_best, false),
    NUMBER_AS("similarity", similarity, "%.4g"),
#undef IN_UNITS
#undef NUMBER_AS
#undef MADE
};
enum { N_SCALING = (int)(sizeof scaling / sizeof *scaling) };

static double field_of(const weft_digest *run, size_t offset) {
    double value;
    memcpy(&value, (const char *)run + offset, sizeof value);
    return value;
}

/* True if a run measured similarity, which few runs do. */
static bool is_measured(const weft_comparison *self) {
    for (size_t i = 0; i < self->n; i++)
        if (!isnan(self->digests[i].similarity)) return true;
    return false;
}

static bool is_shown(const weft_comparison *self, int column) {
    if (scaling[column].field == offsetof(weft_digest, similarity)) return is_measured(self);
    return self->n > 1 || !scaling[column].compares;
}

static size_t count_shown(const weft_comparison *self) {
    size_t n = 0;
    for (int column = 0; column < N_SCALING; column++) n += is_shown(self, column);
    return n;
}

static void put_scaling_cell(const weft_comparison *self, weft_sheet *out, size_t run, int column) {
    const weft_digest *digest = &self->digests[run];
    const double value = field_of(digest, scaling[column].field);
    char text[CELL];
    if (scaling[column].make != NULL) scaling[column].make(text, digest, &self->digests[0]);
    else if (isnan(value)) (void)snprintf(text, sizeof text, "-");
    else if (scaling[column].format != NULL) (void)snprintf(text, sizeof text, scaling[column].format, value);
    else if (scaling[column].unit == SECONDS) (void)weft_unit_seconds(text, value);
    else if (scaling[column].unit == BYTES) (void)weft_unit_bytes(text, (int64_t)value);
    else (void)weft_unit_count(text, (int64_t)value);
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
        for (int i = 0; i < N_NUMBERS; i++) put_bare(out, field_of(one, numbers[i].offset));
        put_bare(out, one->steps == first->steps ? first->seconds / one->seconds : (double)NAN);
        put_bare(out, one->planned / first->planned);
    }
}
