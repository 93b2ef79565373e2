/* value.h: the values of a rendering (Python's, as far as templates use them) and its arena. Private to jinja/. */
#ifndef JINJA_VALUE_H
#define JINJA_VALUE_H

#include "jinja.h"

/* The arena holds the memory of a rendering, frees it at once, and counts two more limits: steps, one per element that
 * is compared, searched or written, and the nesting depth of values. Exceeding a limit fails the arena and thereby the
 * rendering. */
typedef struct jinja_block {
    struct jinja_block *before;
    size_t n, used;
} jinja_block;

typedef enum jinja_limit { JINJA_MEMORY, JINJA_STEPS, JINJA_LEVELS } jinja_limit;

/* Limits. The fuzz targets are built with smaller ones: a template that runs into a limit takes about a second. */
#ifndef JINJA_MOST_STEPS
#define JINJA_MOST_STEPS  20000000
#define JINJA_MOST_TEXT   (16 << 20)          /* bytes of one string */
#define JINJA_MOST_MEMORY ((size_t)512 << 20) /* bytes in total */
#endif

enum { JINJA_MOST_LEVELS = 200 };

typedef struct jinja_arena {
    const weft_host *host;
    jinja_block *top;
    size_t taken, limit; /* bytes */
    int64_t steps;
    int levels;
    bool failed;
    jinja_limit past; /* the exceeded limit, if failed */
} jinja_arena;

void *jinja_take(jinja_arena *self, size_t bytes); /* zeroed; NULL and `failed` if a limit or memory is exhausted */
/* Counts one element and `bytes` of text as steps. Returns false if the arena failed. */
bool jinja_spend(jinja_arena *self, size_t bytes);
/* Enters a nested value; returns false if the arena failed. The caller leaves it by `levels--`. */
bool jinja_enter_value(jinja_arena *self);
void jinja_arena_free(jinja_arena *self);
/* Returns a larger copy of an array with capacity for at least n + more elements; NULL: no memory. */
void *jinja_grow(jinja_arena *self, const void *old, size_t n, size_t *capacity, size_t more, size_t element);

#define JINJA_NEW(arena, type) ((type *)jinja_take(arena, sizeof(type)))

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
    JINJA_NAMESPACE, /* a dict with entries that a template may set */
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_FUNCTION, /* a built-in function, by number */
    JINJA_METHOD,   /* a bound method */
    JINJA_ITERATOR, /* a one-pass iterable: result of map, select and similar filters */
    JINJA_BIG,      /* an integer beyond 64 bits as decimal digits; supports output and comparison */
    JINJA_CYCLER,
    JINJA_JOINER
} jinja_kind;

/* Values of `function`. String: JINJA_SAFE (|safe was applied, so + escapes the other operand). List: a view of a dict
 * or a range; both have no JSON. Tuple: JINJA_GROUP (a result of |groupby). */
enum { JINJA_SAFE = 1, JINJA_KEYS, JINJA_VALUES, JINJA_ITEMS, JINJA_RANGE, JINJA_GROUP };

typedef struct jinja_value jinja_value;
typedef struct jinja_list jinja_list;

/* A UTF-8 string. marks: one per byte; NULL: all bytes are from the template. */
typedef struct jinja_text {
    const char *bytes;
    const uint32_t *marks;
    size_t n;
    size_t points;           /* number of characters + 1; 0: not counted yet */
    bool walked;             /* a loop iterated over its characters */
    bool matched;            /* it equalled a string of the template in a comparison */
    const jinja_value *json; /* (optional) object of which the string is the JSON; tojson writes the object */
} jinja_text;

typedef struct jinja_dict jinja_dict;
typedef struct jinja_loop jinja_loop;
typedef struct jinja_macro jinja_macro;
typedef struct jinja_method jinja_method;

struct jinja_value {
    int32_t kind;
    int32_t function; /* JINJA_FUNCTION: its number; otherwise a flag or 0 */
    union {
        int64_t i; /* also JINJA_BOOL */
        double f;
        jinja_text *text; /* JINJA_UNDEFINED: the missing name or NULL; JINJA_BIG: the digits */
        jinja_list *list;
        jinja_dict *dict;
        jinja_loop *loop; /* also JINJA_CYCLER and JINJA_JOINER */
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
    jinja_range *range; /* set for JINJA_RANGE */
};

typedef struct jinja_entry {
    jinja_value key, value;
    bool read; /* the value or the complete object was read */
} jinja_entry;

struct jinja_dict { /* in insertion order */
    jinja_entry *entries;
    size_t n, capacity;
    uint32_t element; /* index in the jinja_set_objects list, from 1; 0: another dict */
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
/* Returns an integer of any size. digits: decimal, optional minus sign; must live as long as the arena. */
jinja_value jinja_integer(jinja_arena *arena, const char *digits, size_t n);
static inline jinja_value jinja_none(void) {
    return (jinja_value){.kind = JINJA_NONE};
}
static inline jinja_value jinja_string(jinja_text *text) {
    return (jinja_value){.kind = JINJA_STRING, .as = {.text = text}};
}
/* True for values that Python prints as type and address. */
static inline bool jinja_is_opaque(const jinja_value *v) {
    return v->kind == JINJA_NAMESPACE || v->kind == JINJA_LOOP || v->kind == JINJA_MACRO || v->kind == JINJA_FUNCTION ||
           v->kind == JINJA_METHOD || v->kind == JINJA_CYCLER || v->kind == JINJA_JOINER;
}
static inline bool jinja_is_list(const jinja_value *v) {
    return v->kind == JINJA_LIST || v->kind == JINJA_TUPLE;
}
/* dict_keys, dict_values and dict_items of Python. */
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

/* Returns the marks from byte i on; NULL: all bytes are from the template. */
static inline const uint32_t *jinja_marks(const jinja_text *text, size_t i) {
    return text->marks == NULL ? NULL : text->marks + i;
}

/* Builds a string. */
typedef struct jinja_builder {
    jinja_arena *arena;
    char *bytes;
    uint32_t *marks;
    size_t n, capacity;
    size_t most;      /* maximal bytes; 0: only the arena's limit */
    uint32_t or_mark; /* block number for bytes without one */
    bool overflow;
} jinja_builder;

void jinja_add(jinja_builder *self, const char *bytes, const uint32_t *marks, size_t n);
void jinja_add_text(jinja_builder *self, const jinja_text *text);
void jinja_add_part(jinja_builder *self, const jinja_text *text, size_t begin, size_t end);
/* Appends n bytes, all with the mark *mark; NULL: from the template. */
void jinja_add_as(jinja_builder *self, const char *bytes, size_t n, const uint32_t *mark);
void jinja_add_plain(jinja_builder *self, const char *text); /* NUL-terminated, from the template */
jinja_value jinja_built(jinja_builder *self);                /* returns the string */

/* True if the first byte is from a variable. Threads share all other strings. */
bool jinja_is_given(const jinja_text *text);
/* Makes a string of n bytes without a copy. bytes[n] must be readable: a string is a part of a NUL-terminated text. */
jinja_value jinja_text_new(jinja_arena *arena, const char *bytes, const uint32_t *marks, size_t n);
char *jinja_copy(jinja_arena *arena, const char *bytes, size_t n);  /* NUL-terminated; NULL: no memory */
const char *jinja_name(jinja_arena *arena, const jinja_text *text); /* NUL-terminated, never NULL */
jinja_value jinja_literal(jinja_arena *arena, const char *text);    /* NUL-terminated; must outlive the arena */

jinja_value jinja_list_new(jinja_arena *arena, int32_t kind, size_t capacity);
void jinja_push(jinja_arena *arena, jinja_list *list, jinja_value value);
jinja_value jinja_dict_new(jinja_arena *arena, int32_t kind);
void jinja_put(jinja_arena *arena, jinja_dict *dict, jinja_value key, jinja_value value); /* inserts or replaces */
/* Records that the template reads the complete object. */
void jinja_read_all(const jinja_dict *dict);
/* Return the value of a key and record that it was read; NULL: no such key. */
const jinja_value *jinja_get(jinja_arena *arena, const jinja_dict *dict, const char *key, size_t n);
const jinja_value *jinja_get_value(jinja_arena *arena, const jinja_dict *dict, const jinja_value *key);

bool jinja_truth(const jinja_value *v);
/* Counts compared elements as steps. The result is undefined if the arena fails. */
bool jinja_equal(jinja_arena *arena, const jinja_value *a, const jinja_value *b);
/* Returns -1, 0 or 1; 2: the values have no order. */
int jinja_order(jinja_arena *arena, const jinja_value *a, const jinja_value *b);
const char *jinja_kind_name(const jinja_value *v);

/* Python's str() and repr(). */
void jinja_add_str(jinja_builder *out, const jinja_value *v);
void jinja_add_repr(jinja_builder *out, const jinja_value *v);
void jinja_add_float(jinja_builder *out, double f, bool json);
/* Style of json.dumps. indent < 0: one line. */
typedef struct jinja_json_style {
    int64_t indent;
    bool ascii, sort;
    const jinja_text *item, *key; /* separators; NULL: Python's defaults */
    const jinja_text *blank;      /* (optional) indentation of one level, instead of `indent` spaces */
} jinja_json_style;
bool jinja_add_json(jinja_builder *out, const jinja_value *v, const jinja_json_style *style, int depth);

/* Characters. */
size_t jinja_points(jinja_arena *arena, jinja_text *text);
/* Returns the byte offset of character `point`; n at the end. */
size_t jinja_byte_at(jinja_arena *arena, jinja_text *text, size_t point);
size_t jinja_next(const char *bytes, size_t n, int32_t *point);
/* Returns the offset of the character before byte `end`, at least `begin`. */
size_t jinja_back(const char *bytes, size_t begin, size_t end, int32_t *point);
size_t jinja_put_point(char out[4], int64_t point); /* encodes as UTF-8; 0: not a character */
bool jinja_is_space(int32_t point);
bool jinja_is_printable(int32_t point); /* repr() of Python does not escape it */
jinja_value jinja_slice_bytes(jinja_arena *arena, const jinja_text *text, size_t begin, size_t end);
/* set NULL: white space. sides: 1 left, 2 right. */
jinja_value jinja_strip(jinja_arena *arena, const jinja_text *text, const jinja_text *set, int sides);

#endif
