/* layers.c: reads per-layer settings from config.json: layers with a sliding window, and layers without rotation. */
#include "reader.h"

#include <stdlib.h>

/* transformers reads only sliding_window, so the other key must not contradict it. */
static void judge_other_name(reader *r, int64_t window) {
    const json_t *other = reader_get(r, "sliding_window_size");
    char text[96];
    if (other == NULL || (json_is_integer(other) && json_integer_value(other) == window)) return;
    reader_complain(r,
                    "sliding_window_size is %s, and sliding_window, which has priority, is %lld. Fix: keep one of them",
                    reader_shown(other, text), (long long)window);
}

/* Returns the window of layers that have one; 0 without a window. */
static int64_t read_window(reader *r, const decoder_config *c) {
    const window_rule rule = c->family->windows;
    const int64_t absent = reader_says(r, "sliding_window") ? 0 : c->family->absent.window;
    const int asked = rule == WINDOW_LATE || rule == WINDOW_WITHOUT_ROPE;
    int64_t window = absent;
    if (rule == WINDOW_NOWHERE) return 0;
    if (reader_get(r, "sliding_window") != NULL) window = reader_size(r, "sliding_window", INT32_MAX, 0);
    if (c->family->id == GEMMA2) judge_other_name(r, window);
    return asked && !reader_flag(r, "use_sliding_window", 0) ? 0 : window;
}

/* Reads a list with at least one entry per layer: 1 with rotation, 0 without. */
static void read_no_rope_list(reader *r, decoder_config *c, json_t *list) {
    if (!json_is_array(list) || json_array_size(list) < (size_t)c->layers) {
        reader_refuse(r, "no_rope_layers", list, "null, or a list of 0 and 1 with one for each layer");
        return;
    }
    for (int64_t i = 0; i < c->layers; i++) {
        const json_t *one = json_array_get(list, (size_t)i);
        if (!json_is_integer(one) || json_integer_value(one) < 0 || json_integer_value(one) > 1)
            reader_refuse(r, "no_rope_layers", list, "null, or a list of 0 and 1 with one for each layer");
        c->layer[i].has_rope = json_integer_value(one) == 1;
    }
}

static void read_no_rope(reader *r, decoder_config *c) {
    json_t *list = reader_get(r, "no_rope_layers");
    const int64_t every = reader_size(r, "no_rope_layer_interval", MAX_COUNT, 4);
    for (int64_t i = 0; i < c->layers; i++) c->layer[i].has_rope = 1;
    if (c->family->windows != WINDOW_WITHOUT_ROPE) return;
    if (list != NULL) read_no_rope_list(r, c, list);
    else
        for (int64_t i = 0; i < c->layers; i++) c->layer[i].has_rope = (i + 1) % every != 0;
}

/* Used without layer_types. */
static int windowed_by_rule(const decoder_config *c, int64_t window, int64_t first, int64_t every, int64_t index) {
    switch (c->family->windows) {
    case WINDOW_NOWHERE: return 0;
    case WINDOW_EVERYWHERE: return window > 0;
    case WINDOW_LATE: return window > 0 && index >= first;
    case WINDOW_WITHOUT_ROPE: return window > 0 && !c->layer[index].has_rope;
    case WINDOW_ALTERNATES: return (index + 1) % every != 0;
    }
    return 0;
}

/* Returns 1 for a window, 0 for full attention, -1 for an unknown type. */
static int windowed_by_type(const json_t *type) {
    const char *name = json_string_value(type);
    if (name == NULL) return -1;
    return strcmp(name, "sliding_attention") == 0 ? 1 : strcmp(name, "full_attention") == 0 ? 0 : -1;
}

/* Settings in two keys must agree, because transformers reads each of them in some places. */
static void judge_type(reader *r, const decoder_config *c, const json_t *types, int64_t window, int said, int ruled) {
    const window_rule rule = c->family->windows;
    if (said < 0) reader_refuse(r, "layer_types", types, "a list of \"full_attention\" and \"sliding_attention\"");
    else if (said == 1 && rule == WINDOW_NOWHERE)
        reader_refuse(r, "layer_types", types, "only full_attention, because this family supports no window");
    else if (rule == WINDOW_EVERYWHERE && said != ruled)
        reader_refuse(r, "layer_types", types,
                      window > 0 ? "only sliding_attention, because sliding_window is for all layers"
                                 : "only full_attention, because sliding_window is not set");
    else if (said == 1 && window == 0)
        reader_refuse(r, "layer_types", types,
                      reader_get(r, "use_sliding_window") != NULL
                          ? "only full_attention, because use_sliding_window or sliding_window disables windows"
                          : "only full_attention, because sliding_window is not set");
}

static void read_windows(reader *r, decoder_config *c, int64_t window) {
    json_t *types = reader_get(r, "layer_types");
    const json_t *late = reader_get(r, "max_window_layers");
    const int64_t first = late == NULL ? 28 : json_integer_value(late);
    const int64_t every =
        reader_size(r, "sliding_window_pattern", MAX_COUNT, c->family->every > 0 ? c->family->every : 1);
    if (types != NULL && (!json_is_array(types) || json_array_size(types) != (size_t)c->layers)) {
        reader_refuse(r, "layer_types", types, "a list with one type for each of num_hidden_layers");
        return;
    }
    for (int64_t i = 0; i < c->layers; i++) {
        const int ruled = windowed_by_rule(c, window, first, every, i);
        const int said = types == NULL ? ruled : windowed_by_type(json_array_get(types, (size_t)i));
        if (types != NULL) judge_type(r, c, types, window, said, ruled);
        if (types == NULL && said == 1 && window == 0)
            reader_complain(r, "sliding_window is null. Allowed: an integer from 1, because layer %lld uses it",
                            (long long)i);
        c->layer[i].window = said == 1 ? window : 0;
        c->layer[i].local = said == 1 && (c->family->traits & LOCAL_ROPE) != 0;
        c->has_local |= c->layer[i].local;
    }
}

static void judge_first(reader *r, const decoder_config *c) {
    const json_t *value = reader_get(r, "max_window_layers");
    if (c->family->windows == WINDOW_LATE && value != NULL &&
        (!json_is_integer(value) || json_integer_value(value) < 0))
        reader_refuse(r, "max_window_layers", value, "an integer from 0");
}

void layers_read(reader *r, decoder_config *c) {
    const int64_t window = read_window(r, c);
    if (r->status != WEFT_OK) return;
    c->layer = calloc((size_t)c->layers, sizeof *c->layer);
    if (c->layer == NULL) {
        r->status = weft_error_set(r->err, WEFT_E_MEMORY, "no memory for the model");
        return;
    }
    judge_first(r, c);
    read_no_rope(r, c);
    if (r->status == WEFT_OK) read_windows(r, c, window);
}
