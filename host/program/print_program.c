/* host/program/print_program.c: a program for people, one line per event.
 *
 *     index  queue  event                        slots
 *         7      0  BACKWARD layers.0.mlp leaf 0  leaf 1024@0  tape 65536@2048  work 4096@70000 ...
 *
 * A slot is its bytes and its offset in the arena; `sum` in place of an offset: the sum over leaves itself. */
#include "program/program.h"

void weft_event_slots_visit(const weft_program *program, const weft_job_spec *job, int32_t event, weft_slot_visit visit,
                            void *context) {
    const weft_event_slots *s = &program->event_slots[event];
    const struct {
        const char *name;
        int32_t slot;
    } before[] = {{"leaf", s->leaf},
                  {"carry-in", s->carry_in},
                  {"carry-out", s->carry_out},
                  {"tape", s->tape},
                  {"gradient-from-above", s->d_carry_out},
                  {"gradient-below", s->d_carry_in},
                  {"unit", s->unit},
                  {"exchange", s->exchange}};
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        if (before[i].slot >= 0) visit(context, before[i].name, &program->slots[before[i].slot]);
    for (int32_t u = 0; u < job->view.n_units; u++)
        if (s->gradients[u] >= 0) visit(context, job->view.units[u].name, &program->slots[s->gradients[u]]);
    if (s->work >= 0) visit(context, "work", &program->slots[s->work]);
}

static void print_slot(void *to, const char *name, const weft_slot *slot) {
    fprintf(to, "  %s %lld@", name, (long long)slot->bytes);
    if (slot->offset >= 0) fprintf(to, "%lld", (long long)slot->offset);
    else fprintf(to, "sum");
}

static void count_slot(void *n, const char *name, const weft_slot *slot) {
    (void)name;
    (void)slot;
    ++*(int *)n;
}

/* True if a column follows the event's name in its line. */
static bool has_slots(const weft_program *program, const weft_job_spec *job, int32_t i) {
    int n = 0;
    if (program->event_slots != NULL) weft_event_slots_visit(program, job, i, count_slot, &n);
    return n > 0;
}

/* Characters of the longest event. */
static int widest_event(const weft_program *program, const weft_job_spec *job) {
    char text[256];
    int width = (int)strlen("event");
    for (int32_t i = 0; i < program->n_events; i++) {
        weft_event_describe(text, sizeof text, &program->events[i], job);
        if ((int)strlen(text) > width) width = (int)strlen(text);
    }
    return width;
}

void weft_program_print_marked(const weft_program *program, const weft_job_spec *job, int32_t marked, FILE *to) {
    const bool placed = program->event_slots != NULL;
    const int width = placed ? widest_event(program, job) : 0;
    char text[256];
    fprintf(to, "index  queue  %-*s%s\n", width, "event", placed ? "  slots, as bytes@offset" : "");
    for (int32_t i = 0; i < program->n_events; i++) {
        const weft_event *event = &program->events[i];
        weft_event_describe(text, sizeof text, event, job);
        fprintf(to, "%5d  %5d  %-*s", (int)i, (int)event->queue, has_slots(program, job, i) ? width : 0, text);
        if (placed) weft_event_slots_visit(program, job, i, print_slot, to);
        fputs(i == marked ? "  <== refused\n" : "\n", to);
    }
    if (marked == program->n_events) fprintf(to, "%5d  <== something is missing\n", (int)marked);
    if (placed)
        fprintf(to, "%lld bytes live at event %d, in an arena of %lld\n", (long long)program->peak,
                (int)program->peak_event, (long long)program->arena);
}

void weft_program_print(const weft_program *program, const weft_job_spec *job, FILE *to) {
    weft_program_print_marked(program, job, -1, to);
}
