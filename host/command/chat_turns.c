/* host/command/chat_turns.c: see chat_turns.h. */
#include "command/chat_turns.h"

#include "base/bytes.h"
#include "plugin/enter.h"
#include "run/text_end.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct turn {
    char *role, *content;
    size_t n;
} turn;

typedef struct conversation {
    const weft_run *run;
    const weft_text *text;
    const weft_generate_options *options;
    const weft_chat_options *chat;
    turn *turns;
    size_t n_turns;
    weft_generator *generator;
    int64_t capacity; /* ids of the longest prompt for the generator */
    weft_stop_ids stop;
    weft_bytes ids;    /* int32_t: of the prompt */
    weft_bytes answer; /* int32_t: so far */
    weft_bytes shown;  /* of it, decoded */
    size_t printed;
} conversation;

static weft_status no_memory(weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the conversation");
}

static weft_status add_turn(conversation *self, const char *role, const char *content, size_t n, weft_error *err) {
    turn *turns = realloc(self->turns, (self->n_turns + 1) * sizeof *turns);
    turn *one = turns == NULL ? NULL : &turns[self->n_turns];
    if (turns == NULL) return no_memory(err);
    self->turns = turns;
    one->role = strdup(role);
    one->content = malloc(n + 1);
    one->n = n;
    self->n_turns++;
    if (one->role == NULL || one->content == NULL) return no_memory(err);
    if (n > 0) memcpy(one->content, content, n);
    one->content[n] = '\0';
    return WEFT_OK;
}

static weft_status take_ids(void *context, const int32_t *ids, const int32_t *answers, size_t n) {
    (void)answers;
    return weft_bytes_put(context, ids, n * sizeof *ids);
}

static weft_status encode(const conversation *self, const turn *turns, size_t n, uint32_t flags,
                          const weft_chat_sink *sink, weft_error *err) {
    weft_chat_message *messages = calloc(n, sizeof *messages);
    weft_chat chat = {.struct_size = (uint32_t)sizeof chat, .flags = flags, .messages = messages, .n_messages = n};
    weft_status status = WEFT_OK;
    if (messages == NULL) return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        messages[i].struct_size = (uint32_t)sizeof *messages;
        messages[i].role = turns[i].role;
        messages[i].content = turns[i].content;
        messages[i].content_bytes = turns[i].n;
    }
    chat.stride = (uint32_t)sizeof *messages;
    chat.named = self->chat->named;
    status = weft_text_encode_chat(self->text, sink, &chat, err);
    free(messages);
    return status;
}

/* Finds the stop tokens: those of the model's files, and the token that the template writes after a reply. */
static weft_status find_stops(conversation *self, weft_error *err) {
    int32_t end = -1;
    weft_status status = weft_run_stop_ids(&self->stop, self->run, self->text, err);
    if (status == WEFT_OK) status = weft_text_chat_end(&end, self->text, self->chat->named, err);
    if (status == WEFT_OK && end >= 0 && self->stop.n < WEFT_MAX_STOP_IDS) self->stop.ids[self->stop.n++] = end;
    return status;
}

/* Ensures a generator for the current prompt. From the second one on it has spare capacity, so that few are created. */
static weft_status make_room(conversation *self, int64_t n, weft_error *err) {
    const int64_t most = self->generator == NULL ? n : weft_generator_places(self->generator) - self->options->tokens;
    int64_t capacity = self->generator == NULL ? n : 2 * n;
    if (self->generator != NULL && n <= self->capacity) return WEFT_OK;
    if (capacity > most) capacity = most > n ? most : n;
    weft_generator_destroy(self->generator);
    self->generator = NULL;
    self->capacity = capacity;
    return weft_generator_create(&self->generator, self->run, capacity, self->options, err);
}

static weft_status print_until(conversation *self, size_t end, weft_error *err) {
    const size_t n = end > self->printed ? end - self->printed : 0;
    if (n > 0 && (fwrite(self->shown.data + self->printed, 1, n, stdout) != n || fflush(stdout) != 0))
        return weft_error_set(err, WEFT_E_SYSTEM, "the text cannot be written: %s", strerror(errno));
    self->printed += n;
    return WEFT_OK;
}

/* Returns the length without trailing bytes of an incomplete character. */
static size_t whole_characters(const weft_bytes *text) {
    size_t back = 0;
    while (back < 3 && back < text->n && ((unsigned char)text->data[text->n - 1 - back] & 0xC0) == 0x80) back++;
    return back < text->n && (unsigned char)text->data[text->n - 1 - back] >= 0xC0 ? text->n - 1 - back : text->n;
}

static weft_status on_id(void *context, int32_t id, weft_error *err) {
    conversation *self = context;
    const weft_text_sink sink = {&self->shown, weft_bytes_put_text};
    weft_status status = weft_bytes_put(&self->answer, &id, sizeof id);
    if (status != WEFT_OK) return no_memory(err);
    self->shown.n = 0;
    WEFT_PLUGIN_CALL(status, self->text->plugin, decode, err, self->text->tokenizer, &sink,
                     (const int32_t *)(const void *)self->answer.data, self->answer.n / sizeof id, 0);
    return status == WEFT_OK ? print_until(self, whole_characters(&self->shown), err) : status;
}

static weft_status answer(conversation *self, weft_error *err) {
    const weft_chat_sink sink = {&self->ids, take_ids};
    int64_t n = 0;
    weft_status status = WEFT_OK;
    self->ids.n = self->answer.n = self->shown.n = self->printed = 0;
    status = encode(self, self->turns, self->n_turns, WEFT_CHAT_PROMPT, &sink, err);
    n = (int64_t)(self->ids.n / sizeof(int32_t));
    if (status == WEFT_OK) status = make_room(self, n, err);
    if (status == WEFT_OK)
        status = weft_generator_run(self->generator, (const int32_t *)(const void *)self->ids.data, n, &self->stop,
                                    on_id, self, err);
    if (status == WEFT_OK) status = print_until(self, self->shown.n, err);
    if (status == WEFT_OK) (void)putchar('\n');
    return status == WEFT_OK ? add_turn(self, "assistant", self->shown.data, self->shown.n, err) : status;
}

/* Reads lines of standard input, one turn each; empty lines are skipped. */
static weft_status converse(conversation *self, weft_error *err) {
    const bool asks = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    char *line = NULL;
    size_t room = 0;
    ssize_t n = 0;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK) {
        if (asks) (void)fputs("> ", stdout);
        (void)fflush(stdout);
        n = getline(&line, &room, stdin);
        if (n < 0) break;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
        if (n == 0) continue;
        status = add_turn(self, "user", line, (size_t)n, err);
        if (status == WEFT_OK) status = answer(self, err);
    }
    free(line);
    if (asks && status == WEFT_OK) (void)putchar('\n');
    return status;
}

weft_status weft_chat_turns(const weft_run *run, const weft_text *text, const weft_generate_options *options,
                            const weft_chat_options *chat, weft_error *err) {
    conversation self = {.run = run, .text = text, .options = options, .chat = chat};
    weft_status status = find_stops(&self, err);
    if (status == WEFT_OK && chat->system != NULL)
        status = add_turn(&self, "system", chat->system, strlen(chat->system), err);
    if (status == WEFT_OK && chat->prompt != NULL) {
        status = add_turn(&self, "user", chat->prompt, strlen(chat->prompt), err);
        if (status == WEFT_OK) status = answer(&self, err);
    } else if (status == WEFT_OK) {
        status = converse(&self, err);
    }
    for (size_t i = 0; i < self.n_turns; i++) {
        free(self.turns[i].role);
        free(self.turns[i].content);
    }
    free(self.turns);
    weft_generator_destroy(self.generator);
    weft_bytes_free(&self.ids);
    weft_bytes_free(&self.answer);
    weft_bytes_free(&self.shown);
    return status;
}
