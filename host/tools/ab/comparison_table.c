/* host/tools/ab/comparison_table.c: see comparison_table.h. */
#include "tools/ab/comparison_table.h"

#include "tools/ab/comparison_words.h"
#include "base/units.h"
#include "report/plan_diff.h"

#include <math.h>

static void print_row(const weft_ab_experiment *experiment, int32_t i, int width, FILE *to) {
    const weft_ab_arm *arm = &experiment->arms[i];
    char step[WEFT_UNIT_SIZE], speed[WEFT_UNIT_SIZE], exchange[WEFT_UNIT_SIZE] = "-", memory[WEFT_UNIT_SIZE];
    char sent[WEFT_UNIT_SIZE], instructions[WEFT_UNIT_SIZE], beside[80] = "";
    weft_ab_say_seconds(step, sizeof step, arm->seconds);
    (void)snprintf(speed, sizeof speed, "-");
    if (!isnan(arm->rate)) (void)weft_unit_count(speed, (int64_t)arm->rate);
    if (arm->exchange > 0) weft_ab_say_seconds(exchange, sizeof exchange, arm->exchange);
    if (i > 0) weft_ab_say_interval(beside, sizeof beside, &arm->verdict.ratio);
    (void)fprintf(to, "%c %-*s  %9s  %10s  %9s  %10s  %10s  %7s%s%s\n", weft_ab_letter(i), width, arm->spec->label,
                  step, speed, exchange, weft_unit_bytes(memory, arm->bytes), weft_unit_bytes(sent, arm->sent),
                  weft_unit_count(instructions, arm->instructions), *beside != '\0' ? "  " : "", beside);
}

static void print_rows(const weft_ab_experiment *experiment, FILE *to) {
    int width = 3;
    for (int32_t i = 0; i < experiment->n; i++) {
        const int n = (int)strlen(experiment->arms[i].spec->label);
        if (n > width) width = n;
    }
    (void)fprintf(to, "  %-*s  %9s  %10s  %9s  %10s  %10s  %7s  %s\n", width, "arm", "step", "targets/s", "exchange",
                  "memory", "sent", "instructions", "time beside A (95 %)");
    for (int32_t i = 0; i < experiment->n; i++) print_row(experiment, i, width, to);
}

static void print_difference(const weft_ab_experiment *experiment, int32_t i, FILE *to) {
    const weft_ab_arm *arm = &experiment->arms[i];
    char b[2] = {weft_ab_letter(i), '\0'};
    (void)fprintf(to, "\nwhat differs in %s\n", b);
    weft_plan_diff_print(arm->difference, "A", b, to);
    if (arm->programs[0] != '\0') (void)fprintf(to, "programs of rank 0: %s\n", arm->programs);
    else (void)fprintf(to, "programs of rank 0: the same %lld instructions\n", (long long)arm->instructions);
}

typedef void sentence(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);

static void print_sentences(const weft_ab_experiment *experiment, const char *head, sentence *say, FILE *to) {
    char text[WEFT_AB_SENTENCE];
    for (int32_t i = 1; i < experiment->n; i++) {
        say(text, sizeof text, experiment, i);
        if (text[0] != '\0') (void)fprintf(to, "%-8s %s\n", head, text);
    }
}

static void print_noise(const weft_ab_experiment *experiment, FILE *to) {
    char text[WEFT_AB_SENTENCE], seconds[WEFT_UNIT_SIZE];
    const char *end = experiment->stopped ? ", until a signal came" : "";
    if (experiment->alone.rounds > 0) {
        weft_ab_say_alone(text, sizeof text, experiment);
        (void)fprintf(to, "%-8s %s\n", "noise", text);
    }
    if (experiment->times.rounds == 0) {
        (void)fprintf(to, "measured no round of all arms%s\n", end);
        return;
    }
    weft_ab_say_noise(text, sizeof text, experiment);
    (void)fprintf(to, "%-8s %s\n", "", text);
    (void)fprintf(to, "measured %d %s of %lld %s an arm, by turns, in %s%s\n", (int)experiment->times.rounds,
                  experiment->times.rounds == 1 ? "round" : "rounds", (long long)experiment->block,
                  experiment->block == 1 ? "step" : "steps", weft_unit_seconds(seconds, experiment->seconds), end);
}

void weft_ab_print(const weft_ab_experiment *experiment, FILE *to) {
    print_rows(experiment, to);
    for (int32_t i = 1; i < experiment->n; i++) print_difference(experiment, i, to);
    (void)fputc('\n', to);
    print_sentences(experiment, "beside", weft_ab_say_beside, to);
    print_sentences(experiment, "numbers", weft_ab_say_numbers, to);
    if (experiment->learning.steps > 0) print_sentences(experiment, "learned", weft_ab_say_learning, to);
    print_noise(experiment, to);
    print_sentences(experiment, "verdict", weft_ab_say_time, to);
    print_sentences(experiment, "verdict", weft_ab_say_outcome, to);
}
