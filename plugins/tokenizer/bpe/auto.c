/* auto.c: edits the JSON of the files to match AutoTokenizer of transformers 5.24, before any other code reads it.
 *
 * AutoTokenizer chooses a class by tokenizer_class of tokenizer_config.json and model_type of config.json. Some classes
 * keep vocabulary, merges and post-processor of tokenizer.json, and rebuild all else with the added tokens of
 * tokenizer_config.json. Other classes use tokenizer.json, overridden by the added tokens of tokenizer_config.json. In
 * both cases, named tokens become added tokens. special_tokens_map.json is used only if tokenizer_config.json has no
 * added_tokens_decoder. A class's default for a named token is used only if the vocabulary contains it. */
#include "tokenizer.h"

#include <stdlib.h>

typedef enum family {
    AS_IS, /* TokenizersBackend */
    OTHER, /* a class that transformers rebuilds in an unsupported way */
    LLAMA,
    CODE_LLAMA,
    GEMMA,
    QWEN2,
    QWEN3_5,
    GPT2,
    CODEGEN,
    GPT_NEOX,
    COHERE
} family;

/* types: model types that use the class if the files do not name one. */
static const struct {
    const char *name;
    family family;
    const char *defaults, *types;
} classes[] = {
    {"TokenizersBackend", AS_IS, "",
     "aria beam flex_olmo glm glm4 glm4_moe glm4_moe_lite gpt_bigcode granite granitemoe granitemoehybrid "
     "granitemoeshared kimi_k25 kimi_linear mimo_v2_flash ministral ministral3 mistral mistral3 mistral_large4 mixtral "
     "olmo2 olmo3 olmo_hybrid persimmon pixtral stablelm voxtral arctic chatlm ernie4_5 ernie4_5_moe fuyu h2ovl_chat "
     "hyperclovax hyperclovax_vlm internlm2 internlm3 iquestcoder jamba llava llava_next minicpm3 minicpmv minimax_m2 "
     "modernbert modernbert-decoder molmo molmo2 nemotron nvfp4 opencua openvla paddleocr_vl phi3 phi3_v phimoe "
     "step3_vl "
     "vipllava cohere_asr smolvlm"},
    {"LlamaTokenizer", LLAMA, "unk_token=<unk> bos_token=<s> eos_token=</s>", "idefics idefics2"},
    {"CodeLlamaTokenizer", CODE_LLAMA,
     "unk_token=<unk> bos_token=<s> eos_token=</s> prefix_token=\xe2\x96\x81<PRE> middle_token=\xe2\x96\x81<MID> "
     "suffix_token=\xe2\x96\x81<SUF> eot_token=\xe2\x96\x81<EOT> fill_token=<FILL_ME>",
     "code_llama"},
    {"GemmaTokenizer", GEMMA, "unk_token=<unk> bos_token=<bos> eos_token=<eos> pad_token=<pad> mask_token=<mask>",
     "diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2 t5gemma zaya"},
    {"Qwen2Tokenizer", QWEN2, "unk_token=<|endoftext|> eos_token=<|endoftext|> pad_token=<|endoftext|>",
     "audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl internvl moss_transcribe_diarize ovis2 "
     "qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3 qwen3_asr qwen3_moe qwen3_next "
     "qwen3_omni_moe qwen3_vl qwen3_vl_moe lighton_ocr vibevoice"},
    {"Qwen3_5Tokenizer", QWEN3_5, "unk_token=<|endoftext|> eos_token=<|endoftext|> pad_token=<|endoftext|>",
     "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp"},
    {"GPT2Tokenizer", GPT2, "unk_token=<|endoftext|> bos_token=<|endoftext|> eos_token=<|endoftext|>",
     "blip-2 codegen dbrx emu3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip instructblipvideo jais2 opt phi "
     "starcoder2"},
    {"CodeGenTokenizer", CODEGEN, "unk_token=<|endoftext|> bos_token=<|endoftext|> eos_token=<|endoftext|>", ""},
    {"GPTNeoXTokenizer", GPT_NEOX,
     "unk_token=<|endoftext|> bos_token=<|endoftext|> eos_token=<|endoftext|> pad_token=<|padding|>",
     "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm"},
    {"CohereTokenizer", COHERE,
     "unk_token=<UNK> bos_token=<BOS_TOKEN> eos_token=<|END_OF_TURN_TOKEN|> pad_token=<PAD> cls_token=<CLS> "
     "sep_token=<SEP> mask_token=<MASK_TOKEN>",
     "aya_vision cohere cohere2"},
};
enum { N_CLASSES = sizeof classes / sizeof classes[0] };

static const char other_classes[] =
    "AlbertTokenizer BartTokenizer BarthezTokenizer BertTokenizer BigBirdTokenizer BlenderbotTokenizer CLIPTokenizer "
    "CamembertTokenizer DebertaTokenizer DebertaV2Tokenizer DistilBertTokenizer EsmcTokenizer FunnelTokenizer "
    "HerbertTokenizer LEDTokenizer LasrTokenizer LayoutLMv2Tokenizer LayoutLMv3Tokenizer LayoutXLMTokenizer "
    "LukeTokenizer LxmertTokenizer MBartTokenizer MBart50Tokenizer MPNetTokenizer MarkupLMTokenizer "
    "MobileBertTokenizer "
    "MvpTokenizer NllbTokenizer NougatTokenizer OpenAIGPTTokenizer PegasusTokenizer ReformerTokenizer RemBertTokenizer "
    "RoFormerTokenizer RobertaTokenizer SeamlessM4TTokenizer Siglip2Tokenizer SplinterTokenizer SqueezeBertTokenizer "
    "T5Tokenizer Tipsv2Tokenizer UdopTokenizer VideoPrismTokenizer WhisperTokenizer XGLMTokenizer XLMRobertaTokenizer "
    "XLNetTokenizer";

/* Model types with published files that name a wrong class, so the class of the type is used. Types of
 * TokenizersBackend need no entry, except phi3 and similar ones, which name LlamaTokenizer. */
static const char distrusted[] =
    "arctic chatlm ernie4_5 ernie4_5_moe fuyu h2ovl_chat hyperclovax hyperclovax_vlm hyperclovax_vision_v2 internlm2 "
    "internlm3 iquestcoder jamba llava llava_next minicpm3 minicpmv minimax_m2 modernbert modernbert-decoder molmo "
    "molmo2 nemotron nvfp4 opencua openvla paddleocr_vl phi3 phi3_v phimoe qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text "
    "qwen4_exp step3_vl vipllava cohere_asr camembertv2-base siglip2 smolvlm";

typedef struct edit {
    json_t **json; /* indexed by BPE_JSON_... */
    family family;
    const char *defaults;
    json_t *known;   /* added tokens of the files, by content */
    json_t *tokens;  /* added tokens of the tokenizer, an array */
    json_t *by_name; /* the same, by content */
    int32_t highest; /* highest token id; -1: absent */
    bool failed;     /* no memory */
} edit;

/* ---- choice of the class ---- */

/* Returns the added tokens that tokenizer_config.json lists by id; NULL: absent. */
static json_t *listed(const edit *self) {
    json_t *out = json_object_get(self->json[BPE_JSON_CONFIG], "added_tokens_decoder");
    return json_is_object(out) ? out : NULL;
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static int32_t class_of_name(const char *name, size_t n) {
    int32_t i = 0;
    while (i < N_CLASSES && (strlen(classes[i].name) != n || strncmp(classes[i].name, name, n) != 0)) i++;
    return i < N_CLASSES ? i : -1;
}

static int32_t class_of_type(const char *type) {
    int32_t i = 0;
    if (type == NULL) return -1;
    while (i < N_CLASSES && !bpe_json_listed(classes[i].types, type)) i++;
    return i < N_CLASSES ? i : -1;
}

/* Returns true if a string or key is ByteLevel: transformers searches the text of the file for it. */
static bool says_byte_level(const json_t *json) {
    const char *key = NULL;
    json_t *value = NULL;
    size_t i = 0;
    if (json_is_string(json)) return strcmp(json_string_value(json), "ByteLevel") == 0;
    json_array_foreach(json, i, value) {
        if (says_byte_level(value)) return true;
    }
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        if (strcmp(key, "ByteLevel") == 0) return true;
        if (strcmp(key, "vocab") == 0 && json_object_get(value, "ByteLevel") != NULL) return true;
        if (strcmp(key, "vocab") != 0 && strcmp(key, "merges") != 0 && says_byte_level(value)) return true;
    }
    return false;
}

/* Returns the index of the class. -1: an unknown class, treated as TokenizersBackend; -2: one of other_classes. */
static int32_t choose_class(const edit *self, const char **named) {
    const char *type = text_of(self->json[BPE_JSON_MODEL], "model_type");
    const char *model = text_of(self->json[BPE_JSON_MODEL], "model_name");
    const char *name = text_of(self->json[BPE_JSON_CONFIG], "tokenizer_class");
    const bool distrust = (type != NULL && bpe_json_listed(distrusted, type)) ||
                          (model != NULL && bpe_json_listed(distrusted, model));
    const int32_t own = class_of_type(type);
    char plain[64];
    int32_t found = -1;
    size_t n = 0;
    if (name == NULL || name[0] == 0) name = text_of(self->json[BPE_JSON_MODEL], "tokenizer_class");
    if (name == NULL || name[0] == 0) return own;
    *named = name;
    n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, "Fast") == 0) n -= 4;
    found = class_of_name(name, n);
    if (found >= 0 && classes[found].family == LLAMA && !distrust && says_byte_level(self->json[BPE_JSON_TOKENIZER]))
        return -1;
    if (own >= 0 && own != found && (classes[own].family == AS_IS || distrust)) return own;
    (void)snprintf(plain, sizeof plain, "%.*s", (int)n, name);
    return found < 0 && bpe_json_listed(other_classes, plain) ? -2 : found;
}

/* ---- added tokens ---- */

static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized", "special"};
enum { N_FLAGS = 5, NORMALIZED = 3, SPECIAL = 4 };

/* Sets the flags of a token to those of `from`, an object or NULL. By default, a special token is not normalized. */
static void set_flags(edit *self, json_t *token, const json_t *from, bool special) {
    for (int i = N_FLAGS - 1; i >= 0; i--) {
        const json_t *given = json_object_get(from, flags[i]);
        bool value = json_is_true(given);
        if (i == SPECIAL) value = special = special || value;
        if (i == NORMALIZED && !json_is_boolean(given)) value = !special;
        if (json_object_set_new(token, flags[i], json_boolean(value)) != 0) self->failed = true;
    }
}

static bool same_flags(const json_t *a, const json_t *b) {
    for (int i = 0; i < N_FLAGS; i++)
        if (json_is_true(json_object_get(a, flags[i])) != json_is_true(json_object_get(b, flags[i]))) return false;
    return true;
}

static int32_t vocab_size(const edit *self) {
    const json_t *model = json_object_get(self->json[BPE_JSON_TOKENIZER], "model");
    return (int32_t)json_object_size(json_object_get(model, "vocab"));
}

static const json_t *in_vocab(const edit *self, const char *content) {
    const json_t *model = json_object_get(self->json[BPE_JSON_TOKENIZER], "model");
    return json_object_get(json_object_get(model, "vocab"), content);
}

static void keep(edit *self, json_t *token) {
    const char *content = text_of(token, "content");
    const json_int_t id = json_integer_value(json_object_get(token, "id"));
    if (content == NULL || json_object_set(self->by_name, content, token) != 0) self->failed = true;
    if (id > self->highest && id <= BPE_HIGHEST_ID) self->highest = (int32_t)id;
}

/* Adds a token as add_tokens of the library: a known token gets the new flags; a new one gets the vocabulary's id or
 * the next free one. */
static void add(edit *self, const char *content, const json_t *from, bool special) {
    json_t *token = json_object_get(self->by_name, content);
    const json_t *id = in_vocab(self, content);
    const int32_t next = self->highest >= vocab_size(self) ? self->highest + 1 : vocab_size(self);
    if (content[0] == 0) return;
    if (token == NULL) {
        token = json_pack("{s:O, s:s}", "id", id, "content", content);
        if (id == NULL) token = json_pack("{s:i, s:s}", "id", (int)next, "content", content);
        if (token == NULL || json_array_append_new(self->tokens, token) != 0) {
            self->failed = true;
            return;
        }
        keep(self, token);
    }
    set_flags(self, token, from, special);
}

typedef struct entry {
    long id;
    json_t *token;
} entry;

static int by_id(const void *a, const void *b) {
    const entry *left = a, *right = b;
    return left->id < right->id ? -1 : left->id > right->id;
}

/* Adds the tokens listed in tokenizer_config.json. Without a list, adds those of added_tokens.json that tokenizer.json
 * does not contain. */
static void add_listed(edit *self, json_t *names) {
    json_t *decoder = listed(self);
    json_t *list = decoder != NULL ? decoder : self->json[BPE_JSON_ADDED];
    entry *entries = calloc(json_object_size(list) + 1, sizeof *entries);
    const char *key = NULL;
    json_t *value = NULL;
    size_t n = 0;
    self->failed = self->failed || entries == NULL;
    json_object_foreach(list, key, value) {
        json_t *token = decoder != NULL ? json_incref(value) : json_pack("{s:s}", "content", key);
        const long id = decoder != NULL ? strtol(key, NULL, 10) : (long)json_integer_value(value);
        if (entries != NULL && text_of(token, "content") != NULL) entries[n++] = (entry){id, token};
        else json_decref(token);
    }
    if (n > 1) qsort(entries, n, sizeof *entries, by_id);
    for (size_t i = 0; i < n; i++) {
        const char *content = text_of(entries[i].token, "content");
        const json_t *there = json_object_get(self->by_name, content);
        const bool named = json_object_get(names, content) != NULL;
        if (there == NULL || (decoder != NULL && !same_flags(there, entries[i].token)))
            add(self, content, entries[i].token, named);
        json_decref(entries[i].token);
    }
    free(entries);
}

/* ---- named tokens ---- */

/* Returns the value of a key in either file; NULL: in neither. */
static const json_t *named(const edit *self, const char *key) {
    const json_t *map = json_object_get(self->json[BPE_JSON_MAP], key);
    return map != NULL ? map : json_object_get(self->json[BPE_JSON_CONFIG], key);
}

static const char *content_of(const json_t *value) {
    return json_is_object(value) ? text_of(value, "content") : json_string_value(value);
}

/* Writes a class's defaults into tokenizer_config.json. */
static void put_defaults(edit *self) {
    for (const char *at = self->defaults; *at != 0; at += strspn(at, " ")) {
        char key[32], token[64];
        const size_t n = strcspn(at, "="), m = strcspn(at + n + 1, " ");
        (void)snprintf(key, sizeof key, "%.*s", (int)n, at);
        (void)snprintf(token, sizeof token, "%.*s", (int)m, at + n + 1);
        at += n + 1 + m;
        if (named(self, key) != NULL) continue;
        if (in_vocab(self, token) == NULL && json_object_get(self->known, token) == NULL) continue;
        if (json_object_set_new(self->json[BPE_JSON_CONFIG], key, json_string(token)) != 0) self->failed = true;
    }
}

static void name(edit *self, json_t *names, const json_t *value) {
    const char *content = content_of(value);
    if (content == NULL || json_object_get(names, content) != NULL) return;
    if (json_object_set(names, content, (json_t *)(uintptr_t)value) != 0) self->failed = true;
}

/* Returns all named tokens in the order of addition, each with its value in the file. */
static json_t *all_named(edit *self) {
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    static const char *const extra[] = {"extra_special_tokens", "additional_special_tokens"};
    json_t *out = json_object(), *value = NULL;
    const char *key = NULL;
    size_t i = 0;
    if (out == NULL) self->failed = true;
    for (i = 0; i < sizeof keys / sizeof keys[0]; i++) name(self, out, named(self, keys[i]));
    json_object_foreach(self->json[BPE_JSON_CONFIG], key, value) {
        const size_t n = strlen(key);
        if (n > 6 && strcmp(key + n - 6, "_token") == 0 && json_is_string(value)) name(self, out, named(self, key));
    }
    for (int k = 0; k < 2; k++) {
        const json_t *list = named(self, extra[k]);
        json_array_foreach(list, i, value) name(self, out, value);
        json_object_foreach((json_t *)(uintptr_t)list, key, value) name(self, out, value);
        if (json_array_size(list) > 0 || json_object_size(list) > 0) break;
    }
    return out;
}

/* Returns true for a bos, eos, unk or pad token that no file contains. The reader of the names reports it. */
static bool is_missing(const edit *self, const char *content) {
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    if (in_vocab(self, content) != NULL || json_object_get(self->by_name, content) != NULL) return false;
    for (int i = 0; i < 4; i++) {
        const char *one = content_of(named(self, keys[i]));
        if (one != NULL && strcmp(one, content) == 0) return true;
    }
    return false;
}

static void add_named(edit *self, json_t *names) {
    const char *content = NULL;
    json_t *value = NULL;
    json_object_foreach(names, content, value) {
        const bool there = json_object_get(self->by_name, content) != NULL;
        const json_t *from = json_is_object(value) ? value : NULL;
        if (is_missing(self, content)) continue;
        if (!there) add(self, content, from, true);
        if (self->family == QWEN2) add(self, content, NULL, true);
        if (self->family == COHERE) {
            const json_t *known = json_object_get(self->known, content);
            add(self, content, known != NULL ? known : from, true);
        }
    }
}

/* ---- parts that a class rebuilds ---- */

#define LLAMA_DECODER                                                                                                  \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"  \
    "{\"type\":\"Fuse\"}"
#define QWEN_SPLIT(letters)                                                                                            \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"                            \
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" letters "+|\\\\p{N}| ?[^\\\\s\\\\p{L}"
#define QWEN_REST                                                                                                      \
    "\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":"      \
    "false},{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"trim_offsets\":true,\"use_regex\":false}]}"
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"trim_offsets\":true,\"use_regex\":true}"

static void put_part(edit *self, const char *key, const char *text) {
    json_t *part = json_loads(text, JSON_DECODE_ANY, NULL);
    if (part == NULL || json_object_set_new(self->json[BPE_JSON_TOKENIZER], key, part) != 0) self->failed = true;
}

static void put_byte_level(edit *self) {
    const char *space = json_is_true(json_object_get(self->json[BPE_JSON_CONFIG], "add_prefix_space")) ? "true"
                                                                                                       : "false";
    const char *format = BYTE_LEVEL;
    char text[600];
    if (self->family == QWEN2) format = QWEN_SPLIT("\\\\p{L}") QWEN_REST;
    if (self->family == QWEN3_5) format = QWEN_SPLIT("[\\\\p{L}\\\\p{M}]") "\\\\p{M}" QWEN_REST;
    if (self->family == COHERE)
        format =
            "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true}," BYTE_LEVEL
            "]}";
    (void)snprintf(text, sizeof text, format, space);
    put_part(self, "pre_tokenizer", text);
    put_part(self, "decoder",
             "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}");
    put_part(self, "normalizer", self->family == GPT2 || self->family == CODEGEN ? "null" : "{\"type\":\"NFC\"}");
}

static void put_sentence_piece(edit *self) {
    const json_t *config = self->json[BPE_JSON_CONFIG], *space = json_object_get(config, "add_prefix_space");
    const bool prefix = self->family != GEMMA && (!json_is_boolean(space) || json_is_true(space));
    const bool legacy = self->family == LLAMA && json_is_true(json_object_get(config, "legacy"));
    char text[200];
    (void)snprintf(
        text, sizeof text,
        "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"%s\",\"split\":false}",
        !prefix  ? "never"
        : legacy ? "always"
                 : "first");
    if (self->family == GEMMA) {
        put_part(self, "normalizer",
                 "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}");
        put_part(
            self, "pre_tokenizer",
            "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\",\"invert\":false}");
    } else {
        put_part(self, "normalizer", "null");
        put_part(self, "pre_tokenizer", text);
    }
    put_part(self, "decoder",
             prefix || self->family == CODE_LLAMA ? "{\"type\":\"Sequence\",\"decoders\":[" LLAMA_DECODER
                                                    ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"
                                                  : "{\"type\":\"Sequence\",\"decoders\":[" LLAMA_DECODER "]}");
}

static void put_model(edit *self) {
    json_t *model = json_object_get(self->json[BPE_JSON_TOKENIZER], "model");
    const bool pieces = self->family == LLAMA || self->family == CODE_LLAMA || self->family == GEMMA;
    const char *unknown = self->family == GEMMA || self->family == CODE_LLAMA ? content_of(named(self, "unk_token"))
                                                                              : NULL;
    json_t *changes = json_pack("{s:s?, s:b, s:b, s:b, s:n, s:n, s:n}", "unk_token", unknown, "fuse_unk", pieces,
                                "byte_fallback", pieces, "ignore_merges", 0, "dropout", "continuing_subword_prefix",
                                "end_of_word_suffix");
    if (changes == NULL || (json_is_object(model) && json_object_update(model, changes) != 0)) self->failed = true;
    json_decref(changes);
}

/* Sets the post-processor. Two classes build their own; all others use that of tokenizer.json. */
static void put_processor(edit *self) {
    const char *bos = content_of(named(self, "bos_token"));
    const json_t *token = bos == NULL ? NULL : json_object_get(self->by_name, bos);
    json_t *processor = NULL;
    if (self->family == GPT_NEOX) put_part(self, "post_processor", "null");
    if (self->family != CODE_LLAMA) return;
    put_part(self, "post_processor", "null");
    if (token == NULL) return;
    processor = json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[O], s:[s]}}}", "type",
                          "TemplateProcessing", "single", "SpecialToken", "id", bos, "type_id", 0, "Sequence", "id",
                          "A", "type_id", 0, "pair", "special_tokens", bos, "id", bos, "ids",
                          json_object_get(token, "id"), "tokens", bos);
    if (processor == NULL || json_object_set_new(self->json[BPE_JSON_TOKENIZER], "post_processor", processor) != 0)
        self->failed = true;
}

/* ---- edit ---- */

/* Takes the added tokens of tokenizer.json. A rebuilt class ignores them if tokenizer_config.json lists its own. */
static void begin_tokens(edit *self) {
    json_t *own = json_object_get(self->json[BPE_JSON_TOKENIZER], "added_tokens"), *token = NULL;
    const char *key = NULL;
    size_t i = 0;
    self->highest = -1;
    self->known = json_object();
    self->by_name = json_object();
    self->tokens = listed(self) != NULL && self->family > OTHER ? json_array() : json_copy(own);
    if (self->tokens == NULL) self->tokens = json_array();
    json_array_foreach(self->tokens, i, token) if (text_of(token, "content") != NULL) keep(self, token);
    if (listed(self) == NULL && json_object_update(self->known, self->by_name) != 0) self->failed = true;
    json_object_foreach(listed(self), key, token) {
        const char *content = text_of(token, "content");
        if (content != NULL && json_object_set(self->known, content, token) != 0) self->failed = true;
    }
}

static bool same_part(const edit *self, const json_t *before, const char *key) {
    const json_t *old = json_object_get(before, key), *now = json_object_get(self->json[BPE_JSON_TOKENIZER], key);
    return json_equal(old, now) || (json_is_null(now) && (old == NULL || json_is_null(old)));
}

static void tell_class(const edit *self, const weft_host *host, const char *directory, const char *named,
                       const json_t *before) {
    if (self->family == OTHER)
        weft_log(
            host, WEFT_LOG_WARN,
            "%s/tokenizer_config.json: tokenizer_class = %s: AutoTokenizer builds this class without the sections of "
            "tokenizer.json, and Weft reads these parts: ids may differ.",
            directory, named);
    if (self->family > OTHER && !(same_part(self, before, "normalizer") && same_part(self, before, "pre_tokenizer")))
        weft_log(host, WEFT_LOG_DEBUG, /* usual case, without a visible effect */
                 "%s/tokenizer.json: normalizer and pre_tokenizer are replaced by those of %s, as in AutoTokenizer.",
                 directory, named);
}

weft_status bpe_auto_edit(json_t *json[BPE_N_JSON], const weft_host *host, const char *directory, weft_error *err) {
    edit self = {.json = json, .defaults = ""};
    const char *class_name = NULL;
    json_t *names = NULL, *root = json[BPE_JSON_TOKENIZER], *before = json_copy(root);
    const int32_t chosen = choose_class(&self, &class_name);
    if (json[BPE_JSON_CONFIG] == NULL) json[BPE_JSON_CONFIG] = json_object();
    self.family = chosen == -2 ? OTHER : chosen < 0 ? AS_IS : classes[chosen].family;
    if (chosen >= 0) self.defaults = classes[chosen].defaults;
    if (class_name == NULL && chosen >= 0) class_name = classes[chosen].name;
    if (listed(&self) != NULL) {
        json_decref(json[BPE_JSON_MAP]);
        json[BPE_JSON_MAP] = NULL;
    }
    begin_tokens(&self);
    if (json_is_array(json_object_get(root, "added_tokens")) || json_object_get(root, "added_tokens") == NULL) {
        put_defaults(&self);
        names = all_named(&self);
        add_listed(&self, names);
        add_named(&self, names);
        if (json_object_set(root, "added_tokens", self.tokens) != 0) self.failed = true;
    }
    if (self.family > OTHER) {
        put_model(&self);
        if (self.family <= GEMMA) put_sentence_piece(&self);
        else put_byte_level(&self);
        put_processor(&self);
    }
    tell_class(&self, host, directory, class_name, before);
    json_decref(names);
    json_decref(before);
    json_decref(self.known);
    json_decref(self.tokens);
    json_decref(self.by_name);
    return self.failed ? bpe_no_memory(err) : WEFT_OK;
}
