/* is.c: the tests of jinja2, `value is test`. */
#include "run.h"

#include <math.h>

static bool is_cased(jinja_render *r, const jinja_value *v, const char *method) {
    const jinja_value text = jinja_to_string(r, v);
    const jinja_method call = {text, method};
    jinja_value out = jinja_none();
    if (jinja_failed(r)) return false;
    out = jinja_method_call(r, &call, &jinja_no_args);
    return jinja_truth(&out);
}

static const char *sign_of(const char *name) {
    static const char *const names[][2] = {{"eq", "=="},         {"equalto", "=="}, {"==", "=="},      {"ne", "!="},
                                           {"!=", "!="},         {"lt", "<"},       {"lessthan", "<"}, {"<", "<"},
                                           {"le", "<="},         {"<=", "<="},      {"gt", ">"},       {">", ">"},
                                           {"greaterthan", ">"}, {"ge", ">="},      {">=", ">="},      {"in", "in"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], name) == 0) return names[i][1];
    return NULL;
}

static bool is_same(jinja_arena *arena, const jinja_value *a, const jinja_value *b) {
    return a->kind == b->kind && jinja_equal(arena, a, b) &&
           (a->kind < JINJA_STRING || a->as.list == b->as.list || a->kind == JINJA_STRING);
}

static bool with_number(jinja_render *r, const char *name, const jinja_value *v, const jinja_value *by) {
    const int64_t n = name[0] == 'd' ? (by == NULL || !jinja_is_whole(by) ? 0 : by->as.i) : 2;
    if (v->kind == JINJA_FLOAT && n != 0) {
        const double rest = fmod(v->as.f, (double)n);
        return name[0] == 'o' ? rest + (rest < 0.0) * (double)n == 1.0 : !(rest < 0.0) && !(rest > 0.0);
    }
    if (!jinja_is_whole(v) || n == 0) return jinja_stop(r, "%s needs integers", name), false;
    return n == -1 || (v->as.i % n == 0) != (name[0] == 'o');
}

bool jinja_knows_test(const char *name) {
    static const char *const names[] = {"defined",     "undefined", "none",    "string", "mapping", "number",
                                        "integer",     "float",     "boolean", "true",   "false",   "sequence",
                                        "iterable",    "callable",  "lower",   "upper",  "odd",     "even",
                                        "divisibleby", "sameas",    "escaped", "filter", "test"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) return true;
    return sign_of(name) != NULL;
}

bool jinja_test(jinja_render *r, const char *name, const jinja_value *v, const jinja_args *args) {
    const jinja_value *other = jinja_arg(args, 0, NULL);
    const char *sign = sign_of(name);
    const int32_t kind = v->kind;
    if (strcmp(name, "defined") == 0) return kind != JINJA_UNDEFINED;
    if (strcmp(name, "undefined") == 0) return kind == JINJA_UNDEFINED;
    if (strcmp(name, "none") == 0) return kind == JINJA_NONE;
    if (strcmp(name, "string") == 0) return kind == JINJA_STRING;
    if (strcmp(name, "mapping") == 0) return kind == JINJA_DICT;
    if (strcmp(name, "number") == 0) return jinja_is_number(v) || kind == JINJA_BIG;
    if (strcmp(name, "integer") == 0) return kind == JINJA_INT || kind == JINJA_BIG;
    if (strcmp(name, "escaped") == 0) return kind == JINJA_STRING && v->function == JINJA_SAFE;
    if (strcmp(name, "filter") == 0)
        return kind == JINJA_STRING && jinja_knows_filter(jinja_name(&r->arena, v->as.text));
    if (strcmp(name, "test") == 0) return kind == JINJA_STRING && jinja_knows_test(jinja_name(&r->arena, v->as.text));
    if (strcmp(name, "float") == 0) return kind == JINJA_FLOAT;
    if (strcmp(name, "boolean") == 0) return kind == JINJA_BOOL;
    if (strcmp(name, "true") == 0) return kind == JINJA_BOOL && v->as.i != 0;
    if (strcmp(name, "false") == 0) return kind == JINJA_BOOL && v->as.i == 0;
    if (strcmp(name, "sequence") == 0 && jinja_is_view(v)) return false;
    if (strcmp(name, "sequence") == 0)
        return kind == JINJA_STRING || jinja_is_list(v) || kind == JINJA_DICT || kind == JINJA_UNDEFINED;
    if (strcmp(name, "iterable") == 0)
        return kind == JINJA_STRING || jinja_is_list(v) || kind == JINJA_DICT || kind == JINJA_UNDEFINED ||
               kind == JINJA_ITERATOR;
    if (strcmp(name, "callable") == 0)
        return kind == JINJA_MACRO || kind == JINJA_FUNCTION || kind == JINJA_METHOD || kind == JINJA_LOOP ||
               kind == JINJA_JOINER;
    if (strcmp(name, "lower") == 0) return is_cased(r, v, "islower");
    if (strcmp(name, "upper") == 0) return is_cased(r, v, "isupper");
    if (strcmp(name, "odd") == 0 || strcmp(name, "even") == 0 || strcmp(name, "divisibleby") == 0)
        return with_number(r, name, v, other);
    if (strcmp(name, "sameas") == 0 && other != NULL) return is_same(&r->arena, v, other);
    if (sign != NULL && other != NULL) return jinja_compare(r, sign, v, other);
    (void)jinja_stop(r, sign != NULL ? "the test %.60s needs a value" : "unknown test %.60s", name);
    return false;
}
