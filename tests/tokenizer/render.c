/* What the interpreter of chat templates makes of conversations, for golden/compare_chat.py:
 *
 *     chat_render TEMPLATE.jinja <conversations
 *
 * A conversation is a line, an object of what the template is given. For each a line: "=" and its text as a JSON
 * string, or "!" and the sentence of a refusal. */
#include "base/text.h"
#include "jinja.h"
#include "plugin/services.h"

#include <stdlib.h>

static void print_one(const jinja_template *self, const json_t *given) {
    weft_error err = WEFT_ERROR_INIT;
    jinja_render *r = NULL;
    jinja_output text;
    const char *key = NULL;
    json_t *value = NULL, *made = NULL;
    weft_status status = jinja_begin(&r, self, &err);
    json_object_foreach((json_t *)(uintptr_t)given, key, value) {
        if (status == WEFT_OK && !jinja_set_json(r, key, value, 1)) status = WEFT_E_MEMORY;
    }
    if (status == WEFT_OK) status = jinja_run(r, &text, &err);
    if (status == WEFT_OK) {
        made = json_stringn(text.bytes, text.n);
        (void)putchar('=');
        (void)json_dumpf(made, stdout, JSON_ENCODE_ANY);
        (void)putchar('\n');
        json_decref(made);
    } else {
        (void)printf("! %s\n", err.text);
    }
    jinja_end(r);
}

int main(int argc, char **argv) {
    jinja_template *self = NULL;
    weft_error err = WEFT_ERROR_INIT;
    char *source = NULL, *line = NULL;
    size_t n = 0, size = 0;
    ssize_t length = 0;
    weft_status status = argc == 2 ? weft_text_read(&source, &n, argv[1], 1 << 24, &err)
                                   : weft_error_set(&err, WEFT_E_USER, "usage: chat_render TEMPLATE <conversations");
    if (status == WEFT_OK) status = jinja_compile(&self, weft_services(), argv[1], source, n, &err);
    while (status == WEFT_OK && (length = getline(&line, &size, stdin)) > 0) {
        json_t *given = json_loadb(line, (size_t)length, JSON_ALLOW_NUL, NULL);
        if (given == NULL) status = weft_error_set(&err, WEFT_E_USER, "a line is no JSON object");
        else print_one(self, given);
        json_decref(given);
    }
    if (status != WEFT_OK) (void)fprintf(stderr, "%s\n", err.text);
    jinja_free(self);
    free(source);
    free(line);
    return status == WEFT_OK ? 0 : 1;
}
