/* chat.c: compiles chat templates, prepares a conversation as JSON, and renders it. */
#include "chat.h"

#include "../../common/json_big.h"

static uint32_t count_named(void) {
    uint32_t n = 0;
    while (chat_named(n) != NULL) n++;
    return n;
}

static weft_status compile_named(chat_templates *self, weft_error *err) {
    const uint32_t n = count_named();
    weft_status status = WEFT_OK;
    self->named = self->host->alloc(self->host, n * sizeof *self->named, 16);
    if (self->named == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for chat templates");
    memset(self->named, 0, n * sizeof *self->named);
    for (uint32_t i = 0; i < n && status == WEFT_OK; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "the template %s", chat_named(i));
        status =
            jinja_compile(&self->named[i], self->host, name, chat_named_source(i), strlen(chat_named_source(i)), err);
    }
    return status;
}

/* Compiles a template of the files. If it fails, keeps the error for the first use. */
static weft_status compile_own(chat_template *self, const weft_host *host, const json_t *one, weft_error *err) {
    const json_t *text = json_object_get(one, "template");
    const char *from = json_string_value(json_object_get(one, "from"));
    weft_error reason = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    size_t n = 0;
    self->name = json_string_value(json_object_get(one, "name"));
    if (!json_is_string(text)) status = weft_error_set(&reason, WEFT_E_DATA, "%s: the template is not UTF-8", from);
    else
        status = jinja_compile(&self->compiled, host, from, json_string_value(text), json_string_length(text), &reason);
    if (status == WEFT_OK) return WEFT_OK;
    if (status != WEFT_E_DATA) return weft_error_set(err, status, "%s", reason.text);
    n = strlen(reason.text) + 1;
    self->why = host->alloc(host, n, 16);
    if (self->why == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a chat template");
    memcpy(self->why, reason.text, n);
    return WEFT_OK;
}

weft_status chat_open(chat_templates *self, const weft_host *host, json_t *list, weft_error *err) {
    const size_t n = json_array_size(list);
    weft_status status = WEFT_OK;
    self->host = host;
    self->list = list;
    status = compile_named(self, err);
    if (status != WEFT_OK || n == 0) return status;
    self->own = host->alloc(host, n * sizeof *self->own, 16);
    if (self->own == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for chat templates");
    memset(self->own, 0, n * sizeof *self->own);
    self->n_own = n;
    for (size_t i = 0; i < n && status == WEFT_OK; i++)
        status = compile_own(&self->own[i], host, json_array_get(list, i), err);
    return status;
}

void chat_close(chat_templates *self) {
    if (self->host == NULL) return;
    for (size_t i = 0; i < self->n_own; i++) {
        jinja_free(self->own[i].compiled);
        self->host->release(self->host, self->own[i].why);
    }
    for (uint32_t i = 0; self->named != NULL && chat_named(i) != NULL; i++) jinja_free(self->named[i]);
    self->host->release(self->host, self->named);
    self->host->release(self->host, self->own);
    json_decref(self->list);
    json_decref(self->tokens);
    json_decref(self->files);
}

/* Returns the template `name`; of several, the last one, as in a Python dict. */
static const chat_template *find_own(const chat_templates *self, const char *name) {
    for (size_t i = self->n_own; i-- > 0;)
        if (strcmp(self->own[i].name, name) == 0) return &self->own[i];
    return NULL;
}

static void add_word(char *out, size_t size, const char *word) {
    const size_t n = strlen(out);
    if (n < size) (void)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", word);
}

void chat_named_list(char *out, size_t size) {
    out[0] = '\0';
    for (uint32_t i = 0; chat_named(i) != NULL; i++) add_word(out, size, chat_named(i));
}

static weft_status missing(const chat_templates *self, const char *named, weft_error *err) {
    char names[400] = "", own[400] = "";
    chat_named_list(names, sizeof names);
    for (size_t i = 0; i < self->n_own; i++) add_word(own, sizeof own, self->own[i].name);
    if (named != NULL)
        return weft_error_set(err, WEFT_E_USER, "unknown chat template %s. Allowed: %s%s%s", named, names,
                              self->n_own > 0 ? ", and in the tokenizer's files: " : "", own);
    if (self->n_own > 0)
        return weft_error_set(err, WEFT_E_USER,
                              "the tokenizer's files have several chat templates but no default. Fix: choose one by "
                              "name: %s",
                              own);
    return weft_error_set(err, WEFT_E_USER,
                          "the tokenizer's files have no chat template (chat_template in tokenizer_config.json, or "
                          "chat_template.jinja); by name there are: %s",
                          names);
}

/* Chooses a template. named NULL: among the templates of the files, as transformers does. */
static weft_status find_template(const jinja_template **out, const chat_templates *self, const char *named,
                                 bool has_tools, weft_error *err) {
    const chat_template *own = NULL;
    for (uint32_t i = 0; named != NULL && chat_named(i) != NULL; i++) {
        if (strcmp(chat_named(i), named) != 0) continue;
        *out = self->named[i];
        return WEFT_OK;
    }
    if (named != NULL) own = find_own(self, named);
    else if (has_tools) own = find_own(self, "tool_use");
    if (own == NULL && named == NULL) own = find_own(self, "default");
    if (own == NULL) return missing(self, named, err);
    if (own->why != NULL) return weft_error_set(err, WEFT_E_DATA, "%s", own->why);
    *out = own->compiled;
    return WEFT_OK;
}

weft_status chat_check(const chat_templates *self, const char *named, weft_error *err) {
    const jinja_template *found = NULL;
    const bool only_tools = named == NULL && find_own(self, "default") == NULL;
    return find_template(&found, self, named, only_tools, err);
}

/* Removes keys with null, and copies the reasoning of an answer to the keys that templates read. */
static json_t *normalized(const json_t *message) {
    static const char *const fields[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *out = json_object(), *reasoning = NULL, *value = NULL;
    const char *key = NULL;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && reasoning == NULL; i++) {
        value = json_object_get(message, fields[i]);
        if (!json_is_null(value)) reasoning = value;
    }
    if (reasoning != NULL) (void)json_object_set(out, "thinking", reasoning);
    json_object_foreach((json_t *)(uintptr_t)message, key, value) {
        if (!json_is_null(value)) (void)json_object_set(out, key, value);
    }
    if (reasoning != NULL) (void)json_object_set(out, "reasoning_content", reasoning);
    return out;
}

/* Converts a message to an object: role, content, and the fields of `more`, which replace role and content. */
static weft_status message_json(json_t **out, const weft_chat_message *message, size_t i, weft_error *err) {
    json_t *object = json_object(), *more = NULL, *content = NULL;
    json_error_t why;
    weft_status status = WEFT_OK;
    if (message->more != NULL) more = json_big_load(message->more, (size_t)message->more_bytes, JSON_ALLOW_NUL, &why);
    if (message->more != NULL && !json_is_object(more))
        status = weft_error_set(err, WEFT_E_DATA, "message %zu has further fields that are not a JSON object", i + 1);
    if (message->role != NULL && json_object_get(more, "role") == NULL)
        (void)json_object_set_new(object, "role", json_string(message->role));
    if (message->content != NULL && json_object_get(more, "content") == NULL) {
        content = json_stringn(message->content, (size_t)message->content_bytes);
        if (content == NULL)
            status = weft_error_set(err, WEFT_E_DATA, "message %zu has a text that is not UTF-8", i + 1);
        else (void)json_object_set_new(object, "content", content);
    }
    if (more != NULL) (void)json_object_update(object, more);
    if (status == WEFT_OK && !json_is_string(json_object_get(object, "role")))
        status = weft_error_set(err, WEFT_E_DATA, "message %zu has no valid role", i + 1);
    if (status == WEFT_OK) *out = normalized(object);
    json_decref(more);
    json_decref(object);
    return status;
}

static weft_status messages_json(json_t **out, const weft_chat *chat, weft_error *err) {
    json_t *array = json_array();
    weft_status status = WEFT_OK;
    if (chat->n_messages == 0 || chat->n_messages > JINJA_MOST_BLOCKS)
        status = weft_error_set(err, WEFT_E_DATA, "a conversation has %llu messages. Allowed: 1 to %u",
                                (unsigned long long)chat->n_messages, JINJA_MOST_BLOCKS);
    for (size_t i = 0; i < chat->n_messages && status == WEFT_OK; i++) {
        const char *at = (const char *)chat->messages + i * chat->stride;
        weft_chat_message message;
        json_t *one = NULL;
        if (!weft_struct_take(&message, sizeof message, at))
            status = weft_error_set(err, WEFT_E_UNSUPPORTED, "message %zu requires an unsupported feature", i);
        else if (!WEFT_WHOLE(&message, weft_chat_message))
            status = weft_error_set(err, WEFT_E_PLUGIN, "message %zu has struct_size %u; at least %u is needed", i,
                                    message.struct_size, WEFT_SIZE_1_0(weft_chat_message));
        else status = message_json(&one, &message, i, err);
        if (status == WEFT_OK) (void)json_array_append_new(array, one);
    }
    if (status == WEFT_OK) *out = array;
    else json_decref(array);
    return status;
}

/* Returns the mark of a message's bytes. Bytes of a role get a label, because templates compose special tokens from
 * roles. */
static uint32_t origin_of(void *context, size_t i, const char *key) {
    (void)context;
    return strcmp(key, "role") == 0 ? 1u | JINJA_LABEL : CHAT_ORIGIN(i);
}

/* Fails if the variable is not a list of objects (tools, documents). */
static weft_status check_list(const json_t *variables, const char *name, weft_error *err) {
    const json_t *value = json_object_get(variables, name);
    bool fits = value == NULL || json_is_null(value) || json_is_array(value);
    for (size_t i = 0; i < json_array_size(value); i++) fits = fits && json_is_object(json_array_get(value, i));
    return fits ? WEFT_OK : weft_error_set(err, WEFT_E_DATA, "\"%s\" of a conversation is not a list of objects", name);
}

/* Collects the caller's variables. As in transformers, missing tools and documents are none. */
static weft_status variables_json(json_t **out, const weft_chat *chat, weft_error *err) {
    json_error_t why;
    json_t *all = json_pack("{s:n, s:n}", "tools", "documents"), *more = NULL;
    weft_status status = WEFT_OK;
    if (chat->variables != NULL) {
        more = json_big_load(chat->variables, (size_t)chat->variables_bytes, JSON_ALLOW_NUL, &why);
        if (!json_is_object(more))
            status = weft_error_set(err, WEFT_E_DATA, "the variables of a conversation are not a JSON object");
        else (void)json_object_update(all, more);
        json_decref(more);
    }
    if (status == WEFT_OK) status = check_list(all, "tools", err);
    if (status == WEFT_OK) status = check_list(all, "documents", err);
    if (status == WEFT_OK) *out = all;
    else json_decref(all);
    return status;
}

/* Sets all variables. Ignores failures: jinja_run reports an exceeded limit. */
static void set_variables(jinja_render *r, const chat_templates *self, const weft_chat *chat, json_t *variables) {
    json_t *value = NULL;
    const char *key = NULL;
    (void)jinja_set_bool(r, "add_generation_prompt", (chat->flags & WEFT_CHAT_PROMPT) != 0);
    json_object_foreach(self->tokens, key, value) {
        (void)jinja_set_text(r, key, json_string_value(value), json_string_length(value));
    }
    if (chat->now != 0) (void)jinja_set_time(r, chat->now);
    json_object_foreach(variables, key, value) {
        (void)jinja_set_json(r, key, value, 1);
    }
}

/* Numbers the answers by the template's {% generation %} blocks. */
static void answers_by_block(chat_text *out) {
    for (size_t i = 0; i < out->text.n; i++) out->answers[i] = (int32_t)JINJA_BLOCK(out->text.marks[i]) - 1;
}

weft_status chat_run(jinja_render **r, jinja_output *text, const chat_work *work, json_t *messages, const bool *prompt,
                     weft_error *err) {
    const weft_status status = jinja_begin(r, work->template, err);
    if (status != WEFT_OK) return status;
    set_variables(*r, work->self, work->chat, work->variables);
    if (prompt != NULL) (void)jinja_set_bool(*r, "add_generation_prompt", *prompt);
    (void)jinja_set_objects(*r, "messages", messages, origin_of, NULL);
    return jinja_run(*r, text, err);
}

static weft_status find_answers(chat_text *out, const chat_work *work, weft_error *err) {
    const weft_host *host = work->self->host;
    out->answers = host->alloc(host, (out->text.n + 1) * sizeof *out->answers, 16);
    if (out->answers == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to render a conversation");
    for (size_t i = 0; i < out->text.n; i++) out->answers[i] = -1;
    out->blocks = jinja_has_blocks(work->template);
    if (out->blocks) answers_by_block(out);
    if (out->blocks || (work->chat->flags & WEFT_CHAT_PROMPT) != 0) return WEFT_OK;
    return chat_answers(out, work, err);
}

/* Some templates accept content only as a list of parts: they loop over the characters of a string. Converts the
 * content of such messages to a list with one text part. Returns false if nothing changed. */
static bool use_parts(json_t *messages, const jinja_render *render) {
    bool any = false;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        if (!jinja_has_walked(render, i, "content")) continue;
        (void)json_object_set_new(
            message, "content", json_pack("[{s:s, s:O}]", "type", "text", "text", json_object_get(message, "content")));
        any = true;
    }
    return any;
}

/* Renders, and renders again while a message needs its content as a list. A failed rendering detects only the first
 * such message. */
static weft_status render_messages(chat_text *out, const chat_work *work, weft_error *err) {
    weft_status status = chat_run(&out->render, &out->text, work, work->messages, NULL, err);
    while ((status == WEFT_OK || status == WEFT_E_DATA) && use_parts(work->messages, out->render)) {
        jinja_end(out->render);
        out->render = NULL;
        status = chat_run(&out->render, &out->text, work, work->messages, NULL, err);
    }
    return status;
}

weft_status chat_render(chat_text *out, const chat_templates *self, const weft_chat *chat, bool with_answers,
                        weft_error *err) {
    weft_chat asked;
    json_t *variables = NULL;
    chat_work work = {.self = self, .chat = &asked};
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    if (!weft_struct_take(&asked, sizeof asked, chat))
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "a conversation requires an unsupported feature");
    if (!WEFT_WHOLE(&asked, weft_chat))
        return weft_error_set(err, WEFT_E_PLUGIN, "a conversation has struct_size %u; at least %u is needed",
                              asked.struct_size, WEFT_SIZE_1_0(weft_chat));
    status = variables_json(&variables, &asked, err);
    work.variables = variables;
    if (status == WEFT_OK)
        status =
            find_template(&work.template, self, asked.named, !json_is_null(json_object_get(variables, "tools")), err);
    if (status == WEFT_OK) status = messages_json(&work.messages, &asked, err);
    if (status == WEFT_OK) status = render_messages(out, &work, err);
    if (status == WEFT_OK && (asked.flags & WEFT_CHAT_COMPLETE) != 0) status = chat_check_use(out, &work, err);
    if (status == WEFT_OK && with_answers) status = find_answers(out, &work, err);
    json_decref(work.messages);
    json_decref(variables);
    if (status != WEFT_OK) chat_text_free(out, self->host);
    return status;
}

void chat_text_free(chat_text *text, const weft_host *host) {
    jinja_end(text->render);
    host->release(host, text->answers);
    memset(text, 0, sizeof *text);
}
