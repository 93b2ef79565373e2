/* config.c: reads config.json. Each key must be supported, or be known to have no effect; any other key is an error
 * with its name, because a model that computes almost correctly is worse than no model.
 *
 * The file is one object of numbers, strings and flags, so no JSON library is needed: `next_member` steps from one key
 * and the text of its value to the next, over any content of the value. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

/* A key or a value, as a range of the file's text. n = 0: not present. */
typedef struct span {
    const char *at;
    size_t n;
} span;

typedef struct reader {
    const weft_model_source *source;
    weft_error *err;
    weft_status status; /* of the first error */
} reader;

static void complain(reader *r, const char *format, ...) WEFT_PRINTF(2, 3);
static void complain(reader *r, const char *format, ...) {
    char text[512];
    va_list args;
    if (r->status != WEFT_OK) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = weft_error_set(r->err, WEFT_E_USER, "%s: %s", r->source->config_path, text);
}

static void refuse(reader *r, const char *key, span value, const char *allowed) {
    complain(r, "%s is %.*s; allowed is %s", key, (int)(value.n < 60 ? value.n : 60), value.at, allowed);
}

static int is(span text, const char *word) {
    return text.n == strlen(word) && memcmp(text.at, word, text.n) == 0;
}

/* ---- text ---- */

static const char *skip_blanks(const char *at, const char *end) {
    while (at < end && strchr(" \t\r\n,:", *at) != NULL && *at != '\0') at++;
    return at;
}

/* Returns the end of the value that begins at `at`: a string with quotes, an object or list, or a word. */
static const char *skip_value(const char *at, const char *end) {
    int depth = 0;
    for (; at < end; at++) {
        if (*at == '"')
            for (at++; at < end && *at != '"'; at++) at += *at == '\\' && at + 1 < end;
        else if (*at == '{' || *at == '[') depth++;
        else if (*at == '}' || *at == ']') depth--;
        if (depth <= 0 && (at + 1 >= end || strchr(",}] \t\r\n", at[1]) != NULL || *at == '"')) return at + (at < end);
    }
    return end;
}

/* Reads the member at *at; the key has no quotes. Returns 0 after the last member. */
static int next_member(const char **at, const char *end, span *key, span *value) {
    const char *begin = skip_blanks(*at, end), *after = begin;
    if (begin >= end || *begin != '"') return 0;
    after = skip_value(begin, end);
    if (after - begin < 2) return 0;
    key->at = begin + 1;
    key->n = (size_t)(after - begin) - 2;
    begin = skip_blanks(after, end);
    *at = skip_value(begin, end);
    value->at = begin;
    value->n = (size_t)(*at - begin);
    return value->n > 0;
}

static const char *first_member(const weft_model_source *source, const char **end) {
    const char *at = skip_blanks(source->config_text, source->config_text + source->config_bytes);
    *end = source->config_text + source->config_bytes;
    return at < *end && *at == '{' ? at + 1 : *end;
}

/* Returns n = 0 if the key is absent or null. */
static span find(const reader *r, const char *name) {
    const span none = {NULL, 0};
    const char *end = NULL, *at = first_member(r->source, &end);
    span key, value;
    while (next_member(&at, end, &key, &value))
        if (is(key, name)) return is(value, "null") ? none : value;
    return none;
}

/* ---- values ---- */

/* Reads a number. fallback NAN: the key is required. */
static double number(reader *r, const char *key, double least, double fallback) {
    const span value = find(r, key);
    char text[32], *end = text, allowed[64];
    double x = fallback;
    if (value.n == 0 && isnan(fallback)) complain(r, "%s is missing, and the model needs it", key);
    if (value.n == 0) return fallback;
    (void)snprintf(text, sizeof text, "%.*s", (int)value.n, value.at);
    x = strtod(text, &end);
    (void)snprintf(allowed, sizeof allowed, "a number from %g on", least);
    if (end == text || *end != '\0' || !(x >= least)) refuse(r, key, value, allowed);
    return r->status == WEFT_OK ? x : 1;
}

static int64_t size(reader *r, const char *key, double fallback) {
    const double x = number(r, key, 1, fallback);
    if (r->status == WEFT_OK && (x != floor(x) || x > 1 << 24)) refuse(r, key, find(r, key), "an integer below 2^24");
    return r->status == WEFT_OK ? (int64_t)x : 1;
}

static int32_t flag(reader *r, const char *key, int32_t fallback) {
    const span value = find(r, key);
    if (value.n != 0 && !is(value, "true") && !is(value, "false")) refuse(r, key, value, "true or false");
    return value.n == 0 ? fallback : is(value, "true");
}

static int32_t token(reader *r, const char *key) {
    return (int32_t)number(r, key, -1, -1);
}

static int32_t activation(reader *r) {
    static const struct {
        const char *name;
        int32_t form;
    } known[] = {{"\"gelu_new\"", WEFT_GELU_TANH},
                 {"\"gelu_pytorch_tanh\"", WEFT_GELU_TANH},
                 {"\"gelu\"", WEFT_GELU},
                 {"\"silu\"", WEFT_SILU},
                 {"\"swish\"", WEFT_SILU}};
    const span value = find(r, "activation_function");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (is(value, known[i].name)) return known[i].form;
    if (value.n != 0)
        refuse(r, "activation_function", value, "\"gelu_new\", \"gelu_pytorch_tanh\", \"gelu\" or \"silu\"");
    return WEFT_GELU_TANH;
}

/* Checks dropout: this model has no dropout, and the user must accept training without it. */
static void judge_dropout(reader *r, int64_t dropout) {
    static const char *const keys[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    for (int i = 0; i < 3; i++)
        if (number(r, keys[i], 0, 0.1) != 0 && !dropout)
            complain(r,
                     "%s is %g, and this plugin has no dropout. Fix: set [model] dropout = off, which does not change "
                     "the file, or set the key to 0",
                     keys[i], number(r, keys[i], 0, 0.1));
}

/* ---- keys ---- */

/* Keys that are read below, or that do not change logits and gradients. */
static const char *const known[] = {
    "model_type", "architectures", "vocab_size", "n_embd", "n_inner", "n_layer", "n_head", "n_positions",
    "activation_function", "resid_pdrop", "embd_pdrop", "attn_pdrop", "layer_norm_epsilon", "initializer_range",
    "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "tie_word_embeddings", "bos_token_id", "eos_token_id",
    /* keys without effect: */
    "n_ctx", "pad_token_id", "use_cache", "dtype", "torch_dtype", "transformers_version", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "task_specific_params",
    "reorder_and_upcast_attn", "_num_labels", "_name_or_path", "gradient_checkpointing"};

static void judge_keys(reader *r) {
    const char *end = NULL, *at = first_member(r->source, &end);
    span key, value;
    while (next_member(&at, end, &key, &value)) {
        size_t i = 0;
        while (i < sizeof known / sizeof known[0] && !is(key, known[i])) i++;
        if (i < sizeof known / sizeof known[0] || is(value, "null") || is(value, "false")) continue;
        complain(r, "the key %.*s (%.*s) is unknown and could change the results. Fix: remove it if it has no effect",
                 (int)(key.n < 60 ? key.n : 60), key.at, (int)(value.n < 60 ? value.n : 60), value.at);
    }
    at = skip_blanks(at, end);
    if (at >= end || *at != '}') complain(r, "is no JSON object of keys and values");
}

weft_status gpt2_config_read(gpt2_config *c, const weft_model_source *source, int64_t dropout, weft_error *err) {
    reader r = {source, err, WEFT_OK};
    if (!is(find(&r, "model_type"), "\"gpt2\""))
        complain(&r, "has no \"model_type\": \"gpt2\", the only supported type");
    judge_keys(&r);
    judge_dropout(&r, dropout);
    c->vocab = size(&r, "vocab_size", 50257);
    c->width = size(&r, "n_embd", 768);
    c->inner = size(&r, "n_inner", 4 * (double)c->width);
    c->layers = size(&r, "n_layer", 12);
    c->heads = size(&r, "n_head", 12);
    c->context = size(&r, "n_positions", 1024);
    c->eps = number(&r, "layer_norm_epsilon", 0, 1e-5);
    c->init_std = number(&r, "initializer_range", 0, 0.02);
    c->activation = activation(&r);
    c->scaled = flag(&r, "scale_attn_weights", 1);
    c->by_layer = flag(&r, "scale_attn_by_inverse_layer_idx", 0);
    c->tied = flag(&r, "tie_word_embeddings", 1);
    c->bos = token(&r, "bos_token_id");
    c->eos = token(&r, "eos_token_id");
    if (c->width % c->heads != 0)
        complain(&r, "n_embd %lld is no multiple of n_head %lld; change one of them", (long long)c->width,
                 (long long)c->heads);
    return r.status;
}
