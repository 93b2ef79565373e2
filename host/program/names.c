/* host/program/names.c: words for events, slots and categories. */
#include "program/job.h"

#include "base/words.h"

static const char *const kinds[] = {
    [WEFT_EVENT_COUNT] = "COUNT",     [WEFT_EVENT_GATHER] = "GATHER",       [WEFT_EVENT_RELEASE] = "RELEASE",
    [WEFT_EVENT_FORWARD] = "FORWARD", [WEFT_EVENT_RECOMPUTE] = "RECOMPUTE", [WEFT_EVENT_BACKWARD] = "BACKWARD",
    [WEFT_EVENT_REDUCE] = "REDUCE",   [WEFT_EVENT_SEND] = "SEND",           [WEFT_EVENT_RECV] = "RECV",
    [WEFT_EVENT_WAIT] = "WAIT",       [WEFT_EVENT_NORM] = "NORM",           [WEFT_EVENT_STEP] = "STEP",
    [WEFT_EVENT_REFRESH] = "REFRESH",
};

const char *weft_event_kind_name(int32_t kind) {
    if (kind < WEFT_EVENT_COUNT || kind > WEFT_EVENT_REFRESH) return "?";
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

static const char *const whats[] = {"?", "parameters", "sum", "carry", "carry gradient", "leaf gradient"};
static const char *const scopes[] = {"?", "rank", "all", "node", "across"};

const char *weft_what_name(int32_t what) {
    return what >= WEFT_WHAT_PARAMETERS && what <= WEFT_WHAT_LEAF_GRADIENT ? whats[what] : whats[0];
}

const char *weft_scope_name(int32_t scope) {
    return scope >= WEFT_SCOPE_RANK && scope <= WEFT_SCOPE_ACROSS ? scopes[scope] : scopes[0];
}

/* Events come from plugins: an index may be anything. */
void weft_event_describe(char *text, size_t size, const weft_event *event, const weft_job_spec *job) {
    if (size == 0) return;
    text[0] = '\0';
    if (event->kind < WEFT_EVENT_COUNT || event->kind > WEFT_EVENT_REFRESH)
        weft_words_append(text, size, "event of unknown kind %d", (int)event->kind);
    else weft_words_append(text, size, "%s", kinds[event->kind]);
    if (job != NULL && event->segment >= 0 && event->segment < job->view.n_segments)
        weft_words_append(text, size, " %s", job->view.segments[event->segment].name);
    else if (event->segment != -1) weft_words_append(text, size, " segment %d", (int)event->segment);
    if (job != NULL && event->unit >= 0 && event->unit < job->view.n_units)
        weft_words_append(text, size, " %s", job->view.units[event->unit].name);
    else if (event->unit != -1) weft_words_append(text, size, " unit %d", (int)event->unit);
    if (event->what != -1) weft_words_append(text, size, " %s", weft_what_name(event->what));
    if (event->scope != -1) weft_words_append(text, size, " %s", weft_scope_name(event->scope));
    if (event->leaf != -1) weft_words_append(text, size, " leaf %d", (int)event->leaf);
    if (event->peer != -1) weft_words_append(text, size, " peer %d", (int)event->peer);
    if (event->waits != -1) weft_words_append(text, size, " for event %d", (int)event->waits);
}
