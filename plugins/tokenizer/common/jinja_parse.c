/* jinja_parse.c: statements: what stands between {% and %}, and what they enclose. */
#include "jinja_syntax.h"

static jinja_node *parse_until(jinja_parser *p, const char *const *ends);

static bool end_block(jinja_parser *p) {
    if (p->failed) return false;
    if (p->at->kind != TOKEN_BLOCK_END)
        return jinja_parser_fail(p, "%%} is needed where %s stands", jinja_token_shown(p));
    p->at++;
    return true;
}

/* The end of the tag at work, the body, and the word that ends it. */
static jinja_node *parse_body(jinja_parser *p, const char *const *ends) {
    jinja_node *body = NULL;
    if (!end_block(p)) return NULL;
    body = parse_until(p, ends);
    if (!p->failed && p->at->kind == TOKEN_END) (void)jinja_parser_fail(p, "{%% %s %%} is missing at the end", ends[0]);
    return body;
}

static jinja_node *parse_choice(jinja_parser *p) {
    static const char *const ends[] = {"endif", "elif", "else", NULL}, *const last[] = {"endif", NULL};
    jinja_node *node = jinja_node_new(p, NODE_IF);
    if (node == NULL) return NULL;
    p->soft = true;
    node->a = jinja_parse_tuple(p, true);
    node->b = parse_body(p, ends);
    if (p->failed) return NULL;
    if (jinja_take_name(p, "elif")) {
        if (++p->depth > JINJA_MOST_DEPTH) (void)jinja_parser_fail(p, "more than %d elif", JINJA_MOST_DEPTH);
        node->c = p->failed ? NULL : parse_choice(p);
        p->depth--;
        return node; /* which has read the end */
    }
    if (jinja_take_name(p, "else")) node->c = parse_body(p, last);
    if (!p->failed) p->at++;
    (void)end_block(p);
    return node;
}

static jinja_node *parse_if(jinja_parser *p) {
    const bool soft = p->soft;
    jinja_node *node = parse_choice(p);
    p->soft = soft;
    return node;
}

static jinja_node *parse_for(jinja_parser *p) {
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    jinja_node *node = jinja_node_new(p, NODE_FOR);
    if (node == NULL) return NULL;
    node->a = jinja_parse_target(p, false);
    if (!p->failed && !jinja_take_name(p, "in")) (void)jinja_parser_fail(p, "for needs `in` behind its names");
    node->b = p->failed ? NULL : jinja_parse_tuple(p, false);
    if (jinja_take_name(p, "if")) node->e = jinja_parse_expression(p, true);
    node->op = jinja_take_name(p, "recursive");
    p->loops++;
    node->c = parse_body(p, ends);
    p->loops--;
    if (!p->failed && jinja_take_name(p, "else")) node->d = parse_body(p, last);
    if (!p->failed) p->at++;
    (void)end_block(p);
    return node;
}

static jinja_node *parse_set(jinja_parser *p) {
    static const char *const ends[] = {"endset", NULL};
    jinja_node *node = jinja_node_new(p, NODE_SET);
    if (node == NULL) return NULL;
    node->a = jinja_parse_target(p, true);
    if (!p->failed && jinja_take_sign(p, "=")) {
        node->b = jinja_parse_tuple(p, true);
        (void)end_block(p);
        return node;
    }
    node->kind = NODE_SET_BLOCK;
    node->c = jinja_parse_filters(p, NULL, false);
    node->b = parse_body(p, ends);
    if (!p->failed) p->at++;
    (void)end_block(p);
    return node;
}

/* (a, b = 1), or nothing where that is allowed. */
static jinja_node *parse_parameters(jinja_parser *p) {
    jinja_node *first = NULL, **to = &first;
    if (!jinja_need_sign(p, "(")) return NULL;
    while (!p->failed && !jinja_take_sign(p, ")")) {
        if (first != NULL && !jinja_need_sign(p, ",")) break;
        if (jinja_take_sign(p, ")")) break;
        *to = jinja_node_new(p, NODE_ARGUMENT);
        if (*to == NULL) return NULL;
        (*to)->text = jinja_need_name(p);
        if (!p->failed && jinja_take_sign(p, "=")) (*to)->a = jinja_parse_expression(p, true);
        to = &(*to)->next;
    }
    return first;
}

static jinja_node *parse_macro(jinja_parser *p) {
    static const char *const ends[] = {"endmacro", NULL};
    const int loops = p->loops;
    const bool more = p->more;
    jinja_node *node = jinja_node_new(p, NODE_MACRO);
    if (node == NULL) return NULL;
    node->text = jinja_need_name(p);
    node->a = parse_parameters(p);
    p->loops = 0;
    p->more = false;
    node->b = parse_body(p, ends);
    node->op = p->more;
    p->loops = loops;
    p->more = more;
    if (!p->failed) p->at++;
    if (!p->failed && p->at->kind == TOKEN_NAME) p->at++; /* the macro's name again */
    (void)end_block(p);
    return node;
}

static jinja_node *parse_call_block(jinja_parser *p) {
    static const char *const ends[] = {"endcall", NULL};
    const int loops = p->loops;
    jinja_node *node = jinja_node_new(p, NODE_CALL_BLOCK);
    if (node == NULL) return NULL;
    if (jinja_at_sign(p, "(")) node->b = parse_parameters(p);
    node->a = jinja_parse_expression(p, true);
    if (!p->failed && node->a->kind != NODE_CALL) (void)jinja_parser_fail(p, "call needs a call of a macro");
    p->loops = 0;
    node->c = parse_body(p, ends);
    p->loops = loops;
    if (!p->failed) p->at++;
    (void)end_block(p);
    return node;
}

static jinja_node *parse_filter_block(jinja_parser *p) {
    static const char *const ends[] = {"endfilter", NULL};
    jinja_node *node = jinja_node_new(p, NODE_FILTER_BLOCK);
    if (node == NULL) return NULL;
    node->a = jinja_parse_filters(p, NULL, true);
    node->b = parse_body(p, ends);
    if (!p->failed) p->at++;
    (void)end_block(p);
    return node;
}

static jinja_node *parse_with(jinja_parser *p) {
    static const char *const ends[] = {"endwith", NULL};
    jinja_node *node = jinja_node_new(p, NODE_WITH), **to = node == NULL ? NULL : &node->a;
    while (!p->failed && p->at->kind != TOKEN_BLOCK_END) {
        if (node->a != NULL && !jinja_need_sign(p, ",")) break;
        *to = jinja_node_new(p, NODE_SET);
        if (*to == NULL) return NULL;
        (*to)->a = jinja_node_new(p, NODE_NAME);
        if ((*to)->a == NULL) return NULL;
        (*to)->a->text = jinja_need_name(p);
        (void)jinja_need_sign(p, "=");
        (*to)->b = jinja_parse_expression(p, true);
        to = &(*to)->next;
    }
    if (p->failed) return NULL;
    node->b = parse_body(p, ends);
    if (!p->failed) p->at++;
    (void)end_block(p);
    return node;
}

static jinja_node *parse_generation(jinja_parser *p) {
    static const char *const ends[] = {"endgeneration", NULL};
    const int loops = p->loops;
    jinja_node *node = jinja_node_new(p, NODE_GENERATION);
    if (node == NULL) return NULL;
    p->self->has_blocks = true;
    p->loops = 0;
    node->b = parse_body(p, ends);
    p->loops = loops;
    if (!p->failed) p->at++;
    (void)end_block(p);
    return node;
}

static jinja_node *parse_block(jinja_parser *p) {
    static const char *const ends[] = {"endblock", NULL};
    const int loops = p->loops;
    jinja_node *node = jinja_node_new(p, NODE_BLOCK);
    if (node == NULL) return NULL;
    node->text = jinja_need_name(p);
    node->op = jinja_take_name(p, "scoped");
    p->loops = 0;
    node->b = parse_body(p, ends);
    p->loops = loops;
    if (!p->failed) p->at++;
    if (!p->failed && p->at->kind == TOKEN_NAME) p->at++; /* the block's name again */
    (void)end_block(p);
    return node;
}

/* Of other templates: there are none, so it fails if it is reached. */
static jinja_node *parse_include(jinja_parser *p) {
    jinja_node *node = jinja_node_new(p, NODE_INCLUDE);
    if (node == NULL) return NULL;
    node->text = p->at->text;
    while (p->at->kind != TOKEN_BLOCK_END && p->at->kind != TOKEN_END) p->at++;
    (void)end_block(p);
    return node;
}

static jinja_node *parse_jump(jinja_parser *p, int32_t kind) {
    jinja_node *node = jinja_node_new(p, kind);
    if (p->loops == 0) (void)jinja_parser_fail(p, "break and continue belong into a loop");
    (void)end_block(p);
    return node;
}

static jinja_node *parse_named(jinja_parser *p) {
    if (jinja_take_name(p, "for")) return parse_for(p);
    if (jinja_take_name(p, "set")) return parse_set(p);
    if (jinja_take_name(p, "macro")) return parse_macro(p);
    if (jinja_take_name(p, "call")) return parse_call_block(p);
    if (jinja_take_name(p, "filter")) return parse_filter_block(p);
    if (jinja_take_name(p, "with")) return parse_with(p);
    if (jinja_take_name(p, "generation")) return parse_generation(p);
    if (jinja_take_name(p, "block")) return parse_block(p);
    if (jinja_at_name(p, "include") || jinja_at_name(p, "import") || jinja_at_name(p, "from") ||
        jinja_at_name(p, "extends"))
        return parse_include(p);
    if (jinja_take_name(p, "break")) return parse_jump(p, NODE_BREAK);
    if (jinja_take_name(p, "continue")) return parse_jump(p, NODE_CONTINUE);
    (void)jinja_parser_fail(p,
                            "the statement %s is not known here; known are: if, for, set, macro, call, filter, with, "
                            "generation, block, break, continue, raw",
                            jinja_token_shown(p));
    return NULL;
}

/* Behind {%. What is in the body of any statement but an if is reached for certain. */
static jinja_node *parse_statement(jinja_parser *p) {
    const bool soft = p->soft;
    jinja_node *node = NULL;
    if (jinja_take_name(p, "if")) return parse_if(p);
    p->soft = soft && (jinja_at_name(p, "set") || jinja_at_name(p, "break") || jinja_at_name(p, "continue"));
    node = parse_named(p);
    p->soft = soft;
    return node;
}

static jinja_node *parse_print(jinja_parser *p) {
    jinja_node *node = jinja_node_new(p, NODE_PRINT);
    p->at++;
    if (node != NULL) node->a = jinja_parse_tuple(p, true);
    if (!p->failed && p->at->kind != TOKEN_PRINT_END)
        (void)jinja_parser_fail(p, "}} is needed where %s stands", jinja_token_shown(p));
    p->at += !p->failed;
    return node;
}

static jinja_node *parse_data(jinja_parser *p) {
    jinja_node *node = jinja_node_new(p, NODE_DATA);
    if (node != NULL) node->value = jinja_text_new(&p->self->arena, p->at->text, NULL, p->at->n);
    p->at++;
    return node;
}

static bool at_end(const jinja_parser *p, const char *const *ends) {
    if (p->at->kind == TOKEN_END) return true;
    if (p->at->kind != TOKEN_BLOCK || p->at[1].kind != TOKEN_NAME) return false;
    for (; ends != NULL && *ends != NULL; ends++)
        if (strcmp(p->at[1].text, *ends) == 0) return true;
    return false;
}

/* Statements up to a tag that begins with one of `ends`; that word is next then. */
static jinja_node *parse_until(jinja_parser *p, const char *const *ends) {
    jinja_node *first = NULL, **to = &first;
    if (++p->depth > JINJA_MOST_DEPTH) (void)jinja_parser_fail(p, "statements lie too deep in each other");
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
    jinja_parser p = {.self = self, .at = tokens, .err = err};
    self->body = parse_until(&p, NULL);
    if (!p.failed && p.unknown != NULL)
        return jinja_fail(err, self, p.unknown->line, "the %s %.60s is not known here",
                          p.unknown->kind == NODE_FILTER ? "filter" : "test", p.unknown->text);
    return !p.failed;
}
