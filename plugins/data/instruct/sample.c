/* sample.c: converts a record to a conversation. Forms: messages (role, content); ShareGPT's conversations (from,
 * value); Alpaca's instruction, input and output; prompt and completion; or two fields by name. Each key of a record is
 * used, ignored by [data] ignore, or an error. */
#include "instruct.h"

#include "../../common/json_big.h"

#include <stdlib.h>

/* State of converting a record. */
typedef struct reader {
    const instruct_record *record;
    const instruct_config *config;
    json_t *object; /* the record without ignored keys */
    json_t *left;   /* the keys not used yet */
    json_t *messages;
} reader;

static const char *kind_of(const json_t *value) {
    static const char *const names[] = {"an object", "an array", "a string", "a number",
                                        "a number",  "true",     "false",    "null"};
    return value == NULL ? "missing" : names[json_typeof(value)];
}

/* Lists the fields, as many as fit: "question, answer". */
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
    size_t number = 0;
    *all = *empty = 0;
    for (size_t i = 0; config->loss_on != LOSS_TEXT && i < json_array_size(sample->messages); i++) {
        const json_t *message = json_array_get(sample->messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        const json_t *learned = NULL;
        int says = 0;
        if (role == NULL || strcmp(role, "assistant") != 0) continue;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            says = says || says_something(json_object_get(message, names[k]));
        if (config->loss_on == LOSS_LAST) *all = *empty = 0;
        learned = json_array_get(sample->learned, number++); /* json_is_false evaluates its argument twice */
        if (json_is_false(learned)) continue;
        *all += 1;
        *empty += !says;
    }
}

/* Converts a table row to an object by the header. */
static weft_status read_row(json_t **out, const instruct_record *record, weft_error *err) {
    const json_t *header = record->file->header;
    json_t *fields = NULL, *object = json_object();
    weft_status status = instruct_row_fields(&fields, record, err);
    if (status == WEFT_OK && json_array_size(fields) != json_array_size(header))
        status = instruct_fail(err, record, "the row has %zu field%s but the header has %zu", json_array_size(fields),
                               json_array_size(fields) == 1 ? "" : "s", json_array_size(header));
    for (size_t i = 0; status == WEFT_OK && i < json_array_size(header); i++)
        (void)json_object_set(object, json_string_value(json_array_get(header, i)), json_array_get(fields, i));
    json_decref(fields);
    if (status == WEFT_OK) *out = object;
    else json_decref(object);
    return status;
}

static weft_status read_object(json_t **out, const instruct_record *record, weft_error *err) {
    json_error_t why;
    if (record->file->header != NULL) return read_row(out, record, err);
    *out = json_big_load(record->bytes, record->n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
    if (*out == NULL) return instruct_fail(err, record, "not a JSON object: %s (column %d)", why.text, why.column);
    if (json_is_object(*out)) return WEFT_OK;
    json_decref(*out);
    return instruct_fail(err, record, "the record is JSON but not an object {...}");
}

/* Returns a value; NULL if it is absent or null, because exports write null for an absent value. */
static json_t *a_value(const reader *r, const char *name) {
    json_t *value = json_object_get(r->object, name);
    return json_is_null(value) ? NULL : value;
}

/* Returns the value of a key and marks it as used. */
static json_t *take(const reader *r, const char *name) {
    (void)json_object_del(r->left, name);
    return json_object_get(r->object, name);
}

static void add_message(json_t *messages, const char *role, json_t *content) {
    json_t *message = json_object();
    (void)json_object_set_new(message, "role", json_string(role));
    (void)json_object_set(message, "content", content);
    (void)json_array_append_new(messages, message);
}

static weft_status need_text(json_t **out, const reader *r, const char *name, weft_error *err) {
    char names[512];
    *out = take(r, name);
    if (json_is_string(*out)) return WEFT_OK;
    field_names(names, sizeof names, r->object);
    if (*out == NULL)
        return instruct_fail(err, r->record, "there is no field \"%s\"; the record's fields: %s", name, names);
    return instruct_fail(err, r->record, "the field \"%s\" is %s and must be a string", name, kind_of(*out));
}

static weft_status from_pair(const reader *r, const char *question, const char *answer, weft_error *err) {
    json_t *asked = NULL, *answered = NULL;
    weft_status status = need_text(&asked, r, question, err);
    if (status == WEFT_OK) status = need_text(&answered, r, answer, err);
    if (status != WEFT_OK) return status;
    add_message(r->messages, "user", asked);
    add_message(r->messages, "assistant", answered);
    return WEFT_OK;
}

/* Adds [[question, answer], ...] before the record's own turn. */
static weft_status add_history(const reader *r, weft_error *err) {
    const json_t *history = take(r, "history");
    if (history == NULL || json_is_null(history)) return WEFT_OK;
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *turn = json_array_get(history, i);
        if (json_array_size(turn) != 2 || !json_is_string(json_array_get(turn, 0)) ||
            !json_is_string(json_array_get(turn, 1)))
            return instruct_fail(err, r->record, "turn %zu of \"history\" is not a pair of strings [question, answer]",
                                 i + 1);
        add_message(r->messages, "user", json_array_get(turn, 0));
        add_message(r->messages, "assistant", json_array_get(turn, 1));
    }
    return json_is_array(history) ? WEFT_OK : instruct_fail(err, r->record, "\"history\" is not an array");
}

/* Reads an optional string. */
static weft_status may_have_text(json_t **out, const reader *r, const char *name, weft_error *err) {
    *out = take(r, name);
    if (*out == NULL || json_is_null(*out) || json_is_string(*out)) return WEFT_OK;
    return instruct_fail(err, r->record, "the field \"%s\" is %s and must be a string", name, kind_of(*out));
}

/* Returns the alternative key if only that is present: response for output, context for input. */
static const char *either(const reader *r, const char *name, const char *other) {
    return a_value(r, name) == NULL && a_value(r, other) != NULL ? other : name;
}

/* Converts Alpaca's form. The input is appended to the instruction; both are also keys of the message, for templates
 * that read them. */
static weft_status from_alpaca(const reader *r, weft_error *err) {
    json_t *instruction = NULL, *output = NULL, *input = NULL, *last = NULL, *both = NULL;
    weft_status status = need_text(&instruction, r, "instruction", err);
    if (status == WEFT_OK) status = need_text(&output, r, either(r, "output", "response"), err);
    if (status == WEFT_OK) status = may_have_text(&input, r, either(r, "input", "context"), err);
    if (status == WEFT_OK) status = add_history(r, err);
    if (status != WEFT_OK) return status;
    both = json_string_length(input) == 0
               ? json_incref(instruction)
               : json_sprintf("%s\n\n%s", json_string_value(instruction), json_string_value(input));
    if (both == NULL)
        return instruct_fail(err, r->record, "instruction and input cannot be joined: they contain a NUL byte");
    add_message(r->messages, "user", both);
    json_decref(both);
    last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    (void)json_object_set(last, "instruction", instruction);
    (void)json_object_set_new(last, "input", json_string_length(input) == 0 ? json_string("") : json_incref(input));
    add_message(r->messages, "assistant", output);
    return WEFT_OK;
}

/* Parses a value that is JSON in a string, as in tables and column exports. */
static weft_status parsed(json_t **value, const reader *r, const char *name, weft_error *err) {
    const char *text = json_string_value(*value);
    const size_t n = json_string_length(*value);
    json_error_t why;
    if (text == NULL) return WEFT_OK;
    if (strspn(text, " \t\r\n") == n) *value = json_null();
    else *value = json_big_load(text, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (*value != NULL) return WEFT_OK;
    return instruct_fail(err, r->record, "the field \"%s\" is a string that is not JSON: %s (column %d)", name,
                         why.text, why.column);
}

/* Returns the key of the object that equals the first n bytes of `name`; NULL: none. */
static const char *find_key(json_t *object, const char *name, size_t n) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(object, key, value) {
        if (strlen(key) == n && memcmp(key, name, n) == 0) return key;
    }
    return NULL;
}

/* Removes a key by its path of n bytes, "tool_calls.function.note", from all objects of the lists on the way. */
static void drop_path(json_t *from, const char *path, size_t n) {
    const char *dot = memchr(path, '.', n);
    const size_t first = dot == NULL ? n : (size_t)(dot - path);
    const char *key = find_key(from, path, first);
    for (size_t i = 0; i < json_array_size(from); i++) drop_path(json_array_get(from, i), path, n);
    if (key == NULL) return;
    if (dot != NULL) drop_path(json_object_get(from, key), dot + 1, n - first - 1);
    else (void)json_object_del(from, key);
}

/* Removes ignored keys from an object: id and those of [data] ignore, except keys in `columns`. */
static void drop_ignored(json_t *object, const instruct_config *config) {
    if (!instruct_list_has(config->columns, "id", strlen("id"))) (void)json_object_del(object, "id");
    for (const char *at = config->ignore; *at != '\0';) {
        const size_t n = strcspn(at, ",");
        const char *key = find_key(object, at, n);
        if (key != NULL && !instruct_list_has(config->columns, at, n)) (void)json_object_del(object, key);
        if (memchr(at, '.', n) != NULL) drop_path(object, at, n);
        at += n + (at[n] == ',');
    }
}

/* Appends names to a list as long as they fit, and counts the others. */
static void add_name(char *names, size_t size, const char *name, size_t *left_out) {
    const size_t n = strlen(names);
    if (*left_out > 0 || n + strlen(name) + 3 > size) ++*left_out;
    else (void)snprintf(names + n, size - n, "%s%s", n > 0 ? ", " : "", name);
}

/* Fails if `object`, which contains unused keys only, has one with a value. of: "the record" or "message 2". */
static weft_status refuse_keys(const reader *r, json_t *object, const char *of, weft_error *err) {
    char names[400] = "", more[64] = "";
    const char *key = NULL;
    json_t *value = NULL;
    size_t left_out = 0;
    json_object_foreach(object, key, value) {
        const int empty = r->record->file->header != NULL && (key[0] == '\0' || json_string_length(value) == 0);
        if (!json_is_null(value) && !empty) add_name(names, sizeof names, key, &left_out);
    }
    if (names[0] == '\0' && left_out == 0) return WEFT_OK;
    if (names[0] == '\0')
        return instruct_fail(err, r->record,
                             "%s has a key of more than %zu bytes that is not used. Fix: rename it or add it to [data] "
                             "ignore",
                             of, sizeof names - 3);
    if (left_out > 0) (void)snprintf(more, sizeof more, " (and %zu more)", left_out);
    return instruct_fail(err, r->record, "%s has keys that are not used: %s%s. Fix: [data] ignore = %s%s%s", of, names,
                         more, r->config->ignore, r->config->ignore[0] != '\0' ? ", " : "", names);
}

/* Joins [{"type": "text", "text": ...}, ...] to one string. */
static weft_status join_parts(json_t *message, const reader *r, const char *of, weft_error *err) {
    const json_t *parts = json_object_get(message, "content");
    json_t *text = json_string("");
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < json_array_size(parts) && status == WEFT_OK; i++) {
        json_t *part = json_copy(json_array_get(parts, i)), *joined = NULL;
        const json_t *kind = json_object_get(part, "type"), *said = json_object_get(part, "text");
        if (!json_is_string(kind) || strcmp(json_string_value(kind), "text") != 0 || !json_is_string(said))
            status = instruct_fail(err, r->record,
                                   "part %zu of the content of %s is of type \"%.40s\". Allowed: {\"type\": \"text\", "
                                   "\"text\": ...}",
                                   i + 1, of, json_is_string(kind) ? json_string_value(kind) : kind_of(kind));
        else
            joined = json_pack("s%+%", json_string_value(text), json_string_length(text), json_string_value(said),
                               json_string_length(said));
        if (joined != NULL) {
            json_decref(text);
            text = joined;
            (void)json_object_del(part, "type");
            (void)json_object_del(part, "text");
            drop_ignored(part, r->config);
            status = refuse_keys(r, part, "a part of the content", err);
        }
        json_decref(part);
    }
    (void)json_object_set_new(message, "content", text);
    return status;
}

/* Converts content to a string or null. null is allowed only if the message has another value. */
static weft_status read_content(json_t *message, const reader *r, const char *of, weft_error *err) {
    const json_t *content = json_object_get(message, "content");
    const char *key = NULL;
    json_t *value = NULL;
    if (json_is_string(content)) return WEFT_OK;
    if (json_is_array(content)) return join_parts(message, r, of, err);
    if (content != NULL && !json_is_null(content))
        return instruct_fail(err, r->record,
                             "the content of %s is %s. Allowed: a string, null, or an array of parts of type text", of,
                             kind_of(content));
    json_object_foreach(message, key, value) {
        if (strcmp(key, "role") != 0 && strcmp(key, "train") != 0 && !json_is_null(value)) return WEFT_OK;
    }
    return instruct_fail(err, r->record, "%s has no content", of);
}

/* Reads the training flag of a message under any of its usual names, and stores it as "train": true or false. */
static weft_status read_flag(json_t *message, const reader *r, const char *of, weft_error *err) {
    static const char *const names[] = {"train", "weight", "training", "loss"};
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *flag = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *given = json_object_get(message, names[i]);
        const double number = json_number_value(given);
        const int yes = json_is_true(given) || (json_is_number(given) && number >= 1.0 && number <= 1.0);
        const int no = json_is_false(given) || (json_is_number(given) && number >= 0.0 && number <= 0.0);
        if (given == NULL || json_is_null(given)) {
            (void)json_object_del(message, names[i]);
            continue;
        }
        if (!yes && !no)
            return instruct_fail(err, r->record, "%s: \"%s\" is not a flag. Allowed: 0, 1, false, true", of, names[i]);
        if (flag != NULL && json_is_true(flag) != yes)
            return instruct_fail(err, r->record, "%s: \"%s\" contradicts another flag", of, names[i]);
        if (yes && role != NULL && strcmp(role, "assistant") != 0)
            return instruct_fail(err, r->record,
                                 "%s: \"%s\" selects a message of role \"%.40s\". Allowed: assistant. Fix: [data] "
                                 "loss_on = text trains on all messages, ignore = %s drops the key",
                                 of, names[i], role, names[i]);
        flag = json_boolean(yes);
        (void)json_object_del(message, names[i]);
    }
    if (flag != NULL) (void)json_object_set(message, "train", flag);
    return WEFT_OK;
}

/* ShareGPT's names of roles. */
static const char *role_of(const char *from) {
    static const char *const names[][2] = {{"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
                                           {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"},
                                           {"bard", "assistant"},      {"model", "assistant"},   {"system", "system"},
                                           {"tool", "tool"},           {"observation", "tool"},  {"function", "tool"}};
    for (size_t i = 0; from != NULL && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], from) == 0) return names[i][1];
    return NULL;
}

static weft_status from_turn(const reader *r, json_t *turn, const char *of, weft_error *err) {
    const char *from = json_string_value(json_object_get(turn, "from")), *role = role_of(from);
    json_t *value = json_object_get(turn, "value");
    weft_status status = WEFT_OK;
    if (from == NULL || !json_is_string(value))
        return instruct_fail(err, r->record, "%s needs \"from\" and \"value\", two strings", of);
    if (role == NULL)
        return instruct_fail(err, r->record,
                             "%s is from \"%.40s\". Allowed: human, user, gpt, assistant, chatgpt, bing, bard, model, "
                             "system, tool, observation, function",
                             of, from);
    (void)json_object_set_new(turn, "role", json_string(role));
    (void)json_object_set(turn, "content", value);
    (void)json_object_del(turn, "from");
    (void)json_object_del(turn, "value");
    status = read_flag(turn, r, of, err);
    if (status == WEFT_OK) (void)json_array_append(r->messages, turn);
    return status;
}

static weft_status from_conversations(const reader *r, const json_t *turns, weft_error *err) {
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < json_array_size(turns) && status == WEFT_OK; i++) {
        static const char *const own[] = {"from", "value", "train", "weight", "training", "loss"};
        json_t *turn = json_copy(json_array_get(turns, i)), *more = NULL;
        char of[64];
        (void)snprintf(of, sizeof of, "turn %zu of \"conversations\"", i + 1);
        drop_ignored(turn, r->config);
        more = json_copy(turn);
        for (size_t k = 0; k < sizeof own / sizeof *own; k++) (void)json_object_del(more, own[k]);
        status = json_is_object(turn) ? refuse_keys(r, more, of, err)
                                      : instruct_fail(err, r->record, "%s is not an object", of);
        if (status == WEFT_OK) status = from_turn(r, turn, of, err);
        json_decref(more);
        json_decref(turn);
    }
    return status;
}

static weft_status from_message(const reader *r, json_t *message, const char *of, weft_error *err) {
    static const char *const foreign[][2] = {{"human", "user"}, {"gpt", "assistant"}};
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *calls = json_object_get(message, "tool_calls");
    weft_status status = WEFT_OK;
    if (role == NULL) return instruct_fail(err, r->record, "%s needs \"role\", a string", of);
    for (size_t k = 0; k < 2; k++) /* two roles of ShareGPT, which templates do not support */
        if (strcmp(role, foreign[k][0]) == 0) {
            (void)json_object_set_new(message, "role", json_string(foreign[k][1]));
            break;
        }
    if (json_is_string(calls)) {
        status = parsed(&calls, r, "tool_calls", err);
        if (status == WEFT_OK) (void)json_object_set_new(message, "tool_calls", calls);
        drop_ignored(message, r->config);
    }
    if (status == WEFT_OK) status = read_flag(message, r, of, err);
    if (status == WEFT_OK) status = read_content(message, r, of, err);
    if (status == WEFT_OK) (void)json_array_append(r->messages, message);
    return status;
}

static weft_status from_messages(const reader *r, const json_t *given, const char *name, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!json_is_array(given))
        return instruct_fail(err, r->record, "the field \"%s\" is %s and must be an array", name, kind_of(given));
    for (size_t i = 0; i < json_array_size(given) && status == WEFT_OK; i++) {
        json_t *message = json_copy(json_array_get(given, i));
        char of[300];
        (void)snprintf(of, sizeof of, "message %zu of \"%.200s\"", i + 1, name);
        drop_ignored(message, r->config);
        status = from_message(r, message, of, err);
        json_decref(message);
    }
    return status;
}

/* Returns the pair of keys that the record contains; NULL: no known pair. */
static const char *const *known_pair(const reader *r) {
    static const char *const pairs[][2] = {{"prompt", "completion"}, {"prompt", "response"}, {"question", "answer"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (a_value(r, pairs[i][0]) != NULL && json_object_get(r->object, pairs[i][1]) != NULL) return pairs[i];
    return NULL;
}

/* Reads the two fields of `columns`. Other keys of the record are not used, and no error. */
static weft_status by_columns(const reader *r, weft_error *err) {
    const char *columns = r->config->columns, *comma = strchr(columns, ',');
    char *question = strndup(columns, (size_t)(comma - columns));
    weft_status status = WEFT_OK;
    if (question == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the name of a column");
    status = from_pair(r, question, comma + 1, err);
    free(question);
    (void)json_object_clear(r->left);
    return status;
}

static weft_status read_messages(const reader *r, weft_error *err) {
    const char *const *pair = known_pair(r);
    const json_t *turns = a_value(r, "conversations");
    char names[512];
    weft_status status = WEFT_OK;
    if (r->config->columns[0] != '\0') return by_columns(r, err);
    if (a_value(r, "messages") != NULL) return from_messages(r, take(r, "messages"), "messages", err);
    if (turns != NULL) (void)take(r, "conversations");
    if (json_is_array(turns) && json_object_get(json_array_get(turns, 0), "from") != NULL)
        return from_conversations(r, turns, err);
    if (turns != NULL) return from_messages(r, turns, "conversations", err);
    if (a_value(r, "instruction") != NULL && (pair == NULL || json_object_get(r->object, "output") != NULL))
        return from_alpaca(r, err);
    if (pair != NULL && json_is_array(json_object_get(r->object, pair[0]))) {
        status = from_messages(r, take(r, pair[0]), pair[0], err);
        return status == WEFT_OK ? from_messages(r, take(r, pair[1]), pair[1], err) : status;
    }
    if (pair != NULL) return from_pair(r, pair[0], pair[1], err);
    field_names(names, sizeof names, r->object);
    return instruct_fail(err, r->record,
                         "no known form: messages, conversations, instruction and output, prompt and completion, or "
                         "question and answer; the record's fields: %s. Fix: set [data] columns = QUESTION, ANSWER",
                         names);
}

static int begins_with_system(const json_t *messages) {
    const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    return role != NULL && strcmp(role, "system") == 0;
}

/* Adds a system message from a key of the record, or from the configuration. */
static weft_status put_system(const reader *r, weft_error *err) {
    const char *name = either(r, "system", "system_prompt");
    json_t *text = NULL, *message = NULL;
    weft_status status = instruct_list_has(r->config->columns, name, strlen(name)) ? WEFT_OK
                                                                                   : may_have_text(&text, r, name, err);
    if (status != WEFT_OK) return status;
    if (json_string_length(text) > 0 && begins_with_system(r->messages))
        return instruct_fail(err, r->record,
                             "the record has \"%s\" and a first message of role \"system\". Fix: remove one, or [data] "
                             "ignore = %s",
                             name, name);
    if (begins_with_system(r->messages)) return WEFT_OK;
    text = json_string_length(text) > 0 ? json_incref(text) : json_string(r->config->system);
    if (json_string_length(text) > 0) {
        message = json_object();
        (void)json_object_set_new(message, "role", json_string("system"));
        (void)json_object_set(message, "content", text);
        (void)json_array_insert_new(r->messages, 0, message);
    }
    json_decref(text);
    return WEFT_OK;
}

/* Reads a variable of the template: an array or an object, or a string with its JSON. */
static weft_status read_variable(json_t *out, const reader *r, const char *name, int is_object, weft_error *err) {
    json_t *value = a_value(r, name), *own = value;
    weft_status status = WEFT_OK;
    if (value == NULL || instruct_list_has(r->config->columns, name, strlen(name))) return WEFT_OK;
    (void)take(r, name);
    status = parsed(&own, r, name, err);
    if (status == WEFT_OK && !json_is_null(own) && (is_object ? !json_is_object(own) : !json_is_array(own)))
        status = instruct_fail(err, r->record, "the field \"%s\" is %s and must be %s", name, kind_of(own),
                               is_object ? "an object {...}" : "an array [...]");
    for (size_t i = 0; !is_object && i < json_array_size(own) && status == WEFT_OK; i++)
        if (!json_is_object(json_array_get(own, i)))
            status = instruct_fail(err, r->record, "element %zu of \"%s\" is %s and must be an object {...}", i + 1,
                                   name, kind_of(json_array_get(own, i)));
    if (status == WEFT_OK && is_object) (void)json_object_update(out, own);
    else if (status == WEFT_OK && !json_is_null(own)) (void)json_object_set(out, name, own);
    if (own != value) json_decref(own);
    return status;
}

/* Reads all variables of the template. */
static weft_status read_variables(json_t **out, const reader *r, weft_error *err) {
    json_t *all = json_object(), *thinking = NULL;
    weft_status status = read_variable(all, r, "tools", 0, err);
    if (status == WEFT_OK) status = read_variable(all, r, "documents", 0, err);
    if (r->record->file->header == NULL && a_value(r, "enable_thinking") != NULL) {
        thinking = take(r, "enable_thinking");
        (void)json_object_set(all, "enable_thinking", thinking);
    }
    if (status == WEFT_OK) status = read_variable(all, r, "chat_template_kwargs", 1, err);
    drop_ignored(all, r->config);
    if (status == WEFT_OK && json_object_size(all) > 0) *out = all;
    else json_decref(all);
    return status;
}

/* Moves the flags of assistant messages to *out in order. NULL: all are true or absent. */
static void take_flags(json_t **out, json_t *messages) {
    int any = 0;
    *out = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        const json_t *flag = json_object_get(message, "train");
        any = any || json_is_false(flag);
        if (strcmp(json_string_value(json_object_get(message, "role")), "assistant") == 0)
            (void)json_array_append_new(*out, json_boolean(!json_is_false(flag)));
        (void)json_object_del(message, "train");
    }
    if (any) return;
    json_decref(*out);
    *out = NULL;
}

weft_status instruct_sample_read(instruct_sample *out, const instruct_record *record, const instruct_config *config,
                                 weft_error *err) {
    reader r = {.record = record, .config = config};
    weft_status status = read_object(&r.object, record, err);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK) return status;
    drop_ignored(r.object, config);
    r.left = json_copy(r.object);
    r.messages = out->messages = json_array();
    status = read_messages(&r, err);
    if (status == WEFT_OK && json_array_size(out->messages) == 0)
        status = instruct_fail(err, record, "the conversation has no message");
    if (status == WEFT_OK) status = put_system(&r, err);
    if (status == WEFT_OK) status = read_variables(&out->variables, &r, err);
    if (status == WEFT_OK) status = refuse_keys(&r, r.left, "the record", err);
    if (status == WEFT_OK) take_flags(&out->learned, out->messages);
    json_decref(r.left);
    json_decref(r.object);
    if (status != WEFT_OK) instruct_sample_free(out);
    return status;
}

void instruct_sample_free(instruct_sample *sample) {
    json_decref(sample->messages);
    json_decref(sample->variables);
    json_decref(sample->learned);
    memset(sample, 0, sizeof *sample);
}
