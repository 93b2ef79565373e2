/* filters.c: table of all filters; the filters of jinja2 for lists and objects; tojson of transformers. */
#include "run.h"

#include <stdlib.h>

static jinja_value item_or(jinja_render *r, const jinja_value *v, const jinja_value *key, const jinja_value *fallback) {
    const jinja_value out = jinja_item(r, v, key);
    return out.kind == JINJA_UNDEFINED && fallback != NULL && fallback->kind != JINJA_NONE ? *fallback : out;
}

/* Returns the attribute "a.b.0" of a value, as in map(attribute=...). fallback: (optional) replaces an undefined
 * step. */
static jinja_value attribute_or(jinja_render *r, jinja_value v, const jinja_value *path, const jinja_value *fallback) {
    const char *at = NULL;
    if (jinja_is_whole(path)) return item_or(r, &v, path, fallback);
    if (path->kind != JINJA_STRING)
        return jinja_stop(r, "an attribute must be a string or an integer, not %s", jinja_kind_name(path));
    at = jinja_name(&r->arena, path->as.text);
    for (;;) {
        const char *dot = strchr(at, '.');
        const size_t n = dot == NULL ? strlen(at) : (size_t)(dot - at);
        char *end = NULL, *name = jinja_copy(&r->arena, at, n);
        jinja_value key = jinja_none();
        if (name == NULL) return key;
        key = jinja_int(strtoll(name, &end, 10));
        if (n == 0 || *end != '\0') key = jinja_text_new(&r->arena, name, NULL, n);
        v = item_or(r, &v, &key, fallback);
        if (dot == NULL || r->failed) return v;
        at = dot + 1;
    }
}

static jinja_value attribute_path(jinja_render *r, jinja_value v, const jinja_value *path) {
    return attribute_or(r, v, path, NULL);
}

static jinja_value f_trim(jinja_render *r, jinja_value v, const jinja_args *args) {
    jinja_text *set = NULL;
    const jinja_value text = jinja_to_string(r, &v);
    jinja_value out = jinja_none();
    if (!jinja_arg_text(r, &set, args, 0, "chars") || jinja_failed(r)) return v;
    out = jinja_strip(&r->arena, text.as.text, set, 3);
    out.function = text.function;
    return out;
}

static jinja_value f_length(jinja_render *r, jinja_value v, const jinja_args *args) {
    (void)args;
    if (v.kind == JINJA_STRING) return jinja_int((int64_t)jinja_points(&r->arena, v.as.text));
    if (jinja_is_list(&v)) return jinja_int((int64_t)v.as.list->n);
    if (v.kind == JINJA_DICT) return jinja_int((int64_t)v.as.dict->n);
    if (v.kind == JINJA_UNDEFINED) return jinja_int(0);
    return jinja_stop(r, "%s has no length", jinja_kind_name(&v));
}

static jinja_value f_tojson(jinja_render *r, jinja_value v, const jinja_args *args) {
    jinja_json_style style = {.indent = -1};
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    const jinja_value *ascii = jinja_arg(args, 0, "ensure_ascii"), *separators = jinja_arg(args, 2, "separators");
    const jinja_value *sort = jinja_arg(args, 3, "sort_keys"), *indent = jinja_arg(args, 1, "indent");
    if (indent != NULL && indent->kind == JINJA_STRING) style.blank = indent->as.text;
    else if (!jinja_arg_int(r, &style.indent, args, 1, "indent")) return v;
    style.ascii = ascii != NULL && jinja_truth(ascii);
    style.sort = sort != NULL && jinja_truth(sort);
    if (separators != NULL && separators->kind != JINJA_NONE) {
        const jinja_list *pair = jinja_is_list(separators) ? separators->as.list : NULL;
        if (pair == NULL || pair->n != 2 || pair->items[0].kind != JINJA_STRING || pair->items[1].kind != JINJA_STRING)
            return jinja_stop(r, "tojson: separators must be two strings");
        style.item = pair->items[0].as.text;
        style.key = pair->items[1].as.text;
    }
    if (!jinja_add_json(&out, &v, &style, 0)) return jinja_stop(r, "cannot convert to JSON: %s", jinja_kind_name(&v));
    return jinja_finish(r, &out);
}

static jinja_value f_default(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value *fallback = jinja_arg(args, 0, "default_value"), *boolean = jinja_arg(args, 1, "boolean");
    if (v.kind != JINJA_UNDEFINED && !(boolean != NULL && jinja_truth(boolean) && !jinja_truth(&v))) return v;
    return fallback != NULL ? *fallback : jinja_literal(&r->arena, "");
}

static jinja_value ends(jinja_render *r, const jinja_value *v, bool last) {
    const jinja_list *list = jinja_walk(r, v);
    if (list == NULL) return jinja_none();
    return list->n == 0 ? jinja_undefined(r, last ? "the last element" : "the first element")
                        : list->items[last ? list->n - 1 : 0];
}

static jinja_value f_first(jinja_render *r, jinja_value v, const jinja_args *args) {
    jinja_list *list = v.kind == JINJA_ITERATOR ? v.as.list : NULL;
    (void)args;
    if (list == NULL || list->n == 0) return ends(r, &v, false);
    list->n--;
    return *list->items++;
}

static jinja_value f_last(jinja_render *r, jinja_value v, const jinja_args *args) {
    (void)args;
    if (v.kind == JINJA_ITERATOR) return jinja_stop(r, "an iterator has no last element. Fix: apply |list first");
    return ends(r, &v, true);
}

static jinja_value f_list(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_list *list = jinja_walk(r, &v);
    jinja_value out = jinja_list_new(&r->arena, JINJA_LIST, 0);
    (void)args;
    for (size_t i = 0; list != NULL && i < list->n && !r->arena.failed; i++)
        jinja_push(&r->arena, out.as.list, list->items[i]);
    return out;
}

static jinja_value f_string(jinja_render *r, jinja_value v, const jinja_args *args) {
    (void)args;
    return jinja_to_string(r, &v);
}

static jinja_value change_case(jinja_render *r, const jinja_value *v, char change) {
    const jinja_value text = jinja_to_string(r, v);
    jinja_value out = text;
    if (jinja_failed(r)) return text;
    out = jinja_case(r, text.as.text, change);
    out.function = change == 'T' ? 0 : text.function;
    return out;
}

static jinja_value f_upper(jinja_render *r, jinja_value v, const jinja_args *args) {
    (void)args;
    return change_case(r, &v, 'u');
}

static jinja_value f_lower(jinja_render *r, jinja_value v, const jinja_args *args) {
    (void)args;
    return change_case(r, &v, 'l');
}

static jinja_value f_capitalize(jinja_render *r, jinja_value v, const jinja_args *args) {
    (void)args;
    return change_case(r, &v, 'c');
}

static jinja_value f_title(jinja_render *r, jinja_value v, const jinja_args *args) {
    (void)args;
    return change_case(r, &v, 'T');
}

static jinja_value f_replace(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value *old = jinja_arg(args, 0, "old"), *fresh = jinja_arg(args, 1, "new");
    const jinja_value text = jinja_to_string(r, &v);
    jinja_value from = jinja_none(), to = jinja_none();
    int64_t most = -1;
    if (old == NULL || fresh == NULL) return jinja_stop(r, "replace needs two strings");
    if (!jinja_arg_int(r, &most, args, 2, "count")) return v;
    from = jinja_to_string(r, old);
    to = jinja_to_string(r, fresh);
    return jinja_failed(r) ? v : jinja_replace_text(r, text.as.text, from.as.text, to.as.text, most);
}

static jinja_value f_join(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_list *list = jinja_walk(r, &v);
    const jinja_value *path = jinja_arg(args, 1, "attribute");
    jinja_value parts = jinja_list_new(&r->arena, JINJA_LIST, 0);
    jinja_text *between = jinja_literal(&r->arena, "").as.text;
    if (list == NULL || r->arena.failed || !jinja_arg_text(r, &between, args, 0, "d")) return v;
    if (path == NULL || path->kind == JINJA_NONE) return jinja_join(r, between, list);
    for (size_t i = 0; i < list->n && jinja_step(r); i++)
        jinja_push(&r->arena, parts.as.list, attribute_path(r, list->items[i], path));
    return r->failed ? v : jinja_join(r, between, parts.as.list);
}

/* Returns a one-pass iterable over the same elements. */
static jinja_value iterator(jinja_render *r, const jinja_value *v) {
    jinja_value out = jinja_list_new(&r->arena, JINJA_ITERATOR, 0);
    if (!jinja_failed(r) && v->as.list != NULL) *out.as.list = *v->as.list;
    return out;
}

static jinja_value f_items(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_method method = {v, "items"};
    jinja_value out = jinja_none();
    (void)args;
    if (v.kind == JINJA_UNDEFINED) return jinja_list_new(&r->arena, JINJA_ITERATOR, 0);
    if (v.kind != JINJA_DICT) return jinja_stop(r, "items needs an object, not %s", jinja_kind_name(&v));
    out = jinja_method_call(r, &method, &jinja_no_args);
    return iterator(r, &out);
}

/* Returns a string for a string, a list for an iterator, and an iterator for any other value. */
static jinja_value f_reverse(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value step[3] = {jinja_none(), jinja_none(), jinja_int(-1)};
    const jinja_list *list = NULL;
    jinja_value out = jinja_none();
    (void)args;
    if (v.kind == JINJA_STRING) return jinja_slice(r, &v, step);
    list = jinja_walk(r, &v);
    if (list == NULL) return v;
    out = jinja_slice(r, &(jinja_value){.kind = JINJA_LIST, .as = {.list = (jinja_list *)(uintptr_t)list}}, step);
    return v.kind == JINJA_ITERATOR || r->failed ? out : iterator(r, &out);
}

/* Returns the sort key for sort, unique, min and max. Strings are compared case-insensitively unless `exact`. */
static jinja_value sort_key(jinja_render *r, const jinja_value *v, const jinja_value *path, bool exact) {
    const jinja_value key = path == NULL || path->kind == JINJA_NONE ? *v : attribute_path(r, *v, path);
    return key.kind == JINJA_STRING && !exact && !r->failed ? jinja_case(r, key.as.text, 'l') : key;
}

/* Returns the key for sort, which accepts several attributes: "a,b". */
static jinja_value sort_keys(jinja_render *r, const jinja_value *v, const jinja_value *path, bool exact) {
    jinja_value out = jinja_list_new(&r->arena, JINJA_LIST, 0);
    const bool several = path != NULL && path->kind == JINJA_STRING &&
                         memchr(path->as.text->bytes, ',', path->as.text->n) != NULL;
    if (!several) return sort_key(r, v, path, exact);
    for (size_t at = 0; at <= path->as.text->n && jinja_step(r);) {
        const char *begin = path->as.text->bytes + at, *comma = memchr(begin, ',', path->as.text->n - at);
        const size_t n = comma == NULL ? path->as.text->n - at : (size_t)(comma - begin);
        const jinja_value one = jinja_slice_bytes(&r->arena, path->as.text, at, at + n);
        if (r->arena.failed) break;
        jinja_push(&r->arena, out.as.list, sort_key(r, v, &one, exact));
        at += n + 1;
    }
    return out;
}

/* Stable merge sort. */
static void merge_sort(jinja_render *r, jinja_entry *at, jinja_entry *spare, size_t n, bool reverse) {
    const size_t half = n / 2;
    size_t i = 0, k = half, to = 0;
    if (n < 2 || !jinja_step(r)) return;
    merge_sort(r, at, spare, half, reverse);
    merge_sort(r, at + half, spare, n - half, reverse);
    while (i < half || k < n) {
        int order = i < half && k < n ? jinja_order(&r->arena, &at[i].key, &at[k].key) : 0;
        if (order == 2) (void)jinja_stop(r, "sort: the values have no order");
        if (reverse) order = -order;
        spare[to++] = k == n || (i < half && order <= 0) ? at[i++] : at[k++];
    }
    memcpy(at, spare, n * sizeof *at);
}

static jinja_value f_sort(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_list *list = jinja_walk(r, &v);
    const jinja_value *reverse = jinja_arg(args, 0, "reverse"), *exact = jinja_arg(args, 1, "case_sensitive");
    const jinja_value *path = jinja_arg(args, 2, "attribute");
    jinja_value out = jinja_list_new(&r->arena, JINJA_LIST, 0);
    jinja_entry *pairs = list == NULL ? NULL : jinja_take(&r->arena, (2 * list->n + 1) * sizeof *pairs);
    if (pairs == NULL) return v;
    for (size_t i = 0; i < list->n && jinja_step(r); i++) {
        pairs[i].key = sort_keys(r, &list->items[i], path, exact != NULL && jinja_truth(exact));
        pairs[i].value = list->items[i];
    }
    if (jinja_failed(r)) return v;
    merge_sort(r, pairs, pairs + list->n, list->n, reverse != NULL && jinja_truth(reverse));
    for (size_t i = 0; i < list->n; i++) jinja_push(&r->arena, out.as.list, pairs[i].value);
    return out;
}

static jinja_value f_unique(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_list *list = jinja_walk(r, &v);
    const jinja_value *exact = jinja_arg(args, 0, "case_sensitive"), *path = jinja_arg(args, 1, "attribute");
    jinja_value out = jinja_list_new(&r->arena, JINJA_ITERATOR, 0), seen = jinja_list_new(&r->arena, JINJA_LIST, 0);
    for (size_t i = 0; list != NULL && i < list->n && jinja_step(r); i++) {
        const jinja_value key = sort_key(r, &list->items[i], path, exact != NULL && jinja_truth(exact));
        size_t k = 0;
        if (jinja_failed(r)) break;
        while (k < seen.as.list->n && jinja_step(r) && !jinja_equal(&r->arena, &seen.as.list->items[k], &key)) k++;
        if (k < seen.as.list->n) continue;
        jinja_push(&r->arena, seen.as.list, key);
        jinja_push(&r->arena, out.as.list, list->items[i]);
    }
    return out;
}

static jinja_value extreme(jinja_render *r, const jinja_value *v, const jinja_args *args, int want) {
    const jinja_list *list = jinja_walk(r, v);
    const jinja_value *exact = jinja_arg(args, 0, "case_sensitive"), *path = jinja_arg(args, 1, "attribute");
    size_t best = 0;
    if (list == NULL) return *v;
    if (list->n == 0) return jinja_undefined(r, "min or max of an empty list");
    for (size_t i = 1; i < list->n && jinja_step(r); i++) {
        const jinja_value a = sort_key(r, &list->items[i], path, exact != NULL && jinja_truth(exact));
        const jinja_value b = sort_key(r, &list->items[best], path, exact != NULL && jinja_truth(exact));
        const int order = r->failed ? 0 : jinja_order(&r->arena, &a, &b);
        if (order == 2) (void)jinja_stop(r, "min and max: the values have no order");
        if (order == want) best = i;
    }
    return list->items[best];
}

static jinja_value f_min(jinja_render *r, jinja_value v, const jinja_args *args) {
    return extreme(r, &v, args, -1);
}

static jinja_value f_max(jinja_render *r, jinja_value v, const jinja_args *args) {
    return extreme(r, &v, args, 1);
}

static jinja_value f_sum(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_list *list = jinja_walk(r, &v);
    const jinja_value *path = jinja_arg(args, 0, "attribute"), *start = jinja_arg(args, 1, "start");
    jinja_value out = start != NULL ? *start : jinja_int(0);
    if (out.kind == JINJA_STRING) return jinja_stop(r, "sum does not support strings. Fix: use join");
    for (size_t i = 0; list != NULL && i < list->n && jinja_step(r); i++) {
        const bool plain = path == NULL || path->kind == JINJA_NONE;
        const jinja_value one = plain ? list->items[i] : attribute_path(r, list->items[i], path);
        if (!r->failed) out = jinja_binary(r, '+', &out, &one);
    }
    return out;
}

static jinja_value f_dictsort(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value *exact = jinja_arg(args, 0, "case_sensitive"), *reverse = jinja_arg(args, 2, "reverse");
    const jinja_value *by = jinja_arg(args, 1, "by");
    const char *names[] = {"attribute", "case_sensitive", "reverse"};
    jinja_value values[3], items = f_items(r, v, &jinja_no_args);
    const jinja_args sort = {values, names, 3};
    if (by != NULL && (by->kind != JINJA_STRING || (strcmp(jinja_name(&r->arena, by->as.text), "key") != 0 &&
                                                    strcmp(jinja_name(&r->arena, by->as.text), "value") != 0)))
        return jinja_stop(r, "dictsort: unknown value of by. Allowed: key, value");
    values[0] =
        jinja_int(by != NULL && by->kind == JINJA_STRING && strcmp(jinja_name(&r->arena, by->as.text), "value") == 0);
    values[1] = exact != NULL ? *exact : jinja_bool(false);
    values[2] = reverse != NULL ? *reverse : jinja_bool(false);
    return r->failed ? v : f_sort(r, items, &sort);
}

/* Returns the arguments after the first n. */
static jinja_args behind(const jinja_args *args, size_t n) {
    return args->n <= n ? jinja_no_args : (jinja_args){args->values + n, args->names + n, args->n - n};
}

/* Returns the elements for map and select. A false value (none, 0) is an empty list, as in jinja2. */
static const jinja_list *walk_if_any(jinja_render *r, const jinja_value *v) {
    static const jinja_list nothing;
    return jinja_truth(v) ? jinja_walk(r, v) : &nothing;
}

static jinja_value f_map(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_list *list = walk_if_any(r, &v);
    const jinja_value *path = jinja_arg(args, SIZE_MAX, "attribute"), *fallback = jinja_arg(args, SIZE_MAX, "default");
    const jinja_value *filter = jinja_arg(args, 0, NULL);
    const jinja_args more = behind(args, 1);
    jinja_value out = jinja_list_new(&r->arena, JINJA_ITERATOR, 0);
    const char *name =
        path == NULL && filter != NULL && filter->kind == JINJA_STRING ? jinja_name(&r->arena, filter->as.text) : NULL;
    if (path == NULL && name == NULL) return jinja_stop(r, "map needs a filter");
    for (size_t i = 0; list != NULL && i < list->n && jinja_step(r); i++) {
        jinja_value one = path != NULL ? attribute_or(r, list->items[i], path, fallback)
                                       : jinja_filter(r, name, list->items[i], &more);
        if (!r->failed) jinja_push(&r->arena, out.as.list, one);
    }
    return out;
}

static jinja_value choose(jinja_render *r, const jinja_value *v, const jinja_args *args, bool by_attribute, bool keep) {
    const jinja_list *list = walk_if_any(r, v);
    const size_t skip = by_attribute ? 1 : 0;
    const jinja_value *path = by_attribute ? jinja_arg(args, 0, NULL) : NULL, *test = jinja_arg(args, skip, NULL);
    const jinja_args more = behind(args, skip + 1);
    jinja_value out = jinja_list_new(&r->arena, JINJA_ITERATOR, 0);
    if (by_attribute && path == NULL) return jinja_stop(r, "selectattr needs an attribute");
    if (test != NULL && test->kind != JINJA_STRING) return jinja_stop(r, "the name of a test must be a string");
    for (size_t i = 0; list != NULL && i < list->n && jinja_step(r); i++) {
        const jinja_value one = by_attribute ? attribute_path(r, list->items[i], path) : list->items[i];
        bool holds = false;
        if (r->failed) break;
        holds = test == NULL ? jinja_truth(&one) : jinja_test(r, jinja_name(&r->arena, test->as.text), &one, &more);
        if (!r->failed && holds == keep) jinja_push(&r->arena, out.as.list, list->items[i]);
    }
    return out;
}

static jinja_value f_select(jinja_render *r, jinja_value v, const jinja_args *args) {
    return choose(r, &v, args, false, true);
}

static jinja_value f_reject(jinja_render *r, jinja_value v, const jinja_args *args) {
    return choose(r, &v, args, false, false);
}

static jinja_value f_selectattr(jinja_render *r, jinja_value v, const jinja_args *args) {
    return choose(r, &v, args, true, true);
}

static jinja_value f_rejectattr(jinja_render *r, jinja_value v, const jinja_args *args) {
    return choose(r, &v, args, true, false);
}

static jinja_value f_batch(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_list *list = jinja_walk(r, &v);
    const jinja_value *fill = jinja_arg(args, 1, "fill_with");
    jinja_value out = jinja_list_new(&r->arena, JINJA_ITERATOR, 0), row = jinja_none();
    int64_t size = 0;
    if (!jinja_arg_int(r, &size, args, 0, "linecount") || list == NULL) return v;
    if (size < 1) return jinja_stop(r, "batch needs a positive linecount");
    for (size_t i = 0; i < list->n && jinja_step(r); i++) {
        if (i % (uint64_t)size == 0) {
            row = jinja_list_new(&r->arena, JINJA_LIST, 0);
            if (!r->arena.failed) jinja_push(&r->arena, out.as.list, row);
        }
        if (!r->arena.failed) jinja_push(&r->arena, row.as.list, list->items[i]);
    }
    while (list->n > 0 && fill != NULL && fill->kind != JINJA_NONE && jinja_step(r) && row.as.list->n < (uint64_t)size)
        jinja_push(&r->arena, row.as.list, *fill);
    return out;
}

static jinja_value f_slice(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_list *list = jinja_walk(r, &v);
    const jinja_value *fill = jinja_arg(args, 1, "fill_with");
    jinja_value out = jinja_list_new(&r->arena, JINJA_ITERATOR, 0);
    int64_t n = 0;
    size_t at = 0;
    if (!jinja_arg_int(r, &n, args, 0, "slices") || list == NULL) return v;
    if (n < 1) return jinja_stop(r, "slice needs a positive number of slices");
    for (uint64_t i = 0; i < (uint64_t)n && jinja_step(r); i++) {
        const bool longer = i < list->n % (uint64_t)n;
        const size_t end = at + list->n / (uint64_t)n + longer;
        jinja_value row = jinja_list_new(&r->arena, JINJA_LIST, 0);
        while (at < end && !r->arena.failed) jinja_push(&r->arena, row.as.list, list->items[at++]);
        if (fill != NULL && fill->kind != JINJA_NONE && !longer && !r->arena.failed)
            jinja_push(&r->arena, row.as.list, *fill);
        if (!r->arena.failed) jinja_push(&r->arena, out.as.list, row);
    }
    return out;
}

/* Sorts by an attribute, and returns tuples (value, list) of elements with an equal attribute. */
static jinja_value f_groupby(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_list *list = jinja_walk(r, &v);
    const jinja_value *path = jinja_arg(args, 0, "attribute"), *fallback = jinja_arg(args, 1, "default");
    const jinja_value *exact = jinja_arg(args, 2, "case_sensitive");
    jinja_value out = jinja_list_new(&r->arena, JINJA_LIST, 0), rows = jinja_none();
    jinja_entry *pairs = list == NULL ? NULL : jinja_take(&r->arena, (2 * list->n + 1) * sizeof *pairs);
    if (pairs == NULL || path == NULL) return jinja_stop(r, "groupby needs an attribute");
    for (size_t i = 0; i < list->n && jinja_step(r); i++) {
        const jinja_value key = attribute_or(r, list->items[i], path, fallback);
        if (r->failed) return v;
        pairs[i].key = sort_key(r, &key, NULL, exact != NULL && jinja_truth(exact));
        pairs[i].value = list->items[i];
    }
    if (!jinja_failed(r)) merge_sort(r, pairs, pairs + list->n, list->n, false);
    for (size_t i = 0; i < list->n && jinja_step(r); i++) {
        if (i == 0 || !jinja_equal(&r->arena, &pairs[i - 1].key, &pairs[i].key)) {
            jinja_value pair = jinja_list_new(&r->arena, JINJA_TUPLE, 2);
            rows = jinja_list_new(&r->arena, JINJA_LIST, 0);
            if (r->arena.failed) return v;
            pair.function = JINJA_GROUP;
            jinja_push(&r->arena, pair.as.list, attribute_or(r, pairs[i].value, path, fallback));
            jinja_push(&r->arena, pair.as.list, rows);
            jinja_push(&r->arena, out.as.list, pair);
        }
        if (!r->arena.failed) jinja_push(&r->arena, rows.as.list, pairs[i].value);
    }
    return out;
}

/* Returns a method or attribute of a value, but not an element of an object. */
static jinja_value f_attr(jinja_render *r, jinja_value v, const jinja_args *args) {
    jinja_text *name = NULL;
    if (!jinja_arg_text(r, &name, args, 0, "name")) return v;
    if (name == NULL) return jinja_stop(r, "attr needs a name");
    if (v.kind == JINJA_DICT && !jinja_has_method(&v, jinja_name(&r->arena, name)))
        return jinja_undefined(r, jinja_name(&r->arena, name));
    return jinja_attribute(r, &v, jinja_name(&r->arena, name));
}

static jinja_value f_format(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value text = jinja_to_string(r, &v);
    jinja_value values = jinja_list_new(&r->arena, JINJA_TUPLE, args->n), names = jinja_dict_new(&r->arena, JINJA_DICT);
    if (jinja_failed(r)) return v;
    for (size_t i = 0; i < args->n && !r->arena.failed; i++)
        if (args->names[i] == NULL) jinja_push(&r->arena, values.as.list, args->values[i]);
        else jinja_put(&r->arena, names.as.dict, jinja_literal(&r->arena, args->names[i]), args->values[i]);
    if (values.as.list->n > 0 && names.as.dict->n > 0)
        return jinja_stop(r, "format takes positional or named values, not both");
    return r->arena.failed ? v : jinja_percent(r, &text, names.as.dict->n > 0 ? &names : &values);
}

static jinja_value f_safe(jinja_render *r, jinja_value v, const jinja_args *args) {
    jinja_value out = jinja_to_string(r, &v);
    (void)args;
    if (!r->failed) out.function = JINJA_SAFE;
    return out;
}

static jinja_value f_unsupported(jinja_render *r, jinja_value v, const jinja_args *args) {
    (void)v;
    (void)args;
    return jinja_stop(r, "the filters pprint, random and urlize are not supported");
}

static const struct {
    const char *name;
    jinja_filter_fn *filter;
} filters[] = {{"trim", f_trim},
               {"length", f_length},
               {"count", f_length},
               {"tojson", f_tojson},
               {"default", f_default},
               {"d", f_default},
               {"first", f_first},
               {"last", f_last},
               {"list", f_list},
               {"string", f_string},
               {"int", jinja_filter_int},
               {"float", jinja_filter_float},
               {"abs", jinja_filter_abs},
               {"upper", f_upper},
               {"lower", f_lower},
               {"title", f_title},
               {"replace", f_replace},
               {"join", f_join},
               {"items", f_items},
               {"reverse", f_reverse},
               {"sort", f_sort},
               {"unique", f_unique},
               {"min", f_min},
               {"max", f_max},
               {"sum", f_sum},
               {"round", jinja_filter_round},
               {"dictsort", f_dictsort},
               {"map", f_map},
               {"select", f_select},
               {"reject", f_reject},
               {"selectattr", f_selectattr},
               {"rejectattr", f_rejectattr},
               {"indent", jinja_filter_indent},
               {"safe", f_safe},
               {"capitalize", f_capitalize},
               {"batch", f_batch},
               {"slice", f_slice},
               {"groupby", f_groupby},
               {"attr", f_attr},
               {"format", f_format},
               {"truncate", jinja_filter_truncate},
               {"center", jinja_filter_center},
               {"escape", jinja_filter_escape},
               {"e", jinja_filter_escape},
               {"forceescape", jinja_filter_forceescape},
               {"striptags", jinja_filter_striptags},
               {"wordcount", jinja_filter_wordcount},
               {"wordwrap", jinja_filter_wordwrap},
               {"urlencode", jinja_filter_urlencode},
               {"xmlattr", jinja_filter_xmlattr},
               {"filesizeformat", jinja_filter_filesizeformat},
               {"pprint", f_unsupported},
               {"random", f_unsupported},
               {"urlize", f_unsupported}};

bool jinja_knows_filter(const char *name) {
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (strcmp(filters[i].name, name) == 0) return true;
    return false;
}

jinja_value jinja_filter(jinja_render *r, const char *name, jinja_value v, const jinja_args *args) {
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        jinja_value out = v;
        if (strcmp(filters[i].name, name) != 0) continue;
        if (jinja_enter_value(&r->arena)) out = filters[i].filter(r, v, args); /* the argument of map may be map */
        r->arena.levels--;
        return out;
    }
    return jinja_stop(r, "unknown filter %.60s", name);
}
