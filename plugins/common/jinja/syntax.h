/* syntax.h: tokens and syntax tree of a template. Private to jinja/. */
#ifndef JINJA_SYNTAX_H
#define JINJA_SYNTAX_H

#include "value.h"

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
    const char *text; /* NUL-terminated: name, sign, data, or the unescaped string */
    size_t n;
    jinja_value number;
} jinja_token;

typedef enum jinja_node_kind {
    NODE_CONST,
    NODE_NAME,
    NODE_LIST,  /* a: first item */
    NODE_TUPLE, /* a: first item */
    NODE_DICT,  /* a: first key; its b is the value */
    NODE_UNARY,
    NODE_BINARY,
    NODE_AND,
    NODE_OR,
    NODE_COMPARE, /* a: first operand; b: first NODE_OPERAND */
    NODE_OPERAND, /* text: the sign; a: the operand */
    NODE_IF_ELSE, /* a if b else c */
    NODE_ATTRIBUTE,
    NODE_ITEM,
    NODE_SLICE, /* a[b:c:d] */
    NODE_CALL,  /* a: callee; b: first argument */
    NODE_FILTER,
    NODE_TEST,
    NODE_ARGUMENT, /* text: its name, or NULL; a: value; op: 1 *a, 2 **a */
    /* Statements; `next` is the following one. */
    NODE_DATA,
    NODE_PRINT,
    NODE_IF,           /* a: condition; b: then; c: else */
    NODE_FOR,          /* a: target; b: iterable; c: body; d: else; e: condition */
    NODE_SET,          /* a: target; b: value */
    NODE_SET_BLOCK,    /* a: target; b: body; c: filters (NODE_FILTER without a value) */
    NODE_MACRO,        /* text: name; a: first parameter (text, a: default); b: body */
    NODE_CALL_BLOCK,   /* a: the call; b: parameters; c: body */
    NODE_FILTER_BLOCK, /* a: filters; b: body */
    NODE_WITH,         /* a: first NODE_SET; b: body */
    NODE_GENERATION,   /* b: body */
    NODE_BLOCK,        /* text: name; b: body; op 1: sees the enclosing variables */
    NODE_INCLUDE,      /* needs another template, so executing it fails; text: the keyword */
    NODE_BREAK,
    NODE_CONTINUE
} jinja_node_kind;

typedef struct jinja_node jinja_node;
struct jinja_node {
    int32_t kind;
    int32_t line;
    int32_t op; /* unary and binary: first character of the sign; ** is 'p', // is 'd' */
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

/* Writes "NAME, line N: " and the message to err, and returns false. */
bool jinja_fail(weft_error *err, const jinja_template *self, int line, const char *format, ...) WEFT_PRINTF(4, 5);

/* Returns the tokens of a source up to TOKEN_END; NULL: failed. */
jinja_token *jinja_lex(jinja_template *self, const char *source, size_t n, weft_error *err);
/* Builds self->body from tokens; the body of an empty template is NULL. Returns false on an error. */
bool jinja_parse(jinja_template *self, const jinja_token *tokens, weft_error *err);

/* As in jinja2, an unknown filter or test fails at compile time outside of an if, and at run time inside one. */
bool jinja_knows_filter(const char *name);
bool jinja_knows_test(const char *name);

#endif
