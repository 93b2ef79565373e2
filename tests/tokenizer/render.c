/* Renders conversations without a tokenizer, for golden/compare_chat.py:
 *
 *     chat_render DIRECTORY <conversations
 *
 * DIRECTORY contains the files of a model: chat_template.jinja, tokenizer_config.json and so on. Each input line is a
 * conversation: an object with "messages", "add_generation_prompt" and variables. For each, prints a line: "=" and the
 * text as a JSON string, or "!" and the error. */
#include "chat.h"
#include "plugin/services.h"

#include <stdlib.h>

static void print_text(const jinja_output *text) {
    json_t *made = json_stringn(text->bytes, text->n);
    (void)putchar('=');
    (void)json_dumpf(made, stdout, JSON_ENCODE_ANY);
    (void)putchar('\n');
    json_decref(made);
}

static void print_one(const chat_templates *self, json_t *given) {
    json_t *messages = json_incref(json_object_get(given, "messages"));
    const size_t n = json_array_size(messages);
    weft_chat_message *list = calloc(n + 1, sizeof *list);
    weft_chat chat = {.struct_size = (uint32_t)sizeof chat, .messages = list, .n_messages = n};
    weft_error err = WEFT_ERROR_INIT;
    chat_text text;
    if (json_is_true(json_object_get(given, "add_generation_prompt"))) chat.flags = WEFT_CHAT_PROMPT;
    (void)json_object_del(given, "add_generation_prompt");
    (void)json_object_del(given, "messages");
    for (size_t i = 0; i < n; i++) {
        list[i].struct_size = (uint32_t)sizeof *list;
        list[i].more = json_dumps(json_array_get(messages, i), JSON_COMPACT);
        list[i].more_bytes = strlen(list[i].more);
    }
    chat.stride = (uint32_t)sizeof *list;
    chat.variables = json_dumps(given, JSON_COMPACT);
    chat.variables_bytes = strlen(chat.variables);
    if (chat_render(&text, self, &chat, false, &err) == WEFT_OK) {
        print_text(&text.text);
        chat_text_free(&text, self->host);
    } else {
        (void)printf("! %s\n", err.text);
    }
    for (size_t i = 0; i < n; i++) free((char *)(uintptr_t)list[i].more);
    free((char *)(uintptr_t)chat.variables);
    free(list);
    json_decref(messages);
}

static weft_status open_directory(chat_templates *self, const char *directory, weft_error *err) {
    char path[4096];
    json_t *config = NULL, *map = NULL, *list = NULL;
    weft_status status = WEFT_OK;
    (void)snprintf(path, sizeof path, "%.4000s/tokenizer_config.json", directory);
    config = json_load_file(path, 0, NULL);
    (void)snprintf(path, sizeof path, "%.4000s/special_tokens_map.json", directory);
    map = json_load_file(path, 0, NULL);
    status = chat_find(&list, &self->files, weft_services(), directory, config, err);
    if (status == WEFT_OK) status = chat_open(self, weft_services(), list, err);
    self->tokens = chat_special_tokens(config, map);
    json_decref(config);
    json_decref(map);
    return status;
}

int main(int argc, char **argv) {
    chat_templates self = {0};
    weft_error err = WEFT_ERROR_INIT;
    char *line = NULL;
    size_t size = 0;
    ssize_t length = 0;
    weft_status status = argc == 2 ? open_directory(&self, argv[1], &err)
                                   : weft_error_set(&err, WEFT_E_USER, "usage: chat_render DIRECTORY <conversations");
    while (status == WEFT_OK && (length = getline(&line, &size, stdin)) > 0) {
        json_t *given = json_loadb(line, (size_t)length, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(given)) status = weft_error_set(&err, WEFT_E_USER, "a line is no JSON object");
        else print_one(&self, given);
        json_decref(given);
    }
    if (status != WEFT_OK) (void)fprintf(stderr, "%s\n", err.text);
    chat_close(&self);
    free(line);
    return status == WEFT_OK ? 0 : 1;
}
