/* chat_use.c: checks that a template uses all that a conversation holds (WEFT_CHAT_COMPLETE). */
#include "chat.h"

/* Roles that templates may write without naming them: '<|im_start|>' + message.role. */
static const char *const roles[] = {"system", "developer", "user",    "assistant",
                                    "tool",   "function",  "ipython", "observation"};

static const char *const reasoning[] = {"reasoning_content", "reasoning", "thinking"};

enum { N_REASONING = sizeof reasoning / sizeof *reasoning };

static bool is_among(const char *name, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0) return true;
    return false;
}

static bool is_empty(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_NULL: return true;
    case JSON_STRING: return json_string_length(value) == 0;
    case JSON_ARRAY: return json_array_size(value) == 0;
    case JSON_OBJECT: return json_object_size(value) == 0;
    default: return false;
    }
}

static weft_status check_role(const chat_text *text, size_t i, const char *role, weft_error *err) {
    if (is_among(role, roles, sizeof roles / sizeof *roles) || jinja_has_matched(text->render, i, "role"))
        return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_DATA,
        "message %zu: role = \"%.60s\": the template does not know it. Allowed: system, developer, "
        "user, assistant, tool, function, ipython, observation, and roles that the template compares with",
        i + 1, role);
}

/* The reasoning has three names, of which a template reads one. Templates may drop it from earlier turns: it is enough
 * that an expression reads it. */
static bool reads_reasoning(const chat_text *text, const jinja_template *template, size_t i, const json_t *message) {
    for (size_t k = 0; k < N_REASONING; k++)
        if (json_object_get(message, reasoning[k]) != NULL &&
            (jinja_has_read(text->render, i, reasoning[k]) || jinja_names_key(template, reasoning[k])))
            return true;
    return false;
}

/* Keys that name or repeat other parts of the conversation may be left out. */
static weft_status check_keys(const chat_text *text, const jinja_template *template, size_t i, const json_t *message,
                              weft_error *err) {
    static const char *const free[] = {"role", "content", "name", "tool_call_id", "instruction", "input"};
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)(uintptr_t)message, key, value) {
        bool read = is_empty(value) || is_among(key, free, sizeof free / sizeof *free) ||
                    jinja_has_read(text->render, i, key);
        if (!read && is_among(key, reasoning, N_REASONING)) read = reads_reasoning(text, template, i, message);
        if (!read && is_among(key, reasoning, N_REASONING))
            return weft_error_set(err, WEFT_E_DATA,
                                  "message %zu: the template does not read the reasoning of this message. Fix: remove "
                                  "the key (reasoning_content, reasoning or thinking), let the data plugin ignore it "
                                  "([data] ignore), or use a template that reads it",
                                  i + 1);
        if (!read)
            return weft_error_set(err, WEFT_E_DATA,
                                  "message %zu: the template does not read the key \"%.60s\". Fix: remove the key, or "
                                  "let the data plugin ignore it ([data] ignore)",
                                  i + 1, key);
    }
    return WEFT_OK;
}

/* Fails if no byte of a message is in the text. A directive such as /no_think is read and not written. */
static weft_status check_text(const jinja_output *text, size_t i, const json_t *message, weft_error *err) {
    const json_t *given = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role")), *content = json_string_value(given);
    char names[400];
    if (json_is_array(given)) content = json_string_value(json_object_get(json_array_get(given, 0), "text"));
    if (content == NULL || content[strspn(content, " \t\r\n")] == '\0' || content[0] == '/') return WEFT_OK;
    for (size_t at = 0; at < text->n; at++)
        if (JINJA_ORIGIN(text->marks[at]) == CHAT_ORIGIN(i)) return WEFT_OK;
    chat_named_list(names, sizeof names);
    return weft_error_set(
        err, WEFT_E_DATA,
        "message %zu: the template writes nothing of this message of role \"%.60s\". Fix: use another "
        "template ([data] template = %s), remove the message, or ignore the key that holds it "
        "([data] ignore = system)",
        i + 1, role, names);
}

static weft_status check_variables(const chat_work *work, weft_error *err) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(work->variables, key, value) {
        if (is_empty(value) || jinja_names_variable(work->template, key)) continue;
        return weft_error_set(err, WEFT_E_DATA,
                              "the template does not read \"%.60s\". Fix: remove the key, or let the data plugin "
                              "ignore it ([data] ignore)",
                              key);
    }
    return WEFT_OK;
}

weft_status chat_check_use(const chat_text *text, const chat_work *work, weft_error *err) {
    weft_status status = check_variables(work, err);
    for (size_t i = 0; i < json_array_size(work->messages) && status == WEFT_OK; i++) {
        const json_t *message = json_array_get(work->messages, i);
        status = check_role(text, i, json_string_value(json_object_get(message, "role")), err);
        if (status == WEFT_OK) status = check_keys(text, work->template, i, message, err);
        if (status == WEFT_OK) status = check_text(&text->text, i, message, err);
    }
    return status;
}
