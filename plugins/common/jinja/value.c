/* value.c: the arena; creation, comparison and lookup of values. */
#include "value.h"

enum { BLOCK = 32768 };

static jinja_block *new_block(jinja_arena *self, size_t bytes) {
    const size_t n = bytes > BLOCK / 2 ? bytes : BLOCK;
    jinja_block *block = NULL;
    if (self->failed || n > self->limit - self->taken) return NULL;
    block = self->host->alloc(self->host, sizeof *block + n, 16);
    if (block == NULL) return NULL;
    block->before = self->top;
    block->n = n;
    block->used = 0;
    self->top = block;
    self->taken += n;
    return block;
}

void *jinja_take(jinja_arena *self, size_t bytes) {
    const size_t n = (bytes + 15) / 16 * 16;
    jinja_block *block = self->top;
    char *at = NULL;
    if (n < bytes) self->failed = true;
    if (block == NULL || block->n - block->used < n) block = new_block(self, n);
    if (block == NULL) self->failed = true;
    if (self->failed) return NULL;
    at = (char *)(block + 1) + block->used;
    block->used += n;
    memset(at, 0, n);
    return at;
}

static bool fail(jinja_arena *self, jinja_limit past) {
    if (!self->failed) self->past = past;
    self->failed = true;
    return false;
}

enum { BYTES_OF_A_STEP = 256 }; /* bytes of compared or searched text per step */

bool jinja_spend(jinja_arena *self, size_t bytes) {
    self->steps += 1 + (int64_t)(bytes / BYTES_OF_A_STEP);
    return self->steps > JINJA_MOST_STEPS ? fail(self, JINJA_STEPS) : !self->failed;
}

bool jinja_enter_value(jinja_arena *self) {
    self->levels++;
    if (self->levels > JINJA_MOST_LEVELS) return fail(self, JINJA_LEVELS);
    return jinja_spend(self, 0);
}

void jinja_arena_free(jinja_arena *self) {
    for (jinja_block *at = self->top, *before = NULL; at != NULL; at = before) {
        before = at->before;
        self->host->release(self->host, at);
    }
    self->top = NULL;
}

jinja_value jinja_integer(jinja_arena *arena, const char *digits, size_t n) {
    const bool minus = n > 0 && digits[0] == '-';
    int64_t out = 0;
    bool over = false;
    jinja_value big = jinja_none();
    for (size_t i = minus; i < n && !over; i++)
        over = __builtin_mul_overflow(out, 10, &out) || (minus ? __builtin_sub_overflow(out, digits[i] - '0', &out)
                                                               : __builtin_add_overflow(out, digits[i] - '0', &out));
    if (!over) return jinja_int(out);
    big = jinja_text_new(arena, digits, NULL, n);
    if (!arena->failed) big.kind = JINJA_BIG;
    return big;
}

void *jinja_grow(jinja_arena *arena, const void *old, size_t n, size_t *capacity, size_t more, size_t element) {
    size_t capacity_now = *capacity * 2 > 8 ? *capacity * 2 : 8;
    void *fresh = NULL;
    if (capacity_now < n + more) capacity_now = n + more;
    fresh = jinja_take(arena, capacity_now * element);
    if (fresh == NULL) return NULL;
    if (n > 0) memcpy(fresh, old, n * element);
    *capacity = capacity_now;
    return fresh;
}

/* Sets the block of a byte without one: a byte keeps the first block that wrote it. */
static uint32_t with_block(uint32_t mark, uint32_t block) {
    return JINJA_BLOCK(mark) != 0 ? mark : mark | block;
}

void jinja_add(jinja_builder *self, const char *bytes, const uint32_t *marks, size_t n) {
    if (n == 0 || self->overflow) return;
    if (self->most > 0 && self->n + n > self->most) {
        self->overflow = true;
        return;
    }
    if (self->n + n >= self->capacity) { /* jinja_grow zeroes, so the text ends in a NUL */
        size_t capacity = self->capacity < 64 ? 64 : self->capacity;
        char *fresh = jinja_grow(self->arena, self->bytes, self->n, &capacity, n + 1, 1);
        uint32_t *fresh_marks = jinja_take(self->arena, fresh == NULL ? 0 : capacity * sizeof *fresh_marks);
        if (fresh == NULL || fresh_marks == NULL) return;
        if (self->n > 0) memcpy(fresh_marks, self->marks, self->n * sizeof *fresh_marks);
        self->bytes = fresh;
        self->marks = fresh_marks;
        self->capacity = capacity;
    }
    memcpy(self->bytes + self->n, bytes, n);
    for (size_t i = 0; i < n; i++) self->marks[self->n + i] = with_block(marks == NULL ? 0 : marks[i], self->or_mark);
    self->n += n;
}

void jinja_add_text(jinja_builder *self, const jinja_text *text) {
    jinja_add(self, text->bytes, text->marks, text->n);
}

void jinja_add_part(jinja_builder *self, const jinja_text *text, size_t begin, size_t end) {
    jinja_add(self, text->bytes + begin, jinja_marks(text, begin), end - begin);
}

void jinja_add_as(jinja_builder *self, const char *bytes, size_t n, const uint32_t *mark) {
    for (size_t i = 0; i < n; i++) jinja_add(self, bytes + i, mark, 1);
}

void jinja_add_plain(jinja_builder *self, const char *text) {
    jinja_add(self, text, NULL, strlen(text));
}

jinja_value jinja_built(jinja_builder *self) {
    return jinja_text_new(self->arena, self->bytes, self->marks, self->n);
}

jinja_value jinja_text_new(jinja_arena *arena, const char *bytes, const uint32_t *marks, size_t n) {
    jinja_text *text = JINJA_NEW(arena, jinja_text);
    if (text == NULL) return jinja_none();
    text->bytes = n == 0 ? "" : bytes;
    text->marks = marks;
    text->n = n;
    return jinja_string(text);
}

char *jinja_copy(jinja_arena *arena, const char *bytes, size_t n) {
    char *copy = jinja_take(arena, n + 1);
    if (copy != NULL && n > 0) memcpy(copy, bytes, n);
    return copy;
}

const char *jinja_name(jinja_arena *arena, const jinja_text *text) {
    const char *copy = text->bytes[text->n] == '\0' ? text->bytes : jinja_copy(arena, text->bytes, text->n);
    return copy == NULL ? "" : copy;
}

jinja_value jinja_literal(jinja_arena *arena, const char *text) {
    return jinja_text_new(arena, text, NULL, strlen(text));
}

jinja_value jinja_list_new(jinja_arena *arena, int32_t kind, size_t capacity) {
    jinja_list *list = JINJA_NEW(arena, jinja_list);
    if (list == NULL) return jinja_none();
    if (capacity > 0) list->items = jinja_take(arena, capacity * sizeof *list->items);
    list->capacity = list->items == NULL ? 0 : capacity;
    return (jinja_value){.kind = kind, .as = {.list = list}};
}

void jinja_push(jinja_arena *arena, jinja_list *list, jinja_value value) {
    if (list->n == list->capacity) {
        jinja_value *items = jinja_grow(arena, list->items, list->n, &list->capacity, 1, sizeof *items);
        if (items == NULL) return;
        list->items = items;
    }
    list->items[list->n++] = value;
}

jinja_value jinja_dict_new(jinja_arena *arena, int32_t kind) {
    jinja_dict *dict = JINJA_NEW(arena, jinja_dict);
    if (dict == NULL) return jinja_none();
    return (jinja_value){.kind = kind, .as = {.dict = dict}};
}

void jinja_put(jinja_arena *arena, jinja_dict *dict, jinja_value key, jinja_value value) {
    for (size_t i = 0; i < dict->n; i++) {
        if (arena->failed) return;
        if (!jinja_equal(arena, &dict->entries[i].key, &key)) continue;
        dict->entries[i].value = value;
        return;
    }
    if (dict->n == dict->capacity) {
        jinja_entry *entries = jinja_grow(arena, dict->entries, dict->n, &dict->capacity, 1, sizeof *entries);
        if (entries == NULL) return;
        dict->entries = entries;
    }
    dict->entries[dict->n].key = key;
    dict->entries[dict->n++].value = value;
}

const jinja_value *jinja_get(jinja_arena *arena, const jinja_dict *dict, const char *key, size_t n) {
    for (size_t i = 0; i < dict->n && jinja_spend(arena, 0); i++) {
        const jinja_value *at = &dict->entries[i].key;
        if (at->kind != JINJA_STRING || at->as.text->n != n || memcmp(at->as.text->bytes, key, n) != 0) continue;
        dict->entries[i].read = true;
        return &dict->entries[i].value;
    }
    return NULL;
}

const jinja_value *jinja_get_value(jinja_arena *arena, const jinja_dict *dict, const jinja_value *key) {
    for (size_t i = 0; i < dict->n && !arena->failed; i++) {
        if (!jinja_equal(arena, &dict->entries[i].key, key)) continue;
        dict->entries[i].read = true;
        return &dict->entries[i].value;
    }
    return NULL;
}

void jinja_read_all(const jinja_dict *dict) {
    for (size_t i = 0; i < dict->n; i++) dict->entries[i].read = true;
}

bool jinja_truth(const jinja_value *v) {
    switch (v->kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL:
    case JINJA_INT: return v->as.i != 0;
    case JINJA_FLOAT: return v->as.f != 0.0;
    case JINJA_STRING: return v->as.text->n > 0;
    case JINJA_LIST:
    case JINJA_TUPLE: return v->as.list->n > 0;
    case JINJA_DICT: return v->as.dict->n > 0;
    default: return true;
    }
}

static bool equal_lists(jinja_arena *arena, const jinja_list *a, const jinja_list *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!jinja_equal(arena, &a->items[i], &b->items[i])) return false;
    return true;
}

static bool equal_dicts(jinja_arena *arena, const jinja_dict *a, const jinja_dict *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const jinja_value *other = jinja_get_value(arena, b, &a->entries[i].key);
        if (other == NULL || !jinja_equal(arena, &a->entries[i].value, other)) return false;
    }
    return true;
}

bool jinja_is_given(const jinja_text *text) {
    return text->marks != NULL && text->n > 0 && JINJA_ORIGIN(text->marks[0]) != JINJA_TEMPLATE;
}

static bool equal_texts(jinja_arena *arena, jinja_text *a, jinja_text *b) {
    if (a->n != b->n || !jinja_spend(arena, a->n) || memcmp(a->bytes, b->bytes, a->n) != 0) return false;
    if (jinja_is_given(a) && !jinja_is_given(b))
        a->matched = true; /* threads share the template's strings, so only strings of variables are written */
    if (jinja_is_given(b) && !jinja_is_given(a)) b->matched = true;
    return true;
}

/* Compares values of one kind, except numbers. */
static bool equal_alike(jinja_arena *arena, const jinja_value *a, const jinja_value *b) {
    switch (a->kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return true;
    case JINJA_BIG:
    case JINJA_STRING: return equal_texts(arena, a->as.text, b->as.text);
    case JINJA_LIST:
        if ((a->as.list->range != NULL) != (b->as.list->range != NULL)) return false;
        return equal_lists(arena, a->as.list, b->as.list);
    case JINJA_TUPLE: return equal_lists(arena, a->as.list, b->as.list);
    case JINJA_DICT: return equal_dicts(arena, a->as.dict, b->as.dict);
    case JINJA_FUNCTION: return a->function == b->function;
    default: return a->as.dict == b->as.dict;
    }
}

bool jinja_equal(jinja_arena *arena, const jinja_value *a, const jinja_value *b) {
    bool same = false;
    if (jinja_enter_value(arena)) {
        if (jinja_is_whole(a) && jinja_is_whole(b)) same = a->as.i == b->as.i;
        else if (jinja_is_number(a) && jinja_is_number(b))
            same = !(jinja_number(a) < jinja_number(b)) && !(jinja_number(a) > jinja_number(b));
        else same = a->kind == b->kind && equal_alike(arena, a, b);
    }
    arena->levels--;
    return same;
}

/* The byte order of UTF-8 is the order of its characters. */
static int order_texts(jinja_arena *arena, const jinja_text *a, const jinja_text *b) {
    const size_t n = a->n < b->n ? a->n : b->n;
    const int c = jinja_spend(arena, n) ? memcmp(a->bytes, b->bytes, n) : 0;
    return c != 0 ? (c > 0) - (c < 0) : (a->n > b->n) - (a->n < b->n);
}

static int order_numbers(const jinja_value *a, const jinja_value *b) {
    const double x = jinja_number(a), y = jinja_number(b);
    if (jinja_is_whole(a) && jinja_is_whole(b)) return (a->as.i > b->as.i) - (a->as.i < b->as.i);
    return (x > y) - (x < y);
}

/* Compares by the first different elements. */
static int order_lists(jinja_arena *arena, const jinja_list *a, const jinja_list *b) {
    size_t i = 0;
    while (i < a->n && i < b->n && jinja_equal(arena, &a->items[i], &b->items[i])) i++;
    return i < a->n && i < b->n ? jinja_order(arena, &a->items[i], &b->items[i]) : (a->n > b->n) - (a->n < b->n);
}

int jinja_order(jinja_arena *arena, const jinja_value *a, const jinja_value *b) {
    int order = 0;
    if (jinja_enter_value(arena)) {
        if (jinja_is_number(a) && jinja_is_number(b)) order = order_numbers(a, b);
        else if (a->kind == JINJA_STRING && b->kind == JINJA_STRING) order = order_texts(arena, a->as.text, b->as.text);
        else if (!jinja_is_list(a) || a->kind != b->kind) order = 2;
        else order = order_lists(arena, a->as.list, b->as.list);
    }
    arena->levels--;
    return order;
}

const char *jinja_kind_name(const jinja_value *v) {
    static const char *const names[] = {"undefined",  "none",        "a boolean",   "an integer",
                                        "a float",    "a string",    "a list",      "a tuple",
                                        "an object",  "a namespace", "loop",        "a macro",
                                        "a function", "a method",    "an iterator", "an integer of more than 64 bits",
                                        "a cycler",   "a joiner"};
    return names[v->kind];
}
