/* numbers.c: the filters of jinja2 for numbers. */
#include "run.h"

#include <math.h>
#include <stdlib.h>

jinja_value jinja_from_double(jinja_render *r, double f) {
    char text[400], *copy = NULL;
    int n = 0;
    if (!isfinite(f)) return jinja_stop(r, "a number that is not finite cannot be converted to an integer");
    if (fabs(f) < 9e18) return jinja_int((int64_t)f);
    n = snprintf(text, sizeof text, "%.0f", f);
    copy = jinja_copy(&r->arena, text, (size_t)n);
    return copy == NULL ? jinja_none() : jinja_integer(&r->arena, copy, (size_t)n);
}

/* Strips white space and underscores between digits, as Python reads numbers. Returns NULL for other underscores or
 * without memory. */
static char *number_text(jinja_render *r, const jinja_text *given) {
    const jinja_value text = jinja_strip(&r->arena, given, NULL, 3);
    char *out = r->arena.failed ? NULL : jinja_take(&r->arena, text.as.text->n + 1);
    size_t n = 0;
    for (size_t i = 0; out != NULL && i < text.as.text->n; i++) {
        const char c = text.as.text->bytes[i], next = i + 1 < text.as.text->n ? text.as.text->bytes[i + 1] : '\0';
        if (c == '_' && (n == 0 || strchr("_+-.", out[n - 1]) != NULL || next == '_' || next == '\0')) return NULL;
        if (c == '\0') return NULL;
        if (c != '_') out[n++] = c;
    }
    return out;
}

/* Reads an integer with an optional prefix. base 0: the prefix determines the base. */
static bool read_whole(jinja_render *r, jinja_value *out, const char *text, int64_t base) {
    const bool minus = *text == '-';
    const char *at = text + (minus || *text == '+'), *end = NULL;
    const char prefix = *at == '0' ? (char)(at[1] | 0x20) : '\0';
    const int64_t by_prefix = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    char *copy = NULL, *stop = NULL;
    if (by_prefix != 0 && (base == by_prefix || base == 0)) {
        at += 2;
        base = by_prefix;
    }
    if (base == 0 && *at == '0' && at[strspn(at, "0")] != '\0') return false;
    if (base == 0) base = 10;
    for (end = at; *end != '\0'; end++) {
        const int64_t digit = *end >= '0' && *end <= '9'                     ? *end - '0'
                              : (*end | 0x20) >= 'a' && (*end | 0x20) <= 'z' ? (*end | 0x20) - 'a' + 10
                                                                             : 99;
        if (digit >= base) return false;
    }
    if (end == at) return false;
    if (base != 10) {
        *out = jinja_int(strtoll(at, &stop, (int)base));
        if (out->as.i == INT64_MAX) return jinja_stop(r, "an integer exceeds 64 bits"), false;
        if (minus) out->as.i = -out->as.i;
        return true;
    }
    while (*at == '0' && at[1] != '\0') at++;
    copy = jinja_take(&r->arena, (size_t)(end - at) + 2);
    if (copy == NULL) return false;
    if (minus) copy[0] = '-';
    memcpy(copy + minus, at, (size_t)(end - at));
    *out = jinja_integer(&r->arena, copy, (size_t)(end - at) + minus);
    return true;
}

/* Reads a float as Python's float() does, which rejects hexadecimal digits. */
static bool read_real(double *out, const char *text) {
    char *end = NULL;
    const double f = strtod(text, &end);
    if (*text == '\0' || strpbrk(text, "xXpP(") != NULL || *end != '\0') return false;
    *out = f;
    return true;
}

jinja_value jinja_filter_int(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value *fallback = jinja_arg(args, 0, "default");
    const jinja_value otherwise = fallback != NULL ? *fallback : jinja_int(0);
    jinja_value out = jinja_none();
    int64_t base = 10;
    double f = NAN;
    const char *text = NULL;
    if (!jinja_arg_int(r, &base, args, 1, "base")) return v;
    if (v.kind == JINJA_UNDEFINED) return jinja_stop(r, "int needs a value, not undefined");
    if (v.kind == JINJA_BIG) return v;
    if (jinja_is_whole(&v)) return jinja_int(v.as.i);
    if (base < 0 || base == 1 || base > 36) return otherwise;
    if (v.kind == JINJA_FLOAT) f = v.as.f;
    if (v.kind == JINJA_STRING) text = number_text(r, v.as.text);
    if (text != NULL && read_whole(r, &out, text, base)) return out;
    if (text != NULL) (void)read_real(&f, text);
    return r->failed || !isfinite(f) ? otherwise : jinja_from_double(r, f);
}

static bool to_double(jinja_render *r, double *out, const jinja_value *v) {
    const char *text = NULL;
    if (jinja_is_number(v)) *out = jinja_number(v);
    else if (v->kind == JINJA_BIG) *out = strtod(jinja_name(&r->arena, v->as.text), NULL);
    else {
        if (v->kind == JINJA_STRING) text = number_text(r, v->as.text);
        return text != NULL && read_real(out, text);
    }
    return true;
}

jinja_value jinja_filter_float(jinja_render *r, jinja_value v, const jinja_args *args) {
    const jinja_value *fallback = jinja_arg(args, 0, "default");
    double f = 0.0;
    if (v.kind == JINJA_UNDEFINED) return jinja_stop(r, "float needs a value, not undefined");
    if (to_double(r, &f, &v)) return jinja_float(f);
    return fallback != NULL ? *fallback : jinja_float(0.0);
}

jinja_value jinja_filter_abs(jinja_render *r, jinja_value v, const jinja_args *args) {
    (void)args;
    if (jinja_is_whole(&v) && v.as.i != INT64_MIN) return jinja_int(v.as.i < 0 ? -v.as.i : v.as.i);
    if (v.kind == JINJA_FLOAT) return jinja_float(fabs(v.as.f));
    return jinja_stop(r, "abs needs a number");
}

/* Rounds an integer to a multiple of 10^digits, ties to even. */
static jinja_value round_whole(jinja_render *r, int64_t i, int64_t digits) {
    int64_t unit = 1, rest = 0;
    if (digits >= 0) return jinja_int(i);
    for (int64_t n = digits; n < 0; n++)
        if (__builtin_mul_overflow(unit, 10, &unit)) return jinja_int(0);
    rest = i % unit < 0 ? i % unit + unit : i % unit;
    if (__builtin_sub_overflow(i, rest, &i)) return jinja_stop(r, "an integer exceeds 64 bits");
    if ((rest > unit / 2 || (rest == unit / 2 && i / unit % 2 != 0)) && __builtin_add_overflow(i, unit, &i))
        return jinja_stop(r, "an integer exceeds 64 bits");
    return jinja_int(i);
}

jinja_value jinja_filter_round(jinja_render *r, jinja_value v, const jinja_args *args) {
    int64_t digits = 0;
    jinja_text *method = NULL;
    const char *name = "common";
    double scale = 1.0, f = 0.0;
    char text[400];
    if (v.kind == JINJA_BIG) return v;
    if (!jinja_is_number(&v)) return jinja_stop(r, "round needs a number");
    if (!jinja_arg_int(r, &digits, args, 0, "precision") || !jinja_arg_text(r, &method, args, 1, "method")) return v;
    if (digits < -300 || digits > 300) return jinja_stop(r, "round supports -300 to 300 digits");
    if (method != NULL) name = jinja_name(&r->arena, method);
    f = jinja_number(&v);
    scale = pow(10.0, (double)digits);
    if (strcmp(name, "ceil") == 0) return jinja_float(ceil(f * scale) / scale);
    if (strcmp(name, "floor") == 0) return jinja_float(floor(f * scale) / scale);
    if (strcmp(name, "common") != 0) return jinja_stop(r, "round: unknown method. Allowed: common, ceil, floor");
    if (jinja_is_whole(&v)) return round_whole(r, v.as.i, digits);
    if (!isfinite(f)) return digits == 0 ? jinja_stop(r, "round needs a finite number") : v;
    if (fabs(f) > 1e30 || digits > 30) return v;
    if (digits < 0) return jinja_float(nearbyint(f * scale) / scale);
    (void)snprintf(text, sizeof text, "%.*f", (int)digits, f); /* to nearest, ties to even, as Python's round */
    return jinja_float(strtod(text, NULL));
}

jinja_value jinja_filter_filesizeformat(jinja_render *r, jinja_value v, const jinja_args *args) {
    static const char prefixes[] = "kMGTPEZY";
    const jinja_value *binary = jinja_arg(args, 0, "binary");
    const bool by_1024 = binary != NULL && jinja_truth(binary);
    const double base = by_1024 ? 1024.0 : 1000.0;
    double f = 0.0, unit = base;
    char text[64], *copy = NULL;
    size_t i = 0;
    if (!to_double(r, &f, &v)) return jinja_stop(r, "filesizeformat needs a number");
    if (!(fabs(f) < 1e30)) return jinja_stop(r, "filesizeformat needs a number below 1e30");
    if (f < base) (void)snprintf(text, sizeof text, "%.0f Byte%s", trunc(f), !(f < 1.0) && !(f > 1.0) ? "" : "s");
    else {
        while (i < 7 && !(f < unit * base)) unit *= base, i++;
        (void)snprintf(text, sizeof text, "%.1f %c%sB", f / unit, by_1024 && i == 0 ? 'K' : prefixes[i],
                       by_1024 ? "i" : "");
    }
    copy = jinja_copy(&r->arena, text, strlen(text));
    return copy == NULL ? v : jinja_literal(&r->arena, copy);
}
