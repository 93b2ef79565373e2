/* host/model/config_spelling.c: see config_spelling.h. */
#include "model/config_spelling.h"

#include "base/text.h"
#include "model/config_json.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct additions {
    weft_json_change items[WEFT_JSON_CHANGES];
    char *texts[WEFT_JSON_CHANGES];
    size_t n;
    bool failed; /* out of memory */
} additions;

/* Adds a key unless the file has a value for it. null counts as absent: transformers 4 writes it after reading a file
 * of transformers 5. */
static void add_key(additions *self, const json_t *root, const char *key, const json_t *value) {
    const json_t *there = json_object_get(root, key);
    char *text = NULL;
    if (value == NULL || (there != NULL && !json_is_null(there))) return;
    text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    self->failed = self->failed || text == NULL;
    if (text == NULL) return;
    self->texts[self->n] = text;
    self->items[self->n].key = key;
    self->items[self->n++].value = text;
}

static const char *type_of(const json_t *rope) {
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    return type != NULL ? type : json_string_value(json_object_get(rope, "type"));
}

/* True if a longrope scaling can be reduced to the three members that transformers 4 requires for Phi-3, without losing
 * information. */
static bool is_three(const json_t *root, const json_t *scaling) {
    const json_t *original = json_object_get(scaling, "original_max_position_embeddings");
    const bool newer = json_object_get(scaling, "rope_type") != NULL, older = json_object_get(scaling, "type") != NULL;
    if (original != NULL && !json_equal(original, json_object_get(root, "original_max_position_embeddings")))
        return false;
    return json_object_size(scaling) == 2u + newer + older + (original != NULL) &&
           json_object_get(scaling, "short_factor") != NULL && json_object_get(scaling, "long_factor") != NULL;
}

/* Reconstructs rope_scaling of transformers 4; NULL for unscaled positions. */
static json_t *make_scaling(const json_t *root, const json_t *rope) {
    const char *type = type_of(rope);
    json_t *scaling = NULL;
    if (type == NULL || strcmp(type, "default") == 0) return NULL;
    scaling = json_copy((json_t *)(uintptr_t)rope);
    (void)json_object_del(scaling, "rope_theta");
    (void)json_object_del(scaling, "partial_rotary_factor");
    if (strcmp(type, "longrope") != 0 || !is_three(root, scaling)) return scaling;
    (void)json_object_set_new(scaling, "type", json_string("longrope"));
    (void)json_object_del(scaling, "rope_type");
    (void)json_object_del(scaling, "original_max_position_embeddings");
    return scaling;
}

static void add_rope(additions *self, const json_t *root) {
    const json_t *rope = json_object_get(root, "rope_parameters");
    const json_t *full = json_object_get(rope, "full_attention"), *sliding = json_object_get(rope, "sliding_attention");
    json_t *scaling = NULL;
    if (full != NULL) rope = full;
    scaling = make_scaling(root, rope);
    add_key(self, root, "rope_theta", json_object_get(rope, "rope_theta"));
    add_key(self, root, "partial_rotary_factor", json_object_get(rope, "partial_rotary_factor"));
    add_key(self, root, "rope_scaling", scaling);
    add_key(self, root, "rope_local_base_freq", json_object_get(sliding, "rope_theta"));
    json_decref(scaling);
}

char *weft_config_json_spelled(const char *text, size_t bytes, size_t *out_bytes) {
    json_t *root = NULL;
    const json_t *newer = NULL, *older = NULL;
    additions added = {.n = 0};
    char *out = NULL;
    (void)weft_json_parse(&root, text, bytes, 0, "", NULL);
    newer = json_object_get(root, "dtype");
    older = json_object_get(root, "torch_dtype");
    if (json_is_string(newer)) add_key(&added, root, "torch_dtype", newer);
    if (json_is_string(older)) add_key(&added, root, "dtype", older);
    if (json_is_object(json_object_get(root, "rope_parameters"))) add_rope(&added, root);
    if (!added.failed) out = weft_config_json_change(text, bytes, added.items, added.n, out_bytes);
    for (size_t i = 0; i < added.n; i++) free(added.texts[i]);
    json_decref(root);
    return out;
}
