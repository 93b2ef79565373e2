/* filters_text.c: the filters of jinja2 that wrap, pad, escape or strip strings. */
#include "run.h"

#include <utf8proc.h>

static jinja_value front(jinja_render *r, const jinja_value *text, int64_t n) {
    const jinja_value bounds[3] = {jinja_none(), jinja_int(n), jinja_none()};
    return jinja_slice(r, text, bounds);
}

jinja_value jinja_filter_truncate(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value *kill = jinja_arg(args, 1, "killwords");
    jinja_text *end = jinja_literal(&r->arena, "...").as.text;
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    int64_t length = 255, leeway = 5, n = 0;
    size_t cut = 0;
    if (v.kind != JINJA_STRING) return jinja_stop(r, "truncate needs a string, not %s", jinja_kind_name(&v));
    if (r->arena.failed || !jinja_arg_int(r, &length, args, 0, "length") || !jinja_arg_text(r, &end, args, 2, "end") ||
        !jinja_arg_int(r, &leeway, args, 3, "leeway"))
        return v;
    n = (int64_t)jinja_points(&r->arena, end);
    if (length < n || leeway < 0) return jinja_stop(r, "truncate: length must be at least that of `end`");
    if (leeway > INT32_MAX || (int64_t)jinja_points(&r->arena, v.as.text) <= length + leeway) return v;
    v = front(r, &v, length - n);
    if (jinja_failed(r)) return v;
    cut = v.as.text->n;
    if (kill == NULL || !jinja_truth(kill)) {
        while (cut > 0 && v.as.text->bytes[cut - 1] != ' ') cut--;
        cut = cut > 0 ? cut - 1 : v.as.text->n;
    }
    jinja_add(&out, v.as.text->bytes, v.as.text->marks, cut);
    jinja_add_text(&out, end);
    return jinja_finish(r, &out);
}

static void add_copies(jinja_builder *out, const jinja_text *text, int64_t n) {
    for (int64_t i = 0; i < n && !out->overflow && !out->arena->failed; i++) jinja_add_text(out, text);
}

jinja_value jinja_pad(jinja_render *r, jinja_text *text, int64_t width, const jinja_text *fill, char side) {
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    const int64_t n = (int64_t)jinja_points(&r->arena, text), gap = width > n ? width - n : 0;
    const int64_t before = side == 'r' ? gap : side == 'c' ? gap / 2 + (gap & width & 1) : 0;
    add_copies(&out, fill, before);
    jinja_add_text(&out, text);
    add_copies(&out, fill, gap - before);
    return jinja_finish(r, &out);
}

jinja_value jinja_filter_center(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value text = jinja_to_string(r, &v), blank = jinja_literal(&r->arena, " ");
    int64_t width = 80;
    if (jinja_failed(r) || !jinja_arg_int(r, &width, args, 0, "width")) return v;
    return jinja_pad(r, text.as.text, width, blank.as.text, 'c');
}

jinja_value jinja_filter_escape(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value text = jinja_to_string(r, &v);
    (void)args;
    return jinja_failed(r) ? v : jinja_escape(r, &text);
}

jinja_value jinja_filter_forceescape(jinja_render *r, jinja_value v, const jinja_args *args) {
    v.function = v.kind == JINJA_STRING ? 0 : v.function;
    return jinja_filter_escape(r, v, args);
}

/* Removes each section from `open` to `close`. */
static jinja_value without(jinja_render *r, jinja_value v, const char *open, const char *close) {
    const jinja_value begin = jinja_literal(&r->arena, open), end = jinja_literal(&r->arena, close);
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    size_t at = 0;
    while (!jinja_failed(r)) {
        const int64_t from = jinja_find(&r->arena, v.as.text, begin.as.text, at);
        const int64_t to = from < 0 ? -1 : jinja_find(&r->arena, v.as.text, end.as.text, (size_t)from);
        const size_t stop = to < 0 ? v.as.text->n : (size_t)from;
        jinja_add_part(&out, v.as.text, at, stop);
        if (to < 0) break;
        at = (size_t)to + end.as.text->n;
    }
    return jinja_finish(r, &out);
}

/* Returns the character of an HTML entity and its length. 0: not an entity; -1: an unknown entity. */
static int32_t entity(const char *text, size_t n, size_t *used) {
    static const struct {
        const char *name;
        int32_t point;
    } names[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&#39;", '\''}, {"&#34;", '"'}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *used = strlen(names[i].name);
        if (*used <= n && memcmp(text, names[i].name, *used) == 0) return names[i].point;
    }
    *used = 1;
    return n > 1 && (text[1] == '#' || (text[1] >= 'a' && text[1] <= 'z') || (text[1] >= 'A' && text[1] <= 'Z')) ? -1
                                                                                                                 : 0;
}

jinja_value jinja_filter_striptags(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value blank = jinja_literal(&r->arena, " ");
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    jinja_value text = jinja_to_string(r, &v), words = jinja_none();
    (void)args;
    if (!jinja_failed(r)) text = without(r, text, "<!--", "-->");
    if (!jinja_failed(r)) text = without(r, text, "<", ">");
    if (!jinja_failed(r)) words = jinja_method_call(r, &(jinja_method){text, "split"}, &jinja_no_args);
    if (!jinja_failed(r)) text = jinja_join(r, blank.as.text, words.as.list);
    if (jinja_failed(r)) return v;
    for (size_t i = 0, n = 1; i < text.as.text->n && jinja_step(r); i += n) {
        const char *at = text.as.text->bytes + i;
        const uint32_t *marks = jinja_marks(text.as.text, i);
        const int32_t point = *at == '&' ? entity(at, text.as.text->n - i, &n) : (n = 1, 0);
        char one = (char)point;
        if (point < 0) return jinja_stop(r, "striptags: unknown entity %.10s", jinja_name(&r->arena, text.as.text) + i);
        jinja_add(&out, point > 0 ? &one : at, marks, 1);
    }
    return jinja_finish(r, &out);
}

static bool is_word(int32_t c) {
    const utf8proc_category_t k = utf8proc_category(c);
    return c == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

jinja_value jinja_filter_wordcount(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value text = jinja_to_string(r, &v);
    bool inside = false;
    int64_t words = 0;
    (void)args;
    if (jinja_failed(r) || !jinja_spend(&r->arena, text.as.text->n * 4)) return v;
    for (size_t i = 0; i < text.as.text->n;) {
        int32_t c = 0;
        bool word = false;
        i += jinja_next(text.as.text->bytes + i, text.as.text->n - i, &c);
        word = is_word(c);
        words += word && !inside;
        inside = word;
    }
    return jinja_int(words);
}

static bool is_blank(char c) {
    return c != '\0' && strchr(" \t\n\v\f\r", c) != NULL;
}

/* State of Python's textwrap: the text is split into chunks, words or blanks, that fill lines. */
typedef struct wrapping {
    jinja_render *r;
    jinja_list *lines;
    const jinja_text *text;
    size_t at, stop; /* current chunk, or the rest of it */
    int64_t width;
    bool breaks;
} wrapping;

/* Returns the number of characters of the next chunk; 0: end of the text. */
static int64_t next_chunk(wrapping *w) {
    jinja_value part = jinja_none();
    if (w->at == w->stop && w->at < w->text->n) {
        const bool blank = is_blank(w->text->bytes[w->at]);
        while (w->stop < w->text->n && is_blank(w->text->bytes[w->stop]) == blank) w->stop++;
    }
    if (w->at == w->stop || !jinja_step(w->r)) return 0;
    part = jinja_slice_bytes(&w->r->arena, w->text, w->at, w->stop);
    return w->r->arena.failed ? 0 : (int64_t)jinja_points(&w->r->arena, part.as.text);
}

static bool all_space(const wrapping *w, size_t from, size_t to) {
    int32_t c = ' ';
    while (from < to && jinja_is_space(c)) from += jinja_next(w->text->bytes + from, to - from, &c);
    return jinja_is_space(c);
}

/* Adds the part of a long chunk that fits into the line. An unbreakable chunk gets its own line. */
static void add_long(wrapping *w, int64_t room, bool is_first) {
    int32_t c = 0;
    if (!w->breaks) w->at = is_first ? w->stop : w->at;
    for (; w->breaks && room > 0; room--) w->at += jinja_next(w->text->bytes + w->at, w->stop - w->at, &c);
}

static void wrap_line(wrapping *w) {
    w->at = w->stop = 0;
    while (next_chunk(w) > 0) {
        int64_t used = 0, n = 0;
        size_t begin = 0, last = 0;
        if (w->lines->n > 0 && all_space(w, w->at, w->stop)) w->at = w->stop;
        begin = last = w->at;
        for (; (n = next_chunk(w)) > 0 && used + n <= w->width; used += n) {
            last = w->at;
            w->at = w->stop;
        }
        if (n > w->width && (w->breaks || w->at == begin)) {
            last = w->at;
            add_long(w, w->width - used, w->at == begin);
        }
        if (!all_space(w, last, w->at)) last = w->at;
        if (last > begin && !w->r->arena.failed)
            jinja_push(&w->r->arena, w->lines, jinja_slice_bytes(&w->r->arena, w->text, begin, last));
    }
}

jinja_value jinja_filter_wordwrap(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value *breaks = jinja_arg(args, 1, "break_long_words"),
                      *hyphens = jinja_arg(args, 3, "break_on_hyphens");
    const jinja_value text = jinja_to_string(r, &v);
    jinja_value rows = jinja_none(), out = jinja_list_new(&r->arena, JINJA_LIST, 0);
    jinja_text *between = jinja_literal(&r->arena, "\n").as.text;
    wrapping w = {.r = r, .width = 79, .breaks = breaks == NULL || jinja_truth(breaks)};
    if (jinja_failed(r) || !jinja_arg_int(r, &w.width, args, 0, "width") ||
        !jinja_arg_text(r, &between, args, 2, "wrapstring"))
        return v;
    if (w.width < 1) return jinja_stop(r, "wordwrap needs a width of at least 1");
    if ((hyphens == NULL || jinja_truth(hyphens)) && memchr(text.as.text->bytes, '-', text.as.text->n) != NULL)
        return jinja_stop(r, "wordwrap at hyphens is not supported. Fix: set break_on_hyphens=false");
    rows = jinja_split_lines(r, text.as.text, false);
    for (size_t i = 0; !jinja_failed(r) && i < rows.as.list->n; i++) {
        jinja_value lines = jinja_list_new(&r->arena, JINJA_LIST, 0);
        w.lines = lines.as.list;
        w.text = rows.as.list->items[i].as.text;
        if (!r->arena.failed) wrap_line(&w);
        if (!jinja_failed(r)) jinja_push(&r->arena, out.as.list, jinja_join(r, between, w.lines));
    }
    return jinja_failed(r) ? v : jinja_join(r, between, out.as.list);
}

static void add_quoted(jinja_render *r, jinja_builder *out, const jinja_value *v, bool query) {
    const jinja_value text = jinja_to_string(r, v);
    for (size_t i = 0; !jinja_failed(r) && i < text.as.text->n && jinja_step(r); i++) {
        const char c = text.as.text->bytes[i];
        const uint32_t *marks = jinja_marks(text.as.text, i);
        const bool kept = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c != '\0' && strchr("_.-~", c) != NULL) || (c == '/' && !query);
        char escape[4];
        if (kept || (c == ' ' && query)) {
            jinja_add(out, kept ? &c : "+", marks, 1);
            continue;
        }
        (void)snprintf(escape, sizeof escape, "%%%02X", (unsigned)(unsigned char)c);
        jinja_add_as(out, escape, 3, marks);
    }
}

jinja_value jinja_filter_urlencode(jinja_render *r, jinja_value v, const jinja_args *args) {
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    (void)args;
    if (v.kind == JINJA_DICT) v = jinja_method_call(r, &(jinja_method){v, "items"}, &jinja_no_args);
    if (!jinja_is_list(&v)) add_quoted(r, &out, &v, false);
    for (size_t i = 0; jinja_is_list(&v) && i < v.as.list->n && jinja_step(r); i++) {
        const jinja_value *pair = &v.as.list->items[i];
        if (!jinja_is_list(pair) || pair->as.list->n != 2) return jinja_stop(r, "urlencode needs pairs");
        if (i > 0) jinja_add_plain(&out, "&");
        add_quoted(r, &out, &pair->as.list->items[0], true);
        jinja_add_plain(&out, "=");
        add_quoted(r, &out, &pair->as.list->items[1], true);
    }
    return jinja_finish(r, &out);
}

jinja_value jinja_filter_xmlattr(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value *space = jinja_arg(args, 0, "autospace");
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    if (v.kind != JINJA_DICT) return jinja_stop(r, "xmlattr needs an object, not %s", jinja_kind_name(&v));
    jinja_read_all(v.as.dict);
    for (size_t i = 0; i < v.as.dict->n && jinja_step(r); i++) {
        const jinja_entry *entry = &v.as.dict->entries[i];
        jinja_value key = jinja_none(), value = jinja_none();
        if (entry->value.kind == JINJA_NONE || entry->value.kind == JINJA_UNDEFINED) continue;
        key = jinja_filter_escape(r, entry->key, &jinja_no_args);
        value = jinja_filter_escape(r, entry->value, &jinja_no_args);
        if (jinja_failed(r)) return v;
        if (strpbrk(jinja_name(&r->arena, key.as.text), " \t\n\v\f\r/>=") != NULL)
            return jinja_stop(r, "xmlattr needs names without spaces, /, > and =");
        if (out.n > 0 || space == NULL || jinja_truth(space)) jinja_add_plain(&out, " ");
        jinja_add_text(&out, key.as.text);
        jinja_add_plain(&out, "=\"");
        jinja_add_text(&out, value.as.text);
        jinja_add_plain(&out, "\"");
    }
    return jinja_finish(r, &out);
}

/* Reads the indentation: a number of blanks, or a string. */
static bool read_indent(jinja_render *r, jinja_text **out, const jinja_args *args) {
    const jinja_value *given = jinja_arg(args, 0, "width");
    const jinja_value blank = jinja_literal(&r->arena, " ");
    jinja_builder text = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    int64_t width = 4;
    if (given != NULL && given->kind == JINJA_STRING) {
        *out = given->as.text;
        return true;
    }
    if (r->arena.failed || !jinja_arg_int(r, &width, args, 0, "width")) return false;
    add_copies(&text, blank.as.text, width);
    *out = jinja_finish(r, &text).as.text;
    return !jinja_failed(r);
}

/* A trailing line end adds an empty line, as in jinja2. */
jinja_value jinja_filter_indent(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value *first = jinja_arg(args, 1, "first"), *blank = jinja_arg(args, 2, "blank");
    const jinja_value text = jinja_to_string(r, &v);
    const bool all = blank != NULL && jinja_truth(blank);
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT}, whole = out;
    jinja_value lines = jinja_none();
    jinja_text *by = NULL;
    if (v.kind != JINJA_STRING) return jinja_stop(r, "indent needs a string, not %s", jinja_kind_name(&v));
    if (jinja_failed(r) || !read_indent(r, &by, args)) return v;
    jinja_add_text(&whole, text.as.text);
    jinja_add_plain(&whole, "\n");
    lines = jinja_finish(r, &whole);
    if (!jinja_failed(r)) lines = jinja_split_lines(r, lines.as.text, false);
    if (jinja_failed(r)) return v;
    if (first != NULL && jinja_truth(first)) jinja_add_text(&out, by);
    for (size_t i = 0; i < lines.as.list->n && jinja_step(r); i++) {
        const jinja_text *line = lines.as.list->items[i].as.text;
        if (i > 0) jinja_add_plain(&out, "\n");
        if (i > 0 && (line->n > 0 || all)) jinja_add_text(&out, by);
        jinja_add_text(&out, line);
    }
    return jinja_finish(r, &out);
}
