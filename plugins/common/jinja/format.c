/* format.c: string formatting of Python: `text % values` and text.format(...). */
#include "run.h"

#include <math.h>
#include <stdlib.h>

/* Format specification of one value: [[fill]align][sign][#][0][width][group][.precision][type]. */
typedef struct spec {
    const char *fill; /* one character */
    size_t fill_bytes;
    char align, sign, group, type; /* 0: unspecified */
    bool alternate, zero;
    int64_t width, precision; /* precision -1: unspecified */
} spec;

enum { MOST_WIDTH = 1 << 16, NUMBER_BYTES = 512 };

static const spec plain = {" ", 1, 0, 0, 0, 0, false, false, 0, -1};

static void add_fill(jinja_builder *out, const spec *how, int64_t n) {
    for (int64_t i = 0; i < n && !out->overflow && !out->arena->failed; i++)
        jinja_add(out, how->fill, NULL, how->fill_bytes);
}

/* Adds a padded value. Alignment '=' pads after `head`, the sign and prefix of a number. */
static void add_padded(jinja_render *r, jinja_builder *out, const spec *how, char align, const char *head,
                       jinja_text *body) {
    const int64_t n = (int64_t)(strlen(head) + jinja_points(&r->arena, body));
    const int64_t gap = how->width > n ? how->width - n : 0;
    const int64_t before = align == '>' ? gap : align == '^' ? gap / 2 : 0;
    add_fill(out, how, before);
    jinja_add_plain(out, head);
    if (align == '=') add_fill(out, how, gap);
    jinja_add_text(out, body);
    if (align != '=') add_fill(out, how, gap - before);
}

static void add_ascii(jinja_render *r, jinja_builder *out, const spec *how, char align, const char *head,
                      const char *body) {
    jinja_text text = {.bytes = body, .n = strlen(body)};
    add_padded(r, out, how, align, head, &text);
}

static const char *sign_of(const spec *how, bool minus) {
    return minus ? "-" : how->sign == '+' ? "+" : how->sign == ' ' ? " " : "";
}

/* Groups the digits before a point or exponent from the right. */
static void group(char *text, size_t size, char sign, size_t every) {
    const size_t n = strlen(text), whole = strspn(text, "0123456789abcdefABCDEF");
    char out[NUMBER_BYTES];
    size_t to = 0;
    if (sign == 0) return;
    for (size_t i = 0; i < n && to + 2 < sizeof out; i++) {
        if (i > 0 && i < whole && (whole - i) % every == 0) out[to++] = sign;
        out[to++] = text[i];
    }
    out[to] = '\0';
    (void)snprintf(text, size, "%s", out);
}

static void digits_of(char *out, size_t size, uint64_t n, unsigned base, bool upper) {
    const char *all = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    char back[72];
    size_t i = 0, to = 0;
    do back[i++] = all[n % base], n /= base;
    while (n > 0);
    while (i > 0 && to + 1 < size) out[to++] = back[--i];
    out[to] = '\0';
}

static void add_whole(jinja_render *r, jinja_builder *out, const spec *how, const jinja_value *v, int64_t least) {
    const bool big = v->kind == JINJA_BIG, minus = big ? v->as.text->bytes[0] == '-' : v->as.i < 0;
    const unsigned base = how->type == 'x' || how->type == 'X' ? 16 : how->type == 'o' ? 8 : how->type == 'b' ? 2 : 10;
    const uint64_t n = big ? 0 : minus ? -(uint64_t)v->as.i : (uint64_t)v->as.i;
    char text[NUMBER_BYTES], head[8];
    size_t have = 0;
    if (big && (base != 10 || v->as.text->n >= sizeof text)) {
        (void)jinja_stop(r, "an integer exceeds 64 bits");
        return;
    }
    if (big) (void)snprintf(text, sizeof text, "%.*s", (int)(v->as.text->n - minus), v->as.text->bytes + minus);
    else digits_of(text, sizeof text, n, base, how->type == 'X');
    have = strlen(text);
    if (least >= (int64_t)sizeof text) least = (int64_t)sizeof text - 1;
    if ((int64_t)have < least) {
        memmove(text + (size_t)least - have, text, have + 1);
        memset(text, '0', (size_t)least - have);
    }
    group(text, sizeof text, how->group, base == 10 ? 3 : 4);
    (void)snprintf(head, sizeof head, "%s%s", sign_of(how, minus),
                   !how->alternate || base == 10 ? ""
                   : base == 8                   ? "0o"
                   : base == 2                   ? "0b"
                   : how->type == 'X'            ? "0X"
                                                 : "0x");
    add_ascii(r, out, how, how->align != 0 ? how->align : how->zero ? '=' : '>', head, text);
}

static void add_real(jinja_render *r, jinja_builder *out, const spec *how, double f) {
    const bool minus = signbit(f) != 0, percent = how->type == '%', upper = how->type != 0 && strchr("EFG", how->type);
    char format[16], text[NUMBER_BYTES] = "";
    char type = how->type == 0 || how->type == 'n' ? 'g' : percent ? 'f' : how->type;
    const int precision = how->precision < 0 ? 6 : (int)how->precision;
    f = fabs(percent ? f * 100.0 : f);
    if (precision > 100 || (f > 1e200 && type == 'f')) {
        (void)jinja_stop(r, "a number has more than %d digits", NUMBER_BYTES / 2);
        return;
    }
    if (!isfinite(f))
        (void)snprintf(text, sizeof text, "%s", isnan(f) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf");
    else if (how->type == 0 && how->precision < 0) {
        jinja_builder shortest = {.arena = &r->arena};
        jinja_add_float(&shortest, f, false);
        if (!r->arena.failed) (void)snprintf(text, sizeof text, "%.*s", (int)shortest.n, shortest.bytes);
    } else {
        (void)snprintf(format, sizeof format, "%%%s.*%c", how->alternate ? "#" : "", type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        (void)snprintf(text, sizeof text, format, precision, f);
#pragma GCC diagnostic pop
        if (how->type == 0 && strpbrk(text, ".e") == NULL) (void)strcat(text, ".0");
    }
    if (percent) (void)strcat(text, "%");
    if (isfinite(f)) group(text, sizeof text, how->group, 3);
    add_ascii(r, out, how, how->align != 0 ? how->align : how->zero ? '=' : '>', sign_of(how, minus), text);
}

static void add_point(jinja_render *r, jinja_builder *out, const spec *how, int64_t point) {
    jinja_text text = {.bytes = NULL};
    char bytes[4];
    const size_t n = jinja_put_point(bytes, point);
    if (n == 0) {
        (void)jinja_stop(r, "%%c: not a character");
        return;
    }
    text.bytes = bytes;
    text.n = n;
    add_padded(r, out, how, how->align != 0 ? how->align : '>', "", &text);
}

/* Returns repr() with escapes for non-ASCII characters. */
static jinja_value ascii_repr(jinja_render *r, const jinja_value *v) {
    jinja_builder text = {.arena = &r->arena, .most = JINJA_MOST_TEXT}, out = text;
    jinja_add_repr(&text, v);
    for (size_t i = 0, n = 0; i < text.n && !r->arena.failed; i += n) {
        int32_t c = 0;
        char escape[16];
        n = jinja_next(text.bytes + i, text.n - i, &c);
        (void)snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
        if (c < 0x80) jinja_add(&out, text.bytes + i, text.marks + i, 1);
        else jinja_add_as(&out, escape, strlen(escape), text.marks + i);
    }
    return jinja_built(&out);
}

/* Converts a value to a string by conversion 's', 'r' or 'a'. safe: |safe was applied to the format. */
static jinja_value as_text(jinja_render *r, const jinja_value *v, char conversion, bool safe) {
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    jinja_value text = jinja_none();
    if (conversion == 's') text = jinja_to_string(r, v);
    else if (conversion == 'a') text = ascii_repr(r, v);
    else {
        jinja_add_repr(&out, v);
        text = jinja_built(&out);
    }
    return safe && !jinja_failed(r) ? jinja_escape(r, &text) : text;
}

static void add_cut(jinja_render *r, jinja_builder *out, const spec *how, char align, jinja_value text) {
    const jinja_value bounds[3] = {jinja_none(), jinja_int(how->precision), jinja_none()};
    if (jinja_failed(r)) return;
    if (how->precision >= 0) text = jinja_slice(r, &text, bounds);
    if (!jinja_failed(r)) add_padded(r, out, how, align, "", text.as.text);
}

static jinja_value finished(jinja_render *r, jinja_builder *out, bool safe) {
    jinja_value text = jinja_failed(r) ? jinja_none() : jinja_finish(r, out);
    if (safe && !jinja_failed(r)) text.function = JINJA_SAFE;
    return text;
}

/* ---- text % values ---- */

typedef struct percent {
    jinja_render *r;
    const char *at, *end;
    const jinja_list *list; /* positional values */
    const jinja_value *one; /* single value; NULL: use `list` */
    size_t next;
    bool safe;
} percent;

static const jinja_value *next_value(percent *p) {
    const size_t n = p->one != NULL ? 1 : p->list->n;
    if (p->next < n) return p->one != NULL ? (p->next++, p->one) : &p->list->items[p->next++];
    (void)jinja_stop(p->r, "%%: fewer values than fields");
    return NULL;
}

static bool read_count(percent *p, int64_t *out) {
    const jinja_value *given = NULL;
    if (p->at < p->end && *p->at == '*') {
        p->at++;
        given = next_value(p);
        if (given == NULL) return false;
        if (!jinja_is_whole(given)) return jinja_stop(p->r, "%%: * needs an integer"), false;
        *out = given->as.i;
    } else
        for (*out = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9' && *out <= MOST_WIDTH; p->at++)
            *out = *out * 10 + (*p->at - '0');
    return *out <= MOST_WIDTH || (jinja_stop(p->r, "a width exceeds %d", MOST_WIDTH), false);
}

static bool read_key(percent *p, const jinja_value **out) {
    const char *begin = p->at + 1;
    int depth = 1;
    while (++p->at < p->end && depth > 0) depth += (*p->at == '(') - (*p->at == ')');
    if (depth > 0) return jinja_stop(p->r, "%%( is not closed"), false;
    if (p->one == NULL || p->one->kind != JINJA_DICT) return jinja_stop(p->r, "%%( needs an object"), false;
    p->next = 1;
    *out = jinja_get(&p->r->arena, p->one->as.dict, begin, (size_t)(p->at - begin) - 1);
    return *out != NULL || (jinja_stop(p->r, "%%: unknown name"), false);
}

static bool read_percent(percent *p, spec *how, const jinja_value **v) {
    *how = plain;
    *v = NULL;
    if (p->at < p->end && *p->at == '(' && !read_key(p, v)) return false;
    for (; p->at < p->end && strchr("-+ #0", *p->at) != NULL; p->at++) {
        if (*p->at == '-') how->align = '<';
        else if (*p->at == '#') how->alternate = true;
        else if (*p->at == '0') how->zero = true;
        else if (how->sign != '+') how->sign = *p->at;
    }
    if (!read_count(p, &how->width)) return false;
    if (how->width < 0) {
        how->align = '<';
        how->width = -how->width;
    }
    if (p->at < p->end && *p->at == '.') {
        p->at++;
        if (!read_count(p, &how->precision)) return false;
        if (how->precision < 0) how->precision = 0;
    }
    if (p->at < p->end && strchr("hlL", *p->at) != NULL) p->at++;
    if (p->at == p->end) return jinja_stop(p->r, "%% at the end of a string"), false;
    how->type = *p->at++;
    if (how->zero && how->align == 0) how->fill = "0";
    return true;
}

/* Formats %d and similar conversions, which truncate a float. */
static void add_percent_whole(percent *p, jinja_builder *out, spec *how, const jinja_value *v) {
    const bool decimal = strchr("diu", how->type) != NULL;
    jinja_value number = *v;
    if (v->kind == JINJA_FLOAT && decimal) number = jinja_from_double(p->r, v->as.f);
    else if (!jinja_is_whole(v) && v->kind != JINJA_BIG)
        (void)jinja_stop(p->r, "%%%c needs an integer, not %s", how->type, jinja_kind_name(v));
    if (p->r->failed) return;
    if (number.kind == JINJA_BOOL) number.kind = JINJA_INT;
    if (decimal) how->type = 'd';
    add_whole(p->r, out, how, &number, how->precision);
}

static void add_percent(percent *p, jinja_builder *out) {
    spec how;
    const jinja_value *v = NULL;
    if (!read_percent(p, &how, &v)) return;
    if (how.type == '%') {
        jinja_add_plain(out, "%");
        return;
    }
    if (v == NULL) v = next_value(p);
    if (v == NULL) return;
    if (strchr("sra", how.type) != NULL) {
        how.fill = " ";
        add_cut(p->r, out, &how, how.align != 0 ? how.align : '>', as_text(p->r, v, how.type, p->safe));
    } else if (strchr("diuxXo", how.type) != NULL) add_percent_whole(p, out, &how, v);
    else if (strchr("eEfFgG", how.type) != NULL && jinja_is_number(v)) add_real(p->r, out, &how, jinja_number(v));
    else if (how.type == 'c' && v->kind == JINJA_STRING && jinja_points(&p->r->arena, v->as.text) == 1)
        add_cut(p->r, out, &how, how.align != 0 ? how.align : '>', *v);
    else if (how.type == 'c' && jinja_is_whole(v)) add_point(p->r, out, &how, v->as.i);
    else (void)jinja_stop(p->r, "%%%c does not support %s", how.type, jinja_kind_name(v));
}

jinja_value jinja_percent(jinja_render *r, const jinja_value *format, const jinja_value *values) {
    jinja_text *text = format->as.text;
    percent p = {.r = r, .at = text->bytes, .end = text->bytes + text->n, .safe = format->function == JINJA_SAFE};
    jinja_builder out = {.arena = &r->arena, .most = JINJA_MOST_TEXT};
    if (values->kind == JINJA_TUPLE) p.list = values->as.list;
    else p.one = values;
    while (p.at < p.end && jinja_step(r) && !out.overflow) {
        const char *found = memchr(p.at, '%', (size_t)(p.end - p.at)), *end = found == NULL ? p.end : found;
        jinja_add(&out, p.at, jinja_marks(text, (size_t)(p.at - text->bytes)), (size_t)(end - p.at));
        p.at = found == NULL ? end : end + 1;
        if (found != NULL) add_percent(&p, &out);
    }
    if (p.one != NULL ? p.next == 0 && values->kind != JINJA_DICT && values->kind != JINJA_LIST : p.next < p.list->n)
        return jinja_stop(r, "%%: more values than fields");
    return finished(r, &out, p.safe);
}

/* ---- text.format(...) ---- */

typedef struct fields {
    jinja_render *r;
    const jinja_args *args;
    int64_t next; /* number for {}; -1: explicit numbers are used */
    bool safe;
} fields;

static jinja_value named_field(const fields *f, const char *name, size_t n) {
    for (size_t i = 0; i < f->args->n; i++)
        if (f->args->names[i] != NULL && strlen(f->args->names[i]) == n && memcmp(f->args->names[i], name, n) == 0)
            return f->args->values[i];
    return jinja_stop(f->r, "format: unknown name %.*s", n > 60 ? 60 : (int)n, name);
}

static jinja_value numbered_field(fields *f, const char *name, size_t n) {
    int64_t number = n == 0 ? f->next++ : 0;
    const jinja_value *found = NULL;
    if (n == 0 ? number < 0 : f->next > 0) return jinja_stop(f->r, "format mixes numbered and automatic fields");
    for (size_t i = 0; i < n && number < MOST_WIDTH; i++) number = number * 10 + (name[i] - '0');
    if (n > 0) f->next = -1;
    for (size_t i = 0; i < f->args->n && found == NULL; i++)
        if (f->args->names[i] == NULL && number-- == 0) found = &f->args->values[i];
    return found != NULL ? *found : jinja_stop(f->r, "format has fewer values than fields");
}

/* Evaluates a field name: name, name.attribute or name[key]. */
static jinja_value field_value(fields *f, const char *at, const char *end) {
    const char *stop = at;
    char *name = NULL;
    jinja_value v = jinja_none();
    while (stop < end && *stop != '.' && *stop != '[') stop++;
    v = strspn(at, "0123456789") >= (size_t)(stop - at) ? numbered_field(f, at, (size_t)(stop - at))
                                                        : named_field(f, at, (size_t)(stop - at));
    while (stop < end && !f->r->failed) {
        const char sign = *stop, *begin = stop + 1;
        stop = begin;
        while (stop < end && (sign == '[' ? *stop != ']' : *stop != '.' && *stop != '[')) stop++;
        if (stop == begin || (sign == '[' && stop == end)) return jinja_stop(f->r, "format has an invalid field name");
        name = jinja_copy(&f->r->arena, begin, (size_t)(stop - begin));
        if (name == NULL) return v;
        if (sign == '.') v = jinja_attribute(f->r, &v, name);
        else {
            const bool number = strspn(name, "0123456789") == strlen(name);
            const jinja_value key = number ? jinja_int(strtoll(name, NULL, 10)) : jinja_literal(&f->r->arena, name);
            v = jinja_item(f->r, &v, &key);
            stop++;
        }
    }
    return v;
}

static bool is_align(char c) {
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static bool read_spec(jinja_render *r, spec *how, const char *at, const char *end) {
    int32_t c = 0;
    const size_t first = at < end ? jinja_next(at, (size_t)(end - at), &c) : 0;
    *how = plain;
    if (first > 0 && at + first < end && is_align(at[first])) {
        how->fill = at;
        how->fill_bytes = first;
        how->align = at[first];
        at += first + 1;
    } else if (at < end && is_align(*at)) how->align = *at++;
    if (at < end && strchr("+- ", *at) != NULL) how->sign = *at++;
    if (at < end && *at == '#') how->alternate = at++ != NULL;
    if (at < end && *at == '0') {
        how->zero = at++ != NULL;
        if (how->fill_bytes == 1 && *how->fill == ' ') how->fill = "0";
    }
    for (; at < end && *at >= '0' && *at <= '9' && how->width <= MOST_WIDTH; at++)
        how->width = how->width * 10 + (*at - '0');
    if (at < end && (*at == ',' || *at == '_')) how->group = *at++;
    if (at < end && *at == '.') {
        how->precision = 0;
        if (++at == end || *at < '0' || *at > '9')
            return jinja_stop(r, "a format specification has no precision after ."), false;
        for (; at < end && *at >= '0' && *at <= '9' && how->precision <= MOST_WIDTH; at++)
            how->precision = how->precision * 10 + (*at - '0');
    }
    if (at < end) how->type = *at++;
    if (at < end || how->width > MOST_WIDTH || how->precision > MOST_WIDTH)
        return jinja_stop(r, "unsupported format specification"), false;
    if (how->group != 0 && how->zero) return jinja_stop(r, "zero padding with grouping is not supported"), false;
    return true;
}

static void add_formatted(fields *f, jinja_builder *out, jinja_value v, const spec *how) {
    const bool whole = jinja_is_whole(&v) || v.kind == JINJA_BIG;
    spec of = *how;
    if (v.kind == JINJA_STRING && (how->type == 0 || how->type == 's') && how->sign == 0 && how->align != '=') {
        add_cut(f->r, out, how, how->align != 0 ? how->align : '<', v);
        return;
    }
    if (v.kind == JINJA_BOOL) v.kind = JINJA_INT;
    if (whole && how->precision < 0 && (how->type == 0 || strchr("dnboxX", how->type) != NULL)) {
        if (of.type == 0 || of.type == 'n') of.type = 'd';
        add_whole(f->r, out, &of, &v, 0);
    } else if (v.kind == JINJA_INT && how->type == 'c' && how->precision < 0) {
        of.align = how->align != 0 ? how->align : '<';
        add_point(f->r, out, &of, v.as.i);
    } else if (jinja_is_number(&v) && how->type != 0 ? strchr("eEfFgGn%", how->type) != NULL : v.kind == JINJA_FLOAT)
        add_real(f->r, out, how, jinja_number(&v));
    else (void)jinja_stop(f->r, "the format specification does not support %s", jinja_kind_name(&v));
}

static jinja_value format_text(fields *f, const jinja_text *text, int depth);

/* Adds the field between { and }: name!conversion:spec. The specification may contain fields. */
static void add_field(fields *f, jinja_builder *out, const char *at, const char *end, int depth) {
    const char *name_end = at;
    jinja_value v = jinja_none();
    jinja_text inner = {.bytes = NULL};
    spec how;
    int bracket = 0;
    for (; name_end < end && (bracket > 0 || (*name_end != '!' && *name_end != ':')); name_end++)
        bracket += (*name_end == '[') - (*name_end == ']');
    v = field_value(f, at, name_end);
    at = name_end;
    if (f->r->failed) return;
    if (at < end && *at == '!') {
        if (end - at < 2 || strchr("sra", at[1]) == NULL || (end - at > 2 && at[2] != ':')) {
            (void)jinja_stop(f->r, "unknown conversion of format. Allowed: !s, !r, !a");
            return;
        }
        v = as_text(f->r, &v, at[1], false);
        at += 2;
    }
    inner.bytes = at < end ? at + 1 : at;
    inner.n = (size_t)(end - inner.bytes);
    if (inner.n > 0 && !f->r->failed) {
        jinja_builder one = {.arena = &f->r->arena, .most = JINJA_MOST_TEXT};
        const jinja_value shape = format_text(f, &inner, depth + 1);
        if (jinja_failed(f->r)) return;
        if (read_spec(f->r, &how, shape.as.text->bytes, shape.as.text->bytes + shape.as.text->n))
            add_formatted(f, &one, v, &how);
        v = jinja_built(&one);
    }
    if (!jinja_failed(f->r)) v = as_text(f->r, &v, 's', f->safe);
    if (!jinja_failed(f->r)) jinja_add_text(out, v.as.text);
}

static jinja_value format_text(fields *f, const jinja_text *text, int depth) {
    jinja_builder out = {.arena = &f->r->arena, .most = JINJA_MOST_TEXT};
    if (depth > 1) return jinja_stop(f->r, "fields of format are nested too deep");
    for (size_t i = 0; i < text->n && jinja_step(f->r) && !out.overflow; i++) {
        const char c = text->bytes[i];
        size_t begin = i + 1;
        int open = 1;
        if (c != '{' && c != '}') jinja_add_part(&out, text, i, i + 1);
        else if (begin < text->n && text->bytes[begin] == c) jinja_add(&out, text->bytes + ++i, NULL, 1);
        else if (c == '}') return jinja_stop(f->r, "format has a single }");
        else {
            for (i = begin; i < text->n && open > 0; i++) open += (text->bytes[i] == '{') - (text->bytes[i] == '}');
            if (open > 0) return jinja_stop(f->r, "format has an unclosed {");
            add_field(f, &out, text->bytes + begin, text->bytes + --i, depth);
        }
    }
    return finished(f->r, &out, f->safe && depth == 0);
}

jinja_value jinja_format(jinja_render *r, const jinja_value *format, const jinja_args *args) {
    fields f = {.r = r, .args = args, .safe = format->function == JINJA_SAFE};
    return format_text(&f, format->as.text, 0);
}
