/* host/program/print.c: a program for people, one line per event.
 *
 *     index  queue  event                        slots
 *         7      0  BACKWARD layers.0.mlp leaf 0  leaf 1024@0  tape 65536@2048  work 4096@70000 ...
 *
 * A slot is its bytes and its offset in the arena; `sum` in place of an offset: the sum over leaves itself. */
#include "program/program.h"

static void print_slot(const weft_program *program, const char *name, int32_t slot, FILE *to) {
    if (slot < 0) return;
    fprintf(to, "  %s %lld@", name, (long long)program->slots[slot].bytes);
    if (program->slots[slot].offset >= 0) fprintf(to, "%lld", (long long)program->slots[slot].offset);
    else fprintf(to, "sum");
}

static void print_slots(const weft_program *program, const weft_job_spec *job, int32_t i, FILE *to) {
    const weft_event_slots *slots = &program->event_slots[i];
    print_slot(program, "leaf", slots->leaf, to);
    print_slot(program, "carry-in", slots->carry_in, to);
    print_slot(program, "carry-out", slots->carry_out, to);
    print_slot(program, "tape", slots->tape, to);
    print_slot(program, "gradient-from-above", slots->d_carry_out, to);
    print_slot(program, "gradient-below", slots->d_carry_in, to);
    for (int32_t u = 0; u < job->view.n_units; u++)
        print_slot(program, job->view.units[u].name, slots->gradients[u], to);
    print_slot(program, "work", slots->work, to);
}

/* True if a column follows the event's name in its line. */
static bool has_slots(const weft_program *program, const weft_job_spec *job, int32_t i) {
    const weft_event_slots *slots = program->event_slots != NULL ? &program->event_slots[i] : NULL;
    if (slots == NULL) return false;
    for (int32_t u = 0; u < job->view.n_units; u++)
        if (slots->gradients[u] >= 0) return true;
    return slots->leaf >= 0 || slots->carry_in >= 0 || slots->carry_out >= 0 || slots->tape >= 0 || slots->work >= 0 ||
           slots->d_carry_out >= 0 || slots->d_carry_in >= 0;
}

/* Characters of the longest event. */
static int widest(const weft_program *program, const weft_job_spec *job) {
    char text[256];
    int width = (int)strlen("event");
    for (int32_t i = 0; i < program->n_events; i++) {
        weft_event_describe(text, sizeof text, &program->events[i], job);
        if ((int)strlen(text) > width) width = (int)strlen(text);
    }
    return width;
}

void weft_program_print(const weft_program *program, const weft_job_spec *job, FILE *to) {
    const bool placed = program->event_slots != NULL;
    const int width = placed ? widest(program, job) : 0;
    char text[256];
    fprintf(to, "index  queue  %-*s%s\n", width, "event", placed ? "  slots, as bytes@offset" : "");
    for (int32_t i = 0; i < program->n_events; i++) {
        const weft_event *event = &program->events[i];
        weft_event_describe(text, sizeof text, event, job);
        fprintf(to, "%5d  %5d  %-*s", (int)i, (int)event->queue, has_slots(program, job, i) ? width : 0, text);
        if (event->after >= 0) fprintf(to, "  after %d", (int)event->after);
        if (placed) print_slots(program, job, i, to);
        fputc('\n', to);
    }
    if (placed)
        fprintf(to, "%lld bytes live at event %d, in an arena of %lld\n", (long long)program->peak,
                (int)program->peak_event, (long long)program->arena);
}
