/* jsonl.c: extracts the document from a line of JSONL: one field of an object. */
#include "text.h"

#include "../../common/json_big.h"

/* Replaces non-ASCII bytes in a message of jansson, which may be invalid UTF-8. */
static void keep_ascii(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++)
        if (*at < 0x20 || *at > 0x7e) *at = '?';
}

/* Lists the fields, as many as fit: "question, answer". */
static void field_names(char *out, size_t size, json_t *object) {
    static const char more[] = ", ...";
    const char *name = NULL;
    json_t *value = NULL;
    size_t n = 0;
    (void)snprintf(out, size, "none");
    json_object_foreach(object, name, value) {
        if (n + strlen(name) + 2 + sizeof more > size) {
            (void)snprintf(out + n, size - n, "%s", n > 0 ? more : "names too long to show");
            break;
        }
        n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", name);
    }
}

static const char *type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    default: return "null";
    }
}

weft_status text_json_document(const char **text, size_t *n, json_t **holder, const text_source *source,
                               const text_span *span, const char *field, weft_error *err) {
    /* Integers in other fields may have any size, so all numbers are read as reals. */
    const size_t flags = JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL;
    const unsigned long long line = (unsigned long long)span->line;
    json_t *value = NULL;
    json_error_t why;
    char names[512];
    *holder = json_big_load(source->bytes + span->offset, span->bytes, flags, &why);
    if (*holder == NULL) {
        keep_ascii(why.text);
        return weft_error_set(err, WEFT_E_DATA, "%s:%llu: not a JSON object: %s (column %d)", source->path, line,
                              why.text, why.column);
    }
    if (!json_is_object(*holder))
        return weft_error_set(err, WEFT_E_DATA, "%s:%llu: the line is JSON but not an object {...}", source->path,
                              line);
    value = json_object_get(*holder, field);
    field_names(names, sizeof names, *holder);
    if (value == NULL)
        return weft_error_set(err, WEFT_E_DATA,
                              "%s:%llu: there is no field \"%s\"; the object's fields: %s. Fix: set [data] field "
                              "to the field with the text; questions with answers are read by [data] plugin = instruct",
                              source->path, line, field, names);
    if (!json_is_string(value) || json_big_is(value))
        return weft_error_set(err, WEFT_E_DATA, "%s:%llu: the field \"%s\" is %s and must be a string", source->path,
                              line, field, type_name(value));
    *text = json_string_value(value);
    *n = json_string_length(value);
    return WEFT_OK;
}
