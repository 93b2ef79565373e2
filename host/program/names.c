/* host/program/names.c: words for instructions, slots and categories. */
#include "program/job.h"

#include "base/words.h"

static const char *const kinds[] = {
    [WEFT_INSTRUCTION_COUNT] = "COUNT",         [WEFT_INSTRUCTION_GATHER] = "GATHER",
    [WEFT_INSTRUCTION_RELEASE] = "RELEASE",     [WEFT_INSTRUCTION_FORWARD] = "FORWARD",
    [WEFT_INSTRUCTION_RECOMPUTE] = "RECOMPUTE", [WEFT_INSTRUCTION_BACKWARD] = "BACKWARD",
    [WEFT_INSTRUCTION_REDUCE] = "REDUCE",       [WEFT_INSTRUCTION_SEND] = "SEND",
    [WEFT_INSTRUCTION_RECV] = "RECV",           [WEFT_INSTRUCTION_WAIT] = "WAIT",
    [WEFT_INSTRUCTION_NORM] = "NORM",           [WEFT_INSTRUCTION_STEP] = "STEP",
    [WEFT_INSTRUCTION_REFRESH] = "REFRESH",
};

const char *weft_instruction_kind_name(int32_t kind) {
    if (kind < WEFT_INSTRUCTION_COUNT || kind > WEFT_INSTRUCTION_REFRESH) return "?";
    return kinds[kind];
}

const char *weft_mode_name(int32_t mode) {
    static const char *const modes[] = {"training", "evaluation", "generation"};
    return mode >= WEFT_MODE_TRAIN && mode <= WEFT_MODE_GENERATE ? modes[mode] : "?";
}

const char *weft_memory_category_name(int32_t category) {
    static const char *const names[WEFT_N_MEMORY_CATEGORIES] = {"parameters",  "gradients", "optimizer",
                                                                "activations", "workspace", "data"};
    return category >= 0 && category < WEFT_N_MEMORY_CATEGORIES ? names[category] : "?";
}

static const char *const whats[] = {"?", "parameters", "sum", "carry", "carry gradient", "micro-batch gradient"};
static const char *const scopes[] = {"?", "rank", "all", "node", "across"};

const char *weft_what_name(int32_t what) {
    return what >= WEFT_PAYLOAD_PARAMETERS && what <= WEFT_PAYLOAD_MICRO_BATCH_GRADIENT ? whats[what] : whats[0];
}

const char *weft_scope_name(int32_t scope) {
    return scope >= WEFT_SCOPE_RANK && scope <= WEFT_SCOPE_ACROSS ? scopes[scope] : scopes[0];
}

/* Instructions come from plugins: an index may be anything. */
void weft_instruction_describe(char *text, size_t size, const weft_instruction *instruction, const weft_job_spec *job) {
    if (size == 0) return;
    text[0] = '\0';
    if (instruction->kind < WEFT_INSTRUCTION_COUNT || instruction->kind > WEFT_INSTRUCTION_REFRESH)
        weft_words_append(text, size, "instruction of unknown kind %d", (int)instruction->kind);
    else weft_words_append(text, size, "%s", kinds[instruction->kind]);
    if (job != NULL && instruction->segment >= 0 && instruction->segment < job->view.n_segments)
        weft_words_append(text, size, " %s", job->view.segments[instruction->segment].name);
    else if (instruction->segment != -1) weft_words_append(text, size, " segment %d", (int)instruction->segment);
    if (job != NULL && instruction->unit >= 0 && instruction->unit < job->view.n_units)
        weft_words_append(text, size, " %s", job->view.units[instruction->unit].name);
    else if (instruction->unit != -1) weft_words_append(text, size, " unit %d", (int)instruction->unit);
    if (instruction->what != -1) weft_words_append(text, size, " %s", weft_what_name(instruction->what));
    if (instruction->scope != -1) weft_words_append(text, size, " %s", weft_scope_name(instruction->scope));
    if (instruction->micro_batch != -1) weft_words_append(text, size, " micro-batch %d", (int)instruction->micro_batch);
    if (instruction->peer != -1) weft_words_append(text, size, " peer %d", (int)instruction->peer);
    if (instruction->waits != -1) weft_words_append(text, size, " for instruction %d", (int)instruction->waits);
}
