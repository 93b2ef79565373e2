/* host/program/trace.c: the ring of instructions that happened, and the bytes that were alive, as used. */
#include "program/trace.h"

#include "base/place.h"

#include <stdlib.h>

weft_status weft_trace_create(weft_trace **out, int32_t capacity, weft_error *err) {
    weft_trace *trace = NULL;
    if (capacity < 1)
        return weft_error_set(err, WEFT_E_HOST, "a trace of %d entries holds nothing: at least 1 is needed",
                              (int)capacity);
    trace = calloc(1, sizeof *trace);
    if (trace != NULL) trace->ring = calloc((size_t)capacity, sizeof *trace->ring);
    if (trace == NULL || trace->ring == NULL) {
        free(trace);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a trace of %d entries", (int)capacity);
    }
    trace->capacity = capacity;
    trace->bad_slot = -1;
    *out = trace;
    return WEFT_OK;
}

void weft_trace_destroy(weft_trace *trace) {
    if (trace == NULL) return;
    free(trace->ring);
    free(trace->slots);
    free(trace);
}

int64_t weft_trace_high_water(const weft_trace *trace) {
    return trace->high_water;
}

int32_t weft_trace_count(const weft_trace *trace) {
    return trace->recorded < trace->capacity ? (int32_t)trace->recorded : trace->capacity;
}

const weft_trace_entry *weft_trace_entry_at(const weft_trace *trace, int32_t i) {
    const int32_t held = weft_trace_count(trace);
    if (i < 0 || i >= held) return NULL;
    return &trace->ring[(trace->recorded - held + i) % trace->capacity];
}

const weft_trace_slot *weft_trace_slot_at(const weft_trace *trace, int32_t slot) {
    return slot >= 0 && slot < trace->n_slots ? &trace->slots[slot] : NULL;
}

weft_status weft_trace_begin(weft_trace *trace, const weft_program *program, weft_error *err) {
    const weft_trace_slot untouched = {0, -1, -1};
    if (program->n_slots > trace->slot_room) {
        weft_trace_slot *slots = realloc(trace->slots, (size_t)program->n_slots * sizeof *slots);
        if (slots == NULL)
            return weft_error_set(err, WEFT_E_MEMORY, "no memory to trace %d buffers", (int)program->n_slots);
        trace->slots = slots;
        trace->slot_room = program->n_slots;
    }
    for (int32_t i = 0; i < program->n_slots; i++) trace->slots[i] = untouched;
    trace->n_slots = program->n_slots;
    trace->live = 0;
    trace->program = program;
    trace->instruction = 0;
    trace->bad_slot = -1;
    return WEFT_OK;
}

void weft_trace_end(weft_trace *trace) {
    trace->program = NULL;
}

/* A use that does not fit is kept for the executor, which ends the pass when the instruction returns. */
void weft_trace_use(weft_trace *trace, int32_t slot, int64_t bytes) {
    const weft_slot *planned = NULL;
    weft_trace_slot *used = NULL;
    const int64_t lines = weft_place_round(bytes);
    if (slot == -1 || trace->program == NULL) return;
    planned = slot >= 0 && slot < trace->n_slots ? &trace->program->slots[slot] : NULL;
    if (planned == NULL || bytes < 0 || bytes > planned->bytes || trace->instruction < planned->first ||
        trace->instruction > planned->last) {
        if (trace->bad_slot == -1) {
            trace->bad_slot = slot;
            trace->bad_bytes = bytes;
        }
        return;
    }
    used = &trace->slots[slot];
    if (lines <= used->bytes) return;
    if (used->born < 0) used->born = trace->instruction;
    if (planned->offset >= 0) trace->live += lines - used->bytes; /* else it is the caller's own memory */
    used->bytes = lines;
    if (trace->live > trace->high_water) trace->high_water = trace->live;
}

void weft_trace_release(weft_trace *trace, int32_t slot) {
    weft_trace_slot *used = &trace->slots[slot];
    if (used->born < 0) return;
    used->died = trace->instruction;
    if (trace->program->slots[slot].offset >= 0) trace->live -= used->bytes;
}

void weft_trace_record(weft_trace *trace, uint64_t step, uint64_t start_ns, uint64_t end_ns) {
    const weft_instruction *instruction = &trace->program->instructions[trace->instruction];
    const weft_trace_entry entry = {start_ns,
                                    end_ns,
                                    trace->live,
                                    step,
                                    trace->instruction,
                                    instruction->kind,
                                    instruction->unit,
                                    instruction->segment,
                                    instruction->micro_batch,
                                    0};
    trace->ring[trace->recorded++ % trace->capacity] = entry;
}

/* Times count from the oldest entry that is held. */
void weft_trace_print(const weft_trace *trace, const weft_program *program, const weft_job_spec *job, FILE *to) {
    const int32_t held = weft_trace_count(trace);
    char text[256];
    fprintf(to, "    step  instruction    start ms  length ms            live  what\n");
    for (int32_t i = 0; i < held; i++) {
        const weft_trace_entry *entry = weft_trace_entry_at(trace, i);
        weft_instruction_describe(text, sizeof text, &program->instructions[entry->instruction], job);
        fprintf(to, "%8llu  %5d  %10.3f %10.3f  %14lld  %s\n", (unsigned long long)entry->step, (int)entry->instruction,
                (double)(entry->start_ns - weft_trace_entry_at(trace, 0)->start_ns) * 1e-6,
                (double)(entry->end_ns - entry->start_ns) * 1e-6, (long long)entry->live, text);
    }
    fprintf(to, "high water %lld bytes; this program was planned to reach %lld\n", (long long)trace->high_water,
            (long long)program->peak);
}
