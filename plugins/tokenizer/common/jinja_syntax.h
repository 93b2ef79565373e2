/* jinja_syntax.h: a template as tokens, and as a tree. */
#ifndef JINJA_SYNTAX_H
#define JINJA_SYNTAX_H

#include "jinja_value.h"

typedef enum jinja_token_kind {
    TOKEN_DATA,
    TOKEN_PRINT, /* {{ */
    TOKEN_PRINT_END,
    TOKEN_BLOCK, /* {% */
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_SIGN, /* an operator or a bracket */
    TOKEN_END
} jinja_token_kind;

typedef struct jinja_token {
    int32_t kind;
    int32_t line;
    const char *text; /* NUL-terminated: name, sign, data, or the string that a literal stands for */
    size_t n;
    jinja_value number;
} jinja_token;

typedef enum jinja_node_kind {
    NODE_CONST,
    NODE_NAME,
    NODE_LIST,  /* a: first item */
    NODE_TUPLE, /* a: first item */
    NODE_DICT,  /* a: first key, whose b is its value */
    NODE_UNARY,
    NODE_BINARY,
    NODE_AND,
    NODE_OR,
    NODE_COMPARE, /* a: first operand; b: first NODE_OPERAND */
    NODE_OPERAND, /* text: the sign; a: what follows it */
    NODE_IF_ELSE, /* a if b else c */
    NODE_ATTRIBUTE,
    NODE_ITEM,
    NODE_SLICE, /* a[b:c:d] */
    NODE_CALL,  /* a: what is called; b: first argument */
    NODE_FILTER,
    NODE_TEST,
    NODE_ARGUMENT, /* text: its name, or NULL; a: value; op: 1 *a, 2 **a */
    /* statements; next: the one behind it */
    NODE_DATA,
    NODE_PRINT,
    NODE_IF,           /* a: condition; b: then; c: else */
    NODE_FOR,          /* a: target; b: of what; c: body; d: else; e: condition */
    NODE_SET,          /* a: target; b: value */
    NODE_SET_BLOCK,    /* a: target; b: body; c: filters, NODE_FILTER on no value */
    NODE_MACRO,        /* text; a: first parameter (text, a: default); b: body */
    NODE_CALL_BLOCK,   /* a: the call; b: parameters; c: body */
    NODE_FILTER_BLOCK, /* a: filters; b: body */
    NODE_WITH,         /* a: first NODE_SET; b: body */
    NODE_GENERATION,   /* b: body */
    NODE_BLOCK,        /* text: name; b: body; op 1: it sees the variables around it */
    NODE_INCLUDE,      /* of another template, of which there is none; text: the statement */
    NODE_BREAK,
    NODE_CONTINUE
} jinja_node_kind;

typedef struct jinja_node jinja_node;
struct jinja_node {
    int32_t kind;
    int32_t line;
    int32_t op; /* of unary and binary: the sign's first character; ** is 'p', // is 'd' */
    int32_t reserved;
    const char *text;
    jinja_value value;
    jinja_node *a, *b, *c, *d, *e, *next;
};

struct jinja_template {
    const weft_host *host;
    jinja_arena arena;
    const char *name;
    bool has_blocks; /* {% generation %} */
    jinja_node *body;
};

/* "NAME, line N: " and the sentence; false. */
bool jinja_fail(weft_error *err, const jinja_template *self, int line, const char *format, ...) WEFT_PRINTF(4, 5);

/* The tokens of a source, ended by TOKEN_END; NULL after a failure. */
jinja_token *jinja_lex(jinja_template *self, const char *source, size_t n, weft_error *err);
/* The tree; NULL body with true: an empty template. */
bool jinja_parse(jinja_template *self, const jinja_token *tokens, weft_error *err);

/* For the two halves of the parser. */
typedef struct jinja_parser {
    jinja_template *self;
    const jinja_token *at;
    weft_error *err;
    int depth;
    int loops;                 /* that the statement at work lies in */
    bool soft;                 /* in an if, where an unknown filter or test fails only if it is reached */
    const jinja_node *unknown; /* the first filter or test that is unknown outside of such */
    bool more;                 /* the macro at work reads varargs or kwargs */
    bool failed;
} jinja_parser;

enum { JINJA_MOST_DEPTH = 200 };

/* As in jinja2, an unknown filter or test fails at once outside of an if, and inside if it is reached. */
bool jinja_knows_filter(const char *name);
bool jinja_knows_test(const char *name);

jinja_node *jinja_node_new(jinja_parser *p, int32_t kind);
jinja_node *jinja_parse_expression(jinja_parser *p, bool with_condition);
jinja_node *jinja_parse_tuple(jinja_parser *p, bool with_condition); /* one value, or several with commas */
jinja_node *jinja_parse_target(jinja_parser *p, bool attribute);
jinja_node *jinja_parse_filters(jinja_parser *p, jinja_node *node, bool first); /* first: no | before the first one */
bool jinja_parser_fail(jinja_parser *p, const char *format, ...) WEFT_PRINTF(2, 3);
bool jinja_at_name(const jinja_parser *p, const char *name);
bool jinja_at_sign(const jinja_parser *p, const char *sign);
bool jinja_take_name(jinja_parser *p, const char *name);
bool jinja_take_sign(jinja_parser *p, const char *sign);
bool jinja_need_sign(jinja_parser *p, const char *sign);
const char *jinja_need_name(jinja_parser *p);
const char *jinja_token_shown(const jinja_parser *p); /* what stands there, for a message */

#endif
