/* operate.c: operators, attributes, subscripts and slices. */
#include "run.h"

#include <math.h>

jinja_value jinja_undefined(jinja_render *r, const char *name) {
    jinja_value v = {.kind = JINJA_UNDEFINED};
    if (name != NULL) v.as.text = jinja_literal(&r->arena, name).as.text;
    return v;
}

static jinja_value refuse_operands(jinja_render *r, const char *sign, const jinja_value *a, const jinja_value *b) {
    const jinja_value *missing = a->kind == JINJA_UNDEFINED ? a : b->kind == JINJA_UNDEFINED ? b : NULL;
    if (missing != NULL && missing->as.text != NULL)
        return jinja_stop(r, "%s is undefined, operator %s needs a value", missing->as.text->bytes, sign);
    return jinja_stop(r, "unsupported operands: %s %s %s", jinja_kind_name(a), sign, jinja_kind_name(b));
}

static jinja_value concatenate(jinja_render *r, const jinja_text *a, const jinja_text *b) {
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    jinja_add_text(&out, a);
    jinja_add_text(&out, b);
    return jinja_finish(r, &out);
}

/* Escapes the characters &<>'" as markupsafe does, unless the string is marked safe. */
jinja_value jinja_escape(jinja_render *r, const jinja_value *v) {
    static const char signs[] = "&<>'\"", *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const jinja_text *text = v->as.text;
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    jinja_value made = jinja_none();
    if (v->function == JINJA_SAFE) return *v;
    for (size_t i = 0; i < text->n && !out.overflow && !r->arena.failed; i++) {
        const char *sign = memchr(signs, text->bytes[i], sizeof signs - 1);
        const char *name = sign == NULL ? &text->bytes[i] : names[sign - signs];
        const size_t n = sign == NULL ? 1 : strlen(name);
        jinja_add_as(&out, name, n, jinja_marks(text, i));
    }
    made = jinja_finish(r, &out);
    if (!jinja_failed(r)) made.function = JINJA_SAFE;
    return made;
}

static jinja_value add_texts(jinja_render *r, const jinja_value *a, const jinja_value *b) {
    jinja_value x = *a, y = *b, out = jinja_none();
    if (a->function != JINJA_SAFE && b->function != JINJA_SAFE) return concatenate(r, a->as.text, b->as.text);
    x = jinja_escape(r, a);
    y = jinja_escape(r, b);
    if (jinja_failed(r)) return out;
    out = concatenate(r, x.as.text, y.as.text);
    if (!r->failed) out.function = JINJA_SAFE;
    return out;
}

static void add_items(jinja_arena *arena, jinja_list *out, const jinja_list *items) {
    for (size_t i = 0; i < items->n && !arena->failed; i++) jinja_push(arena, out, items->items[i]);
}

static jinja_value add_lists(jinja_render *r, const jinja_value *a, const jinja_value *b) {
    jinja_value out = jinja_list_new(&r->arena, a->kind, a->as.list->n + b->as.list->n);
    if (r->arena.failed) return out;
    add_items(&r->arena, out.as.list, a->as.list);
    add_items(&r->arena, out.as.list, b->as.list);
    return out;
}

static jinja_value repeat(jinja_render *r, const jinja_value *v, int64_t times) {
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    jinja_value list = jinja_list_new(&r->arena, v->kind, 0);
    for (int64_t i = 0; i < times && jinja_step(r) && !out.overflow; i++) {
        if (v->kind == JINJA_STRING) jinja_add_text(&out, v->as.text);
        else add_items(&r->arena, list.as.list, v->as.list);
    }
    return v->kind == JINJA_STRING ? jinja_finish(r, &out) : list;
}

static jinja_value whole(jinja_render *r, int32_t op, int64_t a, int64_t b) {
    int64_t out = 0;
    bool over = false;
    if ((op == 'd' || op == '%') && b == 0) return jinja_stop(r, "division by zero");
    switch (op) {
    case '+': over = __builtin_add_overflow(a, b, &out); break;
    case '-': over = __builtin_sub_overflow(a, b, &out); break;
    case '*': over = __builtin_mul_overflow(a, b, &out); break;
    case 'd':
        over = a == INT64_MIN && b == -1;
        if (!over) out = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
        break;
    case '%': out = b == -1 ? 0 : a % b + ((a % b != 0 && (a % b < 0) != (b < 0)) ? b : 0); break;
    default:
        out = 1;
        for (int64_t i = 0; i < b && !over && jinja_step(r); i++) over = __builtin_mul_overflow(out, a, &out);
        break;
    }
    if (over) return jinja_stop(r, "an integer exceeds 64 bits");
    return jinja_int(out);
}

static jinja_value real(jinja_render *r, int32_t op, double a, double b) {
    if ((op == '/' || op == 'd' || op == '%') && !(b < 0.0) && !(b > 0.0)) return jinja_stop(r, "division by zero");
    switch (op) {
    case '+': return jinja_float(a + b);
    case '-': return jinja_float(a - b);
    case '*': return jinja_float(a * b);
    case '/': return jinja_float(a / b);
    case 'd': return jinja_float(floor(a / b));
    case '%': return jinja_float(a - b * floor(a / b));
    default:
        if (a < 0.0 && (trunc(b) < b || trunc(b) > b)) return jinja_stop(r, "the power is a complex number");
        return jinja_float(pow(a, b));
    }
}

jinja_value jinja_binary(jinja_render *r, int32_t op, const jinja_value *a, const jinja_value *b) {
    const char sign[3] = {op == 'p' ? '*' : op == 'd' ? '/' : (char)op, op == 'p' ? '*' : op == 'd' ? '/' : '\0', '\0'};
    if (op == '~') {
        const jinja_value x = jinja_to_string(r, a), y = jinja_to_string(r, b);
        return jinja_failed(r) ? jinja_none() : concatenate(r, x.as.text, y.as.text);
    }
    if (jinja_is_whole(a) && jinja_is_whole(b) && op != '/' && !(op == 'p' && b->as.i < 0))
        return whole(r, op, a->as.i, b->as.i);
    if (jinja_is_number(a) && jinja_is_number(b)) return real(r, op, jinja_number(a), jinja_number(b));
    if (op == '+' && a->kind == JINJA_STRING && b->kind == JINJA_STRING) return add_texts(r, a, b);
    if (op == '+' && jinja_is_list(a) && a->kind == b->kind) return add_lists(r, a, b);
    if (op == '*' && (a->kind == JINJA_STRING || jinja_is_list(a)) && jinja_is_whole(b)) return repeat(r, a, b->as.i);
    if (op == '*' && (b->kind == JINJA_STRING || jinja_is_list(b)) && jinja_is_whole(a)) return repeat(r, b, a->as.i);
    if (op == '%' && a->kind == JINJA_STRING) return jinja_percent(r, a, b);
    if ((a->kind == JINJA_BIG && (jinja_is_number(b) || b->kind == JINJA_BIG)) ||
        (b->kind == JINJA_BIG && jinja_is_number(a)))
        return jinja_stop(r, "an integer exceeds 64 bits");
    return refuse_operands(r, sign, a, b);
}

static bool contains(jinja_render *r, const jinja_value *within, const jinja_value *what) {
    const jinja_list *list = NULL;
    if (within->kind == JINJA_STRING && what->kind == JINJA_STRING)
        return jinja_find(&r->arena, within->as.text, what->as.text, 0) >= 0;
    if (within->kind == JINJA_STRING) {
        (void)refuse_operands(r, "in", what, within);
        return false;
    }
    if (within->kind == JINJA_DICT || within->kind == JINJA_NAMESPACE) { /* does not count as a read */
        for (size_t i = 0; i < within->as.dict->n && jinja_step(r); i++)
            if (jinja_equal(&r->arena, &within->as.dict->entries[i].key, what)) return true;
        return false;
    }
    list = jinja_walk(r, within);
    for (size_t i = 0; list != NULL && i < list->n && jinja_step(r); i++)
        if (jinja_equal(&r->arena, &list->items[i], what)) return true;
    return false;
}

bool jinja_compare(jinja_render *r, const char *sign, const jinja_value *a, const jinja_value *b) {
    int order = 0;
    if (strcmp(sign, "==") == 0) return jinja_equal(&r->arena, a, b);
    if (strcmp(sign, "!=") == 0) return !jinja_equal(&r->arena, a, b);
    if (strcmp(sign, "in") == 0) return contains(r, b, a);
    if (strcmp(sign, "not in") == 0) return !contains(r, b, a);
    order = jinja_order(&r->arena, a, b);
    if (order == 2) (void)refuse_operands(r, sign, a, b);
    if (order == 2) return false;
    return sign[1] == '=' ? (sign[0] == '<' ? order <= 0 : order >= 0) : (sign[0] == '<' ? order < 0 : order > 0);
}

static jinja_value loop_attribute(jinja_render *r, jinja_loop *loop, const char *name) {
    const int64_t i = (int64_t)loop->index, n = (int64_t)loop->items->n;
    if (strcmp(name, "index") == 0) return jinja_int(i + 1);
    if (strcmp(name, "index0") == 0) return jinja_int(i);
    if (strcmp(name, "revindex") == 0) return jinja_int(n - i);
    if (strcmp(name, "revindex0") == 0) return jinja_int(n - i - 1);
    if (strcmp(name, "first") == 0) return jinja_bool(i == 0);
    if (strcmp(name, "last") == 0) return jinja_bool(i == n - 1);
    if (strcmp(name, "length") == 0) return jinja_int(n);
    if (strcmp(name, "depth") == 0) return jinja_int(loop->depth + 1);
    if (strcmp(name, "depth0") == 0) return jinja_int(loop->depth);
    if (strcmp(name, "previtem") == 0) return i > 0 ? loop->items->items[i - 1] : jinja_undefined(r, "loop.previtem");
    if (strcmp(name, "nextitem") == 0)
        return i + 1 < n ? loop->items->items[i + 1] : jinja_undefined(r, "loop.nextitem");
    return jinja_undefined(r, name);
}

static jinja_value macro_attribute(jinja_render *r, const jinja_macro *macro, const char *name) {
    jinja_value names = jinja_list_new(&r->arena, JINJA_TUPLE, 0);
    if (strcmp(name, "name") == 0) return jinja_literal(&r->arena, macro->name);
    if (strcmp(name, "arguments") != 0) return jinja_undefined(r, name);
    for (const jinja_node *at = macro->parameters; at != NULL && !r->arena.failed; at = at->next)
        jinja_push(&r->arena, names.as.list, jinja_literal(&r->arena, at->text));
    return names;
}

jinja_value jinja_method_of(jinja_render *r, const jinja_value *v, const char *name) {
    jinja_method *method = JINJA_NEW(&r->arena, jinja_method);
    if (method == NULL) return jinja_none();
    method->self = *v;
    method->name = name;
    return (jinja_value){.kind = JINJA_METHOD, .as = {.method = method}};
}

jinja_value jinja_attribute(jinja_render *r, const jinja_value *v, const char *name) {
    const jinja_value *found = NULL;
    if (v->kind == JINJA_UNDEFINED)
        return jinja_stop(r, "%s is undefined and has no attribute %s",
                          v->as.text == NULL ? "a value" : v->as.text->bytes, name);
    if (jinja_has_method(v, name)) return jinja_method_of(r, v, name);
    if (v->kind == JINJA_LOOP) return loop_attribute(r, v->as.loop, name);
    if (jinja_is_number(v) && strcmp(name, "real") == 0) return *v;
    if (v->kind == JINJA_MACRO) return macro_attribute(r, v->as.macro, name);
    if (v->kind == JINJA_CYCLER && strcmp(name, "current") == 0) return v->as.loop->items->items[v->as.loop->index];
    if (v->kind == JINJA_TUPLE && v->function == JINJA_GROUP)
        for (size_t i = 0; i < 2; i++)
            if (strcmp(name, i == 0 ? "grouper" : "list") == 0) return v->as.list->items[i];
    if (v->kind == JINJA_DICT || v->kind == JINJA_NAMESPACE)
        found = jinja_get(&r->arena, v->as.dict, name, strlen(name));
    return found != NULL ? *found : jinja_undefined(r, name);
}

static jinja_value character(jinja_render *r, const jinja_value *v, int64_t i) {
    jinja_text *text = v->as.text;
    jinja_value out = jinja_none();
    const int64_t n = (int64_t)jinja_points(&r->arena, text), at = i < 0 ? i + n : i;
    if (at < 0 || at >= n) return jinja_undefined(r, "a character past the end");
    out = jinja_slice_bytes(&r->arena, text, jinja_byte_at(&r->arena, text, (size_t)at),
                            jinja_byte_at(&r->arena, text, (size_t)at + 1));
    out.function = r->arena.failed ? 0 : v->function;
    return out;
}

jinja_value jinja_item(jinja_render *r, const jinja_value *v, const jinja_value *key) {
    const jinja_value *found = NULL;
    if (v->kind == JINJA_STRING && jinja_is_whole(key)) return character(r, v, key->as.i);
    if (jinja_is_list(v) && jinja_is_whole(key) && !jinja_is_view(v)) {
        const int64_t n = (int64_t)v->as.list->n, at = key->as.i < 0 ? key->as.i + n : key->as.i;
        return at >= 0 && at < n ? v->as.list->items[at] : jinja_undefined(r, "an element past the end");
    }
    if (v->kind == JINJA_DICT) found = jinja_get_value(&r->arena, v->as.dict, key);
    if (found != NULL) return *found;
    if (v->kind == JINJA_UNDEFINED || key->kind == JINJA_STRING)
        return jinja_attribute(r, v, key->kind == JINJA_STRING ? jinja_name(&r->arena, key->as.text) : "an element");
    return jinja_undefined(r, "an element");
}

/* Computes begin and end of a slice over n elements, as Python's slice.indices. */
static bool slice_bounds(jinja_render *r, const jinja_value bounds[3], int64_t n, int64_t out[3]) {
    for (int i = 0; i < 3; i++)
        if (bounds[i].kind != JINJA_NONE && !jinja_is_whole(&bounds[i]))
            return jinja_stop(r, "a slice needs integers, not %s", jinja_kind_name(&bounds[i])), false;
    out[2] = bounds[2].kind == JINJA_NONE ? 1 : bounds[2].as.i;
    if (out[2] == 0) return jinja_stop(r, "the step of a slice is 0"), false;
    for (int i = 0; i < 2; i++) {
        const int64_t least = out[2] < 0 ? -1 : 0, most = out[2] < 0 ? n - 1 : n;
        int64_t at = bounds[i].as.i;
        if (bounds[i].kind == JINJA_NONE) at = (i == 0) == (out[2] > 0) ? least : most;
        else {
            if (at < 0) at += n;
            at = at < least ? least : at > most ? most : at;
        }
        out[i] = at;
    }
    return true;
}

/* Moves by `step` characters. Returns false at either end of the text. */
static bool skip(const jinja_text *text, size_t *at, int64_t step) {
    const bool ahead = step > 0;
    for (uint64_t left = ahead ? (uint64_t)step : -(uint64_t)step; left > 0; left--) {
        if (ahead ? *at >= text->n : *at == 0) return false;
        *at += ahead ? 1 : (size_t)-1;
        while (*at > 0 && *at < text->n && ((unsigned char)text->bytes[*at] & 0xC0) == 0x80)
            *at += ahead ? 1 : (size_t)-1;
    }
    return *at < text->n;
}

static jinja_value slice_text(jinja_render *r, jinja_text *text, const int64_t at[3]) {
    jinja_builder out = {.arena = &r->arena};
    const int64_t n = at[2] > 0 ? at[1] - at[0] : at[0] - at[1]; /* characters from begin to end */
    size_t from = n > 0 ? jinja_byte_at(&r->arena, text, (size_t)at[0]) : 0;
    int32_t c = 0;
    if (n <= 0 || r->arena.failed) return jinja_built(&out);
    if (at[2] == 1) return jinja_slice_bytes(&r->arena, text, from, jinja_byte_at(&r->arena, text, (size_t)at[1]));
    for (uint64_t done = 0, step = at[2] > 0 ? (uint64_t)at[2] : -(uint64_t)at[2]; done < (uint64_t)n && jinja_step(r);
         done += step) {
        const size_t bytes = jinja_next(text->bytes + from, text->n - from, &c);
        jinja_add_part(&out, text, from, from + bytes);
        if (step >= (uint64_t)n - done || !skip(text, &from, at[2])) break;
    }
    return jinja_built(&out);
}

jinja_value jinja_slice(jinja_render *r, const jinja_value *v, const jinja_value bounds[3]) {
    const bool text = v->kind == JINJA_STRING;
    const int64_t n = text               ? (int64_t)jinja_points(&r->arena, v->as.text)
                      : jinja_is_list(v) ? (int64_t)v->as.list->n
                                         : -1;
    int64_t at[3] = {0, 0, 1};
    jinja_value out = jinja_none();
    if (n < 0) return jinja_undefined(r, "a slice"); /* as in jinja2, for a value without elements */
    if (!slice_bounds(r, bounds, n, at)) return out;
    if (text) {
        out = slice_text(r, v->as.text, at);
        out.function = jinja_failed(r) ? 0 : v->function;
        return out;
    }
    out = jinja_list_new(&r->arena, v->kind, 0);
    for (int64_t i = at[0]; (at[2] > 0 ? i < at[1] : i > at[1]) && jinja_step(r);) {
        jinja_push(&r->arena, out.as.list, v->as.list->items[i]);
        if (__builtin_add_overflow(i, at[2], &i)) break;
    }
    return out;
}

const jinja_list *jinja_walk(jinja_render *r, const jinja_value *v) {
    jinja_value out = jinja_none();
    if (jinja_is_list(v)) return v->as.list;
    out = jinja_list_new(&r->arena, JINJA_LIST, 0);
    if (r->arena.failed) return NULL;
    if (v->kind == JINJA_ITERATOR) {
        *out.as.list = *v->as.list;
        *v->as.list = (jinja_list){NULL, 0, 0, NULL};
        return out.as.list;
    }
    if (v->kind == JINJA_DICT) jinja_read_all(v->as.dict);
    if (v->kind == JINJA_DICT)
        for (size_t i = 0; i < v->as.dict->n; i++) jinja_push(&r->arena, out.as.list, v->as.dict->entries[i].key);
    else if (v->kind == JINJA_STRING) {
        for (size_t at = 0, n = 0; at < v->as.text->n && jinja_step(r); at += n) {
            int32_t point = 0;
            n = jinja_next(v->as.text->bytes + at, v->as.text->n - at, &point);
            jinja_push(&r->arena, out.as.list, jinja_slice_bytes(&r->arena, v->as.text, at, at + n));
        }
    } else if (v->kind != JINJA_UNDEFINED) {
        (void)jinja_stop(r, "%s is not iterable", jinja_kind_name(v));
        return NULL;
    }
    return out.as.list;
}

jinja_value jinja_to_string(jinja_render *r, const jinja_value *v) {
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    if (v->kind == JINJA_STRING) return *v;
    if (v->kind == JINJA_ITERATOR) return jinja_stop(r, "an iterator cannot be printed. Fix: append |list or |join");
    if (jinja_is_opaque(v)) return jinja_stop(r, "%s cannot be printed", jinja_kind_name(v));
    jinja_add_str(&out, v);
    return jinja_finish(r, &out);
}
