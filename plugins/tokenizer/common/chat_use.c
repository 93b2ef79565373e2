/* chat_use.c: checks that a template uses everything in a conversation (WEFT_CHAT_COMPLETE). */
#include "chat.h"

/* Roles that a template may write without comparing them: '<|im_start|>' + message.role. */
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
        "message %zu: role = \"%.60s\": unknown to the template. Allowed: system, developer, "
        "user, assistant, tool, function, ipython, observation, and roles in comparisons of the template",
        i + 1, role);
}

static bool has_read_reasoning(const jinja_render *render, size_t i, const json_t *message) {
    for (size_t k = 0; k < N_REASONING; k++)
        if (json_object_get(message, reasoning[k]) != NULL && jinja_has_read(render, i, reasoning[k])) return true;
    return false;
}

/* Returns whether the template reads the reasoning of a message in any of its three keys. Templates may omit it from
 * earlier turns: then the conversation is rendered up to this message, and that rendering must read it. */
static weft_status reads_reasoning(bool *out, const chat_text *text, const chat_work *work, size_t i, weft_error *err) {
    const json_t *message = json_array_get(work->messages, i);
    const bool no_prompt = false;
    weft_error ignored = WEFT_ERROR_INIT; /* a template may reject this end */
    jinja_render *render = NULL;
    jinja_output part;
    json_t *first = NULL;
    weft_status status = WEFT_OK;
    *out = has_read_reasoning(text->render, i, message);
    if (*out || i + 1 == json_array_size(work->messages)) return WEFT_OK;
    first = json_array();
    for (size_t k = 0; k <= i; k++) (void)json_array_append(first, json_array_get(work->messages, k));
    status = chat_run(&render, &part, work, first, &no_prompt, &ignored);
    *out = status == WEFT_OK && has_read_reasoning(render, i, message);
    jinja_end(render);
    json_decref(first);
    return status == WEFT_OK || status == WEFT_E_DATA ? WEFT_OK : weft_error_set(err, status, "%s", ignored.text);
}

/* Returns the text of a message, a new reference: its content, or the joined texts of its content's parts. NULL: no
 * text. */
static json_t *text_of(const json_t *message) {
    json_t *content = json_object_get(message, "content"), *text = NULL;
    if (json_is_string(content)) return json_incref(content);
    for (size_t i = 0; i < json_array_size(content); i++) {
        json_t *part = json_object_get(json_array_get(content, i), "text"), *joined = NULL;
        if (!json_is_string(part)) continue;
        joined = text == NULL ? json_incref(part)
                              : json_pack("s%+%", json_string_value(text), json_string_length(text),
                                          json_string_value(part), json_string_length(part));
        json_decref(text);
        text = joined;
    }
    return text;
}

/* True if the content is instruction and input, joined as in a record of Alpaca's form. */
static bool repeats_instruction(const json_t *message) {
    const char *input = json_string_value(json_object_get(message, "input"));
    const char *instruction = json_string_value(json_object_get(message, "instruction"));
    const size_t n = instruction == NULL ? 0 : strlen(instruction);
    json_t *content = instruction == NULL || input == NULL ? NULL : text_of(message);
    const char *text = json_string_value(content);
    bool repeats = text != NULL && strncmp(text, instruction, n) == 0;
    if (repeats && input[0] == '\0') repeats = text[n] == '\0';
    else if (repeats) repeats = strncmp(text + n, "\n\n", 2) == 0 && strcmp(text + n + 2, input) == 0;
    json_decref(content);
    return repeats;
}

/* Returns true for a key that the template need not read: the role; references of a tool's message to its call; one of
 * content and instruction with input, if the template reads the other. */
static bool is_optional(const jinja_render *render, size_t i, const json_t *message, const char *key) {
    const char *role = json_string_value(json_object_get(message, "role"));
    const bool is_instruction = strcmp(key, "instruction") == 0 || strcmp(key, "input") == 0;
    if (strcmp(key, "role") == 0) return true;
    if (strcmp(key, "name") == 0 || strcmp(key, "tool_call_id") == 0) return strcmp(role, "tool") == 0;
    if (is_instruction) return repeats_instruction(message) && jinja_has_read(render, i, "content");
    return strcmp(key, "content") == 0 && repeats_instruction(message) && jinja_has_read(render, i, "instruction");
}

static bool is_blank(const json_t *value) {
    const char *text = json_string_value(value);
    return is_empty(value) || (text != NULL && strspn(text, " \t\r\n") == json_string_length(value));
}

static weft_status unread(size_t i, const char *key, weft_error *err) {
    if (strcmp(key, "content") == 0)
        return weft_error_set(
            err, WEFT_E_DATA,
            "message %zu: the template does not read the key \"content\". Fix: remove the text of this "
            "message, or use another template ([data] template)",
            i + 1);
    return weft_error_set(err, WEFT_E_DATA,
                          "message %zu: the template does not read the key \"%.600s\". Fix: remove the key, or let the "
                          "data plugin ignore it ([data] ignore = %.600s)",
                          i + 1, key, key);
}

/* Fails if the template ignores a key inside a tool call, or of a part of the content. It need not read the call's id,
 * type and index, nor the part's type. */
static weft_status check_inner_keys(const jinja_render *render, size_t i, const json_t *message, weft_error *err) {
    static const char *const lists[] = {"tool_calls", "function_call", "content"};
    static const char *const optional[] = {"id", "type", "index", NULL};
    char path[600];
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        if (json_object_get(message, lists[k]) != NULL &&
            jinja_find_unread(render, i, lists[k], optional, path, sizeof path))
            return unread(i, path, err);
    return WEFT_OK;
}

/* Fails if the template ignores a key of a message. */
static weft_status check_keys(const chat_text *text, const chat_work *work, size_t i, const json_t *message,
                              weft_error *err) {
    const char *key = NULL;
    json_t *value = NULL;
    bool has_unread_reasoning = false, read = false;
    json_object_foreach((json_t *)(uintptr_t)message, key, value) {
        read = (strcmp(key, "content") == 0 ? is_blank(value) : is_empty(value)) ||
               is_optional(text->render, i, message, key) || jinja_has_read(text->render, i, key);
        if (!read && !is_among(key, reasoning, N_REASONING)) return unread(i, key, err);
        has_unread_reasoning = has_unread_reasoning || !read;
    }
    if (has_unread_reasoning) {
        const weft_status status = reads_reasoning(&read, text, work, i, err);
        if (status != WEFT_OK) return status;
        if (!read)
            return weft_error_set(err, WEFT_E_DATA,
                                  "message %zu: the template does not read the reasoning of this message. Fix: remove "
                                  "the key (reasoning_content, reasoning or thinking), let the data plugin ignore it "
                                  "([data] ignore), or use a template that reads it",
                                  i + 1);
    }
    return check_inner_keys(text->render, i, message, err);
}

/* True for a switch of reasoning, which a template reads but does not write. */
static bool is_switch(const char *text) {
    static const char *const switches[] = {"/think", "/no_think"};
    const size_t space = strspn(text, " \t\r\n");
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        const size_t n = strlen(switches[i]);
        if (strncmp(text + space, switches[i], n) != 0) continue;
        if (text[space + n + strspn(text + space + n, " \t\r\n")] == '\0') return true;
    }
    return false;
}

/* Fails if the text contains no byte of the message. */
static weft_status check_text(const chat_text *text, size_t i, const json_t *message, weft_error *err) {
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *content = text_of(message);
    bool written = content == NULL || is_blank(content) ||
                   (is_switch(json_string_value(content)) && jinja_has_read(text->render, i, "content"));
    char names[400];
    json_decref(content);
    for (size_t at = 0; at < text->text.n && !written; at++)
        written = JINJA_ORIGIN(text->text.marks[at]) == CHAT_ORIGIN(i);
    if (written) return WEFT_OK;
    chat_named_list(names, sizeof names);
    return weft_error_set(err, WEFT_E_DATA,
                          "message %zu: the template omits this message of role \"%.60s\". Fix: use another "
                          "template ([data] template = %s), remove the message, or ignore the key that holds it "
                          "([data] ignore = system)",
                          i + 1, role, names);
}

/* Returns whether a variable is used. Tools and documents are content, which the rendering must read. Other variables
 * are options, which a template may read in an untaken branch, such as that of the generation prompt. */
static bool reads_variable(const chat_text *text, const chat_work *work, const char *key) {
    const bool is_content = strcmp(key, "tools") == 0 || strcmp(key, "documents") == 0;
    return is_content ? jinja_has_read_variable(text->render, key) : jinja_names_variable(work->template, key);
}

static weft_status check_variables(const chat_text *text, const chat_work *work, weft_error *err) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(work->variables, key, value) {
        if (is_empty(value) || reads_variable(text, work, key)) continue;
        return weft_error_set(err, WEFT_E_DATA,
                              "the template does not read \"%.60s\". Fix: remove the key, or let the data plugin "
                              "ignore it ([data] ignore)",
                              key);
    }
    return WEFT_OK;
}

weft_status chat_check_use(const chat_text *text, const chat_work *work, weft_error *err) {
    weft_status status = check_variables(text, work, err);
    for (size_t i = 0; i < json_array_size(work->messages) && status == WEFT_OK; i++) {
        const json_t *message = json_array_get(work->messages, i);
        status = check_role(text, i, json_string_value(json_object_get(message, "role")), err);
        if (status == WEFT_OK) status = check_text(text, i, message, err);
        if (status == WEFT_OK) status = check_keys(text, work, i, message, err);
    }
    return status;
}
