/* text.c: characters of strings, and conversion of values to strings: Python's str, repr and json.dumps. */
#include "value.h"

#include <math.h>
#include <stdlib.h>
#include <utf8proc.h>

size_t jinja_next(const char *bytes, size_t n, int32_t *point) {
    utf8proc_int32_t found = -1;
    const utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)bytes, (utf8proc_ssize_t)n, &found);
    *point = found;
    return length > 0 ? (size_t)length : 1;
}

size_t jinja_back(const char *bytes, size_t begin, size_t end, int32_t *point) {
    size_t at = end - 1;
    while (at > begin && ((unsigned char)bytes[at] & 0xC0) == 0x80) at--;
    (void)jinja_next(bytes + at, end - at, point);
    return at;
}

size_t jinja_put_point(char out[4], int64_t point) {
    if (point < 0 || point > 0x10FFFF || !utf8proc_codepoint_valid((utf8proc_int32_t)point)) return 0;
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)point, (utf8proc_uint8_t *)out);
}

static bool is_ascii(const jinja_text *text) {
    return text->points == text->n + 1;
}

size_t jinja_points(jinja_arena *arena, jinja_text *text) {
    if (text->points == 0 && jinja_spend(arena, text->n)) {
        size_t n = 0;
        for (size_t i = 0; i < text->n; i++) n += ((unsigned char)text->bytes[i] & 0xC0) != 0x80;
        text->points = n + 1;
    }
    return text->points == 0 ? 0 : text->points - 1; /* 0: not counted because the arena failed */
}

size_t jinja_byte_at(jinja_arena *arena, jinja_text *text, size_t point) {
    size_t at = 0;
    (void)jinja_points(arena, text);
    if (is_ascii(text)) return point < text->n ? point : text->n;
    if (!jinja_spend(arena, text->n * 4)) return text->n;
    for (; at < text->n; at++)
        if (((unsigned char)text->bytes[at] & 0xC0) != 0x80 && point-- == 0) break;
    return at;
}

/* str.isspace of Python. */
bool jinja_is_space(int32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

jinja_value jinja_slice_bytes(jinja_arena *arena, const jinja_text *text, size_t begin, size_t end) {
    return jinja_text_new(arena, text->bytes + begin, jinja_marks(text, begin), end - begin);
}

static bool strips(jinja_arena *arena, int32_t point, const jinja_text *set) {
    int32_t one = 0;
    if (!jinja_spend(arena, set == NULL ? 0 : set->n * 16)) return false;
    if (set == NULL) return jinja_is_space(point);
    for (size_t i = 0; i < set->n;) {
        i += jinja_next(set->bytes + i, set->n - i, &one);
        if (one == point) return true;
    }
    return false;
}

jinja_value jinja_strip(jinja_arena *arena, const jinja_text *text, const jinja_text *set, int sides) {
    size_t begin = 0, end = text->n;
    int32_t point = 0;
    while ((sides & 1) != 0 && begin < end) {
        const size_t n = jinja_next(text->bytes + begin, end - begin, &point);
        if (!strips(arena, point, set)) break;
        begin += n;
    }
    while ((sides & 2) != 0 && begin < end) {
        const size_t back = jinja_back(text->bytes, begin, end, &point);
        if (!strips(arena, point, set)) break;
        end = back;
    }
    return jinja_slice_bytes(arena, text, begin, end);
}

/* Writes the shortest digits that read back as the same number, in Python's notation. */
void jinja_add_float(jinja_builder *out, double f, bool json) {
    char text[64], mantissa[32];
    int exponent = 0, digits = 1;
    size_t n = 0;
    if (!isfinite(f)) {
        jinja_add_plain(out, isnan(f) ? (json ? "NaN" : "nan")
                             : f > 0  ? (json ? "Infinity" : "inf")
                                      : (json ? "-Infinity" : "-inf"));
        return;
    }
    for (digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*e", digits - 1, f);
        if (strtod(text, NULL) == f) break; /* always true at 17 digits */
    }
    exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        const int after = digits - 1 - exponent;
        (void)snprintf(text, sizeof text, "%.*f", after > 1 ? after : 1, f);
        jinja_add_plain(out, text);
        return;
    }
    n = (size_t)(strchr(text, 'e') - text);
    memcpy(mantissa, text, n);
    mantissa[n] = '\0';
    (void)snprintf(text, sizeof text, "%se%c%02d", mantissa, exponent < 0 ? '-' : '+', abs(exponent));
    jinja_add_plain(out, text);
}

static void add_int(jinja_builder *out, int64_t i) {
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)i);
    jinja_add_plain(out, text);
}

/* Characters that Python's repr does not escape. */
bool jinja_is_printable(int32_t point) {
    switch (utf8proc_category(point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return point == ' ';
    default: return true;
    }
}

/* Adds an escape with the mark of the escaped character. */
static void add_escape(jinja_builder *out, const char *escape, const uint32_t *marks) {
    jinja_add_as(out, escape, strlen(escape), marks);
}

static void add_repr_text(jinja_builder *out, const jinja_text *text) {
    const bool single = memchr(text->bytes, '\'', text->n) == NULL || memchr(text->bytes, '"', text->n) != NULL;
    const char *quote = single ? "'" : "\"";
    jinja_add_plain(out, quote);
    for (size_t i = 0; i < text->n;) {
        int32_t c = 0;
        char escape[16] = "";
        const size_t n = jinja_next(text->bytes + i, text->n - i, &c);
        const uint32_t *marks = jinja_marks(text, i);
        if (c == '\\' || c == quote[0]) (void)snprintf(escape, sizeof escape, "\\%c", (char)c);
        else if (c == '\n') (void)snprintf(escape, sizeof escape, "\\n");
        else if (c == '\r') (void)snprintf(escape, sizeof escape, "\\r");
        else if (c == '\t') (void)snprintf(escape, sizeof escape, "\\t");
        else if (!jinja_is_printable(c))
            (void)snprintf(escape, sizeof escape,
                           c < 0x100     ? "\\x%02x"
                           : c < 0x10000 ? "\\u%04x"
                                         : "\\U%08x",
                           (unsigned)c);
        if (escape[0] != '\0') add_escape(out, escape, marks);
        else jinja_add(out, text->bytes + i, marks, n);
        i += n;
    }
    jinja_add_plain(out, quote);
}

static void add_repr_dict(jinja_builder *out, const jinja_dict *dict) {
    jinja_read_all(dict);
    jinja_add_plain(out, "{");
    for (size_t i = 0; i < dict->n; i++) {
        if (i > 0) jinja_add_plain(out, ", ");
        jinja_add_repr(out, &dict->entries[i].key);
        jinja_add_plain(out, ": ");
        jinja_add_repr(out, &dict->entries[i].value);
    }
    jinja_add_plain(out, "}");
}

static void add_range(jinja_builder *out, const jinja_range *range) {
    jinja_add_plain(out, "range(");
    for (int i = 0; i < (range->bounds[2] == 1 ? 2 : 3); i++) {
        if (i > 0) jinja_add_plain(out, ", ");
        add_int(out, range->bounds[i]);
    }
    jinja_add_plain(out, ")");
}

static void add_repr_list(jinja_builder *out, const jinja_value *v) {
    const jinja_list *list = v->as.list;
    const char *view = v->kind != JINJA_LIST         ? NULL
                       : v->function == JINJA_KEYS   ? "dict_keys("
                       : v->function == JINJA_VALUES ? "dict_values("
                       : v->function == JINJA_ITEMS  ? "dict_items("
                                                     : NULL;
    if (view != NULL) jinja_add_plain(out, view);
    jinja_add_plain(out, v->kind == JINJA_LIST ? "[" : "(");
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0) jinja_add_plain(out, ", ");
        jinja_add_repr(out, &list->items[i]);
    }
    if (v->kind == JINJA_TUPLE && list->n == 1) jinja_add_plain(out, ",");
    jinja_add_plain(out, v->kind == JINJA_LIST ? "]" : ")");
    if (view != NULL) jinja_add_plain(out, ")");
}

/* Returns true if output may continue. After an exceeded limit, nested values are skipped. */
static bool enter(jinja_builder *out) {
    return jinja_enter_value(out->arena) && !out->overflow;
}

static void add_repr(jinja_builder *out, const jinja_value *v) {
    switch (v->kind) {
    case JINJA_STRING: add_repr_text(out, v->as.text); break;
    case JINJA_UNDEFINED: jinja_add_plain(out, "Undefined"); break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (v->kind == JINJA_LIST && v->as.list->range != NULL) add_range(out, v->as.list->range);
        else add_repr_list(out, v);
        break;
    case JINJA_DICT: add_repr_dict(out, v->as.dict); break;
    default: jinja_add_str(out, v); break;
    }
}

void jinja_add_repr(jinja_builder *out, const jinja_value *v) {
    if (enter(out)) add_repr(out, v);
    out->arena->levels--;
}

void jinja_add_str(jinja_builder *out, const jinja_value *v) {
    switch (v->kind) {
    case JINJA_UNDEFINED: break;
    case JINJA_NONE: jinja_add_plain(out, "None"); break;
    case JINJA_BOOL: jinja_add_plain(out, v->as.i != 0 ? "True" : "False"); break;
    case JINJA_INT: add_int(out, v->as.i); break;
    case JINJA_FLOAT: jinja_add_float(out, v->as.f, false); break;
    case JINJA_BIG:
    case JINJA_STRING: jinja_add_text(out, v->as.text); break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT: jinja_add_repr(out, v); break;
    default: jinja_add_plain(out, jinja_kind_name(v)); break;
    }
}

static void add_unicode(jinja_builder *out, int32_t c, const uint32_t *marks) {
    char escape[16];
    if (c >= 0x10000)
        (void)snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800u + ((unsigned)(c - 0x10000) >> 10),
                       0xDC00u + ((unsigned)(c - 0x10000) & 0x3FFu));
    else (void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
    add_escape(out, escape, marks);
}

static void add_json_text(jinja_builder *out, const jinja_text *text, bool ascii) {
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    jinja_add_plain(out, "\"");
    for (size_t i = 0; i < text->n;) {
        int32_t c = 0;
        const size_t n = jinja_next(text->bytes + i, text->n - i, &c);
        const uint32_t *marks = jinja_marks(text, i);
        const char *pair = named;
        while (*pair != '\0' && *pair != (char)c) pair += 2;
        if (c > 0 && c < 0x80 && *pair != '\0') add_escape(out, (char[]){'\\', pair[1], '\0'}, marks);
        else if (c < 0x20 || (ascii && c >= 0x7f)) add_unicode(out, c, marks);
        else jinja_add(out, text->bytes + i, marks, n);
        i += n;
    }
    jinja_add_plain(out, "\"");
}

static void add_line(jinja_builder *out, const jinja_json_style *style, int depth) {
    if (style->indent < 0 && style->blank == NULL) return;
    jinja_add_plain(out, "\n");
    for (int level = 0; level < depth; level++)
        if (style->blank != NULL) jinja_add_text(out, style->blank);
        else
            for (int64_t i = 0; i < style->indent && !out->overflow && !out->arena->failed; i++)
                jinja_add_plain(out, " ");
}

static void add_item_separator(jinja_builder *out, const jinja_json_style *style) {
    if (style->item != NULL) jinja_add_text(out, style->item);
    else jinja_add_plain(out, style->indent < 0 && style->blank == NULL ? ", " : ",");
}

static int by_key(const void *a, const void *b, void *arena) {
    return jinja_order(arena, &((const jinja_entry *)a)->key, &((const jinja_entry *)b)->key);
}

static bool add_json_key(jinja_builder *out, const jinja_value *key, const jinja_json_style *style) {
    if (key->kind == JINJA_STRING) {
        add_json_text(out, key->as.text, style->ascii);
        return true;
    }
    if (key->kind != JINJA_NONE && !jinja_is_number(key)) return false;
    jinja_add_plain(out, "\"");
    (void)jinja_add_json(out, key, style, 0);
    jinja_add_plain(out, "\"");
    return true;
}

static bool add_json_dict(jinja_builder *out, const jinja_dict *dict, const jinja_json_style *style, int depth) {
    jinja_entry *entries = dict->entries;
    jinja_read_all(dict);
    if (style->sort && dict->n > 1) {
        entries = jinja_take(out->arena, dict->n * sizeof *entries);
        if (entries == NULL) return true; /* the arena reports it */
        memcpy(entries, dict->entries, dict->n * sizeof *entries);
        qsort_r(entries, dict->n, sizeof *entries, by_key, out->arena);
    }
    jinja_add_plain(out, "{");
    for (size_t i = 0; i < dict->n; i++) {
        if (i > 0) add_item_separator(out, style);
        add_line(out, style, depth + 1);
        if (!add_json_key(out, &entries[i].key, style)) return false;
        if (style->key != NULL) jinja_add_text(out, style->key);
        else jinja_add_plain(out, ": ");
        if (!jinja_add_json(out, &entries[i].value, style, depth + 1)) return false;
    }
    if (dict->n > 0) add_line(out, style, depth);
    jinja_add_plain(out, "}");
    return true;
}

static bool add_json_list(jinja_builder *out, const jinja_list *list, const jinja_json_style *style, int depth) {
    jinja_add_plain(out, "[");
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0) add_item_separator(out, style);
        add_line(out, style, depth + 1);
        if (!jinja_add_json(out, &list->items[i], style, depth + 1)) return false;
    }
    if (list->n > 0) add_line(out, style, depth);
    jinja_add_plain(out, "]");
    return true;
}

static bool add_json(jinja_builder *out, const jinja_value *v, const jinja_json_style *style, int depth) {
    switch (v->kind) {
    case JINJA_NONE: jinja_add_plain(out, "null"); return true;
    case JINJA_BOOL: jinja_add_plain(out, v->as.i != 0 ? "true" : "false"); return true;
    case JINJA_INT: add_int(out, v->as.i); return true;
    case JINJA_FLOAT: jinja_add_float(out, v->as.f, true); return true;
    case JINJA_BIG: jinja_add_text(out, v->as.text); return true;
    case JINJA_STRING:
        if (v->as.text->json != NULL) return jinja_add_json(out, v->as.text->json, style, depth);
        add_json_text(out, v->as.text, style->ascii);
        return true;
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (v->kind == JINJA_LIST && v->function != 0) return false; /* a view or a range */
        return add_json_list(out, v->as.list, style, depth);
    case JINJA_DICT: return add_json_dict(out, v->as.dict, style, depth);
    default: return false;
    }
}

bool jinja_add_json(jinja_builder *out, const jinja_value *v, const jinja_json_style *style, int depth) {
    const bool has = enter(out) ? add_json(out, v, style, depth) : true;
    out->arena->levels--;
    return has;
}
