/* parse.c: builds the syntax tree from tokens: expressions with jinja2's operator precedence, then statements. */
#include "syntax.h"

typedef struct parser {
    jinja_template *self;
    const jinja_token *at;
    weft_error *err;
    int depth;
    int loops;                 /* loops around the current statement */
    bool soft;                 /* inside an if, where an unknown filter or test fails at run time only */
    const jinja_node *unknown; /* first unknown filter or test outside of an if */
    bool more;                 /* the current macro reads varargs or kwargs */
    bool failed;
} parser;

enum { MOST_DEPTH = 200 };

static jinja_node *new_node(parser *p, int32_t kind) {
    jinja_node *node = JINJA_NEW(&p->self->arena, jinja_node);
    if (node == NULL) {
        p->failed = true;
        return NULL;
    }
    node->kind = kind;
    node->line = p->at->line;
    return node;
}

static bool fail(parser *p, const char *format, ...) WEFT_PRINTF(2, 3);
static bool fail(parser *p, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!p->failed) (void)jinja_fail(p->err, p->self, p->at->line, "%s", text);
    p->failed = true;
    return false;
}

static const char *shown(const parser *p) {
    switch (p->at->kind) {
    case TOKEN_PRINT: return "{{";
    case TOKEN_PRINT_END: return "}}";
    case TOKEN_BLOCK: return "{%";
    case TOKEN_BLOCK_END: return "%}";
    case TOKEN_DATA: return "text";
    case TOKEN_STRING: return "a string";
    case TOKEN_END: return "the end";
    default: return p->at->n > 60 ? "a long word" : p->at->text;
    }
}

static bool at_name(const parser *p, const char *name) {
    return p->at->kind == TOKEN_NAME && strcmp(p->at->text, name) == 0;
}

static bool at_sign(const parser *p, const char *sign) {
    return p->at->kind == TOKEN_SIGN && strcmp(p->at->text, sign) == 0;
}

static bool take_name(parser *p, const char *name) {
    const bool there = at_name(p, name);
    p->at += there;
    return there;
}

static bool take_sign(parser *p, const char *sign) {
    const bool there = at_sign(p, sign);
    p->at += there;
    return there;
}

static bool need_sign(parser *p, const char *sign) {
    if (p->failed) return false;
    return take_sign(p, sign) || fail(p, "expected %s, found %s", sign, shown(p));
}

static const char *need_name(parser *p) {
    if (p->failed) return NULL;
    if (p->at->kind == TOKEN_NAME) return (p->at++)->text;
    (void)fail(p, "expected a name, found %s", shown(p));
    return NULL;
}

static jinja_node *parse_expression(parser *p, bool with_condition);
static jinja_node *parse_tuple(parser *p, bool with_condition);
static jinja_node *parse_target(parser *p, bool attribute);
static jinja_node *parse_filters(parser *p, jinja_node *of, bool first);

static jinja_node *constant(parser *p, jinja_value value) {
    jinja_node *node = new_node(p, NODE_CONST);
    if (node != NULL) node->value = value;
    return node;
}

static jinja_node *parse_items(parser *p, int32_t kind, const char *close) {
    jinja_node *node = new_node(p, kind), **to = node == NULL ? NULL : &node->a;
    while (!p->failed && !take_sign(p, close)) {
        if (node->a != NULL && !need_sign(p, ",")) break;
        if (take_sign(p, close)) break;
        *to = parse_expression(p, true);
        if (p->failed) break;
        if (kind == NODE_DICT) {
            jinja_node *key = *to;
            if (!need_sign(p, ":")) break;
            *to = new_node(p, NODE_ARGUMENT);
            if (*to == NULL) break;
            (*to)->a = key;
            (*to)->b = parse_expression(p, true);
        }
        to = &(*to)->next;
    }
    return p->failed ? NULL : node;
}

/* Joins adjacent string literals. */
static jinja_node *parse_string(parser *p) {
    jinja_builder out = {.arena = &p->self->arena};
    for (; p->at->kind == TOKEN_STRING; p->at++) jinja_add(&out, p->at->text, NULL, p->at->n);
    return constant(p, jinja_built(&out));
}

static jinja_node *parse_name(parser *p) {
    const char *name = p->at->text;
    jinja_node *node = NULL;
    if (strcmp(name, "true") == 0 || strcmp(name, "True") == 0) node = constant(p, jinja_bool(true));
    else if (strcmp(name, "false") == 0 || strcmp(name, "False") == 0) node = constant(p, jinja_bool(false));
    else if (strcmp(name, "none") == 0 || strcmp(name, "None") == 0) node = constant(p, jinja_none());
    else node = new_node(p, NODE_NAME);
    if (node != NULL) node->text = name;
    p->at++;
    return node;
}

static jinja_node *parse_primary(parser *p) {
    jinja_node *node = NULL;
    if (p->failed) return NULL;
    p->more = p->more || at_name(p, "varargs") || at_name(p, "kwargs");
    if (p->at->kind == TOKEN_NAME) return parse_name(p);
    if (p->at->kind == TOKEN_STRING) return parse_string(p);
    if (p->at->kind == TOKEN_INT || p->at->kind == TOKEN_FLOAT) return constant(p, (p->at++)->number);
    if (take_sign(p, "[")) return parse_items(p, NODE_LIST, "]");
    if (take_sign(p, "{")) return parse_items(p, NODE_DICT, "}");
    if (take_sign(p, "(")) {
        if (take_sign(p, ")")) return new_node(p, NODE_TUPLE);
        node = parse_tuple(p, true);
        (void)need_sign(p, ")");
        return p->failed ? NULL : node;
    }
    (void)fail(p, "expected a value, found %s", shown(p));
    return NULL;
}

/* Parses arguments after "(". */
static jinja_node *parse_arguments(parser *p) {
    jinja_node *first = NULL, **to = &first;
    while (!p->failed && !take_sign(p, ")")) {
        jinja_node *argument = NULL;
        if (first != NULL && !need_sign(p, ",")) break;
        if (take_sign(p, ")")) break;
        argument = new_node(p, NODE_ARGUMENT);
        if (argument == NULL) break;
        argument->op = take_sign(p, "**") ? 2 : take_sign(p, "*") ? 1 : 0;
        if (p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_SIGN && strcmp(p->at[1].text, "=") == 0) {
            argument->text = p->at->text;
            p->at += 2;
        }
        argument->a = parse_expression(p, true);
        *to = argument;
        to = &argument->next;
    }
    return first;
}

static jinja_node *parse_subscript(parser *p, jinja_node *of) {
    jinja_node *node = new_node(p, NODE_ITEM), *parts[3] = {NULL, NULL, NULL};
    int colons = 0;
    for (;;) {
        if (!at_sign(p, ":") && !at_sign(p, "]")) parts[colons] = parse_expression(p, true);
        if (p->failed || colons == 2 || !take_sign(p, ":")) break;
        colons++;
    }
    (void)need_sign(p, "]");
    if (p->failed || node == NULL) return NULL;
    if (colons > 0) node->kind = NODE_SLICE;
    if (colons == 0 && parts[0] == NULL) (void)fail(p, "[ ] needs an index");
    node->a = of;
    node->b = parts[0];
    node->c = parts[1];
    node->d = parts[2];
    return node;
}

static jinja_node *parse_call(parser *p, jinja_node *of) {
    jinja_node *node = new_node(p, NODE_CALL);
    if (node == NULL) return NULL;
    node->a = of;
    node->b = parse_arguments(p);
    return node;
}

static jinja_node *parse_attribute(parser *p, jinja_node *of) {
    jinja_node *node = new_node(p, NODE_ATTRIBUTE);
    if (node == NULL) return NULL;
    if (p->at->kind == TOKEN_INT) {
        node->kind = NODE_ITEM;
        node->b = constant(p, (p->at++)->number);
    } else node->text = need_name(p);
    node->a = of;
    return node;
}

static jinja_node *parse_postfix(parser *p, jinja_node *node) {
    while (!p->failed) {
        if (take_sign(p, ".")) node = parse_attribute(p, node);
        else if (take_sign(p, "[")) node = parse_subscript(p, node);
        else if (take_sign(p, "(")) node = parse_call(p, node);
        else break;
    }
    return node;
}

static void note_unknown(parser *p, const jinja_node *node) {
    if (!p->soft && p->unknown == NULL) p->unknown = node;
}

static jinja_node *parse_filters(parser *p, jinja_node *of, bool first) {
    while (!p->failed && (first || take_sign(p, "|"))) {
        jinja_node *node = new_node(p, NODE_FILTER);
        if (node == NULL) return NULL;
        node->text = need_name(p);
        if (!p->failed && !jinja_knows_filter(node->text)) note_unknown(p, node);
        node->a = of;
        if (!p->failed && take_sign(p, "(")) node->b = parse_arguments(p);
        of = node;
        first = false;
    }
    return of;
}

static bool begins_test_argument(const parser *p) {
    if (p->at->kind == TOKEN_NAME)
        return !at_name(p, "else") && !at_name(p, "or") && !at_name(p, "and") && !at_name(p, "is") &&
               !at_name(p, "if") && !at_name(p, "in") && !at_name(p, "not");
    return p->at->kind == TOKEN_STRING || p->at->kind == TOKEN_INT || p->at->kind == TOKEN_FLOAT || at_sign(p, "[") ||
           at_sign(p, "{");
}

/* Parses a test after "is". */
static jinja_node *parse_test(parser *p, jinja_node *of) {
    const bool negated = take_name(p, "not");
    jinja_node *node = new_node(p, NODE_TEST);
    if (node == NULL) return NULL;
    node->text = need_name(p);
    if (!p->failed && !jinja_knows_test(node->text)) note_unknown(p, node);
    node->op = negated;
    node->a = of;
    if (!p->failed && take_sign(p, "(")) node->b = parse_arguments(p);
    else if (!p->failed && begins_test_argument(p)) {
        node->b = new_node(p, NODE_ARGUMENT);
        if (node->b != NULL) node->b->a = parse_postfix(p, parse_primary(p));
    }
    return node;
}

static jinja_node *parse_filter_expression(parser *p, jinja_node *node) {
    while (!p->failed) {
        if (at_sign(p, "|")) node = parse_filters(p, node, false);
        else if (take_name(p, "is")) node = parse_test(p, node);
        else if (take_sign(p, "(")) node = parse_call(p, node);
        else break;
    }
    return node;
}

static jinja_node *parse_unary(parser *p, bool with_filter) {
    jinja_node *node = NULL;
    if (++p->depth > MOST_DEPTH) (void)fail(p, "expressions are nested too deep");
    if (!p->failed && (at_sign(p, "-") || at_sign(p, "+"))) {
        node = new_node(p, NODE_UNARY);
        if (node != NULL) node->op = p->at->text[0];
        p->at++;
        if (node != NULL) node->a = parse_unary(p, false);
    } else node = parse_primary(p);
    node = parse_postfix(p, node);
    if (with_filter) node = parse_filter_expression(p, node);
    p->depth--;
    return node;
}

/* Binary operators by precedence, lowest first. */
static const char *const levels[][5] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
enum { N_LEVELS = 4 };

static jinja_node *parse_level(parser *p, int level) {
    jinja_node *left = level == N_LEVELS ? parse_unary(p, true) : parse_level(p, level + 1);
    for (int i = 0; level < N_LEVELS && !p->failed && levels[level][i] != NULL; i++) {
        jinja_node *node = NULL;
        const char *sign = levels[level][i];
        if (!at_sign(p, sign)) continue;
        node = new_node(p, NODE_BINARY);
        if (node == NULL) return NULL;
        node->op = sign[1] == '\0' ? sign[0] : sign[0] == '*' ? 'p' : 'd';
        p->at++;
        node->a = left;
        node->b = parse_level(p, level + 1);
        left = node;
        i = -1; /* continue with any operator of this level */
    }
    return left;
}

static const char *comparison(parser *p) {
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (take_sign(p, signs[i])) return signs[i];
    if (take_name(p, "in")) return "in";
    if (!at_name(p, "not") || p->at[1].kind != TOKEN_NAME || strcmp(p->at[1].text, "in") != 0) return NULL;
    p->at += 2;
    return "not in";
}

static jinja_node *parse_compare(parser *p) {
    jinja_node *first = parse_level(p, 0), *node = NULL, **to = NULL;
    for (const char *sign = NULL; !p->failed && (sign = comparison(p)) != NULL; to = &(*to)->next) {
        if (node == NULL) {
            node = new_node(p, NODE_COMPARE);
            if (node == NULL) return NULL;
            node->a = first;
            to = &node->b;
        }
        *to = new_node(p, NODE_OPERAND);
        if (*to == NULL) return NULL;
        (*to)->text = sign;
        (*to)->a = parse_level(p, 0);
    }
    return node != NULL ? node : first;
}

static jinja_node *parse_not(parser *p) {
    jinja_node *node = NULL;
    if (!take_name(p, "not")) return parse_compare(p);
    if (++p->depth > MOST_DEPTH) (void)fail(p, "expressions are nested too deep");
    node = new_node(p, NODE_UNARY);
    if (node != NULL) node->op = '!';
    if (node != NULL && !p->failed) node->a = parse_not(p);
    p->depth--;
    return node;
}

static jinja_node *parse_joined(parser *p, const char *word, int32_t kind) {
    jinja_node *left = kind == NODE_OR ? parse_joined(p, "and", NODE_AND) : parse_not(p);
    while (!p->failed && take_name(p, word)) {
        jinja_node *node = new_node(p, kind);
        if (node == NULL) return NULL;
        node->a = left;
        node->b = kind == NODE_OR ? parse_joined(p, "and", NODE_AND) : parse_not(p);
        left = node;
    }
    return left;
}

static jinja_node *parse_expression(parser *p, bool with_condition) {
    const jinja_node *unknown = p->unknown;
    const bool soft = p->soft;
    jinja_node *node = NULL;
    if (p->failed) return NULL;
    if (++p->depth > MOST_DEPTH) (void)fail(p, "expressions are nested too deep");
    node = p->failed ? NULL : parse_joined(p, "or", NODE_OR);
    while (with_condition && !p->failed && take_name(p, "if")) {
        jinja_node *choice = new_node(p, NODE_IF_ELSE);
        p->unknown = unknown; /* both branches count as inside an if */
        p->soft = true;
        if (choice == NULL) return NULL;
        choice->a = node;
        choice->b = parse_joined(p, "or", NODE_OR);
        if (take_name(p, "else")) choice->c = parse_expression(p, true);
        node = choice;
    }
    p->soft = soft;
    p->depth--;
    return p->failed ? NULL : node;
}

static bool ends_tuple(const parser *p) {
    return p->at->kind == TOKEN_PRINT_END || p->at->kind == TOKEN_BLOCK_END || at_sign(p, ")") || at_sign(p, "=") ||
           at_name(p, "in") || at_name(p, "if");
}

/* Parses a tuple of elements that `one` parses. A single element without a comma is not a tuple. */
static jinja_node *parse_tuple_of(parser *p, jinja_node *(*one)(parser *p, bool flag), bool flag) {
    jinja_node *first = one(p, flag), *node = NULL, **to = NULL;
    while (!p->failed && take_sign(p, ",")) {
        if (node == NULL) {
            node = new_node(p, NODE_TUPLE);
            if (node == NULL) return NULL;
            node->a = first;
            to = &first->next;
        }
        if (ends_tuple(p)) break;
        *to = one(p, flag);
        if (*to != NULL) to = &(*to)->next;
    }
    return p->failed ? NULL : node != NULL ? node : first;
}

static jinja_node *parse_tuple(parser *p, bool with_condition) {
    return parse_tuple_of(p, parse_expression, with_condition);
}

static jinja_node *target_name(parser *p, bool attribute) {
    jinja_node *node = new_node(p, NODE_NAME), *of = NULL;
    if (node == NULL) return NULL;
    if (take_sign(p, "(")) {
        node = parse_target(p, false);
        (void)need_sign(p, ")");
        return node;
    }
    node->text = need_name(p);
    if (!attribute || p->failed || !take_sign(p, ".")) return node;
    of = node;
    node = new_node(p, NODE_ATTRIBUTE);
    if (node == NULL) return NULL;
    node->a = of;
    node->text = need_name(p);
    return node;
}

/* Counts the depth before it parses: nested brackets are unbounded. */
static jinja_node *parse_target(parser *p, bool attribute) {
    jinja_node *node = NULL;
    if (++p->depth > MOST_DEPTH) (void)fail(p, "targets are nested too deep");
    else node = parse_tuple_of(p, target_name, attribute);
    p->depth--;
    return node;
}

static jinja_node *parse_until(parser *p, const char *const *ends);

static bool end_block(parser *p) {
    if (p->failed) return false;
    if (p->at->kind != TOKEN_BLOCK_END) return fail(p, "expected %%}, found %s", shown(p));
    p->at++;
    return true;
}

/* Parses the end of the current tag and the body up to one of the words `ends`. */
static jinja_node *parse_body(parser *p, const char *const *ends) {
    jinja_node *body = NULL;
    if (!end_block(p)) return NULL;
    body = parse_until(p, ends);
    if (!p->failed && p->at->kind == TOKEN_END) (void)fail(p, "{%% %s %%} is missing", ends[0]);
    return body;
}

/* Takes the end word of a body and its tag's end. named: the name of the macro or block may follow the word. */
static void close_body(parser *p, bool named) {
    if (!p->failed) p->at++;
    if (named && !p->failed && p->at->kind == TOKEN_NAME) p->at++;
    (void)end_block(p);
}

static jinja_node *parse_to(parser *p, const char *end) {
    jinja_node *body = parse_body(p, (const char *const[]){end, NULL});
    close_body(p, false);
    return body;
}

/* Parses a body that break and continue cannot leave. */
static jinja_node *parse_closed(parser *p, const char *end, bool named) {
    const int loops = p->loops;
    jinja_node *body = NULL;
    p->loops = 0;
    body = parse_body(p, (const char *const[]){end, NULL});
    p->loops = loops;
    close_body(p, named);
    return body;
}

static jinja_node *parse_choice(parser *p) {
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    jinja_node *node = new_node(p, NODE_IF);
    if (node == NULL) return NULL;
    p->soft = true;
    node->a = parse_tuple(p, true);
    node->b = parse_body(p, ends);
    if (p->failed) return NULL;
    if (take_name(p, "elif")) {
        if (++p->depth > MOST_DEPTH) (void)fail(p, "more than %d elif", MOST_DEPTH);
        node->c = p->failed ? NULL : parse_choice(p);
        p->depth--;
        return node; /* it consumed the end tag */
    }
    if (take_name(p, "else")) node->c = parse_to(p, "endif");
    else close_body(p, false);
    return node;
}

static jinja_node *parse_if(parser *p) {
    const bool soft = p->soft;
    jinja_node *node = parse_choice(p);
    p->soft = soft;
    return node;
}

static jinja_node *parse_for(parser *p) {
    static const char *const ends[] = {"endfor", "else", NULL};
    jinja_node *node = new_node(p, NODE_FOR);
    if (node == NULL) return NULL;
    node->a = parse_target(p, false);
    if (!p->failed && !take_name(p, "in")) (void)fail(p, "for needs `in` after its targets");
    node->b = p->failed ? NULL : parse_tuple(p, false);
    if (take_name(p, "if")) node->e = parse_expression(p, true);
    node->op = take_name(p, "recursive");
    p->loops++;
    node->c = parse_body(p, ends);
    p->loops--;
    if (!p->failed && take_name(p, "else")) node->d = parse_to(p, "endfor");
    else close_body(p, false);
    return node;
}

static jinja_node *parse_set(parser *p) {
    jinja_node *node = new_node(p, NODE_SET);
    if (node == NULL) return NULL;
    node->a = parse_target(p, true);
    if (!p->failed && take_sign(p, "=")) {
        node->b = parse_tuple(p, true);
        (void)end_block(p);
        return node;
    }
    node->kind = NODE_SET_BLOCK;
    node->c = parse_filters(p, NULL, false);
    node->b = parse_to(p, "endset");
    return node;
}

/* Parses parameters: (a, b = 1). */
static jinja_node *parse_parameters(parser *p) {
    jinja_node *first = NULL, **to = &first;
    if (!need_sign(p, "(")) return NULL;
    while (!p->failed && !take_sign(p, ")")) {
        if (first != NULL && !need_sign(p, ",")) break;
        if (take_sign(p, ")")) break;
        *to = new_node(p, NODE_ARGUMENT);
        if (*to == NULL) return NULL;
        (*to)->text = need_name(p);
        if (!p->failed && take_sign(p, "=")) (*to)->a = parse_expression(p, true);
        to = &(*to)->next;
    }
    return first;
}

static jinja_node *parse_macro(parser *p) {
    const bool more = p->more;
    jinja_node *node = new_node(p, NODE_MACRO);
    if (node == NULL) return NULL;
    node->text = need_name(p);
    node->a = parse_parameters(p);
    p->more = false;
    node->b = parse_closed(p, "endmacro", true);
    node->op = p->more;
    p->more = more;
    return node;
}

static jinja_node *parse_call_block(parser *p) {
    jinja_node *node = new_node(p, NODE_CALL_BLOCK);
    if (node == NULL) return NULL;
    if (at_sign(p, "(")) node->b = parse_parameters(p);
    node->a = parse_expression(p, true);
    if (!p->failed && node->a->kind != NODE_CALL) (void)fail(p, "call needs a macro call");
    node->c = parse_closed(p, "endcall", false);
    return node;
}

static jinja_node *parse_filter_block(parser *p) {
    jinja_node *node = new_node(p, NODE_FILTER_BLOCK);
    if (node == NULL) return NULL;
    node->a = parse_filters(p, NULL, true);
    node->b = parse_to(p, "endfilter");
    return node;
}

static jinja_node *parse_with(parser *p) {
    jinja_node *node = new_node(p, NODE_WITH), **to = node == NULL ? NULL : &node->a;
    while (!p->failed && p->at->kind != TOKEN_BLOCK_END) {
        if (node->a != NULL && !need_sign(p, ",")) break;
        *to = new_node(p, NODE_SET);
        if (*to == NULL) return NULL;
        (*to)->a = new_node(p, NODE_NAME);
        if ((*to)->a == NULL) return NULL;
        (*to)->a->text = need_name(p);
        (void)need_sign(p, "=");
        (*to)->b = parse_expression(p, true);
        to = &(*to)->next;
    }
    if (p->failed) return NULL;
    node->b = parse_to(p, "endwith");
    return node;
}

static jinja_node *parse_generation(parser *p) {
    jinja_node *node = new_node(p, NODE_GENERATION);
    if (node == NULL) return NULL;
    p->self->has_blocks = true;
    node->b = parse_closed(p, "endgeneration", false);
    return node;
}

static jinja_node *parse_block(parser *p) {
    jinja_node *node = new_node(p, NODE_BLOCK);
    if (node == NULL) return NULL;
    node->text = need_name(p);
    node->op = take_name(p, "scoped");
    node->b = parse_closed(p, "endblock", true);
    return node;
}

/* Parses include, import, from or extends. They need another template, so executing one fails. */
static jinja_node *parse_include(parser *p) {
    jinja_node *node = new_node(p, NODE_INCLUDE);
    if (node == NULL) return NULL;
    node->text = p->at->text;
    while (p->at->kind != TOKEN_BLOCK_END && p->at->kind != TOKEN_END) p->at++;
    (void)end_block(p);
    return node;
}

static jinja_node *parse_jump(parser *p, int32_t kind) {
    jinja_node *node = new_node(p, kind);
    if (p->loops == 0) (void)fail(p, "break and continue must be in a loop");
    (void)end_block(p);
    return node;
}

static jinja_node *parse_named(parser *p) {
    if (take_name(p, "for")) return parse_for(p);
    if (take_name(p, "set")) return parse_set(p);
    if (take_name(p, "macro")) return parse_macro(p);
    if (take_name(p, "call")) return parse_call_block(p);
    if (take_name(p, "filter")) return parse_filter_block(p);
    if (take_name(p, "with")) return parse_with(p);
    if (take_name(p, "generation")) return parse_generation(p);
    if (take_name(p, "block")) return parse_block(p);
    if (at_name(p, "include") || at_name(p, "import") || at_name(p, "from") || at_name(p, "extends"))
        return parse_include(p);
    if (take_name(p, "break")) return parse_jump(p, NODE_BREAK);
    if (take_name(p, "continue")) return parse_jump(p, NODE_CONTINUE);
    (void)fail(p,
               "unknown statement %s. Allowed: if, for, set, macro, call, filter, with, generation, block, break, "
               "continue, raw",
               shown(p));
    return NULL;
}

/* Parses a statement after "{%". Only the body of an if may be skipped at run time. */
static jinja_node *parse_statement(parser *p) {
    const bool soft = p->soft;
    jinja_node *node = NULL;
    if (take_name(p, "if")) return parse_if(p);
    p->soft = soft && (at_name(p, "set") || at_name(p, "break") || at_name(p, "continue"));
    node = parse_named(p);
    p->soft = soft;
    return node;
}

static jinja_node *parse_print(parser *p) {
    jinja_node *node = new_node(p, NODE_PRINT);
    p->at++;
    if (node != NULL) node->a = parse_tuple(p, true);
    if (!p->failed && p->at->kind != TOKEN_PRINT_END) (void)fail(p, "expected }}, found %s", shown(p));
    p->at += !p->failed;
    return node;
}

static jinja_node *parse_data(parser *p) {
    jinja_node *node = new_node(p, NODE_DATA);
    if (node != NULL) node->value = jinja_text_new(&p->self->arena, p->at->text, NULL, p->at->n);
    p->at++;
    return node;
}

static bool at_end(const parser *p, const char *const *ends) {
    if (p->at->kind == TOKEN_END) return true;
    if (p->at->kind != TOKEN_BLOCK || p->at[1].kind != TOKEN_NAME) return false;
    for (; ends != NULL && *ends != NULL; ends++)
        if (strcmp(p->at[1].text, *ends) == 0) return true;
    return false;
}

/* Parses statements up to a tag that begins with one of `ends`, and stops at that word. */
static jinja_node *parse_until(parser *p, const char *const *ends) {
    jinja_node *first = NULL, **to = &first;
    if (++p->depth > MOST_DEPTH) (void)fail(p, "statements are nested too deep");
    while (!p->failed && !at_end(p, ends)) {
        if (p->at->kind == TOKEN_DATA) *to = parse_data(p);
        else if (p->at->kind == TOKEN_PRINT) *to = parse_print(p);
        else {
            p->at++;
            *to = parse_statement(p);
        }
        if (*to != NULL) to = &(*to)->next;
    }
    p->depth--;
    if (!p->failed && p->at->kind == TOKEN_BLOCK) p->at++;
    return first;
}

bool jinja_parse(jinja_template *self, const jinja_token *tokens, weft_error *err) {
    parser p = {.self = self, .at = tokens, .err = err};
    self->body = parse_until(&p, NULL);
    if (!p.failed && p.unknown != NULL)
        return jinja_fail(err, self, p.unknown->line, "unknown %s %.60s",
                          p.unknown->kind == NODE_FILTER ? "filter" : "test", p.unknown->text);
    return !p.failed;
}
