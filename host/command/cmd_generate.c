/* host/command/cmd_generate.c: `weft generate`. */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/flags.h"
#include "plugin/enter.h"
#include "plugin/services.h"
#include "program/budget.h"
#include "program/run.h"
#include "run/generate.h"
#include "run/text.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- output ---- */

/* Token ids that are decoded and printed while they arrive. */
typedef struct output {
    const weft_text *text;
    weft_bytes ids;   /* int32_t */
    weft_bytes shown; /* decoded */
    size_t printed;
    bool silent; /* decodes only */
} output;

static size_t n_ids(const weft_bytes *ids) {
    return ids->n / sizeof(int32_t);
}

static const int32_t *ids_of(const weft_bytes *ids) {
    return (const int32_t *)(const void *)ids->data;
}

static weft_status decode(const weft_text *text, weft_bytes *out, const weft_bytes *ids, weft_error *err) {
    const weft_text_sink sink = {out, weft_bytes_put_text};
    weft_status status = WEFT_OK;
    out->n = 0;
    WEFT_PLUGIN_CALL(status, text->plugin, decode, err, text->tokenizer, &sink, ids_of(ids), n_ids(ids), 0);
    return status;
}

/* Returns the trailing bytes of an incomplete UTF-8 character, which are kept until its rest arrives. */
static size_t unfinished(const char *text, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char c = (unsigned char)text[n - back];
        if ((c & 0xC0) == 0x80) continue;
        return (c >= 0xF0 ? 4u : c >= 0xE0 ? 3u : c >= 0xC0 ? 2u : 1u) > back ? back : 0;
    }
    return 0;
}

/* Prints the text up to `end`. A failed write ends the command: further output would be lost. */
static weft_status print_until(output *self, size_t end, weft_error *err) {
    const size_t n = end > self->printed ? end - self->printed : 0;
    if (n > 0 && (fwrite(self->shown.data + self->printed, 1, n, stdout) != n || fflush(stdout) != 0))
        return weft_error_set(err, WEFT_E_SYSTEM, "the text cannot be written: %s", strerror(errno));
    self->printed += n;
    return WEFT_OK;
}

static weft_status on_id(void *context, int32_t id, weft_error *err) {
    output *self = context;
    weft_status status = weft_bytes_put(&self->ids, &id, sizeof id);
    if (status != WEFT_OK) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the text");
    status = decode(self->text, &self->shown, &self->ids, err);
    if (status != WEFT_OK || self->silent) return status;
    return print_until(self, self->shown.n - unfinished(self->shown.data, self->shown.n), err);
}

typedef struct turn {
    const char *role;
    char *content;
    size_t n;
} turn;

/* State of one invocation. */
typedef struct generation {
    const weft_args *args;
    weft_run *run;
    weft_text text;
    weft_generate_options options;
    int64_t room; /* bytes of --fit; 0: unset */
    weft_generator *generator;
    int64_t capacity; /* ids of the longest prompt for the generator */
    weft_stop_ids stop;
    output out;           /* prompt and continuation; in a chat: the reply */
    weft_bytes before;    /* the prompt, decoded */
    const char *template; /* of a chat, by name; NULL: the model's own */
    weft_bytes chat_ids;  /* int32_t: the chat's prompt */
    turn *turns;
    size_t n_turns;
} generation;

/* ---- memory ---- */

/* Records the planned memory without allocating it. */
static weft_status keep_need(void *context, const weft_engine *engine, weft_error *err) {
    *(weft_required_memory *)context = (weft_required_memory){.bytes = engine->plan.bytes, .ranks = 1};
    return weft_error_set(err, WEFT_E_STOPPED, "planned");
}

/* Plans a run with so many tokens, and adds the change that leads to it if it fits. */
static bool try_change(weft_fit *fit, const generation *self, const weft_run *run, int64_t tokens, const char *key) {
    weft_fit_change *change = &fit->fitting[fit->n];
    weft_generate_options options = self->options;
    weft_generator *none = NULL;
    options.tokens = tokens;
    options.check = keep_need;
    options.check_context = &change->need;
    if (weft_generator_create(&none, run, self->capacity, &options, NULL) != WEFT_E_STOPPED ||
        !weft_required_memory_fits(&change->need, &fit->room))
        return false;
    change->n_keys = 1;
    (void)snprintf(change->keys[0], sizeof change->keys[0], "%s", key);
    fit->n++;
    return true;
}

static void find_precision(weft_fit *fit, const generation *self) {
    static const char key[] = "train.precision=bf16";
    size_t n = 0;
    const char *const *given = weft_args_overrides(self->args, &n);
    const char **overrides = NULL;
    weft_run *run = NULL;
    if (self->run->settings.train.precision != WEFT_PRECISION_FP32) return;
    overrides = weft_alloc(n + 1, sizeof *overrides);
    if (n > 0) memcpy(overrides, given, n * sizeof *overrides);
    overrides[n] = key;
    if (weft_run_open(&run, weft_args_config(self->args), overrides, n + 1, WEFT_NEEDS_TEXT, NULL) == WEFT_OK)
        (void)try_change(fit, self, run, self->options.tokens, key);
    weft_run_close(run);
    free(overrides);
}

/* Checks whether the plan fits into memory, and which options would fit: fewer tokens, or GEMMs in bf16. Each reported
 * change was planned. context: a generation. */
static weft_status check_fit(void *context, const weft_engine *engine, weft_error *err) {
    const generation *self = context;
    weft_fit fit = {.need = {.bytes = engine->plan.bytes, .ranks = 1},
                    .room = weft_available_memory_find(self->room, &engine->device_info)};
    int32_t level = 0;
    if (weft_args_has(self->args, "no-fit")) return WEFT_OK;
    fit.fits = weft_required_memory_fits(&fit.need, &fit.room);
    weft_fit_warn(&fit, self->run->host);
    if (fit.fits) return WEFT_OK;
    level = weft_services_log_level(WEFT_LOG_ERROR); /* suppresses repeated messages of the same configuration */
    for (int64_t tokens = self->options.tokens / 2; tokens > 0; tokens /= 2) {
        char key[WEFT_TRIAL_KEY_SIZE];
        (void)snprintf(key, sizeof key, "--tokens %lld", (long long)tokens);
        if (try_change(&fit, self, self->run, tokens, key)) break;
    }
    find_precision(&fit, self);
    (void)weft_services_log_level(level);
    return weft_fit_refuse(&fit, err);
}

/* Ensures a generator for a prompt of n ids. From the second one on it has spare capacity, so that few are created. */
static weft_status ensure_generator(generation *self, int64_t n, weft_error *err) {
    int64_t capacity = n;
    if (self->generator != NULL) {
        const weft_plan *plan = weft_generator_plan(self->generator);
        const int64_t places = plan->declared->info.max_context - weft_budget_prefix_rows(plan); /* of a text */
        const int64_t most = places - self->options.tokens;
        if (n <= self->capacity) return WEFT_OK;
        if (most > n) capacity = most < 2 * n ? most : 2 * n;
        weft_generator_destroy(self->generator);
        self->generator = NULL;
    }
    self->capacity = capacity;
    return weft_generator_create(&self->generator, self->run, capacity, &self->options, err);
}

/* ---- chat: each input line is a user message, and the model replies through the chat template ---- */

static void add_turn(generation *self, const char *role, const char *content, size_t n) {
    turn one = {role, weft_alloc(n + 1, 1), n};
    if (n > 0) memcpy(one.content, content, n);
    self->turns = weft_realloc(self->turns, self->n_turns + 1, sizeof one);
    self->turns[self->n_turns++] = one;
}

static weft_status take_ids(void *context, const int32_t *ids, const int32_t *answers, size_t n) {
    (void)answers;
    return weft_bytes_put_ids(context, ids, n);
}

/* Encodes all turns as the prompt of the next reply. */
static weft_status encode_turns(generation *self, weft_error *err) {
    const weft_chat_sink sink = {&self->chat_ids, take_ids};
    weft_chat_message *messages = weft_alloc(self->n_turns, sizeof *messages);
    const weft_chat chat = {.struct_size = (uint32_t)sizeof chat,
                            .flags = WEFT_CHAT_PROMPT,
                            .messages = messages,
                            .n_messages = self->n_turns,
                            .stride = (uint32_t)sizeof *messages,
                            .named = self->template};
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < self->n_turns; i++) {
        messages[i].struct_size = (uint32_t)sizeof *messages;
        messages[i].role = self->turns[i].role;
        messages[i].content = self->turns[i].content;
        messages[i].content_bytes = self->turns[i].n;
    }
    status = weft_text_encode_chat(&self->text, &sink, &chat, err);
    free(messages);
    return status;
}

static weft_status answer(generation *self, weft_error *err) {
    output *reply = &self->out;
    int64_t n = 0;
    weft_status status = WEFT_OK;
    self->chat_ids.n = reply->ids.n = reply->shown.n = reply->printed = 0;
    status = encode_turns(self, err);
    n = (int64_t)n_ids(&self->chat_ids);
    if (status == WEFT_OK) status = ensure_generator(self, n, err);
    if (status == WEFT_OK)
        status = weft_generator_run(self->generator, ids_of(&self->chat_ids), n, &self->stop, on_id, reply, err);
    if (status == WEFT_OK) status = print_until(reply, reply->shown.n, err);
    if (status != WEFT_OK) return status;
    (void)putchar('\n');
    add_turn(self, "assistant", reply->shown.data, reply->shown.n);
    return WEFT_OK;
}

/* Reads lines of standard input, one turn each; empty lines are skipped. */
static weft_status converse(generation *self, weft_error *err) {
    const bool prompts = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    char *line = NULL;
    size_t room = 0;
    ssize_t n = 0;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK) {
        if (prompts) (void)fputs("> ", stdout);
        (void)fflush(stdout);
        n = getline(&line, &room, stdin);
        if (n < 0) break;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
        if (n == 0) continue;
        add_turn(self, "user", line, (size_t)n);
        status = answer(self, err);
    }
    free(line);
    if (prompts && status == WEFT_OK) (void)putchar('\n');
    return status;
}

static const weft_flag flags[] = {
    {"prompt", "TEXT", false, "Text to continue; standard input by default."},
    {"tokens", "N", false, "Maximum number of new tokens (default 100)."},
    {"temperature", "T", false, "Sampling temperature; 0 takes the most likely token (default 0.8)."},
    {"top-k", "K", false, "Sample among the K most likely tokens; 0: all (default 0)."},
    {"top-p", "P", false, "Sample among the most likely tokens of this total probability (default 1)."},
    {"repetition-penalty", "P", false, "Divide the logits of earlier tokens by P, as transformers does (default 1)."},
    {"ignore-eos", NULL, false, "Continue after the end-of-sequence token."},
    {"no-cache", NULL, false, "Compute the complete sequence again for each token: slow, for comparison."},
    {"chat", NULL, false,
     "Answer through the chat template: --prompt, or each line of standard input, is a user message."},
    {"template", "NAME", false, "With --chat: a built-in template, as in [data] template; default: the model's own."},
    {"system", "TEXT", false, "With --chat: the system message."},
    {"adapter", "NAME|DIR", false, "Use this adapter: a directory, or a name in [adapter]."},
    {"json", NULL, false, "Print ids and text as an object."},
    WEFT_FIT_FLAG,
    WEFT_NO_FIT_FLAG,
    {NULL, NULL, false, NULL},
};

/* Returns JSON text. Bytes that are not UTF-8 become U+FFFD, as in transformers; the ids preserve the original. */
static json_t *json_text(const char *text, size_t n) {
    weft_bytes out = {0};
    json_t *string = NULL;
    for (size_t at = 0; at < n;) {
        size_t length = 1;
        while (length <= 4 && at + length <= n && (string = json_stringn(text + at, length)) == NULL) length++;
        if (string != NULL) (void)weft_bytes_put(&out, text + at, length);
        else (void)weft_bytes_put(&out, "\xEF\xBF\xBD", 3);
        at += string != NULL ? length : 1;
        json_decref(string);
        string = NULL;
    }
    string = out.n > 0 ? json_stringn(out.data, out.n) : json_string("");
    weft_bytes_free(&out);
    return string;
}

static void print_generation_json(const generation *self, size_t n_prompt) {
    const output *out = &self->out;
    json_t *ids = json_array(), *object = NULL;
    const size_t n = out->shown.n > self->before.n ? out->shown.n - self->before.n : 0;
    for (size_t i = n_prompt; i < n_ids(&out->ids); i++)
        (void)json_array_append_new(ids, json_integer(ids_of(&out->ids)[i]));
    object = json_pack("{s:o, s:o}", "ids", ids, "text", json_text(out->shown.data + self->before.n, n));
    (void)json_dumpf(object, stdout, 0);
    (void)putchar('\n');
    json_decref(object);
}

enum { MOST_PROMPT_BYTES = 16 << 20, PROMPT_PIECE = 1 << 16 };

/* Reads --prompt or standard input completely, whose last newline is the shell's and is removed; a terminal counts as
 * empty. */
static weft_status read_prompt(const generation *self, weft_bytes *out, weft_error *err) {
    static char piece[PROMPT_PIECE];
    const char *prompt = weft_args_value(self->args, "prompt");
    size_t n = 0;
    if (prompt != NULL && weft_bytes_put(out, prompt, strlen(prompt)) != WEFT_OK)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the prompt");
    if (prompt != NULL || isatty(STDIN_FILENO)) return WEFT_OK;
    while ((n = fread(piece, 1, sizeof piece, stdin)) > 0) {
        if (out->n + n > MOST_PROMPT_BYTES)
            return weft_error_set(err, WEFT_E_USER, "standard input has more than 16 MiB: this is no prompt");
        if (weft_bytes_put(out, piece, n) != WEFT_OK)
            return weft_error_set(err, WEFT_E_MEMORY, "no memory for the prompt");
    }
    if (ferror(stdin)) return weft_error_set(err, WEFT_E_SYSTEM, "standard input cannot be read: %s", strerror(errno));
    if (out->n > 0 && out->data[out->n - 1] == '\n') out->n--;
    if (out->n > 0 && out->data[out->n - 1] == '\r') out->n--;
    return WEFT_OK;
}

static weft_status encode_prompt(generation *self, weft_error *err) {
    const weft_ids_sink sink = {&self->out.ids, weft_bytes_put_ids};
    weft_bytes prompt = {0};
    weft_status status = read_prompt(self, &prompt, err);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, self->text.plugin, encode, err, self->text.tokenizer, &sink,
                         prompt.n > 0 ? prompt.data : "", prompt.n, self->text.prompt_flags);
    weft_bytes_free(&prompt);
    if (status == WEFT_OK && self->out.ids.n == 0)
        status = weft_error_set(err, WEFT_E_USER,
                                "an empty prompt without a BOS has no token to continue from. Fix: use --prompt, or "
                                "set [tokenizer] bos = yes");
    if (status == WEFT_OK) status = decode(&self->text, &self->before, &self->out.ids, err);
    self->out.printed = self->before.n;
    return status;
}

static weft_status generate(generation *self, weft_error *err) {
    const size_t n = n_ids(&self->out.ids);
    weft_status status = ensure_generator(self, (int64_t)n, err);
    if (status == WEFT_OK) status = weft_run_stop_ids(&self->stop, self->run, &self->text, err);
    if (status == WEFT_OK)
        status = weft_generator_run(self->generator, ids_of(&self->out.ids), (int64_t)n, &self->stop, on_id, &self->out,
                                    err);
    if (status != WEFT_OK) return status;
    if (self->out.silent) {
        print_generation_json(self, n);
        return WEFT_OK;
    }
    status = print_until(&self->out, self->out.shown.n, err);
    if (isatty(STDOUT_FILENO)) (void)putchar('\n'); /* otherwise only the text, byte for byte */
    return status;
}

static bool read_options(weft_generate_options *out, const weft_args *args, weft_error *err) {
    out->ignore_eos = weft_args_has(args, "ignore-eos");
    out->cache = !weft_args_has(args, "no-cache");
    return weft_args_i64(args, &out->tokens, "tokens", "[1,1000000]", 100, err) &&
           weft_args_f64(args, &out->temperature, "temperature", "[0,inf)", 0.8, err) &&
           weft_args_i64(args, &out->top_k, "top-k", "[0,inf)", 0, err) &&
           weft_args_f64(args, &out->top_p, "top-p", "(0,1]", 1.0, err) &&
           weft_args_f64(args, &out->repetition_penalty, "repetition-penalty", "(0,inf)", 1.0, err);
}

static weft_status run_conversation(generation *self, weft_error *err) {
    const char *named = weft_args_value(self->args, "template"), *system = weft_args_value(self->args, "system"),
               *prompt = weft_args_value(self->args, "prompt");
    weft_stop_ids *stop = &self->stop;
    int32_t end = -1;
    weft_status status = weft_run_stop_ids(stop, self->run, &self->text, err);
    if (named == NULL) named = weft_run_adapter_template(self->run, &self->text);
    self->template = named != NULL && strcmp(named, "own") == 0 ? NULL : named;
    /* the template's token after a reply stops it, too */
    if (status == WEFT_OK) status = weft_text_chat_end(&end, &self->text, self->template, err);
    if (status == WEFT_OK && end >= 0 && stop->n < WEFT_MAX_STOP_IDS) stop->ids[stop->n++] = end;
    if (system != NULL) add_turn(self, "system", system, strlen(system));
    if (prompt != NULL) add_turn(self, "user", prompt, strlen(prompt));
    if (status != WEFT_OK) return status;
    return prompt != NULL ? answer(self, err) : converse(self, err);
}

/* Rejects incompatible flags. */
static bool flags_fit(const weft_args *args, weft_error *err) {
    const bool chat = weft_args_has(args, "chat");
    const char *idle = weft_args_has(args, "template") ? "template" : weft_args_has(args, "system") ? "system" : NULL;
    if (chat && weft_args_has(args, "json"))
        return weft_error_set(err, WEFT_E_USER, "--chat and --json exclude each other") == WEFT_OK;
    return chat || idle == NULL || weft_error_set(err, WEFT_E_USER, "--%s requires --chat", idle) == WEFT_OK;
}

static weft_exit run_generate(const weft_args *args, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    const bool chat = weft_args_has(args, "chat");
    generation self = {.args = args,
                       .out = {.text = &self.text, .silent = weft_args_has(args, "json")},
                       .options = {.check = check_fit, .check_context = &self}};
    weft_status status = WEFT_OK;
    if (!flags_fit(args, err) || !read_options(&self.options, args, err) || !weft_command_room(args, &self.room, err))
        return WEFT_EXIT_USAGE;
    status = weft_run_open(&self.run, weft_args_config(args), overrides, n, WEFT_NEEDS_TEXT, err);
    if (status == WEFT_OK && chat) status = weft_run_use_adapter_tokenizer(self.run, err);
    if (status == WEFT_OK) status = weft_text_open(&self.text, self.run, err);
    if (status == WEFT_OK) self.options.seed = (uint64_t)self.run->settings.run.seed;
    if (status == WEFT_OK && !chat) status = encode_prompt(&self, err);
    if (status == WEFT_OK) status = chat ? run_conversation(&self, err) : generate(&self, err);
    for (size_t i = 0; i < self.n_turns; i++) free(self.turns[i].content);
    free(self.turns);
    weft_generator_destroy(self.generator);
    weft_bytes_free(&self.chat_ids);
    weft_bytes_free(&self.out.ids);
    weft_bytes_free(&self.out.shown);
    weft_bytes_free(&self.before);
    weft_text_close(&self.text);
    weft_run_close(self.run);
    return weft_exit_from(status);
}

const weft_command weft_command_generate = {
    .name = "generate",
    .usage = "run.ini|DIR [section.key=value ...]",
    .takes = WEFT_TAKES_DIRECTORY,
    .flags = flags,
    .more = "DIR is the directory of a model, or of a run ([run] out), which means its model/. A prompt on standard "
            "input is read to its end, without its last line end; a terminal is not read. Sampling uses [run] seed.",
    .examples = "  weft generate runs/one --prompt \"Once\" --temperature 0\n"
                "  weft generate runs/instruct --chat\n",
    .run = run_generate,
};
