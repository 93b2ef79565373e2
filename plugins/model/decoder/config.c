/* config.c: reads config.json with the keys of transformers 4 and 5. Each key is used here, or is known not to change
 * the numbers, or fails by name: an almost correct model would be worse than an error. */
#include "reader.h"

#include <math.h>
#include <stdlib.h>

/* True if "a,b,c" contains key. */
static int ignored(const char *list, const char *key) {
    const size_t n = strlen(key);
    while (list != NULL && *list != '\0') {
        const size_t item = strcspn(list, ",");
        if (item == n && strncmp(list, key, n) == 0) return 1;
        list += item + (list[item] == ',');
    }
    return 0;
}

/* ---- model family ---- */

/* Rejects a model type that this plugin does not support, and names the plugin that does, if there is one. */
static void refuse_type(reader *r, const family *of, const json_t *type) {
    const char *name = json_string_value(type);
    char text[96], list[256];
    (void)reader_shown(type, text);
    if (name != NULL && family_find(name) != NULL)
        reader_complain(r,
                        "model_type is %s; the plugin %s does not compute it, the plugin %s does: [model] plugin = %s",
                        text, of->name, name, name);
    else
        reader_complain(
            r,
            "model_type is %s; allowed is \"%s\", and there are plugins for %s; other families need a plugin "
            "of their own",
            text, of->name, family_list(list, sizeof list));
}

static void read_kind(reader *r, const family *of) {
    const json_t *type = reader_need(r, "model_type"), *architectures = reader_get(r, "architectures");
    const char *inner = of->id == GEMMA3 ? "TextModel"
                                         : "Model"; /* of a checkpoint without a head, or with a tied head */
    char wanted[64], headless[64], allowed[150];
    if (type != NULL && (!json_is_string(type) || strcmp(json_string_value(type), of->name) != 0))
        refuse_type(r, of, type);
    (void)snprintf(wanted, sizeof wanted, "%sForCausalLM", of->classes);
    (void)snprintf(headless, sizeof headless, "%s%s", of->classes, inner);
    for (size_t i = 0; i < json_array_size(architectures); i++) {
        const char *name = json_string_value(json_array_get(architectures, i));
        if (name != NULL && (strcmp(name, wanted) == 0 || strcmp(name, headless) == 0 ||
                             (of->id == LLAMA && strcmp(name, "LLaMAForCausalLM") == 0)))
            return;
    }
    (void)snprintf(allowed, sizeof allowed, "[\"%s\"] or [\"%s\"]", wanted, headless);
    if (architectures != NULL) reader_refuse(r, "architectures", architectures, allowed);
}

/* ---- parts of the configuration ---- */

/* transformers creates the embedding with padding_idx = pad_token_id, and torch counts a negative one from the end. */
static void read_pad(reader *r, decoder_config *c) {
    json_t *value = reader_get(r, "pad_token_id");
    const int by_default = !reader_says(r, "pad_token_id") && c->family->absent.has_pad;
    const int64_t id = by_default ? c->family->absent.pad : json_integer_value(value),
                  row = id < 0 ? c->vocab + id : id;
    char allowed[128];
    (void)snprintf(allowed, sizeof allowed, "null, or a row of the embedding, from %lld to %lld", -(long long)c->vocab,
                   (long long)c->vocab - 1);
    if (value == NULL && !by_default) return;
    if (by_default && row >= c->vocab)
        reader_complain(r, "pad_token_id is missing, which in this family means %lld; allowed is %s", (long long)id,
                        allowed);
    if (value != NULL && (!json_is_integer(value) || row < 0 || row >= c->vocab))
        reader_refuse(r, "pad_token_id", value, allowed);
    c->has_pad = r->status == WEFT_OK;
    c->pad = (int32_t)row;
}

static void judge_heads(reader *r, const decoder_config *c, int derived) {
    if (derived && c->width % c->heads != 0)
        reader_complain(
            r, "hidden_size %lld is no multiple of num_attention_heads %lld. Fix: change one of them, or set head_dim",
            (long long)c->width, (long long)c->heads);
    if (c->heads % c->kv_heads != 0)
        reader_complain(
            r,
            "num_attention_heads %lld is no multiple of num_key_value_heads %lld; each key-value head serves as many "
            "query heads",
            (long long)c->heads, (long long)c->kv_heads);
    if (c->head_dim % 2 != 0)
        reader_complain(r, "head_dim %lld%s is odd; rotary positions turn pairs, so it must be even",
                        (long long)c->head_dim, derived ? " (hidden_size over num_attention_heads)" : "");
}

static void read_sizes(reader *r, decoder_config *c) {
    const family *of = c->family;
    const int says_kv = reader_says(r, "num_key_value_heads");
    const int derived = reader_get(r, "head_dim") == NULL && of->absent.head_dim == 0;
    c->vocab = reader_size(r, "vocab_size", INT32_MAX, 0);
    c->width = reader_size(r, "hidden_size", MAX_SIZE, 0);
    c->mlp = reader_size(r, "intermediate_size", MAX_SIZE, 0);
    c->layers = reader_size(r, "num_hidden_layers", MAX_COUNT, 0);
    c->heads = reader_size(r, "num_attention_heads", MAX_COUNT, 0);
    c->context = reader_size(r, "max_position_embeddings", INT32_MAX, of->absent.context);
    (void)reader_size(r, "pretraining_tp", MAX_COUNT, 1); /* the same sums in another order */
    if (r->status != WEFT_OK) return;
    c->kv_heads = reader_size(r, "num_key_value_heads", MAX_COUNT,
                              says_kv || of->absent.kv_heads == 0 ? c->heads : of->absent.kv_heads);
    c->head_dim = derived ? c->width / c->heads : reader_size(r, "head_dim", MAX_COUNT, of->absent.head_dim);
    if (r->status == WEFT_OK) judge_heads(r, c, derived);
}

static int32_t activation_of(reader *r, const char *key, const json_t *value, const family *of) {
    static const struct {
        const char *name;
        int32_t form;
    } known[] = {{"silu", WEFT_SILU},
                 {"swish", WEFT_SILU},
                 {"gelu", WEFT_GELU},
                 {"gelu_pytorch_tanh", WEFT_GELU_TANH},
                 {"gelu_new", WEFT_GELU_TANH}};
    const char *name = value == NULL ? of->absent.activation : json_string_value(value);
    for (size_t i = 0; name != NULL && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) != 0) continue;
        return known[i].form == WEFT_GELU && of->traits & GELU_IS_TANH ? WEFT_GELU_TANH : known[i].form;
    }
    reader_refuse(r, key, value, "\"silu\", \"gelu\" or \"gelu_pytorch_tanh\"");
    return WEFT_SILU;
}

/* Gemma has its own key for the activation; the key of older releases must not contradict it. */
static void read_activation(reader *r, decoder_config *c) {
    const int own = (c->family->id & (GEMMA2 | GEMMA3)) != 0;
    const char *key = own ? "hidden_activation" : "hidden_act", *other = own ? "hidden_act" : "hidden_activation";
    const json_t *second = reader_get(r, other);
    char text[96];
    c->activation = activation_of(r, key, reader_get(r, key), c->family);
    if (second != NULL && activation_of(r, other, second, c->family) != c->activation)
        reader_complain(r, "%s is %s, and %s, which has priority, differs. Fix: keep one of them", other,
                        reader_shown(second, text), key);
}

/* Type of the weights. The files contain it, too, so this value has no effect, but it must be a supported type. */
static void read_dtype(reader *r, const char *key) {
    static const char *const known[] = {"float32", "bfloat16", "float16", "auto"};
    json_t *value = reader_get(r, key);
    const char *name = json_string_value(value);
    int good = value == NULL;
    if (name != NULL && strncmp(name, "torch.", 6) == 0) name += 6;
    for (size_t i = 0; name != NULL && i < sizeof known / sizeof known[0]; i++) good |= strcmp(known[i], name) == 0;
    if (!good) reader_refuse(r, key, value, "\"float32\", \"bfloat16\" or \"float16\"");
}

static void read_biases(reader *r, decoder_config *c) {
    const int attention = reader_flag(r, "attention_bias", 0);
    c->qkv_bias = attention || (c->family->traits & QKV_BIASES) != 0;
    c->o_bias = attention;
    c->mlp_bias = reader_flag(r, "mlp_bias", 0);
}

/* null disables the cap; a missing key has the family's default. */
static double read_cap(reader *r, const char *key, double absent) {
    return reader_number(r, key, 0, 0, reader_says(r, key) ? 0 : absent);
}

static void read_attention(reader *r, decoder_config *c) {
    const double wanted = c->family->absent.query_scale;
    const double query = wanted == 0 ? (double)c->head_dim : reader_number(r, "query_pre_attn_scalar", 0, 0, wanted);
    c->scale = 1.0 / sqrt(query);
    c->score_cap = read_cap(r, "attn_logit_softcapping", c->family->absent.score_cap);
    c->logit_cap = read_cap(r, "final_logit_softcapping", c->family->absent.logit_cap);
}

/* ---- read ---- */

/* Any false value disables a feature, unless `allowed` names another value: then only that value is accepted. */
static int is_allowed(const json_t *value, const char *allowed) {
    char text[96];
    if (json_is_null(value) || strcmp(reader_shown(value, text), allowed) == 0) return 1;
    return strcmp(allowed, "1") != 0 && reader_is_off(value);
}

/* Returns the fix for an error message, if it is another one than setting the allowed value. */
static const char *next_step(const char *key, const char *allowed) {
    if (strcmp(key, "quantization_config") != 0) return allowed;
    return "null, or quantization_config of bitsandbytes for nf4 and int8. Weights packed by other programs are not "
           "supported. Fix: use the unpacked model; [model] base = nf4, int8 or fp8 packs it while it is read";
}

static void read_key(reader *r, const family *of, const char *ignore, const char *key, const json_t *value) {
    const char *allowed = NULL;
    char text[96];
    switch (decoder_key_find(&allowed, of, key)) {
    case DECODER_KEY_OFF:
        if (!is_allowed(value, allowed)) reader_refuse(r, key, value, next_step(key, allowed));
        return;
    case DECODER_KEY_UNKNOWN:
        if (json_is_null(value) || ignored(ignore, key)) return;
        reader_complain(r,
                        "the key %s (%s) is unknown and could change the results. Fix: if it has no effect, set "
                        "[model] ignore = %s",
                        key, reader_shown(value, text), key);
        return;
    case DECODER_KEY_UNDERSTOOD:
    case DECODER_KEY_HARMLESS: return;
    }
}

/* Reads the remaining keys: harmless, disabled, or rejected. */
static void read_rest(reader *r, const family *of, const char *ignore) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(r->root, key, value) {
        if (r->status == WEFT_OK) read_key(r, of, ignore, key, value);
    }
}

static void read_all(reader *r, decoder_config *c, const char *ignore) {
    const family *of = c->family;
    read_kind(r, of);
    read_rest(r, of, ignore);
    read_sizes(r, c);
    if (r->status != WEFT_OK) return;
    read_activation(r, c);
    read_biases(r, c);
    read_attention(r, c);
    layers_read(r, c);
    rope_read(r, c);
    read_dtype(r, "torch_dtype");
    read_dtype(r, "dtype");
    c->eps = reader_number(r, "rms_norm_eps", 0, 0, of->absent.eps);
    c->init_std = reader_number(r, "initializer_range", 0, 1, 0.02);
    c->tied = reader_flag(r, "tie_word_embeddings", of->absent.tied);
    c->bos = reader_token(r, "bos_token_id", c->vocab);
    c->eos = reader_token(r, "eos_token_id", c->vocab);
    read_pad(r, c);
}

weft_status decoder_config_read(decoder_config *out, const family *of, const weft_model_source *source,
                                const char *ignore, weft_error *err) {
    json_error_t at;
    json_t *root = json_loadb(source->config_text, (size_t)source->config_bytes, JSON_REJECT_DUPLICATES, &at);
    reader r = {source->config_path, root, "", err, WEFT_OK};
    memset(out, 0, sizeof *out);
    out->family = of;
    if (root == NULL)
        return weft_error_set(err, WEFT_E_DATA, "%s:%d:%d: is not JSON: %s", source->config_path, at.line, at.column,
                              at.text);
    if (!json_is_object(root))
        r.status = weft_error_set(err, WEFT_E_DATA, "%s: is not a JSON object of keys and values", source->config_path);
    else read_all(&r, out, ignore);
    json_decref(root);
    if (r.status != WEFT_OK) decoder_config_clear(out);
    return r.status;
}

void decoder_config_clear(decoder_config *config) {
    decoder_rope *const ropes[2] = {&config->rope, &config->local};
    for (int i = 0; i < 2; i++) {
        free(ropes[i]->short_factor);
        free(ropes[i]->long_factor);
    }
    free(config->layer);
    memset(config, 0, sizeof *config);
}
