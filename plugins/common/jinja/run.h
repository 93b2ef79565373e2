/* run.h: state and internal functions of a rendering: variables, calls, operators, filters, errors. Private to
 * jinja/. */
#ifndef JINJA_RUN_H
#define JINJA_RUN_H

#include "syntax.h"

typedef struct jinja_variable {
    struct jinja_variable *next;
    const char *name;
    jinja_value value;
    bool read;
} jinja_variable;

typedef struct jinja_scope {
    struct jinja_scope *parent;
    jinja_variable *first;
} jinja_scope;

struct jinja_loop {
    const jinja_list *items; /* joiner: holds the separator */
    size_t index;
    int depth;              /* of recursion, from 0 */
    const jinja_node *node; /* set for a recursive loop, which a template may call */
    jinja_scope *scope;     /* scope in which a recursive loop runs */
    jinja_value changed;    /* last argument of loop.changed */
    bool has_changed;       /* joiner: was called before */
};

struct jinja_macro {
    const jinja_node *parameters, *body;
    const char *name;
    jinja_scope *scope; /* scope of the definition */
    bool takes_more;    /* the body reads varargs or kwargs */
};

struct jinja_render {
    const jinja_template *self;
    jinja_arena arena;
    weft_error *err;
    jinja_scope globals, *scope;
    const jinja_list *objects; /* set by jinja_set_objects */
    jinja_builder *out;
    int64_t time;
    int depth, loops;
    int line;     /* line of the current node */
    int32_t jump; /* NODE_BREAK or NODE_CONTINUE until its loop handles it */
    uint32_t n_generations;
    bool failed, has_time;
};

/* Arguments of a call. */
typedef struct jinja_args {
    jinja_value *values;
    const char **names; /* NULL: positional */
    size_t n;
} jinja_args;

static const jinja_args jinja_no_args = {NULL, NULL, 0};

static inline bool jinja_failed(const jinja_render *r) {
    return r->failed || r->arena.failed;
}

enum {
    FUNCTION_RANGE,
    FUNCTION_NAMESPACE,
    FUNCTION_DICT,
    FUNCTION_RAISE,
    FUNCTION_TIME,
    FUNCTION_CYCLER,
    FUNCTION_JOINER,
    FUNCTION_LIPSUM
};

/* Fails the rendering with an error message, and returns none. Later calls keep the first message. */
jinja_value jinja_stop(jinja_render *r, const char *format, ...) WEFT_PRINTF(2, 3);
jinja_value jinja_finish(jinja_render *r, jinja_builder *out); /* returns the built string; fails if it is too long */
bool jinja_step(jinja_render *r);                              /* counts a step; false: the rendering failed */

jinja_value jinja_eval(jinja_render *r, const jinja_node *node);
void jinja_exec(jinja_render *r, const jinja_node *node); /* executes the node and its successors */

const jinja_value *jinja_lookup(jinja_render *r, const char *name);
void jinja_assign(jinja_render *r, const char *name, jinja_value value); /* in the current scope */
bool jinja_unpack(jinja_render *r, const jinja_node *target, jinja_value value);

/* Returns positional argument n or the argument `name`; NULL: absent. */
const jinja_value *jinja_arg(const jinja_args *args, size_t n, const char *name);
bool jinja_arg_text(jinja_render *r, jinja_text **out, const jinja_args *args, size_t n, const char *name);
bool jinja_arg_int(jinja_render *r, int64_t *out, const jinja_args *args, size_t n, const char *name);

jinja_value jinja_call(jinja_render *r, const jinja_value *called, const jinja_args *args);
jinja_value jinja_call_loop(jinja_render *r, const jinja_loop *loop, const jinja_args *args);
jinja_value jinja_call_macro(jinja_render *r, const jinja_macro *macro, const jinja_args *args);
jinja_value jinja_method_call(jinja_render *r, const jinja_method *method, const jinja_args *args);
bool jinja_has_method(const jinja_value *v, const char *name);
jinja_value jinja_filter(jinja_render *r, const char *name, jinja_value v, const jinja_args *args);
bool jinja_test(jinja_render *r, const char *name, const jinja_value *v, const jinja_args *args);
jinja_value jinja_attribute(jinja_render *r, const jinja_value *v, const char *name);
jinja_value jinja_item(jinja_render *r, const jinja_value *v, const jinja_value *key);
jinja_value jinja_slice(jinja_render *r, const jinja_value *v, const jinja_value bounds[3]);
jinja_value jinja_binary(jinja_render *r, int32_t op, const jinja_value *a, const jinja_value *b);
bool jinja_compare(jinja_render *r, const char *sign, const jinja_value *a, const jinja_value *b);
jinja_value jinja_undefined(jinja_render *r, const char *name);
jinja_value jinja_method_of(jinja_render *r, const jinja_value *v, const char *name);
jinja_value jinja_escape(jinja_render *r, const jinja_value *text); /* escapes HTML unless |safe was applied */

/* format.c: `format % values` and format.format(args). */
jinja_value jinja_percent(jinja_render *r, const jinja_value *format, const jinja_value *values);
jinja_value jinja_format(jinja_render *r, const jinja_value *format, const jinja_args *args);
/* Filters outside of filters.c. */
typedef jinja_value jinja_filter_fn(jinja_render *r, jinja_value v, const jinja_args *args);
jinja_filter_fn jinja_filter_int, jinja_filter_float, jinja_filter_abs, jinja_filter_round, jinja_filter_filesizeformat;
jinja_filter_fn jinja_filter_truncate, jinja_filter_center, jinja_filter_escape, jinja_filter_forceescape;
jinja_filter_fn jinja_filter_striptags, jinja_filter_wordcount, jinja_filter_wordwrap, jinja_filter_urlencode;
jinja_filter_fn jinja_filter_xmlattr, jinja_filter_indent;
/* Pads to `width` characters. side: 'l' aligns the text left, 'r' right, 'c' centers it. */
jinja_value jinja_pad(jinja_render *r, jinja_text *text, int64_t width, const jinja_text *fill, char side);
/* numbers.c: truncates to an integer of any size. */
jinja_value jinja_from_double(jinja_render *r, double f);

/* Returns the elements of an iterable value. Fails and returns NULL for other values. */
const jinja_list *jinja_walk(jinja_render *r, const jinja_value *v);
jinja_value jinja_to_string(jinja_render *r, const jinja_value *v);

/* String methods. change: 'u' upper, 'l' lower, 'c' capitalize, 't' title, 's' swapcase, 'f' casefold, 'T' jinja2's
 * filter title. */
jinja_value jinja_case(jinja_render *r, const jinja_text *text, char change);
jinja_value jinja_replace_text(jinja_render *r, const jinja_text *text, const jinja_text *old, const jinja_text *fresh,
                               int64_t most);
int64_t jinja_find(jinja_arena *arena, const jinja_text *text, const jinja_text *what,
                   size_t from); /* byte offset; -1: not found */
jinja_value jinja_join(jinja_render *r, const jinja_text *between, const jinja_list *list);
jinja_value jinja_split_lines(jinja_render *r, const jinja_text *text, bool keep_ends);

#endif
