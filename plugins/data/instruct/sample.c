/* sample.c: a record becomes a conversation. The forms that people have: messages (role, content), ShareGPT's
 * conversations (from, value), alpaca's instruction, input and output, prompt and completion, or two fields by name. */
#include "instruct.h"

#include <stdlib.h>

static const char *kind_of(const json_t *value) {
    static const char *const names[] = {"an object", "an array", "a string", "a number",
                                        "a number",  "true",     "false",    "null"};
    return value == NULL ? "missing" : names[json_typeof(value)];
}

/* "question, answer": which fields there are, as far as they fit. */
static void field_names(char *out, size_t size, const json_t *object) {
    const char *name = NULL;
    json_t *value = NULL;
    size_t n = 0;
    (void)snprintf(out, size, "none");
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        if (n + strlen(name) + 8 > size) {
            (void)snprintf(out + n, size - n, ", ...");
            break;
        }
        n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", name);
    }
}

static int says_something(const json_t *value) {
    const char *text = json_string_value(value);
    if (text != NULL) return strspn(text, " \t\r\n") < json_string_length(value);
    return json_array_size(value) > 0 || json_object_size(value) > 0;
}

void instruct_sample_answers(const instruct_sample *sample, const instruct_config *config, size_t *all, size_t *empty) {
    static const char *const names[] = {"content", "tool_calls", "function_call", "reasoning_content", "thinking"};
    *all = *empty = 0;
    for (size_t i = 0; config->loss_on != LOSS_TEXT && i < json_array_size(sample->messages); i++) {
        const json_t *message = json_array_get(sample->messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        int says = 0;
        if (role == NULL || strcmp(role, "assistant") != 0) continue;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            says = says || says_something(json_object_get(message, names[k]));
        if (config->loss_on == LOSS_LAST) *all = *empty = 0;
        *all += 1;
        *empty += !says;
    }
}

/* A row of a table as an object by its header. */
static weft_status read_row(json_t **out, const instruct_record *record, weft_error *err) {
    const json_t *header = record->file->header;
    json_t *fields = NULL, *object = json_object();
    weft_status status = instruct_row_fields(&fields, record, err);
    if (status == WEFT_OK && json_array_size(fields) != json_array_size(header))
        status = instruct_fail(err, record, "the row has %zu fields and the first row names %zu",
                               json_array_size(fields), json_array_size(header));
    for (size_t i = 0; status == WEFT_OK && i < json_array_size(header); i++)
        (void)json_object_set(object, json_string_value(json_array_get(header, i)), json_array_get(fields, i));
    json_decref(fields);
    if (status == WEFT_OK) *out = object;
    else json_decref(object);
    return status;
}

static weft_status read_object(json_t **out, const instruct_record *record, weft_error *err) {
    const char *nul = NULL;
    json_error_t why;
    if (record->file->header != NULL) return read_row(out, record, err);
    *out = json_loadb(record->bytes, record->n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
    if (*out == NULL) /* a whole number of other fields may have any size */
        *out = json_loadb(record->bytes, record->n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL,
                          &why);
    if (*out == NULL) return instruct_fail(err, record, "not a JSON object: %s (column %d)", why.text, why.column);
    nul = memchr(record->bytes, 0, record->n); /* jansson allows it after a number */
    if (json_is_object(*out) && nul == NULL) return WEFT_OK;
    json_decref(*out);
    if (nul != NULL)
        return instruct_fail(err, record, "not a JSON object: a NUL byte (byte %zu)",
                             (size_t)(nul - record->bytes) + 1);
    return instruct_fail(err, record, "the record is JSON but not an object {...}");
}

static void add_message(json_t *messages, const char *role, json_t *content) {
    json_t *message = json_object();
    (void)json_object_set_new(message, "role", json_string(role));
    (void)json_object_set(message, "content", content);
    (void)json_array_append_new(messages, message);
}

static weft_status need_text(json_t **out, const instruct_record *record, const json_t *object, const char *name,
                             weft_error *err) {
    char names[512];
    *out = json_object_get(object, name);
    if (json_is_string(*out)) return WEFT_OK;
    field_names(names, sizeof names, object);
    if (*out == NULL)
        return instruct_fail(err, record, "there is no field \"%s\"; the record's fields: %s", name, names);
    return instruct_fail(err, record, "the field \"%s\" is %s and must be a string", name, kind_of(*out));
}

static weft_status from_pair(json_t *messages, const instruct_record *record, const json_t *object,
                             const char *question, const char *answer, weft_error *err) {
    json_t *asked = NULL, *answered = NULL;
    weft_status status = need_text(&asked, record, object, question, err);
    if (status == WEFT_OK) status = need_text(&answered, record, object, answer, err);
    if (status != WEFT_OK) return status;
    add_message(messages, "user", asked);
    add_message(messages, "assistant", answered);
    return WEFT_OK;
}

/* [[question, answer], ...] before the record's own. */
static weft_status add_history(json_t *messages, const instruct_record *record, const json_t *history,
                               weft_error *err) {
    if (history == NULL || json_is_null(history)) return WEFT_OK;
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *turn = json_array_get(history, i);
        if (!json_is_string(json_array_get(turn, 0)) || !json_is_string(json_array_get(turn, 1)))
            return instruct_fail(err, record, "turn %zu of \"history\" is no pair of strings [question, answer]",
                                 i + 1);
        add_message(messages, "user", json_array_get(turn, 0));
        add_message(messages, "assistant", json_array_get(turn, 1));
    }
    return json_is_array(history) ? WEFT_OK : instruct_fail(err, record, "\"history\" is no array");
}

/* A string, or nothing. */
static weft_status may_have_text(json_t **out, const instruct_record *record, const json_t *object, const char *name,
                                 weft_error *err) {
    *out = json_object_get(object, name);
    if (*out == NULL || json_is_null(*out) || json_is_string(*out)) return WEFT_OK;
    return instruct_fail(err, record, "the field \"%s\" is %s and must be a string", name, kind_of(*out));
}

/* Some write response for output, and context for input. */
static const char *either(const json_t *object, const char *name, const char *other) {
    return json_object_get(object, name) == NULL && json_object_get(object, other) != NULL ? other : name;
}

/* The input stands behind the instruction, and both by themselves for templates that have a place for each. */
static weft_status from_alpaca(json_t *messages, const instruct_record *record, const json_t *object, weft_error *err) {
    json_t *instruction = NULL, *output = NULL, *input = NULL, *system = NULL, *last = NULL, *both = NULL;
    weft_status status = need_text(&instruction, record, object, "instruction", err);
    if (status == WEFT_OK) status = need_text(&output, record, object, either(object, "output", "response"), err);
    if (status == WEFT_OK) status = may_have_text(&input, record, object, either(object, "input", "context"), err);
    if (status == WEFT_OK) status = may_have_text(&system, record, object, "system", err);
    if (status == WEFT_OK && json_string_length(system) > 0) add_message(messages, "system", system);
    if (status == WEFT_OK) status = add_history(messages, record, json_object_get(object, "history"), err);
    if (status != WEFT_OK) return status;
    both = json_string_length(input) == 0
               ? json_incref(instruction)
               : json_sprintf("%s\n\n%s", json_string_value(instruction), json_string_value(input));
    if (both == NULL)
        return instruct_fail(err, record, "instruction and input cannot be joined: a zero byte is in them");
    add_message(messages, "user", both);
    json_decref(both);
    last = json_array_get(messages, json_array_size(messages) - 1);
    (void)json_object_set(last, "instruction", instruction);
    (void)json_object_set_new(last, "input", json_string_length(input) == 0 ? json_string("") : json_incref(input));
    add_message(messages, "assistant", output);
    return WEFT_OK;
}

/* ShareGPT's names of who speaks. */
static const char *role_of(const char *from) {
    static const char *const names[][2] = {{"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
                                           {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"},
                                           {"bard", "assistant"},      {"model", "assistant"},   {"system", "system"},
                                           {"tool", "tool"},           {"observation", "tool"},  {"function", "tool"}};
    for (size_t i = 0; from != NULL && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], from) == 0) return names[i][1];
    return NULL;
}

static weft_status from_conversations(json_t *messages, const instruct_record *record, const json_t *turns,
                                      weft_error *err) {
    for (size_t i = 0; i < json_array_size(turns); i++) {
        const json_t *turn = json_array_get(turns, i);
        const char *from = json_string_value(json_object_get(turn, "from")), *role = role_of(from);
        json_t *value = json_object_get(turn, "value");
        if (from == NULL || !json_is_string(value))
            return instruct_fail(err, record, "turn %zu of \"conversations\" needs \"from\" and \"value\", two strings",
                                 i + 1);
        if (role == NULL)
            return instruct_fail(
                err, record, "turn %zu of \"conversations\" is from \"%.40s\"; known are human, gpt, system and tool",
                i + 1, from);
        add_message(messages, role, value);
    }
    return WEFT_OK;
}

static weft_status from_messages(json_t *messages, const instruct_record *record, const json_t *given, const char *name,
                                 weft_error *err) {
    static const char *const foreign[][2] = {{"human", "user"}, {"gpt", "assistant"}};
    if (!json_is_array(given))
        return instruct_fail(err, record, "the field \"%s\" is %s and must be an array", name, kind_of(given));
    for (size_t i = 0; i < json_array_size(given); i++) {
        json_t *message = json_array_get(given, i), *copy = NULL;
        if (!json_is_string(json_object_get(message, "role")))
            return instruct_fail(err, record, "message %zu of \"%s\" needs \"role\", a string", i + 1, name);
        copy = json_copy(message);
        /* ShareGPT's two, which no template knows */
        for (size_t k = 0; k < 2; k++)
            if (strcmp(json_string_value(json_object_get(message, "role")), foreign[k][0]) == 0)
                (void)json_object_set_new(copy, "role", json_string(foreign[k][1]));
        if (json_object_get(copy, "content") == NULL) (void)json_object_set_new(copy, "content", json_null());
        (void)json_array_append_new(messages, copy);
    }
    return WEFT_OK;
}

/* Exports fill what a record does not have with null. */
static json_t *a_value(const json_t *object, const char *name) {
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

/* What one of the pairs that people use has, or NULL. */
static const char *const *known_pair(const json_t *object) {
    static const char *const pairs[][2] = {{"prompt", "completion"}, {"prompt", "response"}, {"question", "answer"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (a_value(object, pairs[i][0]) != NULL && json_object_get(object, pairs[i][1]) != NULL) return pairs[i];
    return NULL;
}

static weft_status by_columns(json_t *messages, const instruct_record *record, const json_t *object,
                              const char *columns, weft_error *err) {
    char question[256];
    const char *comma = strchr(columns, ',');
    (void)snprintf(question, sizeof question, "%.*s", (int)(comma - columns), columns);
    return from_pair(messages, record, object, question, comma + 1, err);
}

static weft_status read_messages(json_t *messages, const instruct_record *record, const instruct_config *config,
                                 const json_t *object, weft_error *err) {
    const char *const *pair = known_pair(object);
    const json_t *given = a_value(object, "messages"), *turns = a_value(object, "conversations");
    char names[512];
    weft_status status = WEFT_OK;
    if (config->columns[0] != '\0') return by_columns(messages, record, object, config->columns, err);
    if (given != NULL) return from_messages(messages, record, given, "messages", err);
    if (json_is_array(turns) && json_object_get(json_array_get(turns, 0), "from") != NULL)
        return from_conversations(messages, record, turns, err);
    if (turns != NULL) return from_messages(messages, record, turns, "conversations", err);
    if (a_value(object, "instruction") != NULL && (pair == NULL || json_object_get(object, "output") != NULL))
        return from_alpaca(messages, record, object, err);
    if (pair != NULL && json_is_array(json_object_get(object, pair[0]))) {
        status = from_messages(messages, record, json_object_get(object, pair[0]), pair[0], err);
        return status == WEFT_OK ? from_messages(messages, record, json_object_get(object, pair[1]), pair[1], err)
                                 : status;
    }
    if (pair != NULL) return from_pair(messages, record, object, pair[0], pair[1], err);
    field_names(names, sizeof names, object);
    return instruct_fail(err, record,
                         "no known form: messages, conversations, instruction and output, prompt and completion, or "
                         "question and answer; the record's fields: %s. [data] columns = QUESTION, ANSWER names two",
                         names);
}

static void put_system(json_t *messages, const instruct_config *config) {
    const json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    json_t *message = NULL;
    if (config->system[0] == '\0' || (role != NULL && strcmp(role, "system") == 0)) return;
    message = json_object();
    (void)json_object_set_new(message, "role", json_string("system"));
    (void)json_object_set_new(message, "content", json_string(config->system));
    (void)json_array_insert_new(messages, 0, message);
}

/* What templates take beside messages. */
static weft_status read_variables(json_t **out, const instruct_record *record, const json_t *object, weft_error *err) {
    static const char *const names[] = {"tools", "documents", "enable_thinking"};
    json_t *more = a_value(object, "chat_template_kwargs");
    if (more != NULL && !json_is_object(more))
        return instruct_fail(err, record, "the field \"chat_template_kwargs\" is %s and must be an object {...}",
                             kind_of(more));
    *out = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (a_value(object, names[i]) != NULL) (void)json_object_set(*out, names[i], a_value(object, names[i]));
    if (more != NULL) (void)json_object_update(*out, more);
    if (json_object_size(*out) > 0) return WEFT_OK;
    json_decref(*out);
    *out = NULL;
    return WEFT_OK;
}

weft_status instruct_sample_read(instruct_sample *out, const instruct_record *record, const instruct_config *config,
                                 weft_error *err) {
    json_t *object = NULL;
    weft_status status = read_object(&object, record, err);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK) return status;
    out->messages = json_array();
    status = read_messages(out->messages, record, config, object, err);
    if (status == WEFT_OK && json_array_size(out->messages) == 0)
        status = instruct_fail(err, record, "the conversation has no message");
    if (status == WEFT_OK) put_system(out->messages, config);
    if (status == WEFT_OK && record->file->header == NULL)
        status = read_variables(&out->variables, record, object, err);
    json_decref(object);
    if (status != WEFT_OK) instruct_sample_free(out);
    return status;
}

void instruct_sample_free(instruct_sample *sample) {
    json_decref(sample->messages);
    json_decref(sample->variables);
    memset(sample, 0, sizeof *sample);
}
