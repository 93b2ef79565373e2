/* config.c: reads config.json in the spelling of transformers 4 and 5. A key either is understood here, or is known to
 * leave the numbers as they are, or stops the run with its name: a model that is computed almost right is worse than
 * none. */
#include "llama.h"

#include <jansson.h>
#include <stdlib.h>

enum { MAX_SIZE = 1 << 24, MAX_COUNT = 1 << 16 };

/* Mistakes are sticky: the getters below do nothing after the first. */
typedef struct reader {
    const char *path;
    json_t *root;
    weft_error *err;
    weft_status status;
} reader;

/* "a,b,c" holds key. */
static int ignored(const char *list, const char *key) {
    const size_t n = strlen(key);
    while (list != NULL && *list != '\0') {
        const size_t item = strcspn(list, ",");
        if (item == n && strncmp(list, key, n) == 0) return 1;
        list += item + (list[item] == ',');
    }
    return 0;
}

/* null, false, 0, "", [] or {}. */
static int is_off(const json_t *value) {
    if (json_is_number(value)) return json_number_value(value) == 0;
    if (json_is_string(value)) return json_string_length(value) == 0;
    if (json_is_object(value)) return json_object_size(value) == 0;
    if (json_is_array(value)) return json_array_size(value) == 0;
    return !json_is_true(value);
}

/* ---- messages ---- */

/* The value as JSON, cut to what a sentence bears. */
static const char *shown(const json_t *value, char text[96]) {
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(12));
    (void)snprintf(text, 96, "%.80s%s", dump == NULL ? "?" : dump, dump != NULL && strlen(dump) > 80 ? "..." : "");
    free(dump);
    return text;
}

/* "FILE: what is wrong, what is allowed"; the first one stays. */
static void complain(reader *r, const char *format, ...) WEFT_PRINTF(2, 3);
static void complain(reader *r, const char *format, ...) {
    char text[1024];
    va_list args;
    if (r->status != WEFT_OK) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = weft_error_set(r->err, WEFT_E_USER, "%s: %s", r->path, text);
}

static void refuse(reader *r, const char *key, const json_t *value, const char *allowed) {
    char text[96];
    complain(r, "%s is %s; allowed is %s", key, shown(value, text), allowed);
}

/* ---- getters ---- */

/* NULL: absent or null. */
static json_t *get(const reader *r, const char *key) {
    json_t *value = json_object_get(r->root, key);
    return json_is_null(value) ? NULL : value;
}

static json_t *get_required(reader *r, const char *key) {
    json_t *value = get(r, key);
    if (value == NULL) complain(r, "%s is missing; a LLaMA needs it", key);
    return value;
}

/* fallback 0: the key must be there. */
static int64_t get_size(reader *r, const char *key, int64_t max, int64_t fallback) {
    json_t *value = fallback == 0 ? get_required(r, key) : get(r, key);
    char allowed[64];
    if (value == NULL) return fallback;
    if (json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= max)
        return json_integer_value(value);
    (void)snprintf(allowed, sizeof allowed, "a whole number from 1 to %lld", (long long)max);
    refuse(r, key, value, allowed);
    return fallback;
}

/* min itself is allowed if `closed`. */
static double get_number(reader *r, const char *key, double min, int closed, double fallback) {
    json_t *value = get(r, key);
    char allowed[64];
    double number = 0;
    if (value == NULL) return fallback;
    number = json_number_value(value);
    if (json_is_number(value) && (closed ? number >= min : number > min)) return number;
    (void)snprintf(allowed, sizeof allowed, "a number %s %g", closed ? "from" : "above", min);
    refuse(r, key, value, allowed);
    return fallback;
}

static int get_flag(reader *r, const char *key) {
    json_t *value = get(r, key);
    if (value != NULL && !json_is_boolean(value)) refuse(r, key, value, "true or false");
    return json_is_true(value);
}

/* A token: an id, a list of ids of which the first counts, null, or a negative number, which both mean none. */
static int32_t get_token(reader *r, const char *key, int64_t vocab) {
    json_t *value = get(r, key), *one = value;
    char allowed[96];
    if (json_is_array(value)) one = json_array_get(value, 0);
    if (one == NULL) return -1;
    if (json_is_integer(one) && json_integer_value(one) < vocab)
        return json_integer_value(one) < 0 ? -1 : (int32_t)json_integer_value(one);
    (void)snprintf(allowed, sizeof allowed, "an id below vocab_size %lld, a list of such, or null", (long long)vocab);
    refuse(r, key, value, allowed);
    return -1;
}

/* ---- the parts ---- */

/* transformers makes the embedding with padding_idx = pad_token_id, and torch counts a negative one from the end. */
static void read_pad(reader *r, llama_config *c) {
    json_t *value = get(r, "pad_token_id");
    const int64_t id = json_integer_value(value), row = id < 0 ? c->vocab + id : id;
    char allowed[128];
    (void)snprintf(allowed, sizeof allowed, "null, or a row of the embedding, from %lld to %lld", -(long long)c->vocab,
                   (long long)c->vocab - 1);
    if (value == NULL) return;
    if (!json_is_integer(value) || row < 0 || row >= c->vocab) refuse(r, "pad_token_id", value, allowed);
    c->has_pad = r->status == WEFT_OK;
    c->pad = (int32_t)row;
}

static void read_kind(reader *r) {
    const json_t *type = get_required(r, "model_type"), *architectures = get(r, "architectures");
    if (type != NULL && (!json_is_string(type) || strcmp(json_string_value(type), "llama") != 0))
        refuse(r, "model_type", type, "\"llama\"; other families need a plugin of their own");
    for (size_t i = 0; i < json_array_size(architectures); i++) {
        const char *name = json_string_value(json_array_get(architectures, i));
        if (name != NULL && (strcmp(name, "LlamaForCausalLM") == 0 || strcmp(name, "LLaMAForCausalLM") == 0)) return;
    }
    if (architectures != NULL) refuse(r, "architectures", architectures, "[\"LlamaForCausalLM\"]");
}

static void read_sizes(reader *r, llama_config *c) {
    const int own_head_dim = get(r, "head_dim") != NULL;
    c->vocab = get_size(r, "vocab_size", INT32_MAX, 0);
    c->width = get_size(r, "hidden_size", MAX_SIZE, 0);
    c->mlp = get_size(r, "intermediate_size", MAX_SIZE, 0);
    c->layers = get_size(r, "num_hidden_layers", MAX_COUNT, 0);
    c->heads = get_size(r, "num_attention_heads", MAX_COUNT, 0);
    c->context = get_size(r, "max_position_embeddings", INT32_MAX, 2048);
    (void)get_size(r, "pretraining_tp", MAX_COUNT, 1); /* the same sums in another order */
    if (r->status != WEFT_OK) return;
    c->kv_heads = get_size(r, "num_key_value_heads", MAX_COUNT, c->heads);
    if (!own_head_dim && c->width % c->heads != 0)
        complain(r,
                 "hidden_size %lld is no multiple of num_attention_heads %lld; change one of them, or give a head_dim",
                 (long long)c->width, (long long)c->heads);
    c->head_dim = own_head_dim ? get_size(r, "head_dim", MAX_COUNT, 0) : c->width / c->heads;
    if (c->heads % c->kv_heads != 0)
        complain(
            r,
            "num_attention_heads %lld is no multiple of num_key_value_heads %lld; each key-value head serves as many "
            "query heads",
            (long long)c->heads, (long long)c->kv_heads);
    if (c->head_dim % 2 != 0)
        complain(r, "head_dim %lld%s is odd; rotary positions turn pairs, so it must be even", (long long)c->head_dim,
                 own_head_dim ? "" : " (hidden_size over num_attention_heads)");
}

static void read_activation(reader *r) {
    json_t *value = get(r, "hidden_act");
    const char *name = json_string_value(value);
    if (value != NULL && (name == NULL || (strcmp(name, "silu") != 0 && strcmp(name, "swish") != 0)))
        refuse(r, "hidden_act", value, "\"silu\"");
}

/* What the files hold; they say it themselves, too, so this changes nothing but must be a type that is read. */
static void read_dtype(reader *r, const char *key) {
    static const char *const known[] = {"float32", "bfloat16", "float16", "auto"};
    json_t *value = get(r, key);
    const char *name = json_string_value(value);
    int good = value == NULL;
    if (name != NULL && strncmp(name, "torch.", 6) == 0) name += 6;
    for (size_t i = 0; name != NULL && i < sizeof known / sizeof known[0]; i++) good |= strcmp(known[i], name) == 0;
    if (!good) refuse(r, key, value, "\"float32\", \"bfloat16\" or \"float16\"");
}

static void read_layer_types(reader *r) {
    json_t *value = get(r, "layer_types");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *type = json_string_value(json_array_get(value, i));
        if (type == NULL || strcmp(type, "full_attention") != 0)
            refuse(r, "layer_types", value, "full_attention alone");
    }
    if (value != NULL && !json_is_array(value)) refuse(r, "layer_types", value, "a list of \"full_attention\"");
}

/* A value of rope_parameters or rope_scaling, which only name the plain rotation here. */
static void read_rope_member(reader *r, const char *object, const char *key, const json_t *value) {
    char name[128], text[96];
    const char *type = json_string_value(value);
    (void)snprintf(name, sizeof name, "%s.%s", object, key);
    if (json_is_null(value) || strcmp(key, "rope_theta") == 0) return;
    if (strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0) {
        if (type == NULL || strcmp(type, "default") != 0)
            refuse(r, name, value, "\"default\": no scaling of rotary positions is supported");
    } else if (strcmp(key, "partial_rotary_factor") == 0) {
        if (!json_is_number(value) || json_number_value(value) != 1) refuse(r, name, value, "1");
    } else {
        complain(r,
                 "%s is %s, which plain rotary positions do not have; allowed are rope_theta and rope_type \"default\"",
                 name, shown(value, text));
    }
}

/* The base that an object names, or else 0. */
static double read_rope_object(reader *r, const char *object) {
    json_t *value = get(r, object), *theta = NULL, *member = NULL;
    const char *key = NULL;
    char name[64];
    if (value == NULL) return 0;
    if (!json_is_object(value)) refuse(r, object, value, "null or {\"rope_type\": \"default\", \"rope_theta\": ...}");
    /* The type first: it is the reason for whatever else stands there. */
    if (json_object_get(value, "rope_type") != NULL)
        read_rope_member(r, object, "rope_type", json_object_get(value, "rope_type"));
    if (json_object_get(value, "type") != NULL) read_rope_member(r, object, "type", json_object_get(value, "type"));
    json_object_foreach(value, key, member) read_rope_member(r, object, key, member);
    theta = json_object_get(value, "rope_theta");
    if (theta == NULL || json_is_null(theta)) return 0;
    (void)snprintf(name, sizeof name, "%s.rope_theta", object);
    if (!json_is_number(theta) || !(json_number_value(theta) > 0)) refuse(r, name, theta, "a number above 0");
    return json_number_value(theta);
}

static void read_rope(reader *r, llama_config *c) {
    const json_t *partial = get(r, "partial_rotary_factor");
    const double thetas[3] = {read_rope_object(r, "rope_parameters"), read_rope_object(r, "rope_scaling"),
                              get_number(r, "rope_theta", 0, 0, 0)};
    if (partial != NULL && (!json_is_number(partial) || json_number_value(partial) != 1))
        refuse(r, "partial_rotary_factor", partial, "1");
    c->theta = 0;
    for (int i = 0; i < 3; i++) {
        if (thetas[i] == 0) continue;
        if (c->theta != 0 && thetas[i] != c->theta)
            complain(r, "rope_theta is said twice, as %.17g and as %.17g; keep the right one", c->theta, thetas[i]);
        c->theta = thetas[i];
    }
    if (c->theta == 0) c->theta = 10000; /* where nothing is said, as in transformers */
}

/* Keys that are not understood: harmless, off, or refused. */
static void read_rest(reader *r, const char *ignore) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(r->root, key, value) {
        const char *allowed = NULL;
        const llama_key known = llama_key_find(&allowed, key);
        if (r->status != WEFT_OK) return;
        if (known == LLAMA_KEY_OFF && !is_off(value)) refuse(r, key, value, allowed);
        if (known == LLAMA_KEY_UNKNOWN && !json_is_null(value) && !ignored(ignore, key)) {
            char text[96];
            complain(
                r,
                "the key %s (%s) is not known, so it may change the arithmetic; where it changes nothing, say so with "
                "[model] ignore = %s",
                key, shown(value, text), key);
        }
    }
}

static void read_all(reader *r, llama_config *c, const char *ignore) {
    read_kind(r);
    read_rest(r, ignore);
    read_sizes(r, c);
    read_activation(r);
    read_layer_types(r);
    read_rope(r, c);
    read_dtype(r, "torch_dtype");
    read_dtype(r, "dtype");
    c->eps = get_number(r, "rms_norm_eps", 0, 0, 1e-6);
    c->init_std = get_number(r, "initializer_range", 0, 1, 0.02);
    c->tied = get_flag(r, "tie_word_embeddings");
    if (r->status != WEFT_OK) return;
    c->bos = get_token(r, "bos_token_id", c->vocab);
    c->eos = get_token(r, "eos_token_id", c->vocab);
    read_pad(r, c);
}

weft_status llama_config_read(llama_config *out, const weft_model_source *source, const char *ignore, weft_error *err) {
    json_error_t at;
    json_t *root = json_loadb(source->config_text, (size_t)source->config_bytes, JSON_REJECT_DUPLICATES, &at);
    reader r = {source->config_path, root, err, WEFT_OK};
    llama_config config;
    memset(&config, 0, sizeof config);
    if (root == NULL)
        return weft_error_set(err, WEFT_E_DATA, "%s:%d: is not JSON: %s", source->config_path, at.line, at.text);
    if (!json_is_object(root))
        r.status = weft_error_set(err, WEFT_E_DATA, "%s: is not a JSON object of keys and values", source->config_path);
    else read_all(&r, &config, ignore);
    json_decref(root);
    if (r.status == WEFT_OK) *out = config;
    return r.status;
}
