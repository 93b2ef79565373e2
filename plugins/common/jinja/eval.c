/* eval.c: evaluates expressions and executes statements by walking the syntax tree. */
#include "run.h"

jinja_value jinja_stop(jinja_render *r, const char *format, ...) {
    char text[600];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!r->failed) (void)jinja_fail(r->err, r->self, r->line, "%s", text);
    r->failed = true;
    return jinja_none();
}

jinja_value jinja_finish(jinja_render *r, jinja_builder *out) {
    if (out->overflow) return jinja_stop(r, "a string exceeds %d bytes", JINJA_MOST_TEXT);
    return jinja_built(out);
}

static void report_limit(jinja_render *r) {
    if (r->arena.past == JINJA_STEPS) (void)jinja_stop(r, "rendering exceeds the limit of %d steps", JINJA_MOST_STEPS);
    else if (r->arena.past == JINJA_LEVELS)
        (void)jinja_stop(r, "calls or values are nested more than %d levels deep", JINJA_MOST_LEVELS);
    else (void)jinja_stop(r, "rendering exceeds the limit of %d MiB", (int)(JINJA_MOST_MEMORY >> 20));
}

bool jinja_step(jinja_render *r) {
    if (!r->failed && !jinja_spend(&r->arena, 0)) report_limit(r);
    return !r->failed;
}

static bool enter(jinja_render *r, const jinja_node *node) {
    if (!jinja_step(r)) return false;
    r->line = node->line;
    if (++r->depth > JINJA_MOST_LEVELS) {
        (void)jinja_stop(r, "calls or values are nested more than %d levels deep", JINJA_MOST_LEVELS);
        r->depth--;
        return false;
    }
    return true;
}

enum { BYTES_OF_A_NAME = 16 }; /* cost of one name comparison */

const jinja_value *jinja_lookup(jinja_render *r, const char *name) {
    size_t passed = 0;
    for (const jinja_scope *scope = r->scope; scope != NULL; scope = scope->parent)
        for (jinja_variable *at = scope->first; at != NULL; at = at->next, passed++)
            if (strcmp(at->name, name) == 0) {
                at->read = true;
                (void)jinja_spend(&r->arena, passed * BYTES_OF_A_NAME);
                return &at->value;
            }
    (void)jinja_spend(&r->arena, passed * BYTES_OF_A_NAME);
    return NULL;
}

void jinja_assign(jinja_render *r, const char *name, jinja_value value) {
    jinja_variable *at = r->scope->first;
    size_t passed = 0;
    for (; at != NULL && strcmp(at->name, name) != 0; passed++) at = at->next;
    if (!jinja_spend(&r->arena, passed * BYTES_OF_A_NAME)) return;
    if (at == NULL) {
        at = JINJA_NEW(&r->arena, jinja_variable);
        if (at == NULL) return;
        at->read = false;
        at->name = name;
        at->next = r->scope->first;
        r->scope->first = at;
    }
    at->value = value;
}

bool jinja_unpack(jinja_render *r, const jinja_node *target, jinja_value value) {
    const jinja_list *list = NULL;
    size_t n = 0, i = 0;
    if (r->failed) return false;
    if (target->kind == NODE_NAME) {
        jinja_assign(r, target->text, value);
        return true;
    }
    if (target->kind == NODE_ATTRIBUTE) {
        const jinja_value of = jinja_eval(r, target->a);
        if (r->failed) return false;
        if (of.kind != JINJA_NAMESPACE)
            return jinja_stop(r, "only attributes of a namespace can be set; %s is %s", target->a->text,
                              jinja_kind_name(&of)),
                   false;
        if (target->text[0] == '_') return jinja_stop(r, "names in a namespace must not begin with _"), false;
        jinja_put(&r->arena, of.as.dict, jinja_literal(&r->arena, target->text), value);
        return !r->arena.failed;
    }
    list = jinja_walk(r, &value);
    for (const jinja_node *at = target->a; at != NULL; at = at->next) n++;
    if (list == NULL) return false;
    if (list->n != n) return jinja_stop(r, "cannot unpack %zu values into %zu names", list->n, n), false;
    for (const jinja_node *at = target->a; at != NULL && !r->failed; at = at->next)
        (void)jinja_unpack(r, at, list->items[i++]);
    return !r->failed;
}

static jinja_value eval_list(jinja_render *r, const jinja_node *node, int32_t kind) {
    jinja_value out = jinja_list_new(&r->arena, kind, 0);
    for (const jinja_node *at = node->a; at != NULL && jinja_step(r); at = at->next)
        jinja_push(&r->arena, out.as.list, jinja_eval(r, at));
    return out;
}

static jinja_value eval_dict(jinja_render *r, const jinja_node *node) {
    jinja_value out = jinja_dict_new(&r->arena, JINJA_DICT);
    for (const jinja_node *at = node->a; at != NULL && jinja_step(r); at = at->next) {
        const jinja_value key = jinja_eval(r, at->a), value = jinja_eval(r, at->b);
        if (key.kind == JINJA_LIST || key.kind == JINJA_DICT)
            return jinja_stop(r, "%s cannot be a key of an object", jinja_kind_name(&key));
        if (!r->arena.failed) jinja_put(&r->arena, out.as.dict, key, value);
    }
    return out;
}

static void add_argument(jinja_render *r, jinja_args *args, const char *name, jinja_value value, size_t *capacity) {
    if (args->n == *capacity) {
        size_t same = *capacity;
        jinja_value *values = jinja_grow(&r->arena, args->values, args->n, &same, 1, sizeof *values);
        const char **names = jinja_grow(&r->arena, args->names, args->n, capacity, 1, sizeof *names);
        if (values == NULL || names == NULL) return;
        args->values = values;
        args->names = names;
    }
    args->values[args->n] = value;
    args->names[args->n++] = name;
}

static jinja_args eval_arguments(jinja_render *r, const jinja_node *first) {
    jinja_args args = jinja_no_args;
    size_t capacity = 0;
    for (const jinja_node *at = first; at != NULL && jinja_step(r); at = at->next) {
        const jinja_value value = jinja_eval(r, at->a);
        if (r->failed) break;
        if (at->op == 0) add_argument(r, &args, at->text, value, &capacity);
        if (at->op == 1) {
            const jinja_list *list = jinja_walk(r, &value);
            for (size_t i = 0; list != NULL && i < list->n; i++)
                add_argument(r, &args, NULL, list->items[i], &capacity);
        }
        if (at->op == 2 && value.kind != JINJA_DICT) (void)jinja_stop(r, "** needs an object");
        if (at->op == 2 && value.kind == JINJA_DICT) jinja_read_all(value.as.dict);
        if (at->op == 2 && value.kind == JINJA_DICT)
            for (size_t i = 0; i < value.as.dict->n; i++)
                if (value.as.dict->entries[i].key.kind == JINJA_STRING)
                    add_argument(r, &args, jinja_name(&r->arena, value.as.dict->entries[i].key.as.text),
                                 value.as.dict->entries[i].value, &capacity);
    }
    return args;
}

static jinja_value eval_unary(jinja_render *r, const jinja_node *node) {
    const jinja_value v = jinja_eval(r, node->a);
    if (r->failed) return v;
    if (node->op == '!') return jinja_bool(!jinja_truth(&v));
    if (!jinja_is_number(&v))
        return jinja_stop(r, "unsupported operand for %c: %s", (char)node->op, jinja_kind_name(&v));
    if (v.kind == JINJA_FLOAT) return jinja_float(node->op == '-' ? -v.as.f : v.as.f);
    if (node->op == '-' && v.as.i == INT64_MIN) return jinja_stop(r, "an integer exceeds 64 bits");
    return jinja_int(node->op == '-' ? -v.as.i : v.as.i);
}

static jinja_value eval_compare(jinja_render *r, const jinja_node *node) {
    jinja_value left = jinja_eval(r, node->a);
    for (const jinja_node *at = node->b; at != NULL && !r->failed; at = at->next) {
        const jinja_value right = jinja_eval(r, at->a);
        if (r->failed || !jinja_compare(r, at->text, &left, &right)) return jinja_bool(false);
        left = right;
    }
    return jinja_bool(true);
}

static jinja_value eval_name(jinja_render *r, const char *name) {
    static const char *const functions[] = {"range",        "namespace", "dict",   "raise_exception",
                                            "strftime_now", "cycler",    "joiner", "lipsum"};
    const jinja_value *found = jinja_lookup(r, name);
    if (found != NULL) return *found;
    for (int32_t i = 0; i < (int32_t)(sizeof functions / sizeof functions[0]); i++)
        if (strcmp(functions[i], name) == 0) return (jinja_value){.kind = JINJA_FUNCTION, .function = i};
    return jinja_undefined(r, name);
}

static jinja_value eval_slice(jinja_render *r, const jinja_node *node) {
    const jinja_value of = jinja_eval(r, node->a);
    jinja_value bounds[3];
    bounds[0] = node->b == NULL ? jinja_none() : jinja_eval(r, node->b);
    bounds[1] = node->c == NULL ? jinja_none() : jinja_eval(r, node->c);
    bounds[2] = node->d == NULL ? jinja_none() : jinja_eval(r, node->d);
    return r->failed ? jinja_none() : jinja_slice(r, &of, bounds);
}

static jinja_value eval_call(jinja_render *r, const jinja_node *node) {
    const jinja_value called = jinja_eval(r, node->a);
    const jinja_args args = eval_arguments(r, node->b);
    if (r->failed) return jinja_none();
    r->line = node->line;
    return jinja_call(r, &called, &args);
}

static jinja_value eval_pair(jinja_render *r, const jinja_node *node) {
    const jinja_value a = jinja_eval(r, node->a), b = r->failed ? jinja_none() : jinja_eval(r, node->b);
    if (r->failed) return jinja_none();
    r->line = node->line;
    return node->kind == NODE_ITEM ? jinja_item(r, &a, &b) : jinja_binary(r, node->op, &a, &b);
}

static jinja_value eval_filter_or_test(jinja_render *r, const jinja_node *node) {
    const jinja_value v = jinja_eval(r, node->a);
    const jinja_args args = eval_arguments(r, node->b); /* no arguments if the rendering failed */
    if (r->failed) return jinja_none();
    r->line = node->line;
    if (node->kind == NODE_FILTER) return jinja_filter(r, node->text, v, &args);
    return jinja_bool(jinja_test(r, node->text, &v, &args) != (node->op != 0));
}

static jinja_value eval_choice(jinja_render *r, const jinja_node *node) {
    const jinja_value condition = jinja_eval(r, node->kind == NODE_IF_ELSE ? node->b : node->a);
    if (r->failed) return jinja_none();
    if (node->kind == NODE_AND) return jinja_truth(&condition) ? jinja_eval(r, node->b) : condition;
    if (node->kind == NODE_OR) return jinja_truth(&condition) ? condition : jinja_eval(r, node->b);
    if (jinja_truth(&condition)) return jinja_eval(r, node->a);
    return node->c == NULL ? jinja_undefined(r, "an if without else") : jinja_eval(r, node->c);
}

static jinja_value eval_inside(jinja_render *r, const jinja_node *node) {
    jinja_value of = jinja_none();
    switch (node->kind) {
    case NODE_NAME: return eval_name(r, node->text);
    case NODE_LIST: return eval_list(r, node, JINJA_LIST);
    case NODE_TUPLE: return eval_list(r, node, JINJA_TUPLE);
    case NODE_DICT: return eval_dict(r, node);
    case NODE_UNARY: return eval_unary(r, node);
    case NODE_AND:
    case NODE_OR:
    case NODE_IF_ELSE: return eval_choice(r, node);
    case NODE_COMPARE: return eval_compare(r, node);
    case NODE_ITEM:
    case NODE_BINARY: return eval_pair(r, node);
    case NODE_SLICE: return eval_slice(r, node);
    case NODE_CALL: return eval_call(r, node);
    case NODE_FILTER:
    case NODE_TEST: return eval_filter_or_test(r, node);
    default: break;
    }
    of = jinja_eval(r, node->a); /* NODE_ATTRIBUTE */
    r->line = node->line;
    return r->failed ? of : jinja_attribute(r, &of, node->text);
}

jinja_value jinja_eval(jinja_render *r, const jinja_node *node) {
    jinja_value out = jinja_none();
    if (node->kind == NODE_CONST) return node->value;
    if (!enter(r, node)) return out;
    out = eval_inside(r, node);
    r->depth--;
    return jinja_failed(r) ? jinja_none() : out;
}

/* Executes a body and returns its output as a string. */
static jinja_value capture(jinja_render *r, const jinja_node *body) {
    jinja_builder inside = {.arena = &r->arena, .most = JINJA_MOST_TEXT, .or_mark = r->out->or_mark}, *out = r->out;
    r->out = &inside;
    jinja_exec(r, body);
    r->out = out;
    return jinja_finish(r, &inside);
}

/* Binds varargs and kwargs: arguments without a parameter, for a macro that reads them. */
static void bind_more(jinja_render *r, const jinja_macro *macro, const jinja_args *args, size_t n_parameters) {
    jinja_value list = jinja_list_new(&r->arena, JINJA_TUPLE, 0), dict = jinja_dict_new(&r->arena, JINJA_DICT);
    size_t position = 0;
    for (size_t i = 0; i < args->n && jinja_step(r) && !r->arena.failed; i++) {
        const jinja_node *at = macro->parameters;
        if (args->names[i] == NULL) {
            if (position++ >= n_parameters) jinja_push(&r->arena, list.as.list, args->values[i]);
            continue;
        }
        while (at != NULL && strcmp(at->text, args->names[i]) != 0) at = at->next;
        if (at == NULL && strcmp(args->names[i], "caller") != 0)
            jinja_put(&r->arena, dict.as.dict, jinja_literal(&r->arena, args->names[i]), args->values[i]);
    }
    jinja_assign(r, "varargs", list);
    jinja_assign(r, "kwargs", dict);
}

static bool bind_parameters(jinja_render *r, const jinja_macro *macro, const jinja_args *args) {
    size_t n = 0, i = 0;
    for (const jinja_node *at = macro->parameters; at != NULL; at = at->next, n++) {
        const jinja_value *given = jinja_spend(&r->arena, args->n * BYTES_OF_A_NAME) ? jinja_arg(args, n, at->text)
                                                                                     : NULL;
        jinja_value value = given != NULL   ? *given
                            : at->a != NULL ? jinja_eval(r, at->a)
                                            : jinja_undefined(r, at->text);
        if (r->failed) return false;
        jinja_assign(r, at->text, value);
    }
    for (size_t k = 0; k < args->n; k++) i += args->names[k] == NULL;
    if (macro->takes_more) bind_more(r, macro, args, n);
    if (i > n && !macro->takes_more)
        return jinja_stop(r, "the macro %s takes at most %zu arguments, not %zu", macro->name, n, i), false;
    for (size_t k = 0; k < args->n; k++) {
        const jinja_node *at = macro->parameters;
        if (args->names[k] == NULL) continue;
        while (at != NULL && strcmp(at->text, args->names[k]) != 0) at = at->next;
        if (strcmp(args->names[k], "caller") == 0) jinja_assign(r, "caller", args->values[k]);
        else if (at == NULL && !macro->takes_more)
            return jinja_stop(r, "the macro %s has no parameter %s", macro->name, args->names[k]), false;
    }
    return true;
}

jinja_value jinja_call_macro(jinja_render *r, const jinja_macro *macro, const jinja_args *args) {
    jinja_scope *inner = JINJA_NEW(&r->arena, jinja_scope), *scope = r->scope; /* inner macros may keep it */
    const int32_t jump = r->jump;
    jinja_value out = jinja_none();
    if (inner == NULL) return out;
    inner->parent = macro->scope;
    r->scope = inner;
    r->jump = 0;
    if (bind_parameters(r, macro, args)) out = capture(r, macro->body);
    r->scope = scope;
    r->jump = jump;
    return out;
}

static jinja_value new_macro(jinja_render *r, const char *name, const jinja_node *parameters, const jinja_node *body) {
    jinja_macro *macro = JINJA_NEW(&r->arena, jinja_macro);
    if (macro == NULL) return jinja_none();
    macro->name = name;
    macro->parameters = parameters;
    macro->body = body;
    macro->scope = r->scope;
    return (jinja_value){.kind = JINJA_MACRO, .as = {.macro = macro}};
}

static jinja_scope *new_scope(jinja_render *r) {
    jinja_scope *scope = JINJA_NEW(&r->arena, jinja_scope);
    if (scope != NULL) scope->parent = r->scope;
    return scope;
}

/* Executes a body in its own scope. Macros that the body defines may keep the scope. */
static void exec_inside(jinja_render *r, const jinja_node *body, jinja_scope *inner) {
    jinja_scope *scope = r->scope;
    if (inner == NULL) return;
    r->scope = inner;
    jinja_exec(r, body);
    r->scope = scope;
}

static const jinja_list *filtered(jinja_render *r, const jinja_node *node, const jinja_list *all) {
    jinja_value kept = jinja_list_new(&r->arena, JINJA_LIST, 0);
    jinja_scope *scope = r->scope;
    for (size_t i = 0; i < all->n && jinja_step(r); i++) {
        jinja_scope *inner = new_scope(r);
        if (inner == NULL) break;
        r->scope = inner;
        if (jinja_unpack(r, node->a, all->items[i])) {
            const jinja_value keep = jinja_eval(r, node->e);
            if (jinja_truth(&keep)) jinja_push(&r->arena, kept.as.list, all->items[i]);
        }
        r->scope = scope;
    }
    return jinja_failed(r) ? NULL : kept.as.list;
}

static void run_loop(jinja_render *r, const jinja_node *node, const jinja_value *of, int depth) {
    const jinja_list *list = r->failed ? NULL : jinja_walk(r, of);
    jinja_loop *loop = JINJA_NEW(&r->arena, jinja_loop);
    if (list != NULL && node->e != NULL) list = filtered(r, node, list);
    if (of->kind == JINJA_STRING && jinja_is_given(of->as.text)) of->as.text->walked = true;
    if (list == NULL || loop == NULL) return;
    loop->items = list;
    loop->depth = depth;
    loop->node = node->op != 0 ? node : NULL;
    loop->scope = r->scope;
    for (; loop->index < list->n && jinja_step(r); loop->index++) {
        const jinja_value *item = &list->items[loop->index];
        const uint32_t before = r->out->or_mark;
        jinja_scope *inner = new_scope(r), *scope = r->scope;
        if (inner == NULL) return;
        r->scope = inner;
        jinja_assign(r, "loop", (jinja_value){.kind = JINJA_LOOP, .as = {.loop = loop}});
        if (!r->self->has_blocks && item->kind == JINJA_DICT && item->as.dict->element > 0)
            r->out->or_mark = item->as.dict->element << 16;
        if (jinja_unpack(r, node->a, *item)) jinja_exec(r, node->c);
        r->out->or_mark = before;
        r->scope = scope;
        if (r->jump == NODE_BREAK) break;
        r->jump = 0;
    }
    r->jump = 0;
    if (list->n == 0 && node->d != NULL) exec_inside(r, node->d, new_scope(r));
}

static void exec_for(jinja_render *r, const jinja_node *node) {
    const jinja_value of = jinja_eval(r, node->b);
    run_loop(r, node, &of, 0);
}

/* Calls a recursive loop, loop(items), and returns its output for the new items. */
jinja_value jinja_call_loop(jinja_render *r, const jinja_loop *loop, const jinja_args *args) {
    jinja_builder inside = {.arena = &r->arena, .most = JINJA_MOST_TEXT, .or_mark = r->out->or_mark}, *out = r->out;
    jinja_scope *scope = r->scope;
    const int32_t jump = r->jump;
    const jinja_value *items = jinja_arg(args, 0, "iterable");
    if (loop->node == NULL) return jinja_stop(r, "only a `recursive` loop can be called");
    if (items == NULL) return jinja_stop(r, "loop() needs an iterable");
    r->out = &inside;
    r->scope = loop->scope;
    r->jump = 0;
    run_loop(r, loop->node, items, loop->depth + 1);
    r->out = out;
    r->scope = scope;
    r->jump = jump;
    return jinja_finish(r, &inside);
}

/* Executes a block, which sees only top-level variables unless it is scoped. */
static void exec_block(jinja_render *r, const jinja_node *node) {
    jinja_scope *inner = new_scope(r);
    if (inner != NULL && node->op == 0) inner->parent = &r->globals;
    exec_inside(r, node->b, inner);
}

static void print(jinja_render *r, const jinja_value *v) {
    if (v->kind == JINJA_ITERATOR || jinja_is_opaque(v)) (void)jinja_to_string(r, v);
    else jinja_add_str(r->out, v);
    if (r->out->overflow) (void)jinja_stop(r, "the rendered text exceeds %d bytes", JINJA_MOST_TEXT);
}

static void exec_if(jinja_render *r, const jinja_node *node) {
    const jinja_value condition = jinja_eval(r, node->a);
    if (r->failed) return;
    jinja_exec(r, jinja_truth(&condition) ? node->b : node->c);
}

/* Applies the filters of a block to its output, innermost first. */
static jinja_value filter_chain(jinja_render *r, const jinja_node *filters, jinja_value v) {
    jinja_args args = jinja_no_args;
    if (filters == NULL || r->failed) return v;
    v = filter_chain(r, filters->a, v);
    args = eval_arguments(r, filters->b);
    return r->failed ? v : jinja_filter(r, filters->text, v, &args);
}

static jinja_value capture_inside(jinja_render *r, const jinja_node *body) {
    jinja_scope *scope = r->scope, *inner = new_scope(r);
    jinja_value out = jinja_none();
    if (inner == NULL) return out;
    r->scope = inner;
    out = capture(r, body);
    r->scope = scope;
    return out;
}

static void exec_call_block(jinja_render *r, const jinja_node *node) {
    const jinja_value called = jinja_eval(r, node->a->a);
    jinja_args args = eval_arguments(r, node->a->b);
    size_t capacity = args.n;
    jinja_value out = jinja_none();
    if (r->failed) return;
    if (called.kind != JINJA_MACRO) {
        (void)jinja_stop(r, "call needs a macro, not %s", jinja_kind_name(&called));
        return;
    }
    add_argument(r, &args, "caller", new_macro(r, "caller", node->b, node->c), &capacity);
    out = jinja_call_macro(r, called.as.macro, &args);
    if (!r->failed) print(r, &out);
}

static void exec_with(jinja_render *r, const jinja_node *node) {
    jinja_scope *inner = new_scope(r), *scope = r->scope;
    if (inner == NULL) return;
    for (const jinja_node *at = node->a; at != NULL && !r->failed; at = at->next) {
        const jinja_value value = jinja_eval(r, at->b); /* in the outer scope */
        r->scope = inner;
        (void)jinja_unpack(r, at->a, value);
        r->scope = scope;
    }
    exec_inside(r, node->b, inner);
}

static void exec_generation(jinja_render *r, const jinja_node *node) {
    const uint32_t before = r->out->or_mark;
    if (before == 0 && r->n_generations >= JINJA_MOST_BLOCKS) {
        (void)jinja_stop(r, "more than %u generation blocks", JINJA_MOST_BLOCKS);
        return;
    }
    if (before == 0) r->out->or_mark = ++r->n_generations << 16;
    exec_inside(r, node->b, new_scope(r));
    r->out->or_mark = before;
}

static void exec_one(jinja_render *r, const jinja_node *node) {
    jinja_value v = jinja_none();
    switch (node->kind) {
    case NODE_DATA: print(r, &node->value); break;
    case NODE_PRINT:
        v = jinja_eval(r, node->a);
        if (!r->failed) print(r, &v);
        break;
    case NODE_IF: exec_if(r, node); break;
    case NODE_FOR: exec_for(r, node); break;
    case NODE_SET:
        v = jinja_eval(r, node->b);
        (void)jinja_unpack(r, node->a, v);
        break;
    case NODE_SET_BLOCK:
        v = filter_chain(r, node->c, capture_inside(r, node->b));
        (void)jinja_unpack(r, node->a, v);
        break;
    case NODE_MACRO:
        v = new_macro(r, node->text, node->a, node->b);
        if (!r->arena.failed) v.as.macro->takes_more = node->op != 0;
        jinja_assign(r, node->text, v);
        break;
    case NODE_BLOCK: exec_block(r, node); break;
    case NODE_INCLUDE: (void)jinja_stop(r, "%s is not supported: there are no other templates", node->text); break;
    case NODE_CALL_BLOCK: exec_call_block(r, node); break;
    case NODE_FILTER_BLOCK:
        v = filter_chain(r, node->a, capture_inside(r, node->b));
        if (!r->failed) print(r, &v);
        break;
    case NODE_WITH: exec_with(r, node); break;
    case NODE_GENERATION: exec_generation(r, node); break;
    default: r->jump = node->kind; break;
    }
}

void jinja_exec(jinja_render *r, const jinja_node *node) {
    for (; node != NULL && r->jump == 0 && !r->failed; node = node->next) {
        if (!enter(r, node)) return;
        exec_one(r, node);
        r->depth--;
    }
}
