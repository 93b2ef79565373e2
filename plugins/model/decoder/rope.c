/* rope.c: reads the rotary settings of config.json: rope_parameters of transformers 5, or rope_theta and rope_scaling
 * of transformers 4; one object for all layers or, in Gemma 3, one per layer type. */
#include "reader.h"

#include <stdlib.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    const char *name;
    rope_kind kind;
} kinds[] = {{"default", ROPE_PLAIN}, {"linear", ROPE_LINEAR}, {"dynamic", ROPE_DYNAMIC},
             {"yarn", ROPE_YARN},     {"llama3", ROPE_LLAMA3}, {"longrope", ROPE_LONG}};

/* Members of such an object, and the kinds that read them. */
static const struct {
    const char *name;
    uint32_t kinds;
} members[] = {
    {"rope_theta", ROPE_ANY},
    {"rope_type", ROPE_ANY},
    {"type", ROPE_ANY},
    {"partial_rotary_factor", ROPE_ANY},
    {"factor", ROPE_ANY & ~ROPE_PLAIN},
    {"original_max_position_embeddings", ROPE_YARN | ROPE_LLAMA3 | ROPE_LONG},
    {"attention_factor", ROPE_YARN | ROPE_LONG},
    {"beta_fast", ROPE_YARN},
    {"beta_slow", ROPE_YARN},
    {"mscale", ROPE_YARN},
    {"mscale_all_dim", ROPE_YARN},
    {"truncate", ROPE_YARN},
    {"low_freq_factor", ROPE_LLAMA3},
    {"high_freq_factor", ROPE_LLAMA3},
    {"short_factor", ROPE_LONG},
    {"long_factor", ROPE_LONG},
};

/* ---- one object ---- */

static rope_kind read_kind(reader *r, const family *of) {
    const char *key = reader_get(r, "rope_type") != NULL ? "rope_type" : "type";
    const json_t *value = reader_get(r, key);
    const char *name = json_string_value(value);
    if (value == NULL) return ROPE_PLAIN;
    if (name != NULL && of->traits & LONGROPE_ALONE) {
        if (strcmp(name, "longrope") == 0 || strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0) return ROPE_LONG;
        if (strcmp(name, "default") != 0) reader_refuse(r, key, value, "\"default\" or \"longrope\"");
        return ROPE_PLAIN;
    }
    for (size_t i = 0; name != NULL && i < LENGTH(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0) return kinds[i].kind;
    reader_refuse(r, key, value, "\"default\", \"linear\", \"dynamic\", \"yarn\", \"llama3\" or \"longrope\"");
    return ROPE_PLAIN;
}

static const char *kind_name(rope_kind kind) {
    for (size_t i = 0; i < LENGTH(kinds); i++)
        if (kinds[i].kind == kind) return kinds[i].name;
    return "default";
}

/* Rejects members that this kind does not read, because they may change the arithmetic. */
static void judge_members(reader *r, rope_kind kind) {
    const char *key = NULL;
    json_t *value = NULL;
    char text[96];
    json_object_foreach(r->root, key, value) {
        size_t i = 0;
        while (i < LENGTH(members) && strcmp(members[i].name, key) != 0) i++;
        if (json_is_null(value) || (i < LENGTH(members) && members[i].kinds & (uint32_t)kind)) continue;
        reader_complain(r,
                        "%s%s is %s, which rotary positions of the type \"%s\" do not read. Fix: remove it, or set the "
                        "type that does",
                        r->of, key, reader_shown(value, text), kind_name(kind));
    }
}

/* Reads a list of dim/2 numbers above 0. */
static double *read_list(reader *r, const char *key, int64_t n) {
    json_t *list = reader_need(r, key);
    double *out = NULL;
    char allowed[64];
    if (list == NULL) return NULL;
    (void)snprintf(allowed, sizeof allowed, "a list of %lld numbers above 0", (long long)n);
    if (!json_is_array(list) || json_array_size(list) != (size_t)n) reader_refuse(r, key, list, allowed);
    if (r->status != WEFT_OK) return NULL;
    out = calloc((size_t)n, sizeof *out);
    if (out == NULL) r->status = weft_error_set(r->err, WEFT_E_MEMORY, "no memory for the model");
    for (int64_t i = 0; i < n && r->status == WEFT_OK; i++) {
        const json_t *one = json_array_get(list, (size_t)i);
        if (!json_is_number(one) || !(json_number_value(one) > 0)) reader_refuse(r, key, list, allowed);
        out[i] = json_number_value(one);
    }
    return out;
}

/* Reads a required number above 0. */
static double need_number(reader *r, const char *key) {
    (void)reader_need(r, key);
    return reader_number(r, key, 0, 0, 1);
}

static void read_llama3(reader *r, decoder_rope *rope) {
    rope->low = need_number(r, "low_freq_factor");
    rope->high = need_number(r, "high_freq_factor");
    if (rope->high <= rope->low)
        reader_complain(r, "%shigh_freq_factor is %g and low_freq_factor %g; the first one must be the larger one",
                        r->of, rope->high, rope->low);
}

/* Reads `factor` if the kind has one. For longrope and yarn its default is the ratio of the two contexts. */
static void read_factor(reader *r, decoder_rope *rope) {
    const double ratio = (double)rope->context / (double)rope->original;
    rope->factor = 1;
    if (rope->kind == ROPE_PLAIN) return;
    if (rope->kind == ROPE_YARN || rope->kind == ROPE_LONG) rope->factor = reader_number(r, "factor", 0, 0, ratio);
    else rope->factor = need_number(r, "factor");
}

static void read_own(reader *r, decoder_rope *rope) {
    read_factor(r, rope);
    if (rope->kind == ROPE_YARN || rope->kind == ROPE_LONG)
        rope->attention_factor = reader_number(r, "attention_factor", 0, 0, 0);
    if (rope->kind == ROPE_LLAMA3) read_llama3(r, rope);
    if (rope->kind == ROPE_YARN) {
        rope->beta_fast = reader_number(r, "beta_fast", 0, 0, 32);
        rope->beta_slow = reader_number(r, "beta_slow", 0, 0, 1);
        rope->mscale = reader_number(r, "mscale", 0, 1, 0);
        rope->mscale_all_dim = reader_number(r, "mscale_all_dim", 0, 1, 0);
        rope->truncate = reader_flag(r, "truncate", 1);
    }
    if (rope->kind == ROPE_LONG) {
        rope->short_factor = read_list(r, "short_factor", rope->dim / 2);
        rope->long_factor = read_list(r, "long_factor", rope->dim / 2);
    }
}

/* ---- locations in the file ---- */

/* Returns a value that may be inside the object, outside of it, or both if equal; else `absent`. */
static double said_once(reader *r, const char *key, double inside, double outside, double absent) {
    if (inside != 0 && outside != 0 && inside != outside)
        reader_complain(r, "%s is set two times, to %.17g and to %.17g. Fix: keep the right one", key, inside, outside);
    return inside != 0 ? inside : outside != 0 ? outside : absent;
}

/* Returns the number of rotated elements: a complete head, or in some families its first elements. */
static int64_t read_turned(reader *r, const decoder_config *c, double inside, double outside) {
    const double part = said_once(r, "partial_rotary_factor", inside, outside, 1);
    const int64_t dim = (int64_t)((double)c->head_dim * part);
    const char *of = inside != 0 ? r->of : "";
    if (part != 1 && !(c->family->traits & PARTIAL_ROPE))
        reader_complain(r, "%spartial_rotary_factor is %g; allowed is 1", of, part);
    if (dim < 2 || dim % 2 != 0 || dim > c->head_dim)
        reader_complain(r,
                        "%spartial_rotary_factor is %g. Allowed: a value that rotates an even number of the %lld "
                        "elements of a head",
                        of, part, (long long)c->head_dim);
    return dim;
}

/* Values outside of the object that belong to it. */
typedef struct around {
    double theta, part; /* 0: not set */
    double absent;      /* default of theta */
} around;

static void read_object(reader *r, decoder_config *c, decoder_rope *rope, const char *name, json_t *object,
                        const around *outside) {
    const int64_t original = c->family->absent.original_context;
    char of[96];
    reader inner = {r->path, object, of, r->err, r->status};
    const int64_t beside = reader_size(r, "original_max_position_embeddings", INT32_MAX, original > 0 ? original : -1);
    (void)snprintf(of, sizeof of, "%s.", name);
    if (object != NULL && !json_is_object(object))
        reader_refuse(r, name, object, "null or {\"rope_type\": \"default\", \"rope_theta\": ...}");
    if (r->status != WEFT_OK) return;
    rope->kind = read_kind(&inner, c->family);
    judge_members(&inner, rope->kind);
    rope->theta =
        said_once(&inner, "rope_theta", reader_number(&inner, "rope_theta", 0, 0, 0), outside->theta, outside->absent);
    rope->dim = read_turned(&inner, c, reader_number(&inner, "partial_rotary_factor", 0, 0, 0), outside->part);
    rope->context = c->context;
    rope->original = reader_size(&inner, "original_max_position_embeddings", INT32_MAX, c->context);
    if (beside > 0) rope->original = beside; /* the same preference as in transformers */
    if (inner.status == WEFT_OK) read_own(&inner, rope);
    r->status = inner.status;
}

/* Removes values that the other spelling has outside of its object, and uses the newer key of the type. */
static json_t *without_outer(const json_t *object, const json_t *other) {
    static const char *const outer[] = {"rope_theta", "partial_rotary_factor", "original_max_position_embeddings"};
    json_t *out = json_copy((json_t *)(uintptr_t)object);
    for (size_t i = 0; i < LENGTH(outer); i++)
        if (json_object_get(other, outer[i]) == NULL) (void)json_object_del(out, outer[i]);
    if (json_object_get(out, "rope_type") == NULL && json_object_get(out, "type") != NULL)
        (void)json_object_set(out, "rope_type", json_object_get(out, "type"));
    (void)json_object_del(out, "type");
    return out;
}

/* True if both spellings are equal, as in a file that both releases of transformers can read. */
static int is_said_twice(const json_t *newer, const json_t *older) {
    json_t *a = without_outer(newer, older), *b = without_outer(older, newer);
    const int same = json_equal(a, b);
    json_decref(a);
    json_decref(b);
    return same;
}

/* Returns the single object, in the newer or the older spelling. */
static json_t *find_object(reader *r, const char **name) {
    json_t *newer = reader_get(r, "rope_parameters"), *older = reader_get(r, "rope_scaling");
    const int both = newer != NULL && older != NULL;
    *name = newer != NULL ? "rope_parameters" : "rope_scaling";
    if (both && !(json_is_object(newer) && json_is_object(older) && is_said_twice(newer, older)))
        reader_complain(r, "rope_parameters and rope_scaling are both set and differ. Fix: keep the right one");
    return newer != NULL ? newer : older;
}

/* Gemma 3: rope_parameters contains one object per layer type. In the older spelling rope_scaling applies to layers
 * without a window, and rope_local_base_freq is the base of the others. */
static void read_pair(reader *r, decoder_config *c, const around *outside) {
    static const char *const sorts[2] = {"full_attention", "sliding_attention"};
    json_t *pair = reader_get(r, "rope_parameters"), *scaling = reader_get(r, "rope_scaling"), *value = NULL;
    const around local = {reader_number(r, "rope_local_base_freq", 0, 0, 0), outside->part, 1e4};
    const char *key = NULL;
    char text[96];
    if (pair != NULL && !json_is_object(pair)) {
        reader_refuse(r, "rope_parameters", pair, "null or {\"full_attention\": {...}, \"sliding_attention\": {...}}");
        return;
    }
    json_object_foreach(pair, key, value) {
        if (strcmp(key, sorts[0]) != 0 && strcmp(key, sorts[1]) != 0)
            reader_complain(
                r, "rope_parameters.%s is %s; allowed are full_attention and sliding_attention, an object each", key,
                reader_shown(value, text));
    }
    value = json_object_get(pair, sorts[0]);
    if (scaling != NULL && value != NULL && !(json_is_object(value) && is_said_twice(value, scaling)))
        reader_complain(
            r, "rope_scaling and rope_parameters.full_attention are both set and differ. Fix: keep the right one");
    if (scaling != NULL && value == NULL) read_object(r, c, &c->rope, "rope_scaling", scaling, outside);
    else read_object(r, c, &c->rope, "rope_parameters.full_attention", json_is_null(value) ? NULL : value, outside);
    value = json_object_get(pair, sorts[1]);
    read_object(r, c, &c->local, "rope_parameters.sliding_attention", json_is_null(value) ? NULL : value, &local);
}

void rope_read(reader *r, decoder_config *c) {
    const around outside = {reader_number(r, "rope_theta", 0, 0, 0), reader_number(r, "partial_rotary_factor", 0, 0, 0),
                            c->family->absent.theta};
    const char *name = NULL;
    json_t *object = NULL;
    if (c->family->traits & LOCAL_ROPE) {
        read_pair(r, c, &outside);
        return;
    }
    object = find_object(r, &name);
    read_object(r, c, &c->rope, name, object, &outside);
}
