/* host/tools/ab/comparison_object.c: what an experiment came to as an object. Shares of time are ratios less one; what
 * is not known or has no bound is null. */
#include "tools/ab/comparison_table.h"
#include "tools/ab/comparison_words.h"

#include <math.h>

static json_t *real_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *interval_object(const weft_median_interval *at) {
    return json_pack("{s:o, s:o, s:o}", "median", real_or_null(weft_ab_share(at->median)), "low",
                     at->bounded ? real_or_null(weft_ab_share(at->low)) : json_null(), "high",
                     at->bounded ? real_or_null(weft_ab_share(at->high)) : json_null());
}

static json_t *numbers_object(const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_numbers *numbers = &experiment->arms[i].numbers;
    const weft_ab_evidence evidence = weft_ab_evidence_of(experiment, i);
    const bool promised = evidence.covered && evidence.change == WEFT_AB_SPREADS;
    if (!numbers->comparable) return json_pack("{s:b}", "comparable", 0);
    if (numbers->step < 0)
        return json_pack("{s:b, s:b, s:i, s:b}", "comparable", 1, "same_bits", 1, "steps", (int)WEFT_AB_COMPARED,
                         "promised", (int)promised);
    return json_pack("{s:b, s:b, s:i, s:o, s:o, s:s, s:b, s:b}", "comparable", 1, "same_bits", 0, "step",
                     (int)numbers->step, "micro-batch",
                     numbers->micro_batch >= 0 ? json_integer(numbers->micro_batch) : json_null(), "unit",
                     numbers->unit[0] != '\0' ? json_string(numbers->unit) : json_null(), "first", numbers->what,
                     "promised", (int)promised, "defect", (int)weft_ab_is_defect(&evidence));
}

static json_t *learned_object(const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_learned *learned = &experiment->arms[i].learned;
    json_t *micro_batches = json_array(), *object = NULL;
    for (int64_t k = 0; learned->micro_batches != NULL && k < experiment->learning.micro_batches; k++)
        (void)json_array_append_new(micro_batches, real_or_null(learned->micro_batches[k]));
    object = json_pack("{s:o, s:o}", "loss", real_or_null(learned->loss), "micro_batches", micro_batches);
    if (i == 0 || object == NULL) return object;
    (void)json_object_set_new(object, "verdict", json_string(weft_ab_learning_name(learned->answer)));
    (void)json_object_set_new(object, "beside_first",
                              json_pack("{s:o, s:o, s:o}", "mean", real_or_null(learned->beside.mean), "low",
                                        real_or_null(learned->beside.low), "high", real_or_null(learned->beside.high)));
    return object;
}

static void add_beside(json_t *object, const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_arm *arm = &experiment->arms[i];
    const weft_median_interval *time = &arm->verdict.ratio;
    const weft_median_interval speed = {-time->median, -time->high, -time->low, time->bounded};
    (void)json_object_set_new(object, "outcome", json_string(weft_ab_outcome_name(arm->outcome)));
    (void)json_object_set_new(object, "verdict", json_string(weft_ab_time_name(experiment, i)));
    (void)json_object_set_new(object, "time_beside_first", interval_object(time));
    (void)json_object_set_new(object, "speed_beside_first", interval_object(&speed));
    (void)json_object_set_new(object, "exchange_beside_first",
                              arm->exchange_of.bounded ? interval_object(&arm->exchange_of) : json_null());
    if (arm->verdict.answer == WEFT_AB_NO_DIFFERENCE)
        (void)json_object_set_new(object, "no_difference_above", json_real(weft_ab_share(arm->verdict.bound)));
    (void)json_object_set_new(object, "numbers", numbers_object(experiment, i));
    (void)json_object_set(object, "differs", arm->difference);
    (void)json_object_set_new(object, "programs", arm->programs[0] != '\0' ? json_string(arm->programs) : json_null());
}

static json_t *diverged_object(const weft_ab_arm *arm) {
    if (arm->diverged.step == 0) return json_null();
    return json_pack("{s:I, s:s}", "step", (json_int_t)arm->diverged.step, "why", arm->diverged.why);
}

static json_t *blocks_of(const weft_ab_experiment *experiment, int32_t place) {
    json_t *times = json_array();
    for (int32_t r = 0; r < experiment->times.rounds; r++)
        (void)json_array_append_new(times, real_or_null(experiment->times.of[place][r]));
    return times;
}

static json_t *arm_object(const weft_ab_experiment *experiment, int32_t i) {
    const weft_ab_arm *arm = &experiment->arms[i];
    json_t *object = json_pack("{s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:o}", "arm", arm->spec->label, "diverged",
                               diverged_object(arm), "step_seconds", real_or_null(arm->seconds), "targets_per_second",
                               real_or_null(arm->rate), "exchange_seconds",
                               arm->exchange >= 0 ? json_real(arm->exchange) : json_null(), "planned_bytes",
                               (json_int_t)arm->bytes, "sent_bytes", (json_int_t)arm->sent, "instructions",
                               (json_int_t)arm->instructions, "rounds", blocks_of(experiment, i));
    if (object == NULL) return NULL;
    if (i == 0) (void)json_object_set_new(object, "rounds_again", blocks_of(experiment, experiment->n));
    if (i > 0) add_beside(object, experiment, i);
    if (experiment->learning.steps > 0) (void)json_object_set_new(object, "learned", learned_object(experiment, i));
    return object;
}

static json_t *learning_object(const weft_ab_experiment *experiment) {
    if (experiment->learning.steps == 0) return json_pack("{s:b, s:s}", "measured", 0, "why", experiment->learning.why);
    return json_pack("{s:b, s:I, s:i, s:I}", "measured", 1, "steps", (json_int_t)experiment->learning.steps, "seeds",
                     (int)experiment->learning.seeds, "micro_batches", (json_int_t)experiment->learning.micro_batches);
}

weft_status weft_ab_print_json(const weft_ab_experiment *experiment, FILE *to, weft_error *err) {
    const int32_t winner = weft_ab_winner(experiment);
    json_t *arms = json_array(), *object = NULL;
    for (int32_t i = 0; i < experiment->n; i++) (void)json_array_append_new(arms, arm_object(experiment, i));
    object = json_pack("{s:o, s:s, s:o, s:{s:o, s:o}, s:o, s:I, s:f, s:b, s:o, s:i}", "arms", arms, "compared",
                       experiment->per_target ? "seconds per target" : "seconds per step", "noise",
                       interval_object(&experiment->arms[1].verdict.noise), "alone", "noise",
                       interval_object(&experiment->alone.noise), "told_above", real_or_null(experiment->alone.told),
                       "learning", learning_object(experiment), "block_steps", (json_int_t)experiment->block, "seconds",
                       experiment->seconds, "stopped", (int)experiment->stopped, "winner",
                       winner >= 0 ? json_string(experiment->arms[winner].spec->label) : json_null(), "ranks",
                       (int)weft_process_context_size(experiment->meeting.process_context));
    if (object == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the object that is printed");
    (void)json_dumpf(object, to, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    (void)fputc('\n', to);
    json_decref(object);
    return WEFT_OK;
}
