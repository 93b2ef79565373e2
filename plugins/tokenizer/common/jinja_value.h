/* jinja_value.h: what a template computes with: Python's values, as far as templates meet them. */
#ifndef JINJA_VALUE_H
#define JINJA_VALUE_H

#include "jinja.h"
#include "jinja_arena.h"

typedef enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_NAMESPACE, /* a dict whose entries a template may set */
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_FUNCTION, /* a global one, by number */
    JINJA_METHOD,   /* of a value */
    JINJA_ITERATOR, /* a list that can be walked through once: what map, select and their kin give */
    JINJA_BIG,      /* an integer of more than 64 bits, as its digits: it can be printed and compared */
    JINJA_CYCLER,
    JINJA_JOINER
} jinja_kind;

/* Flags in `function`: of a string (what |safe has marked: + escapes other texts), of a list (a view of a dict or a
 * range: it has no JSON), of a tuple (a group of |groupby). */
enum { JINJA_SAFE = 1, JINJA_KEYS, JINJA_VALUES, JINJA_ITEMS, JINJA_RANGE, JINJA_GROUP };

/* UTF-8. marks: one per byte, NULL: all from the template. */
typedef struct jinja_text {
    const char *bytes;
    const uint32_t *marks;
    size_t n;
    size_t points;           /* characters + 1; 0: not counted yet */
    bool walked;             /* a loop went through its characters */
    bool matched;            /* it was equal to a text of the template in a comparison */
    const jinja_value *json; /* (optional) the object that the text is the JSON of; tojson writes it instead */
} jinja_text;

typedef struct jinja_dict jinja_dict;
typedef struct jinja_loop jinja_loop;
typedef struct jinja_macro jinja_macro;
typedef struct jinja_method jinja_method;

struct jinja_value {
    int32_t kind;
    int32_t function; /* of JINJA_FUNCTION its number, else a flag or 0 */
    union {
        int64_t i; /* JINJA_BOOL too */
        double f;
        jinja_text *text; /* of JINJA_UNDEFINED: what is missing, or NULL; of JINJA_BIG: the digits */
        jinja_list *list;
        jinja_dict *dict;
        jinja_loop *loop; /* of JINJA_CYCLER and JINJA_JOINER too */
        jinja_macro *macro;
        jinja_method *method;
    } as;
};

typedef struct jinja_range {
    int64_t bounds[3]; /* begin, end, step */
} jinja_range;

struct jinja_list {
    jinja_value *items;
    size_t n, capacity;
    jinja_range *range; /* of JINJA_RANGE */
};

typedef struct jinja_entry {
    jinja_value key, value;
    bool read; /* the value was looked up, or the whole object was read */
} jinja_entry;

struct jinja_dict { /* in the order of insertion */
    jinja_entry *entries;
    size_t n, capacity;
    uint32_t element; /* of jinja_set_objects: its number in the list, from 1; 0: another one */
};

struct jinja_method {
    jinja_value self;
    const char *name;
};

static inline jinja_value jinja_int(int64_t i) {
    return (jinja_value){.kind = JINJA_INT, .as = {.i = i}};
}
static inline jinja_value jinja_float(double f) {
    return (jinja_value){.kind = JINJA_FLOAT, .as = {.f = f}};
}
static inline jinja_value jinja_bool(bool b) {
    return (jinja_value){.kind = JINJA_BOOL, .as = {.i = b}};
}
/* digits: decimal, with a sign if negative; live as long as the arena. */
jinja_value jinja_integer(jinja_arena *arena, const char *digits, size_t n);
static inline jinja_value jinja_none(void) {
    return (jinja_value){.kind = JINJA_NONE};
}
static inline jinja_value jinja_string(jinja_text *text) {
    return (jinja_value){.kind = JINJA_STRING, .as = {.text = text}};
}
/* Its text in Python is its type and address. */
static inline bool jinja_is_opaque(const jinja_value *v) {
    return v->kind == JINJA_NAMESPACE || v->kind == JINJA_LOOP || v->kind == JINJA_MACRO || v->kind == JINJA_FUNCTION ||
           v->kind == JINJA_METHOD || v->kind == JINJA_CYCLER || v->kind == JINJA_JOINER;
}
static inline bool jinja_is_list(const jinja_value *v) {
    return v->kind == JINJA_LIST || v->kind == JINJA_TUPLE;
}
/* dict_keys and the like of Python */
static inline bool jinja_is_view(const jinja_value *v) {
    return v->kind == JINJA_LIST && v->function >= JINJA_KEYS && v->function <= JINJA_ITEMS;
}
static inline bool jinja_is_whole(const jinja_value *v) {
    return v->kind == JINJA_INT || v->kind == JINJA_BOOL;
}
static inline bool jinja_is_number(const jinja_value *v) {
    return jinja_is_whole(v) || v->kind == JINJA_FLOAT;
}
static inline double jinja_number(const jinja_value *v) {
    return v->kind == JINJA_FLOAT ? v->as.f : (double)v->as.i;
}

/* A text that is built from pieces. */
typedef struct jinja_builder {
    jinja_arena *arena;
    char *bytes;
    uint32_t *marks;
    size_t n, capacity;
    size_t most;      /* bytes; 0: as far as the arena goes */
    uint32_t or_mark; /* put into every mark */
    bool overflow;
} jinja_builder;

void jinja_add(jinja_builder *self, const char *bytes, const uint32_t *marks, size_t n);
void jinja_add_text(jinja_builder *self, const jinja_text *text);
void jinja_add_plain(jinja_builder *self, const char *text); /* NUL-terminated, from the template */
jinja_value jinja_built(jinja_builder *self);                /* a string of it */

bool jinja_is_given(
    const jinja_text *text); /* its first byte is of a value given to the template; threads share others */
/* n bytes, not copied. What lies behind them can be read: texts are parts of such as end in a NUL. */
jinja_value jinja_text_new(jinja_arena *arena, const char *bytes, const uint32_t *marks, size_t n);
const char *jinja_name(jinja_arena *arena, const jinja_text *text); /* NUL-terminated, never NULL */
jinja_value jinja_literal(jinja_arena *arena, const char *text);    /* NUL-terminated, lives longer than the arena */

jinja_value jinja_list_new(jinja_arena *arena, int32_t kind, size_t capacity);
void jinja_push(jinja_arena *arena, jinja_list *list, jinja_value value);
jinja_value jinja_dict_new(jinja_arena *arena, int32_t kind);
void jinja_put(jinja_arena *arena, jinja_dict *dict, jinja_value key, jinja_value value); /* replaces */
/* Records that the template reads all of an object. */
void jinja_read_all(const jinja_dict *dict);
/* NULL: none. Both record that the value is read. */
const jinja_value *jinja_get(jinja_arena *arena, const jinja_dict *dict, const char *key, size_t n);
const jinja_value *jinja_get_value(jinja_arena *arena, const jinja_dict *dict, const jinja_value *key);

bool jinja_truth(const jinja_value *v);
/* Both count what they compare in the arena; where that fails their answer is of no use. */
bool jinja_equal(jinja_arena *arena, const jinja_value *a, const jinja_value *b);
/* -1, 0, 1; 2: the two have no order. */
int jinja_order(jinja_arena *arena, const jinja_value *a, const jinja_value *b);
const char *jinja_kind_name(const jinja_value *v);

/* As Python's str() and repr(). */
void jinja_add_str(jinja_builder *out, const jinja_value *v);
void jinja_add_repr(jinja_builder *out, const jinja_value *v);
void jinja_add_float(jinja_builder *out, double f, bool json);
/* Whole numbers as they are written; of any other value: false. As json.dumps of Python; indent < 0: on one line. */
typedef struct jinja_json_style {
    int64_t indent;
    bool ascii, sort;
    const jinja_text *item, *key; /* separators; NULL: Python's */
    const jinja_text *blank;      /* (optional) the indentation of one level, instead of `indent` blanks */
} jinja_json_style;
bool jinja_add_json(jinja_builder *out, const jinja_value *v, const jinja_json_style *style, int depth);

/* Characters. */
size_t jinja_points(jinja_arena *arena, jinja_text *text);
/* The byte where a character begins; n at the end. */
size_t jinja_byte_at(jinja_arena *arena, jinja_text *text, size_t point);
size_t jinja_next(const char *bytes, size_t n, int32_t *point);
size_t jinja_put_point(char out[4], int64_t point); /* as UTF-8; 0: it is no character */
bool jinja_is_space(int32_t point);
bool jinja_is_printable(int32_t point); /* as Python's repr has it */
jinja_value jinja_slice_bytes(jinja_arena *arena, const jinja_text *text, size_t begin, size_t end);
/* set NULL: white space. sides: 1 left, 2 right. */
jinja_value jinja_strip(jinja_arena *arena, const jinja_text *text, const jinja_text *set, int sides);

#endif
