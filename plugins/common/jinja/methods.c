/* methods.c: methods of strings, objects and lists, and calls. Methods that modify a value are errors, as in jinja2's
 * immutable sandbox. */
#include "run.h"

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
        return jinja_stop(r, "an argument must be a string, not %s", jinja_kind_name(given)), false;
    *out = given->as.text;
    return true;
}

bool jinja_arg_int(jinja_render *r, int64_t *out, const jinja_args *args, size_t n, const char *name) {
    const jinja_value *given = jinja_arg(args, n, name);
    if (given == NULL || given->kind == JINJA_NONE) return true;
    if (!jinja_is_whole(given))
        return jinja_stop(r, "an argument must be an integer, not %s", jinja_kind_name(given)), false;
    *out = given->as.i;
    return true;
}

static const char *const text_methods[] = {
    "strip",        "lstrip",       "rstrip",       "split",      "rsplit",     "splitlines",
    "upper",        "lower",        "title",        "capitalize", "startswith", "endswith",
    "replace",      "join",         "find",         "rfind",      "index",      "rindex",
    "count",        "isdigit",      "isalpha",      "isalnum",    "isspace",    "isupper",
    "islower",      "istitle",      "isascii",      "isdecimal",  "isnumeric",  "isprintable",
    "isidentifier", "removeprefix", "removesuffix", "format",     "format_map", "encode",
    "zfill",        "center",       "ljust",        "rjust",      "partition",  "rpartition",
    "swapcase",     "casefold",     "expandtabs",   "translate",  NULL};
static const char *const dict_methods[] = {"items",      "keys",  "values",  "get",  "pop",      "update",
                                           "setdefault", "clear", "popitem", "copy", "fromkeys", NULL};
static const char *const list_methods[] = {"index",  "count",   "append", "extend", "insert", "pop",
                                           "remove", "reverse", "sort",   "clear",  "copy",   NULL};

bool jinja_has_method(const jinja_value *v, const char *name) {
    static const char *const loop_methods[] = {"cycle", "changed", NULL}, *const dict_function[] = {"fromkeys", NULL};
    static const char *const cycler_methods[] = {"next", "reset", NULL};
    const char *const *names = v->kind == JINJA_STRING                                     ? text_methods
                               : v->kind == JINJA_DICT                                     ? dict_methods
                               : v->kind == JINJA_LIST                                     ? list_methods
                               : v->kind == JINJA_TUPLE                                    ? list_methods
                               : v->kind == JINJA_LOOP                                     ? loop_methods
                               : v->kind == JINJA_CYCLER                                   ? cycler_methods
                               : v->kind == JINJA_FUNCTION && v->function == FUNCTION_DICT ? dict_function
                                                                                           : NULL;
    for (; names != NULL && *names != NULL; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

/* Splits at white space, at most `most` times; most < 0: no limit. */
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
    if (by != NULL && by->n == 0) return jinja_stop(r, "split: the separator is empty");
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

static void reverse(jinja_list *list) {
    for (size_t i = 0; i < list->n / 2; i++) {
        const jinja_value one = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = one;
    }
}

/* Returns the start of the white space, or of the word, that ends at byte `end`. */
static size_t back_over(const jinja_text *text, size_t end, bool spaces) {
    int32_t c = 0;
    while (end > 0) {
        const size_t at = jinja_back(text->bytes, 0, end, &c);
        if (jinja_is_space(c) != spaces) break;
        end = at;
    }
    return end;
}

static void split_spaces_back(jinja_render *r, jinja_list *out, const jinja_text *text, int64_t most) {
    size_t end = text->n;
    if (!jinja_spend(&r->arena, text->n * 4)) return;
    while (jinja_step(r) && !r->arena.failed) {
        size_t begin = 0;
        end = back_over(text, end, true);
        if (end == 0) return;
        begin = most-- == 0 ? 0 : back_over(text, end, false);
        jinja_push(&r->arena, out, jinja_slice_bytes(&r->arena, text, begin, end));
        end = begin;
    }
}

static jinja_value split_back(jinja_render *r, const jinja_text *text, const jinja_args *args) {
    jinja_value out = jinja_list_new(&r->arena, JINJA_LIST, 0);
    jinja_text *by = NULL;
    int64_t most = -1;
    size_t end = text->n;
    if (!jinja_arg_text(r, &by, args, 0, "sep") || !jinja_arg_int(r, &most, args, 1, "maxsplit")) return out;
    if (most < 0) return split(r, text, args);
    if (by != NULL && by->n == 0) return jinja_stop(r, "split: the separator is empty");
    if (by == NULL) split_spaces_back(r, out.as.list, text, most);
    while (by != NULL && most-- > 0 && jinja_step(r)) {
        const int64_t found = find_last(&r->arena, text, by, end);
        if (found < 0) break;
        jinja_push(&r->arena, out.as.list, jinja_slice_bytes(&r->arena, text, (size_t)found + by->n, end));
        end = (size_t)found;
    }
    if (jinja_failed(r)) return out;
    if (by != NULL) jinja_push(&r->arena, out.as.list, jinja_slice_bytes(&r->arena, text, 0, end));
    reverse(out.as.list);
    return out;
}

/* Reads the optional slice bounds, arguments n and n + 1, as Python does. Returns false if the slice begins after the
 * end, or on an error. */
static bool window(jinja_render *r, jinja_text *text, const jinja_args *args, size_t n, size_t *begin, size_t *end) {
    const int64_t points = (int64_t)jinja_points(&r->arena, text);
    int64_t from = 0, to = points;
    *begin = 0;
    *end = text->n;
    if (!jinja_arg_int(r, &from, args, n, NULL) || !jinja_arg_int(r, &to, args, n + 1, NULL)) return false;
    if (args->n <= n) return true;
    if (from < 0) from = from + points < 0 ? 0 : from + points;
    if (to < 0) to = to + points < 0 ? 0 : to + points;
    if (to > points) to = points;
    if (from > to) return false;
    *begin = jinja_byte_at(&r->arena, text, (size_t)from);
    *end = jinja_byte_at(&r->arena, text, (size_t)to);
    return !r->arena.failed;
}

/* Tests a prefix or suffix for startswith and endswith, which take a string or a tuple. */
static bool edge_is(jinja_render *r, const jinja_text *text, const jinja_value *what, bool front) {
    if (what != NULL && what->kind == JINJA_TUPLE) {
        for (size_t i = 0; i < what->as.list->n && !r->failed; i++)
            if (edge_is(r, text, &what->as.list->items[i], front)) return true;
        return false;
    }
    if (what == NULL || what->kind != JINJA_STRING)
        return jinja_stop(r, "startswith and endswith need a string, not %s",
                          what == NULL ? "none" : jinja_kind_name(what)),
               false;
    return what->as.text->n <= text->n && jinja_spend(&r->arena, what->as.text->n) &&
           memcmp(text->bytes + (front ? 0 : text->n - what->as.text->n), what->as.text->bytes, what->as.text->n) == 0;
}

/* True for decimal digits and other digits: superscripts, subscripts, circled digits. */
static bool is_digit(int32_t c) {
    static const int32_t ranges[][2] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                                        {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                        {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                                        {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                                        {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}

static bool holds(int32_t c, const char *name, bool first) {
    const utf8proc_category_t k = utf8proc_category(c);
    const bool letter = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
    const bool numeric = k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
    if (strcmp(name, "isspace") == 0) return jinja_is_space(c);
    if (strcmp(name, "isalpha") == 0) return letter;
    if (strcmp(name, "isalnum") == 0) return letter || numeric;
    if (strcmp(name, "isnumeric") == 0) return numeric;
    if (strcmp(name, "isdecimal") == 0) return k == UTF8PROC_CATEGORY_ND;
    if (strcmp(name, "isascii") == 0) return c < 0x80;
    if (strcmp(name, "isprintable") == 0) return jinja_is_printable(c);
    if (strcmp(name, "isidentifier") == 0)
        return c == '_' || letter || k == UTF8PROC_CATEGORY_NL ||
               (!first && (k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC));
    return is_digit(c);
}

/* Implements isupper, islower and istitle, which consider cased letters only. */
static bool is_cased(jinja_arena *arena, const jinja_text *text, char which) {
    bool any = false, inside = false;
    for (size_t i = 0; i < text->n && jinja_spend(arena, 0);) {
        int32_t c = 0;
        utf8proc_category_t k = UTF8PROC_CATEGORY_CN;
        bool upper = false, lower = false;
        i += jinja_next(text->bytes + i, text->n - i, &c);
        k = utf8proc_category(c);
        upper = k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LT;
        lower = k == UTF8PROC_CATEGORY_LL;
        if (which == 't' ? (upper && inside) || (lower && !inside)
                         : (which == 'u' ? lower : upper) || k == UTF8PROC_CATEGORY_LT)
            return false;
        inside = upper || lower;
        any = any || inside;
    }
    return any;
}

static bool is_all(jinja_arena *arena, const jinja_text *text, const char *name) {
    if (strcmp(name, "isupper") == 0 || strcmp(name, "islower") == 0 || strcmp(name, "istitle") == 0)
        return is_cased(arena, text, name[2]);
    for (size_t i = 0, n = 0; i < text->n && jinja_spend(arena, 0); i += n) {
        int32_t c = 0;
        n = jinja_next(text->bytes + i, text->n - i, &c);
        if (!holds(c, name, i == 0)) return false;
    }
    return text->n > 0 || strcmp(name, "isascii") == 0 || strcmp(name, "isprintable") == 0;
}

static int64_t count_text(jinja_arena *arena, const jinja_text *text, const jinja_text *what) {
    int64_t n = 0, at = 0;
    if (what->n == 0) return -1;
    while (!arena->failed && (at = jinja_find(arena, text, what, (size_t)at)) >= 0) at += (int64_t)what->n, n++;
    return n;
}

static jinja_value place_of(jinja_render *r, jinja_text *text, const char *name, const jinja_args *args) {
    jinja_text *what = NULL, part = {.bytes = NULL};
    size_t begin = 0, end = 0;
    int64_t at = -1, points = 0;
    bool fits = false;
    if (!jinja_arg_text(r, &what, args, 0, NULL)) return jinja_none();
    if (what == NULL) return jinja_stop(r, "%s needs a string", name);
    fits = window(r, text, args, 1, &begin, &end);
    if (r->failed) return jinja_none();
    part.bytes = text->bytes + begin;
    part.n = fits ? end - begin : 0;
    if (strcmp(name, "count") == 0) {
        const int64_t n = fits ? count_text(&r->arena, &part, what) : 0;
        return jinja_int(n < 0 ? (int64_t)jinja_points(&r->arena, &part) + 1 : n);
    }
    if (fits) at = name[0] == 'r' ? find_last(&r->arena, &part, what, part.n) : jinja_find(&r->arena, &part, what, 0);
    if (at < 0 && strstr(name, "index") != NULL) return jinja_stop(r, "%s: not found", name);
    for (int64_t i = 0; i < (int64_t)begin + at; i++) points += ((unsigned char)text->bytes[i] & 0xC0) != 0x80;
    return jinja_int(at < 0 ? -1 : points);
}

/* Splits a text at the first or last occurrence of a separator: (before, separator, after). */
static jinja_value partition(jinja_render *r, const jinja_text *text, const jinja_args *args, bool last) {
    jinja_value out = jinja_list_new(&r->arena, JINJA_TUPLE, 3);
    jinja_text *what = NULL;
    int64_t found = -1;
    size_t cuts[4] = {0, last ? 0 : text->n, last ? 0 : text->n, text->n};
    if (!jinja_arg_text(r, &what, args, 0, "sep")) return out;
    if (what == NULL || what->n == 0) return jinja_stop(r, "partition needs a string");
    found = last ? find_last(&r->arena, text, what, text->n) : jinja_find(&r->arena, text, what, 0);
    if (found >= 0) {
        cuts[1] = (size_t)found;
        cuts[2] = (size_t)found + what->n;
    }
    for (int i = 0; i < 3 && !r->arena.failed; i++)
        jinja_push(&r->arena, out.as.list, jinja_slice_bytes(&r->arena, text, cuts[i], cuts[i + 1]));
    return out;
}

static jinja_value pad_text(jinja_render *r, jinja_text *text, const char *name, const jinja_args *args) {
    const jinja_value *width = jinja_arg(args, 0, "width");
    jinja_text *fill = jinja_literal(&r->arena, name[0] == 'z' ? "0" : " ").as.text;
    const bool signs = name[0] == 'z' && text->n > 0 && (text->bytes[0] == '-' || text->bytes[0] == '+');
    jinja_value rest = jinja_slice_bytes(&r->arena, text, signs, text->n), out = jinja_none();
    jinja_builder whole = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    if (r->arena.failed || (name[0] != 'z' && !jinja_arg_text(r, &fill, args, 1, "fillchar"))) return out;
    if (width == NULL || !jinja_is_whole(width) || jinja_points(&r->arena, fill) != 1)
        return jinja_stop(r, "%s needs a width and an optional fill character", name);
    out = jinja_pad(r, rest.as.text, width->as.i - signs, fill, name[0] == 'c' ? 'c' : name[0] == 'l' ? 'l' : 'r');
    if (!signs || jinja_failed(r)) return out;
    jinja_add(&whole, text->bytes, text->marks, 1);
    jinja_add_text(&whole, out.as.text);
    return jinja_built(&whole);
}

static jinja_value expand_tabs(jinja_render *r, const jinja_text *text, const jinja_args *args) {
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    int64_t size = 8, column = 0;
    if (!jinja_arg_int(r, &size, args, 0, "tabsize")) return jinja_none();
    for (size_t i = 0; i < text->n && jinja_step(r) && !out.overflow; i++) {
        const char c = text->bytes[i];
        int64_t blanks = c == '\t' && size > 0 ? size - column % size : 0;
        if (c != '\t') jinja_add_part(&out, text, i, i + 1);
        column = c == '\n' || c == '\r' ? 0 : column + blanks + (c != '\t' && ((unsigned char)c & 0xC0) != 0x80);
        for (; blanks > 0 && !out.overflow && !r->arena.failed; blanks--) jinja_add_plain(&out, " ");
    }
    return jinja_finish(r, &out);
}

static jinja_value format_map(jinja_render *r, const jinja_value *self, const jinja_args *args) {
    const jinja_value *map = jinja_arg(args, 0, "mapping");
    jinja_args named = jinja_no_args;
    if (map == NULL || map->kind != JINJA_DICT) return jinja_stop(r, "format_map needs an object");
    named.values = jinja_take(&r->arena, (map->as.dict->n + 1) * sizeof *named.values);
    named.names = jinja_take(&r->arena, (map->as.dict->n + 1) * sizeof *named.names);
    if (r->arena.failed) return jinja_none();
    for (size_t i = 0; i < map->as.dict->n; i++) {
        if (map->as.dict->entries[i].key.kind != JINJA_STRING) continue;
        named.names[named.n] = jinja_name(&r->arena, map->as.dict->entries[i].key.as.text);
        named.values[named.n++] = map->as.dict->entries[i].value;
    }
    return jinja_format(r, self, &named);
}

static jinja_value cut_edge(jinja_render *r, const jinja_text *text, const jinja_args *args, bool front) {
    jinja_text *what = NULL;
    const jinja_value *given = jinja_arg(args, 0, NULL);
    if (!jinja_arg_text(r, &what, args, 0, NULL) || what == NULL)
        return jinja_stop(r, "removeprefix and removesuffix need a string");
    if (!edge_is(r, text, given, front)) return jinja_slice_bytes(&r->arena, text, 0, text->n);
    return jinja_slice_bytes(&r->arena, text, front ? what->n : 0, front ? text->n : text->n - what->n);
}

static jinja_value join_texts(jinja_render *r, const jinja_text *between, const jinja_value *given) {
    const jinja_list *list = given == NULL ? NULL : jinja_walk(r, given);
    for (size_t i = 0; list != NULL && i < list->n; i++)
        if (list->items[i].kind != JINJA_STRING)
            return jinja_stop(r, "join needs strings, not %s", jinja_kind_name(&list->items[i]));
    return list == NULL ? jinja_stop(r, "join needs a list") : jinja_join(r, between, list);
}

static jinja_value replace_in(jinja_render *r, const jinja_text *text, const jinja_args *args) {
    jinja_text *old = NULL, *fresh = NULL;
    int64_t most = -1;
    if (!jinja_arg_text(r, &old, args, 0, "old") || !jinja_arg_text(r, &fresh, args, 1, "new") ||
        !jinja_arg_int(r, &most, args, 2, "count"))
        return jinja_none();
    if (old == NULL || fresh == NULL) return jinja_stop(r, "replace needs two strings");
    return jinja_replace_text(r, text, old, fresh, most);
}

static bool is_one_of(const char *name, const char *const *names) {
    while (*names != NULL && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

static jinja_value edge(jinja_render *r, jinja_text *text, const jinja_args *args, bool first) {
    size_t begin = 0, end = 0;
    jinja_value part = jinja_none();
    if (!window(r, text, args, 1, &begin, &end)) return jinja_bool(false);
    part = jinja_slice_bytes(&r->arena, text, begin, end);
    return r->arena.failed ? part : jinja_bool(edge_is(r, part.as.text, jinja_arg(args, 0, NULL), first));
}

static jinja_value text_call(jinja_render *r, const jinja_value *self, const char *name, const jinja_args *args) {
    static const char *const cases[] = {"upper", "lower", "title", "capitalize", "swapcase", NULL};
    static const char *const places[] = {"find", "rfind", "index", "rindex", "count", NULL};
    static const char *const pads[] = {"center", "ljust", "rjust", "zfill", NULL};
    jinja_text *text = self->as.text, *first = NULL;
    const jinja_value *given = jinja_arg(args, 0, NULL);
    if (strstr(name, "strip") != NULL && jinja_arg_text(r, &first, args, 0, NULL))
        return jinja_strip(&r->arena, text, first, name[0] == 'l' ? 1 : name[0] == 'r' ? 2 : 3);
    if (strcmp(name, "split") == 0) return split(r, text, args);
    if (strcmp(name, "rsplit") == 0) return split_back(r, text, args);
    if (strcmp(name, "splitlines") == 0) {
        given = jinja_arg(args, 0, "keepends");
        return jinja_split_lines(r, text, given != NULL && jinja_truth(given));
    }
    if (is_one_of(name, cases)) return jinja_case(r, text, name[0]);
    if (strcmp(name, "casefold") == 0) return jinja_case(r, text, 'f');
    if (strcmp(name, "startswith") == 0 || strcmp(name, "endswith") == 0) return edge(r, text, args, name[0] == 's');
    if (strcmp(name, "removeprefix") == 0) return cut_edge(r, text, args, true);
    if (strcmp(name, "removesuffix") == 0) return cut_edge(r, text, args, false);
    if (strcmp(name, "replace") == 0) return replace_in(r, text, args);
    if (strcmp(name, "join") == 0) return join_texts(r, text, given);
    if (is_one_of(name, places)) return place_of(r, text, name, args);
    if (is_one_of(name, pads)) return pad_text(r, text, name, args);
    if (strncmp(name, "is", 2) == 0) return jinja_bool(is_all(&r->arena, text, name));
    if (strcmp(name, "partition") == 0 || strcmp(name, "rpartition") == 0)
        return partition(r, text, args, name[0] == 'r');
    if (strcmp(name, "expandtabs") == 0) return expand_tabs(r, text, args);
    if (strcmp(name, "format") == 0) return jinja_format(r, self, args);
    if (strcmp(name, "format_map") == 0) return format_map(r, self, args);
    return jinja_stop(r, "unsupported string method %s", name);
}

/* dict.fromkeys(keys, value) */
static jinja_value from_keys(jinja_render *r, const jinja_args *args) {
    const jinja_value *keys = jinja_arg(args, 0, "iterable"), *value = jinja_arg(args, 1, "value");
    const jinja_list *list = keys == NULL ? NULL : jinja_walk(r, keys);
    jinja_value out = jinja_dict_new(&r->arena, JINJA_DICT);
    if (list == NULL) return jinja_stop(r, "fromkeys needs a list");
    for (size_t i = 0; i < list->n && jinja_step(r) && !r->arena.failed; i++)
        jinja_put(&r->arena, out.as.dict, list->items[i], value == NULL ? jinja_none() : *value);
    return out;
}

static jinja_value dict_call(jinja_render *r, const jinja_dict *dict, const char *name, const jinja_args *args) {
    jinja_value out = jinja_list_new(&r->arena, JINJA_LIST, dict->n);
    const jinja_value *key = jinja_arg(args, 0, "key"), *fallback = jinja_arg(args, 1, "default");
    if (strcmp(name, "get") == 0) {
        const jinja_value *found = key == NULL ? NULL : jinja_get_value(&r->arena, dict, key);
        if (key == NULL) return jinja_stop(r, "get needs a key");
        return found != NULL ? *found : fallback != NULL ? *fallback : jinja_none();
    }
    if (name[0] != 'k') jinja_read_all(dict); /* copy, items and values */
    if (strcmp(name, "copy") == 0) {
        out = jinja_dict_new(&r->arena, JINJA_DICT);
        for (size_t i = 0; i < dict->n && !r->arena.failed; i++)
            jinja_put(&r->arena, out.as.dict, dict->entries[i].key, dict->entries[i].value);
        return out;
    }
    if (strcmp(name, "fromkeys") == 0) return from_keys(r, args);
    if (strcmp(name, "items") != 0 && strcmp(name, "keys") != 0 && strcmp(name, "values") != 0)
        return jinja_stop(r, "%s would modify an object, which is not allowed", name);
    out.function = name[0] == 'k' ? JINJA_KEYS : name[0] == 'v' ? JINJA_VALUES : JINJA_ITEMS;
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
    int64_t n = 0, from = 0;
    if (strcmp(name, "copy") == 0) return *v;
    if ((strcmp(name, "index") != 0 && strcmp(name, "count") != 0) || what == NULL)
        return jinja_stop(r, "%s would modify a list, which is not allowed", name);
    if (!jinja_arg_int(r, &from, args, 1, NULL)) return jinja_none();
    if (from < 0 || args->n > 2) return jinja_stop(r, "%s supports one start index, at least 0", name);
    for (size_t i = (size_t)from; i < v->as.list->n && jinja_step(r); i++) {
        if (!jinja_equal(&r->arena, &v->as.list->items[i], what)) continue;
        if (name[0] == 'i') return jinja_int((int64_t)i);
        n++;
    }
    return name[0] == 'i' ? jinja_stop(r, "index: not found") : jinja_int(n);
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

/* Calls a method of a string marked safe. As in markupsafe, inserted strings are escaped and the results are safe. */
static jinja_value safe_call(jinja_render *r, const jinja_value *self, const char *name, const jinja_args *args) {
    jinja_value out = jinja_none(), items = jinja_list_new(&r->arena, JINJA_LIST, 0);
    jinja_args given = *args;
    const jinja_list *list = NULL;
    if (strcmp(name, "format") == 0 || strcmp(name, "format_map") == 0) return text_call(r, self, name, args);
    if (strcmp(name, "join") == 0 && args->n == 1 && (list = jinja_walk(r, &args->values[0])) != NULL) {
        for (size_t i = 0; i < list->n && jinja_step(r) && !r->arena.failed; i++)
            jinja_push(&r->arena, items.as.list,
                       list->items[i].kind == JINJA_STRING ? jinja_escape(r, &list->items[i]) : list->items[i]);
        given.values = &items;
    }
    if (strcmp(name, "replace") == 0 && args->n >= 2 && args->values[1].kind == JINJA_STRING) {
        jinja_value *values = jinja_take(&r->arena, args->n * sizeof *values);
        if (values == NULL) return out;
        memcpy(values, args->values, args->n * sizeof *values);
        values[1] = jinja_escape(r, &values[1]);
        given.values = values;
    }
    if (!jinja_failed(r)) out = text_call(r, self, name, &given);
    if (jinja_failed(r)) return out;
    if (out.kind == JINJA_STRING) out.function = JINJA_SAFE;
    for (size_t i = 0; jinja_is_list(&out) && i < out.as.list->n; i++) out.as.list->items[i].function = JINJA_SAFE;
    return out;
}

static jinja_value cycler_call(jinja_loop *cycler, const char *name) {
    const jinja_value out = cycler->items->items[cycler->index];
    cycler->index = name[0] == 'r' ? 0 : (cycler->index + 1) % cycler->items->n;
    return name[0] == 'r' ? jinja_none() : out;
}

/* cycler(a, b, ...) and joiner(separator) */
static jinja_value new_cycler(jinja_render *r, const jinja_args *args, int32_t kind) {
    jinja_value items = jinja_list_new(&r->arena, JINJA_LIST, 0), out = {.kind = kind};
    if (kind == JINJA_CYCLER && args->n == 0) return jinja_stop(r, "cycler needs a value");
    for (size_t i = 0; i < args->n && !r->arena.failed; i++) jinja_push(&r->arena, items.as.list, args->values[i]);
    if (args->n == 0 && !r->arena.failed) jinja_push(&r->arena, items.as.list, jinja_literal(&r->arena, ", "));
    out.as.loop = JINJA_NEW(&r->arena, jinja_loop);
    if (r->arena.failed) return jinja_none();
    out.as.loop->items = items.as.list;
    return out;
}

/* Returns an empty string at the first call, then the separator. */
static jinja_value call_joiner(jinja_render *r, jinja_loop *joiner) {
    const bool first = !joiner->has_changed;
    joiner->has_changed = true;
    return first ? jinja_literal(&r->arena, "") : joiner->items->items[0];
}

jinja_value jinja_method_call(jinja_render *r, const jinja_method *method, const jinja_args *args) {
    const jinja_value *v = &method->self;
    if (v->kind == JINJA_STRING && v->function == JINJA_SAFE) return safe_call(r, v, method->name, args);
    if (v->kind == JINJA_STRING) return text_call(r, v, method->name, args);
    if (v->kind == JINJA_DICT) return dict_call(r, v->as.dict, method->name, args);
    if (v->kind == JINJA_LOOP) return loop_call(r, v->as.loop, method->name, args);
    if (v->kind == JINJA_CYCLER) return cycler_call(v->as.loop, method->name);
    if (v->kind == JINJA_FUNCTION) return from_keys(r, args);
    return list_call(r, v, method->name, args);
}

static jinja_value range(jinja_render *r, const jinja_args *args) {
    int64_t bounds[3] = {0, 0, 1};
    jinja_value out = jinja_list_new(&r->arena, JINJA_LIST, 0);
    for (size_t i = 0; i < 3; i++)
        if (!jinja_arg_int(r, &bounds[i], args, i, NULL)) return out;
    if (args->n == 1) bounds[1] = bounds[0], bounds[0] = 0;
    if (args->n == 0 || bounds[2] == 0) return jinja_stop(r, "range needs one to three integers and a nonzero step");
    for (int64_t i = bounds[0], n = 0; bounds[2] > 0 ? i < bounds[1] : i > bounds[1]; n++) {
        if (n >= 100000) return jinja_stop(r, "a range has more than 100000 numbers");
        if (!jinja_step(r)) break;
        jinja_push(&r->arena, out.as.list, jinja_int(i));
        if (__builtin_add_overflow(i, bounds[2], &i)) break;
    }
    out.function = JINJA_RANGE;
    out.as.list->range = JINJA_NEW(&r->arena, jinja_range);
    if (out.as.list->range != NULL) memcpy(out.as.list->range->bounds, bounds, sizeof bounds);
    return out;
}

static jinja_value make_dict(jinja_render *r, const jinja_args *args, int32_t kind) {
    jinja_value out = jinja_dict_new(&r->arena, kind);
    for (size_t i = 0; i < args->n && !r->arena.failed; i++) {
        const jinja_value *v = &args->values[i];
        if (args->names[i] != NULL) {
            if (kind == JINJA_NAMESPACE && args->names[i][0] == '_')
                return jinja_stop(r, "names in a namespace must not begin with _");
            jinja_put(&r->arena, out.as.dict, jinja_literal(&r->arena, args->names[i]), *v);
        } else if (v->kind == JINJA_DICT) {
            jinja_read_all(v->as.dict);
            for (size_t k = 0; k < v->as.dict->n; k++)
                jinja_put(&r->arena, out.as.dict, v->as.dict->entries[k].key, v->as.dict->entries[k].value);
        } else if (jinja_is_list(v)) {
            for (size_t k = 0; k < v->as.list->n && !r->arena.failed; k++) {
                const jinja_value *pair = &v->as.list->items[k];
                if (!jinja_is_list(pair) || pair->as.list->n != 2) return jinja_stop(r, "dict needs pairs");
                jinja_put(&r->arena, out.as.dict, pair->as.list->items[0], pair->as.list->items[1]);
            }
        } else return jinja_stop(r, "dict and namespace need named values, pairs or an object");
    }
    return out;
}

/* Removes %z and %Z: they are empty for a Python time without a zone. */
static const char *without_zone(jinja_render *r, const jinja_text *format) {
    char *out = jinja_take(&r->arena, format->n + 1);
    size_t n = 0;
    for (size_t i = 0; out != NULL && i < format->n; i++) {
        const char c = format->bytes[i], next = i + 1 < format->n ? format->bytes[i + 1] : '\0';
        if (c == '%' && (next == 'z' || next == 'Z')) {
            i++;
            continue;
        }
        out[n++] = c;
        if (c == '%' && next == '%') out[n++] = format->bytes[++i];
    }
    return out == NULL ? "" : out;
}

static jinja_value now_text(jinja_render *r, const jinja_args *args) {
    char text[256];
    struct tm parts;
    jinja_text *format = NULL;
    const time_t now = r->has_time ? (time_t)r->time : time(NULL);
    const char *zoneless = NULL;
    char *copy = NULL;
    size_t n = 0;
    if (!jinja_arg_text(r, &format, args, 0, "format") || format == NULL)
        return jinja_stop(r, "strftime_now needs a format");
    if (localtime_r(&now, &parts) == NULL) return jinja_stop(r, "the time cannot be converted to a date");
    zoneless = without_zone(r, format);
    n = strftime(text, sizeof text, zoneless, &parts);
    if (n == 0 && *zoneless != '\0') return jinja_stop(r, "a date exceeds 255 bytes");
    copy = jinja_copy(&r->arena, text, n);
    return copy == NULL ? jinja_none() : jinja_text_new(&r->arena, copy, NULL, n);
}

jinja_value jinja_call(jinja_render *r, const jinja_value *called, const jinja_args *args) {
    const jinja_value *message = NULL;
    if (called->kind == JINJA_METHOD) return jinja_method_call(r, called->as.method, args);
    if (called->kind == JINJA_LOOP) return jinja_call_loop(r, called->as.loop, args);
    if (called->kind == JINJA_JOINER) return call_joiner(r, called->as.loop);
    if (called->kind == JINJA_MACRO) return jinja_call_macro(r, called->as.macro, args);
    if (called->kind != JINJA_FUNCTION)
        return jinja_stop(r, "%s is %s and cannot be called",
                          called->kind == JINJA_UNDEFINED && called->as.text != NULL ? called->as.text->bytes
                                                                                     : "a value",
                          jinja_kind_name(called));
    switch (called->function) {
    case FUNCTION_RANGE: return range(r, args);
    case FUNCTION_NAMESPACE: return make_dict(r, args, JINJA_NAMESPACE);
    case FUNCTION_DICT: return make_dict(r, args, JINJA_DICT);
    case FUNCTION_TIME: return now_text(r, args);
    case FUNCTION_CYCLER: return new_cycler(r, args, JINJA_CYCLER);
    case FUNCTION_JOINER: return new_cycler(r, args, JINJA_JOINER);
    case FUNCTION_LIPSUM: return jinja_stop(r, "lipsum is not supported");
    default: break;
    }
    message = jinja_arg(args, 0, "message");
    if (message != NULL && message->kind == JINJA_STRING)
        return jinja_stop(r, "the template rejects the conversation: %.400s", jinja_name(&r->arena, message->as.text));
    return jinja_stop(r, "the template rejects the conversation");
}
