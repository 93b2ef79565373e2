/* jinja.c: public functions of templates and renderings; conversion from JSON to values. */
#include "run.h"

#include "../json_big.h"

#include <ctype.h>

bool jinja_fail(weft_error *err, const jinja_template *self, int line, const char *format, ...) {
    char text[700];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)weft_error_set(err, WEFT_E_DATA, "%s, line %d: %s", self->name, line, text);
    return false;
}

weft_status jinja_compile(jinja_template **out, const weft_host *host, const char *name, const char *source, size_t n,
                          weft_error *err) {
    jinja_template *self = host->alloc(host, sizeof *self, 16);
    jinja_token *tokens = NULL;
    char *copy = NULL;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a chat template");
    memset(self, 0, sizeof *self);
    self->host = host;
    self->arena.host = host;
    self->arena.limit = JINJA_MOST_MEMORY;
    copy = jinja_copy(&self->arena, name, strlen(name));
    self->name = copy == NULL ? "" : copy;
    if (err != NULL) err->text[0] = '\0';
    tokens = jinja_lex(self, source, n, err);
    if (tokens != NULL && jinja_parse(self, tokens, err) && !self->arena.failed) {
        *out = self;
        return WEFT_OK;
    }
    jinja_free(self);
    if (err != NULL && err->text[0] != '\0') return WEFT_E_DATA;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for a chat template");
}

void jinja_free(jinja_template *self) {
    if (self == NULL) return;
    jinja_arena_free(&self->arena);
    self->host->release(self->host, self);
}

bool jinja_has_blocks(const jinja_template *self) {
    return self->has_blocks;
}

/* Searches a subtree for a read of a variable. An assignment target is not a read. The parser bounds the depth. */
static bool reads_name(const jinja_node *node, const char *name) {
    for (; node != NULL; node = node->next) {
        const bool target = node->kind == NODE_SET || node->kind == NODE_SET_BLOCK || node->kind == NODE_FOR;
        if ((node->kind == NODE_NAME && strcmp(node->text, name) == 0) || (!target && reads_name(node->a, name)) ||
            reads_name(node->b, name) || reads_name(node->c, name) || reads_name(node->d, name) ||
            reads_name(node->e, name))
            return true;
    }
    return false;
}

bool jinja_names_variable(const jinja_template *self, const char *name) {
    return reads_name(self->body, name);
}

weft_status jinja_begin(jinja_render **out, const jinja_template *self, weft_error *err) {
    jinja_render *r = self->host->alloc(self->host, sizeof *r, 16);
    if (r == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to render a chat template");
    memset(r, 0, sizeof *r);
    r->self = self;
    r->arena.host = self->host;
    r->arena.limit = JINJA_MOST_MEMORY;
    r->scope = &r->globals;
    *out = r;
    return WEFT_OK;
}

void jinja_end(jinja_render *self) {
    const weft_host *host = self == NULL ? NULL : self->self->host;
    if (self == NULL) return;
    jinja_arena_free(&self->arena);
    host->release(host, self);
}

/* Returns a copy of the bytes, all with the mark `origin`. */
static jinja_value marked(jinja_arena *arena, const char *bytes, size_t n, uint32_t origin) {
    char *copy = jinja_copy(arena, bytes, n);
    uint32_t *marks = origin == 0 ? NULL : jinja_take(arena, n * sizeof *marks);
    if (arena->failed) return jinja_none();
    for (size_t i = 0; marks != NULL && i < n; i++) marks[i] = origin;
    return jinja_text_new(arena, copy, marks, n);
}

static jinja_value from_json(jinja_arena *arena, const json_t *json, uint32_t origin) {
    jinja_value out = jinja_none();
    const char *key = NULL;
    json_t *value = NULL;
    switch (json_typeof(json)) {
    case JSON_TRUE: return jinja_bool(true);
    case JSON_FALSE: return jinja_bool(false);
    case JSON_INTEGER: return jinja_int(json_integer_value(json));
    case JSON_REAL: return jinja_float(json_real_value(json));
    case JSON_STRING:
        if (!json_big_is(json)) return marked(arena, json_string_value(json), json_string_length(json), origin);
        out = marked(arena, json_string_value(json) + 1, json_string_length(json) - 1, origin);
        if (!arena->failed) out.kind = JINJA_BIG;
        return out;
    case JSON_ARRAY:
        out = jinja_list_new(arena, JINJA_LIST, json_array_size(json));
        for (size_t i = 0; i < json_array_size(json) && !arena->failed; i++)
            jinja_push(arena, out.as.list, from_json(arena, json_array_get(json, i), origin));
        return out;
    case JSON_OBJECT:
        out = jinja_dict_new(arena, JINJA_DICT);
        json_object_foreach((json_t *)(uintptr_t)json, key, value) {
            if (arena->failed) break;
            jinja_put(arena, out.as.dict, marked(arena, key, strlen(key), origin), from_json(arena, value, origin));
        }
        return out;
    default: return out;
    }
}

static bool set(jinja_render *self, const char *name, jinja_value value) {
    const char *copy = jinja_copy(&self->arena, name, strlen(name));
    if (copy == NULL) return false;
    jinja_assign(self, copy, value);
    return !self->arena.failed;
}

bool jinja_set_json(jinja_render *self, const char *name, const json_t *value, uint32_t origin) {
    return set(self, name, from_json(&self->arena, value, origin));
}

bool jinja_set_text(jinja_render *self, const char *name, const char *text, size_t n) {
    return set(self, name, marked(&self->arena, text, n, JINJA_TEMPLATE));
}

bool jinja_set_bool(jinja_render *self, const char *name, bool value) {
    return set(self, name, jinja_bool(value));
}

bool jinja_set_time(jinja_render *self, int64_t seconds) {
    self->time = seconds;
    self->has_time = true;
    return true;
}

/* Returns the value of a key without recording a read. */
static const jinja_value *peek(const jinja_dict *dict, const char *key) {
    for (size_t i = 0; i < dict->n; i++)
        if (strcmp(dict->entries[i].key.as.text->bytes, key) == 0) return &dict->entries[i].value;
    return NULL;
}

/* Parses the arguments of calls that are strings of JSON: tojson then writes the object instead of a quoted string. */
static void parse_arguments(jinja_arena *arena, const jinja_value *calls, uint32_t origin) {
    const jinja_value *value = NULL;
    json_error_t why;
    json_t *json = NULL;
    jinja_value *object = NULL;
    for (size_t i = 0; jinja_is_list(calls) && i < calls->as.list->n; i++)
        parse_arguments(arena, &calls->as.list->items[i], origin);
    if (calls->kind != JINJA_DICT || arena->failed) return;
    value = peek(calls->as.dict, "function");
    if (value != NULL) parse_arguments(arena, value, origin);
    value = peek(calls->as.dict, "arguments");
    if (value == NULL || value->kind != JINJA_STRING) return;
    json = json_big_load(value->as.text->bytes, value->as.text->n, JSON_ALLOW_NUL, &why);
    if (json_is_object(json)) object = JINJA_NEW(arena, jinja_value);
    if (object != NULL) *object = from_json(arena, json, origin);
    value->as.text->json = object;
    json_decref(json);
}

bool jinja_set_objects(jinja_render *self, const char *name, const json_t *array, jinja_origin_of *origin,
                       void *context) {
    jinja_arena *arena = &self->arena;
    jinja_value list = jinja_list_new(arena, JINJA_LIST, json_array_size(array));
    const char *key = NULL;
    json_t *value = NULL;
    for (size_t i = 0; i < json_array_size(array) && !arena->failed; i++) {
        const jinja_value object = jinja_dict_new(arena, JINJA_DICT);
        if (!arena->failed) object.as.dict->element = (uint32_t)i + 1u;
        json_object_foreach(json_array_get(array, i), key, value) {
            jinja_value made = jinja_none();
            if (arena->failed) return false;
            made = from_json(arena, value, origin(context, i, key));
            if (strcmp(key, "tool_calls") == 0 || strcmp(key, "function_call") == 0)
                parse_arguments(arena, &made, origin(context, i, key));
            jinja_put(arena, object.as.dict, marked(arena, key, strlen(key), JINJA_TEMPLATE), made);
        }
        if (!arena->failed) jinja_push(arena, list.as.list, object);
    }
    if (!arena->failed) self->objects = list.as.list;
    return !arena->failed && set(self, name, list);
}

static const jinja_entry *entry_of(const jinja_render *self, size_t element, const char *key) {
    const jinja_dict *dict = self->objects == NULL ? NULL : self->objects->items[element].as.dict;
    for (size_t i = 0; dict != NULL && i < dict->n; i++)
        if (strcmp(dict->entries[i].key.as.text->bytes, key) == 0) return &dict->entries[i];
    return NULL;
}

bool jinja_has_read(const jinja_render *self, size_t element, const char *key) {
    const jinja_entry *entry = entry_of(self, element, key);
    return entry != NULL && entry->read;
}

/* Searches `value` for an unread key, and appends it to the path of n bytes. The parser of JSON bounds the depth. */
static bool find_unread(const jinja_value *value, const char *const *optional, char *path, size_t n, size_t size) {
    static const char *const required[] = {NULL};
    if (value->kind == JINJA_LIST)
        for (size_t i = 0; i < value->as.list->n; i++)
            if (find_unread(&value->as.list->items[i], optional, path, n, size)) return true;
    if (value->kind != JINJA_DICT) return false;
    for (size_t i = 0; i < value->as.dict->n; i++) {
        const jinja_entry *entry = &value->as.dict->entries[i];
        const char *key = entry->key.as.text->bytes;
        const bool is_number = jinja_is_number(&entry->value) || entry->value.kind == JINJA_BOOL;
        size_t k = 0, end = 0;
        while (optional[k] != NULL && strcmp(optional[k], key) != 0) k++;
        if (optional[k] != NULL || (!is_number && !jinja_truth(&entry->value))) continue;
        end = n + (size_t)snprintf(path + n, size - n, ".%s", key);
        if (!entry->read || find_unread(&entry->value, required, path, end < size ? end : size - 1, size)) return true;
    }
    return false;
}

bool jinja_find_unread(const jinja_render *self, size_t element, const char *key, const char *const *optional,
                       char *path, size_t size) {
    const jinja_entry *entry = entry_of(self, element, key);
    const int n = snprintf(path, size, "%s", key);
    return entry != NULL && n > 0 && (size_t)n < size && find_unread(&entry->value, optional, path, (size_t)n, size);
}

bool jinja_has_read_variable(const jinja_render *self, const char *name) {
    for (const jinja_variable *at = self->globals.first; at != NULL; at = at->next)
        if (strcmp(at->name, name) == 0) return at->read;
    return false;
}

static const jinja_text *text_of(const jinja_render *self, size_t element, const char *key) {
    const jinja_entry *entry = entry_of(self, element, key);
    return entry != NULL && entry->value.kind == JINJA_STRING ? entry->value.as.text : NULL;
}

bool jinja_has_matched(const jinja_render *self, size_t element, const char *key) {
    const jinja_text *text = text_of(self, element, key);
    return text != NULL && text->matched;
}

bool jinja_has_walked(const jinja_render *self, size_t element, const char *key) {
    const jinja_text *text = text_of(self, element, key);
    return text != NULL && text->walked;
}

weft_status jinja_run(jinja_render *self, jinja_output *out, weft_error *err) {
    jinja_builder text = {.arena = &self->arena, .most = JINJA_MOST_TEXT};
    self->err = err;
    self->out = &text;
    self->line = 1;
    if (!self->arena.failed) jinja_exec(self, self->self->body);     /* variables may exceed the limits */
    if (!self->failed && self->arena.failed) (void)jinja_step(self); /* reports the limit */
    if (self->failed) return WEFT_E_DATA;
    out->bytes = text.bytes == NULL ? "" : text.bytes;
    out->marks = text.marks;
    out->n = text.n;
    return WEFT_OK;
}
