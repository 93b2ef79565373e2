/* jinja_methods.c: the methods of strings, objects and lists, and calls. What would change a value is refused, as
 * jinja2's sandbox refuses it. */
#include "jinja_run.h"

#include <time.h>
#include <utf8proc.h>

const jinja_value *jinja_arg(const jinja_args *args, size_t n, const char *name) {
    size_t at = 0;
    for (size_t i = 0; i < args->n; i++) {
        if (args->names[i] != NULL && name != NULL && strcmp(args->names[i], name) == 0) return &args->values[i];
        if (args->names[i] == NULL && at++ == n) return &args->values[i];
    }
    return NULL;
}

bool jinja_arg_text(jinja_render *r, jinja_text **out, const jinja_args *args, size_t n, const char *name) {
    const jinja_value *given = jinja_arg(args, n, name);
    if (given == NULL || given->kind == JINJA_NONE) return true;
    if (given->kind != JINJA_STRING)
        return jinja_stop(r, "a string is needed, and there is %s", jinja_kind_name(given)), false;
    *out = given->as.text;
    return true;
}

bool jinja_arg_int(jinja_render *r, int64_t *out, const jinja_args *args, size_t n, const char *name) {
    const jinja_value *given = jinja_arg(args, n, name);
    if (given == NULL || given->kind == JINJA_NONE) return true;
    if (!jinja_is_whole(given))
        return jinja_stop(r, "a whole number is needed, and there is %s", jinja_kind_name(given)), false;
    *out = given->as.i;
    return true;
}

static const char *const text_methods[] = {
    "strip",        "lstrip",       "rstrip",     "split",    "rsplit",    "splitlines", "upper",     "lower",
    "title",        "capitalize",   "startswith", "endswith", "replace",   "join",       "find",      "rfind",
    "index",        "count",        "isdigit",    "isalpha",  "isalnum",   "isspace",    "isupper",   "islower",
    "removeprefix", "removesuffix", "format",     "encode",   "zfill",     "center",     "ljust",     "rjust",
    "partition",    "rpartition",   "swapcase",   "casefold", "translate", "isnumeric",  "isdecimal", NULL};
static const char *const dict_methods[] = {"items",      "keys",  "values",  "get",  "pop", "update",
                                           "setdefault", "clear", "popitem", "copy", NULL};
static const char *const list_methods[] = {"index",  "count",   "append", "extend", "insert", "pop",
                                           "remove", "reverse", "sort",   "clear",  "copy",   NULL};

bool jinja_has_method(const jinja_value *v, const char *name) {
    static const char *const loop_methods[] = {"cycle", "changed", NULL};
    const char *const *names = v->kind == JINJA_STRING  ? text_methods
                               : v->kind == JINJA_DICT  ? dict_methods
                               : v->kind == JINJA_LIST  ? list_methods
                               : v->kind == JINJA_TUPLE ? list_methods
                               : v->kind == JINJA_LOOP  ? loop_methods
                                                        : NULL;
    for (; names != NULL && *names != NULL; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

/* At white space; most < 0: all. */
static void split_spaces(jinja_render *r, jinja_list *out, const jinja_text *text, int64_t most) {
    size_t at = 0, n = 0;
    int32_t c = 0;
    if (!jinja_spend(&r->arena, text->n * 4)) return;
    while (jinja_step(r)) {
        size_t end = 0;
        for (n = 0; at < text->n; at += n) {
            n = jinja_next(text->bytes + at, text->n - at, &c);
            if (!jinja_is_space(c)) break;
        }
        if (at >= text->n) return;
        if (most == 0) {
            jinja_push(&r->arena, out, jinja_slice_bytes(&r->arena, text, at, text->n));
            return;
        }
        for (end = at; end < text->n; end += n) {
            n = jinja_next(text->bytes + end, text->n - end, &c);
            if (jinja_is_space(c)) break;
        }
        jinja_push(&r->arena, out, jinja_slice_bytes(&r->arena, text, at, end));
        at = end;
        most--;
    }
}

static jinja_value split(jinja_render *r, const jinja_text *text, const jinja_args *args) {
    jinja_value out = jinja_list_new(&r->arena, JINJA_LIST, 0);
    jinja_text *by = NULL;
    int64_t most = -1;
    size_t at = 0;
    if (!jinja_arg_text(r, &by, args, 0, "sep") || !jinja_arg_int(r, &most, args, 1, "maxsplit")) return out;
    if (by != NULL && by->n == 0) return jinja_stop(r, "a text cannot be split at nothing");
    if (by == NULL) {
        split_spaces(r, out.as.list, text, most);
        return out;
    }
    while (most != 0 && jinja_step(r)) {
        const int64_t found = jinja_find(&r->arena, text, by, at);
        if (found < 0) break;
        jinja_push(&r->arena, out.as.list, jinja_slice_bytes(&r->arena, text, at, (size_t)found));
        at = (size_t)found + by->n;
        most--;
    }
    if (!r->arena.failed) jinja_push(&r->arena, out.as.list, jinja_slice_bytes(&r->arena, text, at, text->n));
    return out;
}

static int64_t find_last(jinja_arena *arena, const jinja_text *text, const jinja_text *what, size_t end) {
    for (size_t at = end + 1; at-- > 0 && jinja_spend(arena, what->n);)
        if (what->n <= end - at && memcmp(text->bytes + at, what->bytes, what->n) == 0) return (int64_t)at;
    return -1;
}

static jinja_value split_back(jinja_render *r, const jinja_text *text, const jinja_args *args) {
    jinja_value parts = jinja_list_new(&r->arena, JINJA_LIST, 0), out = jinja_list_new(&r->arena, JINJA_LIST, 0);
    jinja_text *by = NULL;
    int64_t most = -1;
    size_t end = text->n;
    if (!jinja_arg_text(r, &by, args, 0, "sep") || !jinja_arg_int(r, &most, args, 1, "maxsplit")) return out;
    if (most < 0) return split(r, text, args);
    if (by == NULL || by->n == 0) return jinja_stop(r, "rsplit is known here with a text to split at");
    while (most-- > 0 && jinja_step(r)) {
        const int64_t found = find_last(&r->arena, text, by, end);
        if (found < 0) break;
        jinja_push(&r->arena, parts.as.list, jinja_slice_bytes(&r->arena, text, (size_t)found + by->n, end));
        end = (size_t)found;
    }
    if (!r->arena.failed) jinja_push(&r->arena, parts.as.list, jinja_slice_bytes(&r->arena, text, 0, end));
    for (size_t i = parts.as.list->n; i-- > 0 && !r->arena.failed;)
        jinja_push(&r->arena, out.as.list, parts.as.list->items[i]);
    return out;
}

/* startswith and endswith take one text or several. */
static bool edge_is(jinja_render *r, const jinja_text *text, const jinja_value *what, bool front) {
    if (what != NULL && what->kind == JINJA_TUPLE) {
        for (size_t i = 0; i < what->as.list->n && !r->failed; i++)
            if (edge_is(r, text, &what->as.list->items[i], front)) return true;
        return false;
    }
    if (what == NULL || what->kind != JINJA_STRING)
        return jinja_stop(r, "startswith and endswith need a string, and there is %s",
                          what == NULL ? "none" : jinja_kind_name(what)),
               false;
    return what->as.text->n <= text->n && jinja_spend(&r->arena, what->as.text->n) &&
           memcmp(text->bytes + (front ? 0 : text->n - what->as.text->n), what->as.text->bytes, what->as.text->n) == 0;
}

static bool holds(int32_t c, const char *name) {
    const utf8proc_category_t k = utf8proc_category(c);
    const bool letter = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
    const bool digit = k == UTF8PROC_CATEGORY_ND;
    if (strcmp(name, "isspace") == 0) return jinja_is_space(c);
    if (strcmp(name, "isalpha") == 0) return letter;
    if (strcmp(name, "isalnum") == 0) return letter || digit;
    return digit;
}

static bool is_all(jinja_arena *arena, const jinja_text *text, const char *name) {
    const char *cased = strcmp(name, "isupper") == 0 ? "u" : strcmp(name, "islower") == 0 ? "l" : NULL;
    bool any = false;
    for (size_t i = 0; i < text->n && jinja_spend(arena, 0);) {
        int32_t c = 0;
        i += jinja_next(text->bytes + i, text->n - i, &c);
        if (cased != NULL) {
            const utf8proc_category_t k = utf8proc_category(c);
            if (k == (*cased == 'u' ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU) || k == UTF8PROC_CATEGORY_LT)
                return false;
            any = any || k == (*cased == 'u' ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
        } else if (!holds(c, name)) return false;
    }
    return cased != NULL ? any : text->n > 0;
}

static int64_t count_text(jinja_arena *arena, const jinja_text *text, const jinja_text *what) {
    int64_t n = 0, at = 0;
    if (what->n == 0) return -1;
    while (!arena->failed && (at = jinja_find(arena, text, what, (size_t)at)) >= 0) at += (int64_t)what->n, n++;
    return n;
}

static jinja_value place_of(jinja_render *r, jinja_text *text, const char *name, const jinja_args *args) {
    jinja_text *what = NULL;
    int64_t at = -1, points = 0;
    if (!jinja_arg_text(r, &what, args, 0, NULL)) return jinja_none();
    if (what == NULL || args->n > 1) return jinja_stop(r, "%s is known here with one string", name);
    if (strcmp(name, "count") == 0) {
        const int64_t n = count_text(&r->arena, text, what);
        return jinja_int(n < 0 ? (int64_t)jinja_points(&r->arena, text) + 1 : n);
    }
    at = name[0] == 'r' ? find_last(&r->arena, text, what, text->n) : jinja_find(&r->arena, text, what, 0);
    if (at < 0 && strcmp(name, "index") == 0) return jinja_stop(r, "index finds nothing");
    for (int64_t i = 0; i < at; i++) points += ((unsigned char)text->bytes[i] & 0xC0) != 0x80;
    return jinja_int(at < 0 ? -1 : points);
}

static jinja_value cut_edge(jinja_render *r, const jinja_text *text, const jinja_args *args, bool front) {
    jinja_text *what = NULL;
    const jinja_value *given = jinja_arg(args, 0, NULL);
    if (!jinja_arg_text(r, &what, args, 0, NULL) || what == NULL) return jinja_stop(r, "removing needs a string");
    if (!edge_is(r, text, given, front)) return jinja_slice_bytes(&r->arena, text, 0, text->n);
    return jinja_slice_bytes(&r->arena, text, front ? what->n : 0, front ? text->n : text->n - what->n);
}

static jinja_value text_call(jinja_render *r, jinja_text *text, const char *name, const jinja_args *args) {
    jinja_text *first = NULL, *second = NULL;
    const jinja_value *given = jinja_arg(args, 0, NULL);
    int64_t most = -1;
    const char *strip = strstr(name, "strip");
    if (strip != NULL && jinja_arg_text(r, &first, args, 0, NULL))
        return jinja_strip(&r->arena, text, first, name[0] == 'l' ? 1 : name[0] == 'r' ? 2 : 3);
    if (strcmp(name, "split") == 0) return split(r, text, args);
    if (strcmp(name, "rsplit") == 0) return split_back(r, text, args);
    if (strcmp(name, "splitlines") == 0) return jinja_split_lines(r, text, given != NULL && jinja_truth(given));
    if (strcmp(name, "upper") == 0 || strcmp(name, "lower") == 0 || strcmp(name, "title") == 0 ||
        strcmp(name, "capitalize") == 0)
        return jinja_case(r, text, name[0]);
    if (strcmp(name, "startswith") == 0) return jinja_bool(edge_is(r, text, given, true));
    if (strcmp(name, "endswith") == 0) return jinja_bool(edge_is(r, text, given, false));
    if (strcmp(name, "removeprefix") == 0) return cut_edge(r, text, args, true);
    if (strcmp(name, "removesuffix") == 0) return cut_edge(r, text, args, false);
    if (strcmp(name, "replace") == 0) {
        if (!jinja_arg_text(r, &first, args, 0, "old") || !jinja_arg_text(r, &second, args, 1, "new") ||
            !jinja_arg_int(r, &most, args, 2, "count"))
            return jinja_none();
        if (first == NULL || second == NULL) return jinja_stop(r, "replace needs two strings");
        return jinja_replace_text(r, text, first, second, most);
    }
    if (strcmp(name, "join") == 0) {
        const jinja_list *list = given == NULL ? NULL : jinja_walk(r, given);
        for (size_t i = 0; list != NULL && i < list->n; i++)
            if (list->items[i].kind != JINJA_STRING)
                return jinja_stop(r, "join needs strings, and there is %s", jinja_kind_name(&list->items[i]));
        return list == NULL ? jinja_stop(r, "join needs a list") : jinja_join(r, text, list);
    }
    if (strcmp(name, "find") == 0 || strcmp(name, "rfind") == 0 || strcmp(name, "index") == 0 ||
        strcmp(name, "count") == 0)
        return place_of(r, text, name, args);
    if (strcmp(name, "isdigit") == 0 || strcmp(name, "isalpha") == 0 || strcmp(name, "isalnum") == 0 ||
        strcmp(name, "isspace") == 0 || strcmp(name, "isupper") == 0 || strcmp(name, "islower") == 0)
        return jinja_bool(is_all(&r->arena, text, name));
    return jinja_stop(r, "the method %s of a string is not known here", name);
}

static jinja_value dict_call(jinja_render *r, const jinja_dict *dict, const char *name, const jinja_args *args) {
    jinja_value out = jinja_list_new(&r->arena, JINJA_LIST, dict->n);
    const jinja_value *key = jinja_arg(args, 0, "key"), *fallback = jinja_arg(args, 1, "default");
    if (strcmp(name, "get") == 0) {
        const jinja_value *found = key == NULL ? NULL : jinja_get_value(&r->arena, dict, key);
        if (key == NULL) return jinja_stop(r, "get needs a key");
        return found != NULL ? *found : fallback != NULL ? *fallback : jinja_none();
    }
    if (strcmp(name, "copy") == 0) {
        out = jinja_dict_new(&r->arena, JINJA_DICT);
        for (size_t i = 0; i < dict->n && !r->arena.failed; i++)
            jinja_put(&r->arena, out.as.dict, dict->entries[i].key, dict->entries[i].value);
        return out;
    }
    if (strcmp(name, "items") != 0 && strcmp(name, "keys") != 0 && strcmp(name, "values") != 0)
        return jinja_stop(r, "%s would change an object, which a template may not", name);
    for (size_t i = 0; i < dict->n && !r->arena.failed; i++) {
        jinja_value pair = jinja_none();
        if (name[0] == 'k') jinja_push(&r->arena, out.as.list, dict->entries[i].key);
        if (name[0] == 'v') jinja_push(&r->arena, out.as.list, dict->entries[i].value);
        if (name[0] != 'i') continue;
        pair = jinja_list_new(&r->arena, JINJA_TUPLE, 2);
        if (r->arena.failed) break;
        jinja_push(&r->arena, pair.as.list, dict->entries[i].key);
        jinja_push(&r->arena, pair.as.list, dict->entries[i].value);
        jinja_push(&r->arena, out.as.list, pair);
    }
    return out;
}

static jinja_value list_call(jinja_render *r, const jinja_value *v, const char *name, const jinja_args *args) {
    const jinja_value *what = jinja_arg(args, 0, NULL);
    int64_t n = 0;
    if (strcmp(name, "copy") == 0) return *v;
    if ((strcmp(name, "index") != 0 && strcmp(name, "count") != 0) || what == NULL)
        return jinja_stop(r, "%s would change a list, which a template may not", name);
    for (size_t i = 0; i < v->as.list->n && jinja_step(r); i++) {
        if (!jinja_equal(&r->arena, &v->as.list->items[i], what)) continue;
        if (name[0] == 'i') return jinja_int((int64_t)i);
        n++;
    }
    return name[0] == 'i' ? jinja_stop(r, "index finds nothing") : jinja_int(n);
}

static jinja_value loop_call(jinja_render *r, jinja_loop *loop, const char *name, const jinja_args *args) {
    jinja_value now = jinja_list_new(&r->arena, JINJA_TUPLE, args->n);
    bool same = false;
    if (r->arena.failed) return jinja_none();
    if (name[1] == 'y') {
        if (args->n == 0) return jinja_stop(r, "cycle needs a value");
        return args->values[loop->index % args->n];
    }
    for (size_t i = 0; i < args->n; i++) jinja_push(&r->arena, now.as.list, args->values[i]);
    same = loop->has_changed && jinja_equal(&r->arena, &loop->changed, &now);
    loop->changed = now;
    loop->has_changed = true;
    return jinja_bool(!same);
}

jinja_value jinja_method_call(jinja_render *r, const jinja_method *method, const jinja_args *args) {
    const jinja_value *v = &method->self;
    if (v->kind == JINJA_STRING) return text_call(r, v->as.text, method->name, args);
    if (v->kind == JINJA_DICT) return dict_call(r, v->as.dict, method->name, args);
    if (v->kind == JINJA_LOOP) return loop_call(r, v->as.loop, method->name, args);
    return list_call(r, v, method->name, args);
}

static jinja_value range(jinja_render *r, const jinja_args *args) {
    int64_t bounds[3] = {0, 0, 1};
    jinja_value out = jinja_list_new(&r->arena, JINJA_LIST, 0);
    for (size_t i = 0; i < 3; i++)
        if (!jinja_arg_int(r, &bounds[i], args, i, NULL)) return out;
    if (args->n == 1) bounds[1] = bounds[0], bounds[0] = 0;
    if (args->n == 0 || bounds[2] == 0) return jinja_stop(r, "range needs one to three whole numbers, and no step 0");
    for (int64_t i = bounds[0], n = 0; bounds[2] > 0 ? i < bounds[1] : i > bounds[1]; n++) {
        if (n >= 100000) return jinja_stop(r, "a range has more than 100000 numbers");
        if (!jinja_step(r)) break;
        jinja_push(&r->arena, out.as.list, jinja_int(i));
        if (__builtin_add_overflow(i, bounds[2], &i)) break;
    }
    return out;
}

static jinja_value make_dict(jinja_render *r, const jinja_args *args, int32_t kind) {
    jinja_value out = jinja_dict_new(&r->arena, kind);
    for (size_t i = 0; i < args->n && !r->arena.failed; i++) {
        const jinja_value *v = &args->values[i];
        if (args->names[i] != NULL) {
            if (kind == JINJA_NAMESPACE && args->names[i][0] == '_')
                return jinja_stop(r, "a namespace has no names that begin with _");
            jinja_put(&r->arena, out.as.dict, jinja_literal(&r->arena, args->names[i]), *v);
        } else if (v->kind == JINJA_DICT) {
            for (size_t k = 0; k < v->as.dict->n; k++)
                jinja_put(&r->arena, out.as.dict, v->as.dict->entries[k].key, v->as.dict->entries[k].value);
        } else return jinja_stop(r, "an object is made of names and values, or of an object");
    }
    return out;
}

static jinja_value tell_time(jinja_render *r, const jinja_args *args) {
    char text[256];
    struct tm parts;
    jinja_text *format = NULL;
    const time_t now = r->has_time ? (time_t)r->time : time(NULL);
    char *copy = NULL;
    size_t n = 0;
    if (!jinja_arg_text(r, &format, args, 0, "format") || format == NULL)
        return jinja_stop(r, "strftime_now needs a format");
    if (localtime_r(&now, &parts) == NULL) return jinja_stop(r, "the time has no date");
    n = strftime(text, sizeof text, jinja_name(&r->arena, format), &parts);
    if (n == 0 && format->n > 0) return jinja_stop(r, "a date has more than 255 bytes");
    copy = jinja_take(&r->arena, n + 1);
    if (copy == NULL) return jinja_none();
    memcpy(copy, text, n);
    return jinja_text_new(&r->arena, copy, NULL, n);
}

jinja_value jinja_call(jinja_render *r, const jinja_value *called, const jinja_args *args) {
    const jinja_value *message = NULL;
    if (called->kind == JINJA_METHOD) return jinja_method_call(r, called->as.method, args);
    if (called->kind == JINJA_MACRO) return jinja_call_macro(r, called->as.macro, args);
    if (called->kind != JINJA_FUNCTION)
        return jinja_stop(r, "%s is %s, and cannot be called",
                          called->kind == JINJA_UNDEFINED && called->as.text != NULL ? called->as.text->bytes
                                                                                     : "a value",
                          jinja_kind_name(called));
    switch (called->function) {
    case FUNCTION_RANGE: return range(r, args);
    case FUNCTION_NAMESPACE: return make_dict(r, args, JINJA_NAMESPACE);
    case FUNCTION_DICT: return make_dict(r, args, JINJA_DICT);
    case FUNCTION_TIME: return tell_time(r, args);
    default: break;
    }
    message = jinja_arg(args, 0, "message");
    if (message != NULL && message->kind == JINJA_STRING)
        return jinja_stop(r, "the template refuses this conversation: %.400s", jinja_name(&r->arena, message->as.text));
    return jinja_stop(r, "the template refuses this conversation");
}
