/* chat.c: see chat.h. */
#include "chat.h"

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

static weft_status keep_reason(chat_templates *self, const weft_error *reason, weft_error *err) {
    const size_t n = strlen(reason->text) + 1;
    self->why = self->host->alloc(self->host, n, 16);
    if (self->why == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a chat template");
    memcpy(self->why, reason->text, n);
    return WEFT_OK;
}

weft_status chat_open(chat_templates *self, const weft_host *host, const char *name, const char *source, size_t n,
                      weft_error *err) {
    weft_error reason = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    self->host = host;
    status = compile_named(self, err);
    if (status != WEFT_OK || source == NULL) return status;
    status = jinja_compile(&self->own, host, name, source, n, &reason);
    if (status == WEFT_E_DATA) return keep_reason(self, &reason, err);
    return status == WEFT_OK ? WEFT_OK : weft_error_set(err, status, "%s", reason.text);
}

void chat_close(chat_templates *self) {
    if (self->host == NULL) return;
    jinja_free(self->own);
    for (uint32_t i = 0; self->named != NULL && chat_named(i) != NULL; i++) jinja_free(self->named[i]);
    self->host->release(self->host, self->named);
    self->host->release(self->host, self->why);
}

static void list_named(char *out, size_t size) {
    size_t n = 0;
    for (uint32_t i = 0; chat_named(i) != NULL && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i > 0 ? ", " : "", chat_named(i));
}

static weft_status find_template(const jinja_template **out, const chat_templates *self, const char *named,
                                 weft_error *err) {
    char names[160];
    for (uint32_t i = 0; named != NULL && chat_named(i) != NULL; i++) {
        if (strcmp(chat_named(i), named) != 0) continue;
        *out = self->named[i];
        return WEFT_OK;
    }
    list_named(names, sizeof names);
    if (named != NULL)
        return weft_error_set(err, WEFT_E_USER, "there is no chat template named %s; there are: %s", named, names);
    if (self->why != NULL) return weft_error_set(err, WEFT_E_DATA, "%s", self->why);
    if (self->own == NULL)
        return weft_error_set(err, WEFT_E_USER,
                              "the tokenizer's files have no chat template (chat_template in tokenizer_config.json, or "
                              "chat_template.jinja); by name there are: %s",
                              names);
    *out = self->own;
    return WEFT_OK;
}

weft_status chat_check(const chat_templates *self, const char *named, weft_error *err) {
    const jinja_template *found = NULL;
    return find_template(&found, self, named, err);
}

/* One message as an object: role and content, and what `more` has over them. */
static weft_status message_json(json_t **out, const weft_chat_message *message, size_t i, weft_error *err) {
    json_t *object = json_object(), *more = NULL;
    json_error_t why;
    if (message->role != NULL) (void)json_object_set_new(object, "role", json_string(message->role));
    if (message->content == NULL) (void)json_object_set_new(object, "content", json_null());
    else (void)json_object_set_new(object, "content", json_stringn(message->content, (size_t)message->content_bytes));
    if (message->more != NULL) {
        more = json_loadb(message->more, (size_t)message->more_bytes, JSON_ALLOW_NUL, &why);
        if (!json_is_object(more) || json_object_update(object, more) != 0) {
            json_decref(more);
            json_decref(object);
            return weft_error_set(err, WEFT_E_DATA, "message %zu has further fields that are no JSON object", i + 1);
        }
        json_decref(more);
    }
    if (!json_is_string(json_object_get(object, "role")) || json_object_get(object, "content") == NULL) {
        json_decref(object);
        return weft_error_set(err, WEFT_E_DATA, "message %zu has no role, or a text that is not UTF-8", i + 1);
    }
    *out = object;
    return WEFT_OK;
}

static weft_status messages_json(json_t **out, const weft_chat *chat, weft_error *err) {
    json_t *array = json_array();
    weft_status status = WEFT_OK;
    if (chat->n_messages == 0 || chat->n_messages > JINJA_MOST_ORIGINS - 2)
        status = weft_error_set(err, WEFT_E_DATA, "a conversation has %llu messages, and may have 1 to %u",
                                (unsigned long long)chat->n_messages, JINJA_MOST_ORIGINS - 2);
    for (size_t i = 0; i < chat->n_messages && status == WEFT_OK; i++) {
        const char *at = (const char *)chat->messages + i * chat->stride;
        weft_chat_message message;
        json_t *one = NULL;
        if (!weft_struct_take(&message, sizeof message, at))
            status =
                weft_error_set(err, WEFT_E_UNSUPPORTED, "message %zu asks for what this tokenizer does not know", i);
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

/* An answer's bytes are marked by its message, all others as data. Templates compose special tokens from a role. */
static uint32_t origin_of(void *context, size_t i, const char *key) {
    const char *role = json_string_value(json_object_get(json_array_get(context, i), "role"));
    if (strcmp(key, "role") == 0) return 1u | JINJA_LABEL;
    return strcmp(role, "assistant") == 0 ? (uint32_t)i + 2u : 1u;
}

/* What is too much for a rendering is told when it runs. */
static weft_status set_variables(jinja_render *r, const chat_templates *self, const weft_chat *chat, weft_error *err) {
    json_error_t why;
    json_t *more = NULL, *value = NULL;
    const char *key = NULL;
    (void)jinja_set_bool(r, "add_generation_prompt", (chat->flags & WEFT_CHAT_PROMPT) != 0);
    for (int i = 0; i < CHAT_N_TOKENS; i++)
        if (self->tokens[i].text != NULL)
            (void)jinja_set_text(r, self->tokens[i].variable, self->tokens[i].text, self->tokens[i].n);
    if (chat->now != 0) (void)jinja_set_time(r, chat->now);
    if (chat->variables != NULL) {
        more = json_loadb(chat->variables, (size_t)chat->variables_bytes, JSON_ALLOW_NUL, &why);
        if (!json_is_object(more)) {
            json_decref(more);
            return weft_error_set(err, WEFT_E_DATA, "the variables of a conversation are no JSON object");
        }
        json_object_foreach(more, key, value) {
            (void)jinja_set_json(r, key, value, 1);
        }
        json_decref(more);
    }
    return WEFT_OK;
}

/* By the template's own blocks; an answer's number counts them. */
static bool answers_by_block(chat_text *out) {
    bool any = false;
    for (size_t i = 0; i < out->text.n; i++) {
        const uint32_t block = JINJA_BLOCK(out->text.marks[i]);
        out->answers[i] = (int32_t)block - 1;
        any = any || block != 0;
    }
    return any;
}

/* From the first byte of a message to its last, as far as nothing else that was given stands between. */
static void answers_by_origin(chat_text *out) {
    int32_t number = -1;
    uint32_t last = 0;
    size_t end = 0; /* behind the last byte that was given */
    for (size_t i = 0; i < out->text.n; i++) {
        const uint32_t origin = JINJA_ORIGIN(out->text.marks[i]);
        out->answers[i] = -1;
        if (origin == JINJA_TEMPLATE) continue;
        if (origin >= 2 && origin != last) number++;
        if (origin >= 2 && origin == last)
            for (size_t k = end; k < i; k++) out->answers[k] = number;
        if (origin >= 2) out->answers[i] = number;
        last = origin;
        end = i + 1;
    }
}

weft_status chat_render(chat_text *out, const chat_templates *self, const weft_chat *chat, weft_error *err) {
    const jinja_template *found = NULL;
    weft_chat asked;
    json_t *messages = NULL;
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    if (!weft_struct_take(&asked, sizeof asked, chat))
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "a conversation asks for what this tokenizer does not know");
    if (!WEFT_WHOLE(&asked, weft_chat))
        return weft_error_set(err, WEFT_E_PLUGIN, "a conversation has struct_size %u; at least %u is needed",
                              asked.struct_size, WEFT_SIZE_1_0(weft_chat));
    status = find_template(&found, self, asked.named, err);
    if (status == WEFT_OK) status = messages_json(&messages, &asked, err);
    if (status == WEFT_OK) status = jinja_begin(&out->render, found, err);
    if (status == WEFT_OK) status = set_variables(out->render, self, &asked, err);
    if (status == WEFT_OK) (void)jinja_set_objects(out->render, "messages", messages, origin_of, messages);
    if (status == WEFT_OK) status = jinja_run(out->render, &out->text, err);
    json_decref(messages);
    if (status == WEFT_OK) {
        out->answers = self->host->alloc(self->host, (out->text.n + 1) * sizeof *out->answers, 16);
        if (out->answers == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory to render a conversation");
    }
    if (status == WEFT_OK) out->blocks = answers_by_block(out);
    if (status == WEFT_OK && !out->blocks) answers_by_origin(out);
    if (status != WEFT_OK) chat_text_free(out, self->host);
    return status;
}

void chat_text_free(chat_text *text, const weft_host *host) {
    jinja_end(text->render);
    host->release(host, text->answers);
    memset(text, 0, sizeof *text);
}
