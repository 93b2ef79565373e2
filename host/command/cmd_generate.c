/* host/command/cmd_generate.c: `weft generate`. */
#include "command/generate_fit.h"

#include "base/bytes.h"
#include "command/chat_turns.h"
#include "plugin/enter.h"
#include "run/text_end.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

static const weft_flag flags[] = {
    {"prompt", "TEXT", false, "Text to continue; standard input by default."},
    {"tokens", "N", false, "Maximum number of new tokens (default 100)."},
    {"temperature", "T", false, "Sampling temperature; 0 takes the most likely token (default 0.8)."},
    {"top-k", "K", false, "Sample among the K most likely tokens; 0: all (default 0)."},
    {"top-p", "P", false, "Sample among the most likely tokens of this total probability (default 1)."},
    {"repetition-penalty", "P", false, "Divide the logits of earlier tokens by P, as transformers does (default 1)."},
    {"ignore-eos", NULL, false, "Continue after the end-of-sequence token."},
    {"no-cache", NULL, false, "Compute the whole sequence again for each token: slow, for comparison."},
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

typedef struct generation {
    const weft_args *args;
    weft_run *run;
    weft_text text;
    weft_bytes ids;           /* int32_t: prompt, then continuation */
    weft_bytes before, after; /* decoded: only the prompt; all text so far */
    size_t n_prompt, printed;
    int64_t room; /* bytes of --fit; 0: unset */
    bool json;
} generation;

static size_t n_ids(const generation *self) {
    return self->ids.n / sizeof(int32_t);
}

static weft_status decode(const generation *self, weft_bytes *out, size_t n, weft_error *err) {
    const weft_text_sink sink = {out, weft_bytes_put_text};
    weft_status status = WEFT_OK;
    out->n = 0;
    WEFT_PLUGIN_CALL(status, self->text.plugin, decode, err, self->text.tokenizer, &sink,
                     (const int32_t *)self->ids.data, n, 0);
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

/* Prints self->after up to `end`. A failed write ends the command: further output would be lost. */
static weft_status print_until(generation *self, size_t end, weft_error *err) {
    const size_t n = end > self->printed ? end - self->printed : 0;
    if (n > 0 && (fwrite(self->after.data + self->printed, 1, n, stdout) != n || fflush(stdout) != 0))
        return weft_error_set(err, WEFT_E_SYSTEM, "the text cannot be written: %s", strerror(errno));
    self->printed += n;
    return WEFT_OK;
}

static weft_status on_id(void *context, int32_t id, weft_error *err) {
    generation *self = context;
    weft_status status = weft_bytes_put(&self->ids, &id, sizeof id);
    if (status != WEFT_OK) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the text");
    status = decode(self, &self->after, n_ids(self), err);
    if (status != WEFT_OK || self->json) return status;
    return print_until(self, self->after.n - unfinished(self->after.data, self->after.n), err);
}

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

static void print_generation_json(const generation *self) {
    json_t *ids = json_array(), *object = json_object();
    const int32_t *all = (const int32_t *)self->ids.data;
    const char *text = self->after.data + self->before.n;
    const size_t n = self->after.n > self->before.n ? self->after.n - self->before.n : 0;
    for (size_t i = self->n_prompt; i < n_ids(self); i++) (void)json_array_append_new(ids, json_integer(all[i]));
    (void)json_object_set_new(object, "ids", ids);
    (void)json_object_set_new(object, "text", json_text(text, n));
    (void)json_dumpf(object, stdout, 0);
    (void)putchar('\n');
    json_decref(object);
}

enum { MOST_PROMPT_BYTES = 16 << 20, PROMPT_PIECE = 1 << 16 };

/* Reads standard input completely; the last newline is the shell's, and is removed. */
static weft_status read_standard_input(weft_bytes *out, weft_error *err) {
    static char piece[PROMPT_PIECE];
    size_t n = 0;
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

/* Reads --prompt or standard input; a terminal counts as empty. */
static weft_status read_prompt(const generation *self, weft_bytes *out, weft_error *err) {
    const char *prompt = weft_args_value(self->args, "prompt");
    if (prompt == NULL) return isatty(STDIN_FILENO) ? WEFT_OK : read_standard_input(out, err);
    if (weft_bytes_put(out, prompt, strlen(prompt)) != WEFT_OK)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the prompt");
    return WEFT_OK;
}

static weft_status encode_prompt(generation *self, weft_error *err) {
    const weft_ids_sink sink = {&self->ids, weft_bytes_put_ids};
    weft_bytes prompt = {0};
    weft_status status = read_prompt(self, &prompt, err);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, self->text.plugin, encode, err, self->text.tokenizer, &sink,
                         prompt.n > 0 ? prompt.data : "", prompt.n, self->text.prompt_flags);
    weft_bytes_free(&prompt);
    if (status == WEFT_OK && self->ids.n == 0)
        status = weft_error_set(err, WEFT_E_USER,
                                "an empty prompt without a BOS gives the model nothing to go on from: give "
                                "--prompt, or set [tokenizer] bos = yes");
    self->n_prompt = n_ids(self);
    if (status == WEFT_OK) status = decode(self, &self->before, self->n_prompt, err);
    self->printed = self->before.n;
    return status;
}

static weft_status generate(generation *self, weft_generate_options *options, weft_error *err) {
    weft_generate_fit fit = {self->args, self->run, options, (int64_t)self->n_prompt, self->room};
    weft_generator *generator = NULL;
    weft_stop_ids stop = {.n = 0};
    weft_status status = WEFT_OK;
    options->judge = weft_generate_fit_judge;
    options->judge_context = &fit;
    status = weft_generator_create(&generator, self->run, (int64_t)self->n_prompt, options, err);
    if (status == WEFT_OK) status = weft_run_stop_ids(&stop, self->run, &self->text, err);
    if (status == WEFT_OK)
        status = weft_generator_run(generator, (const int32_t *)self->ids.data, (int64_t)self->n_prompt, &stop, on_id,
                                    self, err);
    weft_generator_destroy(generator);
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

static weft_status converse(const generation *self, weft_generate_options *options, weft_error *err) {
    weft_generate_fit fit = {self->args, self->run, options, 1, self->room};
    const char *asked = weft_args_value(self->args, "template");
    const char *named = asked != NULL ? asked : weft_run_adapter_template(self->run, &self->text);
    const weft_chat_options chat = {named != NULL && strcmp(named, "own") == 0 ? NULL : named,
                                    weft_args_value(self->args, "system"), weft_args_value(self->args, "prompt")};
    options->judge = weft_generate_fit_judge;
    options->judge_context = &fit;
    return weft_chat_turns(self->run, &self->text, options, &chat, err);
}

static bool flags_fit(const weft_args *args, weft_error *err) {
    const bool chat = weft_args_has(args, "chat");
    const char *idle = weft_args_has(args, "template") ? "template" : weft_args_has(args, "system") ? "system" : NULL;
    if (chat && weft_args_has(args, "json"))
        (void)weft_error_set(err, WEFT_E_USER, "--chat and --json exclude each other");
    else if (!chat && idle != NULL) (void)weft_error_set(err, WEFT_E_USER, "--%s goes with --chat", idle);
    else return true;
    return false;
}

static weft_exit run_generate(const weft_args *args, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    generation self = {.args = args, .json = weft_args_has(args, "json")};
    weft_generate_options options = {0};
    weft_status status = WEFT_OK;
    if (!flags_fit(args, err) || !read_options(&options, args, err) || !weft_command_room(args, &self.room, err))
        return WEFT_EXIT_USAGE;
    status = weft_run_open(&self.run, weft_args_config(args), overrides, n, WEFT_NEEDS_TEXT, err);
    if (status == WEFT_OK && weft_args_has(args, "chat")) status = weft_run_use_adapter_tokenizer(self.run, err);
    if (status == WEFT_OK) status = weft_text_open(&self.text, self.run, err);
    if (status == WEFT_OK) options.seed = (uint64_t)self.run->settings.run.seed;
    if (status == WEFT_OK && weft_args_has(args, "chat")) {
        status = converse(&self, &options, err);
        goto done;
    }
    if (status == WEFT_OK) status = encode_prompt(&self, err);
    if (status == WEFT_OK) status = generate(&self, &options, err);
    if (status == WEFT_OK && self.json) print_generation_json(&self);
    else if (status == WEFT_OK) {
        status = print_until(&self, self.after.n, err);
        if (isatty(STDOUT_FILENO)) (void)putchar('\n'); /* otherwise only the text, byte for byte */
    }
done:
    weft_bytes_free(&self.ids);
    weft_bytes_free(&self.before);
    weft_bytes_free(&self.after);
    weft_text_close(&self.text);
    weft_run_close(self.run);
    return weft_exit_from(status);
}

const weft_command weft_command_generate = {
    .name = "generate",
    .summary = "Continue a prompt with a model, or chat.",
    .usage = "run.ini|DIR [section.key=value ...]",
    .takes = WEFT_TAKES_DIRECTORY,
    .flags = flags,
    .more = "DIR is the directory of a model, or of a run ([run] out), which means its model/. A prompt on standard "
            "input is read to its end, without its last line end; a terminal is not read. Sampling uses [run] seed.",
    .examples = "  weft generate runs/one --prompt \"Once\" --temperature 0\n"
                "  weft generate runs/instruct --chat\n",
    .run = run_generate,
};
