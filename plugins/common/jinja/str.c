/* str.c: methods of Python's str for strings with marks: search, case, replace, join, splitlines. */
#include "run.h"

#include "case_table.h"

int64_t jinja_find(jinja_arena *arena, const jinja_text *text, const jinja_text *what, size_t from) {
    const char *at = NULL;
    if (from > text->n || what->n > text->n - from) return -1;
    at = memmem(text->bytes + from, text->n - from, what->bytes, what->n);
    (void)jinja_spend(arena, (at == NULL ? text->n : (size_t)(at - text->bytes)) - from);
    return at == NULL ? -1 : at - text->bytes;
}

static const case_run *find_run(const case_run *runs, size_t n, int32_t c) {
    size_t low = 0, high = n;
    while (low < high) { /* find the last run that begins at or before c */
        const size_t middle = (low + high) / 2;
        if (runs[middle].first <= c) low = middle + 1;
        else high = middle;
    }
    if (low == 0 || c > runs[low - 1].last || (c - runs[low - 1].first) % runs[low - 1].step != 0) return NULL;
    return &runs[low - 1];
}
#define FIND_RUN(runs, c) find_run(runs, sizeof(runs) / sizeof *(runs), c)

/* Returns the one character that c becomes. to: 'u' upper, 't' title, 'l' lower, 'f' casefold. */
static int32_t other_case(int32_t c, char to) {
    const case_run *run = to == 't' ? FIND_RUN(title_runs, c) : to == 'f' ? FIND_RUN(fold_runs, c) : NULL;
    if (run == NULL) run = strchr("ut", to) != NULL ? FIND_RUN(upper_runs, c) : FIND_RUN(lower_runs, c);
    return run == NULL ? c : c + run->delta;
}

/* Returns the result for a character that changes to several characters; NULL: a single one. */
static const char *more_of(int32_t c, char to) {
    for (size_t i = 0; c >= several[0].point && i < sizeof several / sizeof *several; i++)
        if (several[i].point == c)
            return to == 'u'   ? several[i].upper
                   : to == 't' ? several[i].title
                   : to == 'l' ? several[i].lower
                               : several[i].fold;
    return NULL;
}

static void add_case(jinja_builder *out, int32_t c, char to, const uint32_t *marks) {
    char bytes[4];
    const char *more = more_of(c, to);
    const size_t n = more != NULL ? strlen(more) : jinja_put_point(bytes, other_case(c, to));
    jinja_add_as(out, more != NULL ? more : bytes, n, marks);
}

static bool is_letter(int32_t c) {
    return FIND_RUN(cased_runs, c) != NULL;
}

/* Returns the case for swapcase(): a titlecase letter such as U+01C5 is unchanged. */
static char swapped(int32_t c) {
    if (other_case(c, 'l') == c && more_of(c, 'l') == NULL) return 'u';
    return other_case(c, 'u') == c && more_of(c, 'u') == NULL ? 'l' : ' ';
}

static bool letter_follows(const jinja_text *text, size_t at) {
    int32_t c = 0;
    if (at >= text->n) return false;
    (void)jinja_next(text->bytes + at, text->n - at, &c);
    return is_letter(c);
}

jinja_value jinja_case(jinja_render *r, const jinja_text *text, char change) {
    jinja_builder out = {.arena = &r->arena};
    bool begins = true, after_letter = false;
    for (size_t i = 0; i < text->n && !r->arena.failed;) {
        int32_t c = 0;
        const size_t n = jinja_next(text->bytes + i, text->n - i, &c);
        const uint32_t *marks = jinja_marks(text, i);
        const char to = change == 's'                  ? swapped(c)
                        : strchr("uf", change) != NULL ? change
                        : change == 'T' && begins      ? 'u' /* jinja2's filter capitalizes the first letter */
                        : change != 'l' && begins      ? 't'
                                                       : 'l';
        if (to == ' ') jinja_add(&out, text->bytes + i, marks, n);
        else if (c == 0x3A3 && to == 'l' && after_letter && !letter_follows(text, i + n))
            add_case(&out, 0x3C2, 'l', marks); /* final sigma */
        else add_case(&out, c, to, marks);
        after_letter = is_letter(c);
        if (change == 'c') begins = false;
        if (change == 't') begins = !is_letter(c);
        if (change == 'T')
            begins = c < 0x80 ? strchr("-({[<", (char)c) != NULL || jinja_is_space(c) : jinja_is_space(c);
        i += n;
    }
    return jinja_built(&out);
}

jinja_value jinja_replace_text(jinja_render *r, const jinja_text *text, const jinja_text *old, const jinja_text *fresh,
                               int64_t most) {
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    size_t at = 0;
    for (int64_t i = 0; (most < 0 || i < most) && jinja_step(r); i++) {
        const int64_t found = jinja_find(&r->arena, text, old, at);
        size_t end = 0;
        if (found < 0) break;
        end = (size_t)found + old->n;
        if (old->n == 0) { /* between all characters */
            int32_t c = 0;
            jinja_add_text(&out, fresh);
            if (at >= text->n) break;
            end = at + jinja_next(text->bytes + at, text->n - at, &c);
            jinja_add_part(&out, text, at, end);
        } else {
            jinja_add_part(&out, text, at, (size_t)found);
            jinja_add_text(&out, fresh);
        }
        at = end;
    }
    if (at < text->n) jinja_add_part(&out, text, at, text->n);
    return jinja_finish(r, &out);
}

jinja_value jinja_join(jinja_render *r, const jinja_text *between, const jinja_list *list) {
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    for (size_t i = 0; i < list->n && jinja_step(r); i++) {
        if (i > 0) jinja_add_text(&out, between);
        jinja_add_str(&out, &list->items[i]);
    }
    return jinja_finish(r, &out);
}

static bool is_line_end(int32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

jinja_value jinja_split_lines(jinja_render *r, const jinja_text *text, bool keep_ends) {
    jinja_value out = jinja_list_new(&r->arena, JINJA_LIST, 0);
    size_t begin = 0;
    for (size_t i = 0, n = 0; i < text->n && jinja_step(r); i += n) {
        int32_t c = 0;
        n = jinja_next(text->bytes + i, text->n - i, &c);
        if (!is_line_end(c)) continue;
        if (c == '\r' && i + 1 < text->n && text->bytes[i + 1] == '\n') n = 2;
        jinja_push(&r->arena, out.as.list, jinja_slice_bytes(&r->arena, text, begin, keep_ends ? i + n : i));
        begin = i + n;
    }
    if (begin < text->n && !r->arena.failed)
        jinja_push(&r->arena, out.as.list, jinja_slice_bytes(&r->arena, text, begin, text->n));
    return out;
}
