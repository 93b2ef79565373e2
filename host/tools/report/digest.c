/* host/tools/report/digest.c: see digest.h. */
#include "tools/report/digest.h"

#include <math.h>

const char *weft_past_time_name(int32_t time) {
    static const char *const names[WEFT_N_TIMES] = {"compute", "communication", "evaluation", "checkpoint", "start"};
    return time >= 0 && time < WEFT_N_TIMES ? names[time] : "?";
}

enum { EXCHANGE = 1 + WEFT_PHASE_EXCHANGE }; /* among the phases of a past run */

static void add_up_times(weft_digest *out, const weft_past_run *run) {
    double steps = 0.0, targets = 0.0, named = 0.0, counted = 0.0;
    for (size_t i = 0; i < run->n_steps; i++) {
        const weft_past_step *line = &run->steps[i];
        double span = 0.0;
        for (int32_t p = 0; p < WEFT_N_PAST_PHASES; p++) span += line->phases[p];
        out->times[WEFT_TIME_COMMUNICATION] += line->phases[EXCHANGE];
        out->times[WEFT_TIME_COMPUTE] += span - line->phases[EXCHANGE];
        steps += span;
        if (!isnan(line->speed)) targets += line->speed * span;
        counted = line->step;
    }
    for (size_t i = 0; i < run->n_evaluations; i++)
        if (!isnan(run->evaluations[i].took)) out->times[WEFT_TIME_EVALUATION] += run->evaluations[i].took;
    for (size_t i = 0; i < run->n_saves; i++)
        if (!isnan(run->saves[i].took)) out->times[WEFT_TIME_CHECKPOINT] += run->saves[i].took;
    for (int32_t t = 0; t < WEFT_TIME_START; t++) named += out->times[t];
    out->seconds = run->seconds > 0.0 ? run->seconds : (double)NAN;
    out->times[WEFT_TIME_START] = run->seconds > named ? run->seconds - named : 0.0;
    out->speed = steps > 0.0 ? targets / steps : (double)NAN;
    out->step_seconds = steps > 0.0 && counted > 0.0 ? steps / counted : (double)NAN;
}

static void sum_up_losses(weft_digest *out, const weft_past_run *run) {
    const size_t n = run->n_steps, tail = n / 10 > 20 ? 20 : n / 10 > 0 ? n / 10 : 1;
    double sum = 0.0, counted = 0.0;
    out->first_loss = n > 0 ? run->steps[0].loss : (double)NAN;
    for (size_t i = n > tail ? n - tail : 0; i < n; i++) {
        if (isnan(run->steps[i].loss)) continue; /* a step that fp16 could not hold, and that was skipped */
        sum += run->steps[i].loss;
        counted += 1.0;
    }
    out->last_loss = counted > 0.0 ? sum / counted : (double)NAN;
    out->eval_loss = out->best_loss = out->best_step = out->similarity = (double)NAN;
    for (size_t i = 0; i < run->n_evaluations; i++) {
        out->eval_loss = run->evaluations[i].loss;
        out->similarity = run->evaluations[i].similarity;
        if (!(out->eval_loss >= out->best_loss)) { /* true where best is NaN */
            out->best_loss = out->eval_loss;
            out->best_step = run->evaluations[i].step;
        }
    }
}

static void find_memory(weft_digest *out, const weft_past_run *run) {
    const json_t *planned = json_object_get(weft_past_start(run), "planned");
    out->planned = out->resident = (double)NAN;
    for (size_t i = 0; i < json_array_size(planned); i++) {
        const double total = weft_past_number(json_array_get(planned, i), NULL, "total");
        if (!(total <= out->planned)) out->planned = total;
    }
    for (size_t i = 0; i < run->n_ranks; i++)
        if (!(run->ranks[i].peak <= out->resident)) out->resident = run->ranks[i].peak;
    for (size_t i = 0; run->n_ranks == 0 && i < run->n_steps; i++)
        if (!(run->steps[i].resident <= out->resident)) out->resident = run->steps[i].resident;
}

static void take_setup(weft_digest *out, const weft_past_run *run) {
    const json_t *start = weft_past_start(run), *who = json_object_get(start, "run");
    const char *strategy = weft_past_text(who, "plugins", "strategy"),
               *shard = weft_past_text(who, "strategy", "shard");
    out->ranks = weft_past_number(who, NULL, "world");
    out->replicas = weft_past_number(who, NULL, "replicas");
    out->micro_batches = weft_past_number(who, NULL, "micro-batches");
    out->lr = weft_past_number(who, NULL, "lr");
    out->global_batch = weft_past_number(start, "batch", "global");
    out->micro_batch = weft_past_number(start, "batch", "micro");
    out->all_steps = weft_past_number(start, NULL, "steps");
    (void)snprintf(out->strategy, sizeof out->strategy, "%.30s%s%.30s", strategy, *shard != '\0' ? " " : "", shard);
    (void)snprintf(out->precision, sizeof out->precision, "%.15s", weft_past_text(who, NULL, "precision"));
}

void weft_digest_make(weft_digest *out, const weft_past_run *run) {
    memset(out, 0, sizeof *out);
    take_setup(out, run);
    add_up_times(out, run);
    sum_up_losses(out, run);
    find_memory(out, run);
    out->steps = run->n_steps > 0 ? run->steps[run->n_steps - 1].step : 0.0;
    out->epochs = run->n_steps > 0 ? run->steps[run->n_steps - 1].epoch : (double)NAN;
    out->finished = run->n_saves > 0 && run->saves[run->n_saves - 1].is_model && out->steps >= out->all_steps;
}
