/* jinja_parse_expr.c: expressions, with jinja2's order of operators. */
#include "jinja_syntax.h"

jinja_node *jinja_node_new(jinja_parser *p, int32_t kind) {
    jinja_node *node = JINJA_NEW(&p->self->arena, jinja_node);
    if (node == NULL) {
        p->failed = true;
        return NULL;
    }
    node->kind = kind;
    node->line = p->at->line;
    return node;
}

bool jinja_parser_fail(jinja_parser *p, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!p->failed) (void)jinja_fail(p->err, p->self, p->at->line, "%s", text);
    p->failed = true;
    return false;
}

const char *jinja_token_shown(const jinja_parser *p) {
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

bool jinja_at_name(const jinja_parser *p, const char *name) {
    return p->at->kind == TOKEN_NAME && strcmp(p->at->text, name) == 0;
}

bool jinja_at_sign(const jinja_parser *p, const char *sign) {
    return p->at->kind == TOKEN_SIGN && strcmp(p->at->text, sign) == 0;
}

bool jinja_take_name(jinja_parser *p, const char *name) {
    const bool there = jinja_at_name(p, name);
    p->at += there;
    return there;
}

bool jinja_take_sign(jinja_parser *p, const char *sign) {
    const bool there = jinja_at_sign(p, sign);
    p->at += there;
    return there;
}

bool jinja_need_sign(jinja_parser *p, const char *sign) {
    if (p->failed) return false;
    return jinja_take_sign(p, sign) || jinja_parser_fail(p, "%s is needed where %s stands", sign, jinja_token_shown(p));
}

const char *jinja_need_name(jinja_parser *p) {
    if (p->failed) return NULL;
    if (p->at->kind == TOKEN_NAME) return (p->at++)->text;
    (void)jinja_parser_fail(p, "a name is needed where %s stands", jinja_token_shown(p));
    return NULL;
}

static jinja_node *parse_unary(jinja_parser *p, bool with_filter);

static jinja_node *constant(jinja_parser *p, jinja_value value) {
    jinja_node *node = jinja_node_new(p, NODE_CONST);
    if (node != NULL) node->value = value;
    return node;
}

static jinja_node *parse_items(jinja_parser *p, int32_t kind, const char *close) {
    jinja_node *node = jinja_node_new(p, kind), **to = node == NULL ? NULL : &node->a;
    while (!p->failed && !jinja_take_sign(p, close)) {
        if (node->a != NULL && !jinja_need_sign(p, ",")) break;
        if (jinja_take_sign(p, close)) break;
        *to = jinja_parse_expression(p, true);
        if (p->failed) break;
        if (kind == NODE_DICT) {
            jinja_node *key = *to;
            if (!jinja_need_sign(p, ":")) break;
            *to = jinja_node_new(p, NODE_ARGUMENT);
            if (*to == NULL) break;
            (*to)->a = key;
            (*to)->b = jinja_parse_expression(p, true);
        }
        to = &(*to)->next;
    }
    return p->failed ? NULL : node;
}

/* Strings side by side are one. */
static jinja_node *parse_string(jinja_parser *p) {
    jinja_builder out = {.arena = &p->self->arena};
    for (; p->at->kind == TOKEN_STRING; p->at++) jinja_add(&out, p->at->text, NULL, p->at->n);
    return constant(p, jinja_built(&out));
}

static jinja_node *parse_name(jinja_parser *p) {
    const char *name = p->at->text;
    jinja_node *node = NULL;
    if (strcmp(name, "true") == 0 || strcmp(name, "True") == 0) node = constant(p, jinja_bool(true));
    else if (strcmp(name, "false") == 0 || strcmp(name, "False") == 0) node = constant(p, jinja_bool(false));
    else if (strcmp(name, "none") == 0 || strcmp(name, "None") == 0) node = constant(p, jinja_none());
    else node = jinja_node_new(p, NODE_NAME);
    if (node != NULL) node->text = name;
    p->at++;
    return node;
}

static jinja_node *parse_primary(jinja_parser *p) {
    jinja_node *node = NULL;
    if (p->failed) return NULL;
    p->more = p->more || jinja_at_name(p, "varargs") || jinja_at_name(p, "kwargs");
    if (p->at->kind == TOKEN_NAME) return parse_name(p);
    if (p->at->kind == TOKEN_STRING) return parse_string(p);
    if (p->at->kind == TOKEN_INT || p->at->kind == TOKEN_FLOAT) return constant(p, (p->at++)->number);
    if (jinja_take_sign(p, "[")) return parse_items(p, NODE_LIST, "]");
    if (jinja_take_sign(p, "{")) return parse_items(p, NODE_DICT, "}");
    if (jinja_take_sign(p, "(")) {
        if (jinja_take_sign(p, ")")) return jinja_node_new(p, NODE_TUPLE);
        node = jinja_parse_tuple(p, true);
        (void)jinja_need_sign(p, ")");
        return p->failed ? NULL : node;
    }
    (void)jinja_parser_fail(p, "a value is needed where %s stands", jinja_token_shown(p));
    return NULL;
}

/* Behind "(". */
static jinja_node *parse_arguments(jinja_parser *p) {
    jinja_node *first = NULL, **to = &first;
    while (!p->failed && !jinja_take_sign(p, ")")) {
        jinja_node *argument = NULL;
        if (first != NULL && !jinja_need_sign(p, ",")) break;
        if (jinja_take_sign(p, ")")) break;
        argument = jinja_node_new(p, NODE_ARGUMENT);
        if (argument == NULL) break;
        argument->op = jinja_take_sign(p, "**") ? 2 : jinja_take_sign(p, "*") ? 1 : 0;
        if (p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_SIGN && strcmp(p->at[1].text, "=") == 0) {
            argument->text = p->at->text;
            p->at += 2;
        }
        argument->a = jinja_parse_expression(p, true);
        *to = argument;
        to = &argument->next;
    }
    return first;
}

static jinja_node *parse_subscript(jinja_parser *p, jinja_node *of) {
    jinja_node *node = jinja_node_new(p, NODE_ITEM), *parts[3] = {NULL, NULL, NULL};
    int colons = 0;
    for (;;) {
        if (!jinja_at_sign(p, ":") && !jinja_at_sign(p, "]")) parts[colons] = jinja_parse_expression(p, true);
        if (p->failed || colons == 2 || !jinja_take_sign(p, ":")) break;
        colons++;
    }
    (void)jinja_need_sign(p, "]");
    if (p->failed || node == NULL) return NULL;
    if (colons > 0) node->kind = NODE_SLICE;
    if (colons == 0 && parts[0] == NULL) (void)jinja_parser_fail(p, "[ ] needs a value inside");
    node->a = of;
    node->b = parts[0];
    node->c = parts[1];
    node->d = parts[2];
    return node;
}

static jinja_node *parse_call(jinja_parser *p, jinja_node *of) {
    jinja_node *node = jinja_node_new(p, NODE_CALL);
    if (node == NULL) return NULL;
    node->a = of;
    node->b = parse_arguments(p);
    return node;
}

static jinja_node *parse_attribute(jinja_parser *p, jinja_node *of) {
    jinja_node *node = jinja_node_new(p, NODE_ATTRIBUTE);
    if (node == NULL) return NULL;
    if (p->at->kind == TOKEN_INT) {
        node->kind = NODE_ITEM;
        node->b = constant(p, (p->at++)->number);
    } else node->text = jinja_need_name(p);
    node->a = of;
    return node;
}

static jinja_node *parse_postfix(jinja_parser *p, jinja_node *node) {
    while (!p->failed) {
        if (jinja_take_sign(p, ".")) node = parse_attribute(p, node);
        else if (jinja_take_sign(p, "[")) node = parse_subscript(p, node);
        else if (jinja_take_sign(p, "(")) node = parse_call(p, node);
        else break;
    }
    return node;
}

static void note_unknown(jinja_parser *p, const jinja_node *node) {
    if (!p->soft && p->unknown == NULL) p->unknown = node;
}

jinja_node *jinja_parse_filters(jinja_parser *p, jinja_node *of, bool first) {
    while (!p->failed && (first || jinja_take_sign(p, "|"))) {
        jinja_node *node = jinja_node_new(p, NODE_FILTER);
        if (node == NULL) return NULL;
        node->text = jinja_need_name(p);
        if (!p->failed && !jinja_knows_filter(node->text)) note_unknown(p, node);
        node->a = of;
        if (!p->failed && jinja_take_sign(p, "(")) node->b = parse_arguments(p);
        of = node;
        first = false;
    }
    return of;
}

static bool begins_test_argument(const jinja_parser *p) {
    if (p->at->kind == TOKEN_NAME)
        return !jinja_at_name(p, "else") && !jinja_at_name(p, "or") && !jinja_at_name(p, "and") &&
               !jinja_at_name(p, "is") && !jinja_at_name(p, "if") && !jinja_at_name(p, "in") &&
               !jinja_at_name(p, "not");
    return p->at->kind == TOKEN_STRING || p->at->kind == TOKEN_INT || p->at->kind == TOKEN_FLOAT ||
           jinja_at_sign(p, "[") || jinja_at_sign(p, "{");
}

/* Behind "is". */
static jinja_node *parse_test(jinja_parser *p, jinja_node *of) {
    const bool negated = jinja_take_name(p, "not");
    jinja_node *node = jinja_node_new(p, NODE_TEST);
    if (node == NULL) return NULL;
    node->text = jinja_need_name(p);
    if (!p->failed && !jinja_knows_test(node->text)) note_unknown(p, node);
    node->op = negated;
    node->a = of;
    if (!p->failed && jinja_take_sign(p, "(")) node->b = parse_arguments(p);
    else if (!p->failed && begins_test_argument(p)) {
        node->b = jinja_node_new(p, NODE_ARGUMENT);
        if (node->b != NULL) node->b->a = parse_postfix(p, parse_primary(p));
    }
    return node;
}

static jinja_node *parse_filter_expression(jinja_parser *p, jinja_node *node) {
    while (!p->failed) {
        if (jinja_at_sign(p, "|")) node = jinja_parse_filters(p, node, false);
        else if (jinja_take_name(p, "is")) node = parse_test(p, node);
        else if (jinja_take_sign(p, "(")) node = parse_call(p, node);
        else break;
    }
    return node;
}

static jinja_node *parse_unary(jinja_parser *p, bool with_filter) {
    jinja_node *node = NULL;
    if (++p->depth > JINJA_MOST_DEPTH) (void)jinja_parser_fail(p, "expressions lie too deep in each other");
    if (!p->failed && (jinja_at_sign(p, "-") || jinja_at_sign(p, "+"))) {
        node = jinja_node_new(p, NODE_UNARY);
        if (node != NULL) node->op = p->at->text[0];
        p->at++;
        if (node != NULL) node->a = parse_unary(p, false);
    } else node = parse_primary(p);
    node = parse_postfix(p, node);
    if (with_filter) node = parse_filter_expression(p, node);
    p->depth--;
    return node;
}

/* The levels of binary operators, loosest first. */
static const char *const levels[][5] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
enum { N_LEVELS = 4 };

static jinja_node *parse_level(jinja_parser *p, int level) {
    jinja_node *left = level == N_LEVELS ? parse_unary(p, true) : parse_level(p, level + 1);
    for (int i = 0; level < N_LEVELS && !p->failed && levels[level][i] != NULL; i++) {
        jinja_node *node = NULL;
        const char *sign = levels[level][i];
        if (!jinja_at_sign(p, sign)) continue;
        node = jinja_node_new(p, NODE_BINARY);
        if (node == NULL) return NULL;
        node->op = sign[1] == '\0' ? sign[0] : sign[0] == '*' ? 'p' : 'd';
        p->at++;
        node->a = left;
        node->b = parse_level(p, level + 1);
        left = node;
        i = -1; /* the next may be any of this level */
    }
    return left;
}

static const char *comparison(jinja_parser *p) {
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (jinja_take_sign(p, signs[i])) return signs[i];
    if (jinja_take_name(p, "in")) return "in";
    if (!jinja_at_name(p, "not") || p->at[1].kind != TOKEN_NAME || strcmp(p->at[1].text, "in") != 0) return NULL;
    p->at += 2;
    return "not in";
}

static jinja_node *parse_compare(jinja_parser *p) {
    jinja_node *first = parse_level(p, 0), *node = NULL, **to = NULL;
    for (const char *sign = NULL; !p->failed && (sign = comparison(p)) != NULL; to = &(*to)->next) {
        if (node == NULL) {
            node = jinja_node_new(p, NODE_COMPARE);
            if (node == NULL) return NULL;
            node->a = first;
            to = &node->b;
        }
        *to = jinja_node_new(p, NODE_OPERAND);
        if (*to == NULL) return NULL;
        (*to)->text = sign;
        (*to)->a = parse_level(p, 0);
    }
    return node != NULL ? node : first;
}

static jinja_node *parse_not(jinja_parser *p) {
    jinja_node *node = NULL;
    if (!jinja_take_name(p, "not")) return parse_compare(p);
    if (++p->depth > JINJA_MOST_DEPTH) (void)jinja_parser_fail(p, "expressions lie too deep in each other");
    node = jinja_node_new(p, NODE_UNARY);
    if (node != NULL) node->op = '!';
    if (node != NULL && !p->failed) node->a = parse_not(p);
    p->depth--;
    return node;
}

static jinja_node *parse_joined(jinja_parser *p, const char *word, int32_t kind) {
    jinja_node *left = kind == NODE_OR ? parse_joined(p, "and", NODE_AND) : parse_not(p);
    while (!p->failed && jinja_take_name(p, word)) {
        jinja_node *node = jinja_node_new(p, kind);
        if (node == NULL) return NULL;
        node->a = left;
        node->b = kind == NODE_OR ? parse_joined(p, "and", NODE_AND) : parse_not(p);
        left = node;
    }
    return left;
}

jinja_node *jinja_parse_expression(jinja_parser *p, bool with_condition) {
    const jinja_node *unknown = p->unknown;
    const bool soft = p->soft;
    jinja_node *node = NULL;
    if (p->failed) return NULL;
    if (++p->depth > JINJA_MOST_DEPTH) (void)jinja_parser_fail(p, "expressions lie too deep in each other");
    node = p->failed ? NULL : parse_joined(p, "or", NODE_OR);
    while (with_condition && !p->failed && jinja_take_name(p, "if")) {
        jinja_node *choice = jinja_node_new(p, NODE_IF_ELSE);
        p->unknown = unknown; /* all of a choice is in an if */
        p->soft = true;
        if (choice == NULL) return NULL;
        choice->a = node;
        choice->b = parse_joined(p, "or", NODE_OR);
        if (jinja_take_name(p, "else")) choice->c = jinja_parse_expression(p, true);
        node = choice;
    }
    p->soft = soft;
    p->depth--;
    return p->failed ? NULL : node;
}

static bool ends_tuple(const jinja_parser *p) {
    return p->at->kind == TOKEN_PRINT_END || p->at->kind == TOKEN_BLOCK_END || jinja_at_sign(p, ")") ||
           jinja_at_sign(p, "=") || jinja_at_name(p, "in") || jinja_at_name(p, "if");
}

/* A tuple of what `one` parses, which may be called with `flag`; a single one without a comma is itself. */
static jinja_node *parse_tuple_of(jinja_parser *p, jinja_node *(*one)(jinja_parser *p, bool flag), bool flag) {
    jinja_node *first = one(p, flag), *node = NULL, **to = NULL;
    while (!p->failed && jinja_take_sign(p, ",")) {
        if (node == NULL) {
            node = jinja_node_new(p, NODE_TUPLE);
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

jinja_node *jinja_parse_tuple(jinja_parser *p, bool with_condition) {
    return parse_tuple_of(p, jinja_parse_expression, with_condition);
}

static jinja_node *target_name(jinja_parser *p, bool attribute) {
    jinja_node *node = jinja_node_new(p, NODE_NAME), *of = NULL;
    if (node == NULL) return NULL;
    if (jinja_take_sign(p, "(")) {
        node = jinja_parse_target(p, false);
        (void)jinja_need_sign(p, ")");
        return node;
    }
    node->text = jinja_need_name(p);
    if (!attribute || p->failed || !jinja_take_sign(p, ".")) return node;
    of = node;
    node = jinja_node_new(p, NODE_ATTRIBUTE);
    if (node == NULL) return NULL;
    node->a = of;
    node->text = jinja_need_name(p);
    return node;
}

/* The depth counts before anything is parsed: brackets may open without end. */
jinja_node *jinja_parse_target(jinja_parser *p, bool attribute) {
    jinja_node *node = NULL;
    if (++p->depth > JINJA_MOST_DEPTH) (void)jinja_parser_fail(p, "targets lie too deep in each other");
    else node = parse_tuple_of(p, target_name, attribute);
    p->depth--;
    return node;
}
