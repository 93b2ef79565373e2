/* Conversations as ids: ids and answer masks of transformers; special tokens in user text; answers of templates without
 * {% generation %} blocks. */
#include "golden.h"
#include "rig.h"

#include "../../plugins/common/json_big.h"
#include "base/text.h"

#include <sys/stat.h>

static weft_error err = WEFT_ERROR_INIT;

static const weft_tokenizer_chat *chat_table;

static void chat_enter(void) {
    scratch_make();
    rig_load();
}

static void copy_file(const char *to, const char *from) {
    char path[1024], *text = NULL;
    size_t n = 0;
    golden_path(path, sizeof path, from);
    text = read_bytes(path, &n);
    write_bytes(scratch_path(to), text, n);
    free(text);
}

static void write_scratch(const char *name, const char *text) {
    write_text(scratch_path(name), text);
}

static FILE *open_file(const char *name) {
    char path[1024];
    FILE *file = NULL;
    golden_path(path, sizeof path, name);
    file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    return file;
}

/* Reads a golden file of objects, at most `most`; returns their number. */
static int load_objects(json_t **out, int most, const char *name) {
    int n = 0;
    FILE *file = open_file(name);
    while (n < most && (out[n] = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) n++;
    (void)fclose(file);
    return n;
}

static void write_template(const char *source) {
    write_scratch("chat_template.jinja", source);
}

static weft_tokenizer *open_golden(const char *tokenizer) {
    char from[128];
    weft_tokenizer *out = NULL;
    (void)snprintf(from, sizeof from, "tokenizer/%s/tokenizer.json", tokenizer);
    copy_file("tokenizer.json", from);
    out = rig_open(scratch);
    chat_table = plugin->extension(out, WEFT_TOKENIZER_CHAT);
    ck_assert_ptr_nonnull(chat_table);
    return out;
}

/* --- one conversation --- */

typedef struct marked {
    int32_t ids[20000], answers[20000];
    size_t n;
} marked;

static weft_status take(void *context, const int32_t *ids, const int32_t *answers, size_t n) {
    marked *out = context;
    ck_assert_uint_le(out->n + n, 20000);
    memcpy(out->ids + out->n, ids, n * sizeof *ids);
    memcpy(out->answers + out->n, answers, n * sizeof *answers);
    out->n += n;
    return WEFT_OK;
}

/* Encodes an object: messages, and all other keys as variables. text: (optional) receives the text instead of ids. */
static weft_status run(const weft_tokenizer *tokenizer, marked *out, weft_bytes *text, json_t *object,
                       const char *named, uint32_t flags) {
    json_t *messages = json_incref(json_object_get(object, "messages")), *rest = json_copy(object);
    const size_t n = json_array_size(messages);
    weft_chat_message *list = calloc(n + 1, sizeof *list);
    const weft_chat_sink sink = {out, take};
    const weft_text_sink text_sink = {text, weft_bytes_put_text};
    weft_chat chat = {.struct_size = (uint32_t)sizeof chat, .flags = flags, .messages = list, .n_messages = n};
    weft_status status = WEFT_OK;
    (void)json_object_del(rest, "messages");
    for (size_t i = 0; i < n; i++) {
        list[i].struct_size = (uint32_t)sizeof *list;
        list[i].more = json_big_dump(json_array_get(messages, i), 0);
        list[i].more_bytes = strlen(list[i].more);
    }
    chat.stride = (uint32_t)sizeof *list;
    chat.named = named;
    chat.variables = json_big_dump(rest, 0);
    chat.variables_bytes = strlen(chat.variables);
    if (out != NULL) out->n = 0;
    status = text != NULL ? chat_table->render(tokenizer, &text_sink, &chat, &err)
                          : chat_table->encode(tokenizer, &sink, &chat, &err);
    for (size_t i = 0; i < n; i++) free((char *)(uintptr_t)list[i].more);
    free((char *)(uintptr_t)chat.variables);
    free(list);
    json_decref(messages);
    json_decref(rest);
    return status;
}

static weft_status encode(const weft_tokenizer *tokenizer, marked *out, json_t *object, const char *named,
                          uint32_t flags) {
    return run(tokenizer, out, NULL, object, named, flags);
}

static uint32_t fnv(const int32_t *numbers, size_t n, bool as_mask) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (as_mask ? (uint64_t)(numbers[i] >= 0) : (uint64_t)(uint32_t)numbers[i])) * 1099511628211u;
    return (uint32_t)(h >> 32);
}

/* --- transformers --- */

TESTS(ids_and_masks_are_those_of_transformers, 4) {
    static const char *const tokenizers[] = {"gpt2-style", "llama3-style", "sp-bpe", "sp-bpe-normalized"};
    char name[32], template[32], before[32] = "", mask[16], file[64];
    static char line[4096];
    json_t *conversations[500];
    int number = 0, held = 0;
    unsigned ids = 0;
    static marked out;
    weft_tokenizer *tokenizer = NULL;
    FILE *expected = open_file("chat/ids.txt");
    ck_assert_int_eq(load_objects(conversations, 500, "chat/conversations.jsonl"), 500);
    while (fgets(line, sizeof line, expected) != NULL) {
        ck_assert_int_eq(sscanf(line, "%31s %31s %d %x %15s", name, template, &number, &ids, mask), 5);
        if (strcmp(name, tokenizers[_i]) != 0) continue;
        if (strcmp(template, before) != 0) {
            if (tokenizer != NULL) rig_close(tokenizer);
            (void)snprintf(file, sizeof file, "chat/%s.jinja", template);
            copy_file("chat_template.jinja", file);
            tokenizer = open_golden(name);
            (void)snprintf(before, sizeof before, "%s", template);
        }
        ck_assert_msg(encode(tokenizer, &out, conversations[number], NULL, WEFT_CHAT_SPECIAL) == WEFT_OK,
                      "%s %s %d: %s", name, template, number, err.text);
        ck_assert_msg(fnv(out.ids, out.n, false) == ids, "%s %s %d: other ids", name, template, number);
        if (mask[0] != '-')
            ck_assert_msg(fnv(out.answers, out.n, true) == (uint32_t)strtoul(mask, NULL, 16), "%s %s %d: another mask",
                          name, template, number);
        held++;
    }
    ck_assert_int_gt(held, 200);
    rig_close(tokenizer);
    (void)fclose(expected);
    for (int i = 0; i < 500; i++) json_decref(conversations[i]);
}

static const char special_tokens[] =
    "{\"bos_token\":{\"content\":\"<s>\",\"lstrip\":false},\"eos_token\":\"</s>\",\"unk_token\":\"<unk>\","
    "\"sep_token\":\"<sep>\",\"cls_token\":\"<cls>\",\"mask_token\":\"<mask>\",\"image_token\":\"<image>\","
    "\"extra_special_tokens\":{\"eot_token\":\"<eot>\"}}";

static uint32_t fnv_text(const weft_bytes *text) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < text->n; i++) h = (h ^ (unsigned char)text->data[i]) * 1099511628211u;
    return (uint32_t)(h >> 32);
}

/* Tool calls, empty contents, reasoning, documents and so on, prepared as in apply_chat_template. */
TEST(texts_of_all_forms_are_those_of_transformers) {
    char template[32], before[32] = "", hash[16], file[64], got[16];
    json_t *forms[64];
    const int n = load_objects(forms, 64, "chat/forms.jsonl");
    int number = 0, held = 0;
    weft_tokenizer *tokenizer = NULL;
    FILE *expected = open_file("chat/forms.txt");
    ck_assert_int_eq(n, 25);
    write_scratch("tokenizer_config.json", special_tokens);
    while (fscanf(expected, "%31s %d %15s", template, &number, hash) == 3) {
        weft_bytes text = {0};
        json_t *given = NULL;
        uint32_t flags = 0;
        if (strcmp(template, before) != 0) {
            if (tokenizer != NULL) rig_close(tokenizer);
            (void)snprintf(file, sizeof file, "chat/%s.jinja", template);
            copy_file("chat_template.jinja", file);
            tokenizer = open_golden("sp-bpe");
            (void)snprintf(before, sizeof before, "%s", template);
        }
        ck_assert_int_lt(number, n);
        given = json_copy(forms[number]);
        if (json_is_true(json_object_get(given, "add_generation_prompt"))) flags = WEFT_CHAT_PROMPT;
        (void)json_object_del(given, "add_generation_prompt");
        (void)snprintf(got, sizeof got, "refused");
        if (run(tokenizer, NULL, &text, given, NULL, flags) == WEFT_OK)
            (void)snprintf(got, sizeof got, "%08x", fnv_text(&text));
        ck_assert_msg(strcmp(got, hash) == 0, "%s %d: %s and not %s: %.*s %s", template, number, got, hash, (int)text.n,
                      text.data == NULL ? "" : text.data, err.text);
        weft_bytes_free(&text);
        json_decref(given);
        held++;
    }
    ck_assert_int_eq(held, 100);
    rig_close(tokenizer);
    (void)fclose(expected);
    for (int i = 0; i < n; i++) json_decref(forms[i]);
}

/* The choice among several templates by transformers. text NULL: an error that lists them. */
TESTS(the_template_is_chosen_as_transformers_does, 17) {
    static const struct {
        const char *config, *file, *added, *variables, *named, *text;
    } rows[] = {
        {"\"config\"", NULL, NULL, "{}", NULL, "config"},
        {"\"config\"", NULL, NULL, "{\"tools\":[{}]}", NULL, "config"},
        {"\"config\"", "file", NULL, "{}", NULL, "file"},
        {"\"config\"", "file", "added", "{}", NULL, "file"},
        {"\"config\"", "file", "added", "{\"tools\":[]}", NULL, "added"},
        {"\"config\"", "file", "added", "{\"tools\":null}", NULL, "file"},
        {"\"config\"", "file", "added", "{\"tools\":{}}", NULL, NULL},
        {"\"config\"", "file", "added", "{\"tools\":[\"f\"]}", NULL, NULL},
        {"\"config\"", "file", "added", "{\"documents\":\"d\"}", NULL, NULL},
        {"\"config\"", "file", "added", "{}", "tool_use", "added"},
        {"\"config\"", NULL, "added", "{}", NULL, NULL},
        {"\"config\"", NULL, "added", "{\"tools\":[{}]}", NULL, "added"},
        {"[{\"name\":\"rag\",\"template\":\"r\"},{\"name\":\"default\",\"template\":\"d\"}]", NULL, NULL,
         "{\"tools\":[{}]}", NULL, "d"},
        {"[{\"name\":\"rag\",\"template\":\"r\"},{\"name\":\"default\",\"template\":\"d\"}]", NULL, NULL, "{}", "rag",
         "r"},
        {"[{\"name\":\"tool_use\",\"template\":\"t\"},{\"name\":\"default\",\"template\":\"d\"}]", NULL, NULL,
         "{\"tools\":[{}]}", NULL, "t"},
        {"[{\"name\":\"rag\",\"template\":\"r\"}]", NULL, NULL, "{}", NULL, NULL},
        {"{\"default\":\"d\",\"tool_use\":\"t\"}", NULL, NULL, "{\"tools\":[{}]}", NULL, "t"},
    };
    char config[256];
    weft_bytes text = {0};
    weft_tokenizer *tokenizer = NULL;
    json_t *object = json_loads(rows[_i].variables, 0, NULL);
    (void)json_object_set_new(object, "messages", json_pack("[{s:s, s:s}]", "role", "user", "content", "a"));
    (void)snprintf(config, sizeof config, "{\"chat_template\":%s}", rows[_i].config);
    write_scratch("tokenizer_config.json", config);
    if (rows[_i].file != NULL) write_template(rows[_i].file);
    if (rows[_i].added != NULL) {
        ck_assert_int_eq(mkdir(scratch_path("additional_chat_templates"), 0777), 0);
        write_scratch("additional_chat_templates/tool_use.jinja", rows[_i].added);
    }
    tokenizer = open_golden("sp-bpe");
    if (rows[_i].text == NULL) {
        ck_assert_int_ne(run(tokenizer, NULL, &text, object, rows[_i].named, 0), WEFT_OK);
        ck_assert_msg(err.text[0] != '\0', "an error without a sentence");
    } else {
        ck_assert_msg(run(tokenizer, NULL, &text, object, rows[_i].named, 0) == WEFT_OK, "%s", err.text);
        ck_assert_msg(text.n == strlen(rows[_i].text) && memcmp(text.data, rows[_i].text, text.n) == 0, "%.*s",
                      (int)text.n, text.data);
    }
    ck_assert_int_eq(chat_table->check(tokenizer, "nonsuch", &err), WEFT_E_USER);
    rig_close(tokenizer);
    weft_bytes_free(&text);
    json_decref(object);
}

/* --- AutoTokenizer --- */

static void write_or_remove(const char *name, const json_t *json) {
    if (json != NULL) rig_write_json(name, json);
    else rig_remove(name);
}

static bool same_ids(const json_t *expected, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n && i < json_array_size(expected); i++)
        if (json_integer_value(json_array_get(expected, i)) != ids[i]) return false;
    return json_array_size(expected) == n;
}

/* Checks that a text, and the same text from a template, have the ids of AutoTokenizer. */
static void check_auto_text(const weft_tokenizer *tokenizer, const char *name, const json_t *text,
                            const json_t *expected) {
    static marked chat;
    json_t *object = json_pack("{s:[{s:s, s:O}]}", "messages", "role", "user", "content", text);
    weft_bytes ids = rig_encode(tokenizer, json_string_value(text), json_string_length(text), 0);
    ck_assert_msg(same_ids(expected, (const int32_t *)(const void *)ids.data, rig_n(&ids)), "%s: \"%s\"", name,
                  json_string_value(text));
    ck_assert_msg(encode(tokenizer, &chat, object, NULL, WEFT_CHAT_SPECIAL) == WEFT_OK, "%s", err.text);
    ck_assert_msg(same_ids(expected, chat.ids, chat.n), "%s: \"%s\" in a conversation", name, json_string_value(text));
    weft_bytes_free(&ids);
    json_decref(object);
}

TEST(files_mean_what_they_mean_to_auto_tokenizer) {
    static const char *const files[][2] = {{"config", "tokenizer_config.json"},
                                           {"map", "special_tokens_map.json"},
                                           {"added", "added_tokens.json"},
                                           {"model", "config.json"}};
    char path[512];
    json_t *json = NULL;
    const json_t *texts = NULL;
    size_t n = 0, held = 0;
    rig_golden(path, "tokenizer_auto.json");
    json = rig_load_json(path);
    texts = json_object_get(json, "texts");
    n = json_array_size(json_object_get(json, "rows"));
    write_template("{{ messages[0].content }}");
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(json_object_get(json, "rows"), i),
                     *special = json_object_get(row, "special");
        const json_t *surround = json_object_get(row, "surround");
        json_t *spec =
            json_copy(json_object_get(json_object_get(json, "bases"), json_string_value(json_object_get(row, "base"))));
        char *name = json_dumps(json_object_get(row, "files"), JSON_COMPACT);
        weft_tokenizer *tokenizer = NULL;
        weft_tokenizer_info info;
        ck_assert_int_eq(json_object_update(spec, json_object_get(row, "changes")), 0);
        rig_write_json("tokenizer.json", spec);
        for (int k = 0; k < 4; k++)
            write_or_remove(files[k][1], json_object_get(json_object_get(row, "files"), files[k][0]));
        tokenizer = rig_open(scratch);
        chat_table = plugin->extension(tokenizer, WEFT_TOKENIZER_CHAT);
        info = rig_info(tokenizer);
        ck_assert_int_eq(info.auto_bos, json_array_size(surround) > 0);
        ck_assert_int_eq(info.auto_eos, 0);
        if (info.auto_bos) ck_assert_int_eq(info.bos, json_integer_value(json_array_get(surround, 0)));
        else ck_assert_msg(info.bos == json_integer_value(json_array_get(special, 0)), "%s: bos %d", name, info.bos);
        ck_assert_msg(info.eos == json_integer_value(json_array_get(special, 1)), "%s: eos %d", name, info.eos);
        ck_assert_msg(info.pad == json_integer_value(json_array_get(special, 2)), "%s: pad %d", name, info.pad);
        for (size_t k = 0; k < json_array_size(texts); k++) {
            const json_t *expected = json_array_get(json_object_get(row, "ids"), k);
            if (json_is_null(expected)) continue;
            check_auto_text(tokenizer, name, json_array_get(texts, k), expected);
            held++;
        }
        rig_close(tokenizer);
        json_decref(spec);
        free(name);
    }
    ck_assert_uint_ge(n, 200);
    ck_assert_uint_ge(held, 2500);
    json_decref(json);
}

/* --- detection of answers --- */

static const char two_turns[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"ab </s> c\"},"
                                "{\"role\":\"assistant\",\"content\":\"no\"},{\"role\":\"user\",\"content\":\"d\"},"
                                "{\"role\":\"assistant\",\"content\":\"yes </s>\"}]}";

/* Writes the text of the ids with answer `answer`, including the end token's name. */
static void answer_text(char *out, size_t size, const weft_tokenizer *tokenizer, const marked *ids, int32_t answer,
                        bool with_end) {
    int32_t chosen[256];
    size_t n = 0;
    weft_bytes text = {0};
    const weft_text_sink sink = {&text, weft_bytes_put_text};
    for (size_t i = 0; i < ids->n; i++) {
        const bool end = ids->answers[i] >= 0 && (ids->answers[i] & WEFT_CHAT_END) != 0;
        if (ids->answers[i] < 0 || (ids->answers[i] & ~WEFT_CHAT_END) != answer || (end && !with_end)) continue;
        chosen[n++] = ids->ids[i];
    }
    ck_assert_int_eq(plugin->decode(tokenizer, &sink, chosen, n, WEFT_DECODE_KEEP_SPECIAL, &err), WEFT_OK);
    (void)snprintf(out, size, "%.*s", (int)text.n, text.data == NULL ? "" : text.data);
    weft_bytes_free(&text);
}

TESTS(answers_follow_the_generation_prompt, 6) {
    static const struct {
        const char *source, *named, *first, *second;
        int n_ends;
    } rows[] = {
        /* without a generation prompt the model must write the header */
        {"{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}", NULL, "assistant: no</s>",
         "assistant: yes </s></s>", 2},
        {"{% for m in messages %}{{ m.role + '=' + m.content|trim|upper + ' ' + '</s>' }}\n{% endfor %}", NULL,
         "assistant=NO </s>", "assistant=YES </S> </s>", 2},
        {"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% "
         "endif %}",
         NULL, "no\n", "yes </s>\n", 0},
        {"{% for m in messages %}{{ m.role }}: {{ m.content }} over </s>{% endfor %}{% if add_generation_prompt %}"
         "assistant: {% endif %}",
         NULL, "no over </s>", "yes </s> over </s>", 2},
        {"{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}{% generation %}A:{{ m.content "
         "}}</s>"
         "{% endgeneration %}{% endif %}{% endfor %}",
         NULL, "A:no</s>", "A:yes </s></s>", 2},
        {NULL, "chatml", "no<|im_end|>", "yes </s><|im_end|>", 0},
    };
    static marked out;
    char text[256];
    json_t *object = json_loads(two_turns, 0, NULL);
    weft_tokenizer *tokenizer = NULL;
    int ends = 0;
    if (rows[_i].source != NULL) write_template(rows[_i].source);
    tokenizer = open_golden("sp-bpe");
    ck_assert_msg(encode(tokenizer, &out, object, rows[_i].named, 0) == WEFT_OK, "%s", err.text);
    answer_text(text, sizeof text, tokenizer, &out, 0, true);
    ck_assert_msg(strstr(text, rows[_i].first) != NULL && strlen(text) <= strlen(rows[_i].first) + 1, "%d: \"%s\"", _i,
                  text);
    answer_text(text, sizeof text, tokenizer, &out, 1, true);
    ck_assert_msg(strstr(text, rows[_i].second) != NULL && strlen(text) <= strlen(rows[_i].second) + 1, "%d: \"%s\"",
                  _i, text);
    for (size_t i = 0; i < out.n; i++) ends += out.answers[i] >= 0 && (out.answers[i] & WEFT_CHAT_END) != 0;
    ck_assert_int_eq(ends, rows[_i].n_ends);
    rig_close(tokenizer);
    json_decref(object);
}

#define PROMPT(text) "{% if add_generation_prompt %}" text "{% endif %}"
#define USER         "{'role':'user','content':'q'},"
#define ANSWER(text) "{'role':'assistant','content':'" text "'}"
#define TOOL         "{'role':'tool','content':'r'},"
#define CALL(value)  "{'role':'assistant','content':'','tool_calls':[{'name':'f','arguments':{'x':" value "}}]},"
#define EACH(body)   "{% for m in messages %}" body "{% endfor %}"
#define CALLS        "{% for c in m.tool_calls %}<call>{{ c.name }}({{ c.arguments|tojson }})</call>{% endfor %}"
#define TURN         "<t>{{ m.role }}\n{{ m.content }}" CALLS "</s>\n"

/* Loads an object written with ' for each ". */
static json_t *load_quoted(const char *format, const char *text) {
    char given[1024];
    json_error_t at;
    json_t *object = NULL;
    (void)snprintf(given, sizeof given, format, text);
    for (char *quote = given; (quote = strchr(quote, '\'')) != NULL;) *quote = '"';
    object = json_big_load(given, strlen(given), 0, &at);
    ck_assert_msg(object != NULL, "%s", given);
    return object;
}

/* Templates as models have them, and their answers in text order, each followed by |. */
static const struct {
    const char *source, *messages, *answers;
} turns[] = {
    /* opening, a number as last argument, and closing of a call */
    {EACH(TURN) PROMPT("<t>assistant\n"), USER CALL("3") TOOL ANSWER("a"), "<call>f({\"x\": 3})</call></s>|a</s>|"},
    {EACH(TURN) PROMPT("<t>assistant\n"), USER CALL("[true, null, 18446744073709551616]") TOOL ANSWER("a"),
     "<call>f({\"x\": [true, null, 18446744073709551616]})</call></s>|a</s>|"},
    /* an empty answer */
    {EACH(TURN) PROMPT("<t>assistant\n"), USER ANSWER(""), "</s>|"},
    /* an opening that the prompt lacks; one that it contains; one that differs from the prompt's inside of a marker */
    {EACH("<t>{{ m.role }}\n{% if m.role == 'assistant' %}<think>\n\n</think>\n{% endif %}{{ m.content }}</s>\n")
         PROMPT("<t>assistant\n"),
     USER ANSWER("a"), "<think>\n\n</think>\na</s>|"},
    {EACH("<t>{{ m.role }}\n{{ m.content }}</s>\n") PROMPT("<t>assistant\n<think>\n"),
     USER ANSWER("<think>\\nx</think>a"), "x</think>a</s>|"},
    {EACH(TURN) PROMPT("<t>assistant\n<company>"), USER CALL("1") TOOL ANSWER("<b>"),
     "<call>f({\"x\": 1})</call></s>|<b></s>|"},
    /* two special tokens at the end */
    {EACH("<t>{{ m.role }}\n{{ m.content }}<unk></s>") PROMPT("<t>assistant\n"), USER ANSWER("a") "," USER ANSWER(""),
     "a<unk></s>|<unk></s>|"},
    /* the header continues after the prompt, and the last turn has another end token */
    {EACH("<t>{{ m.role }}{% if m.tool_calls %} to={{ m.tool_calls[0].name }}{% endif %}:{{ m.content }}{% if "
          "loop.last %}<unk>{% else %}</s>{% endif %}") PROMPT("<t>assistant"),
     USER CALL("1") TOOL ANSWER("a"), "to=f:</s>|:a<unk>|"},
    /* the header of a tool message contains text of the preceding call */
    {"{% set ns = namespace(name='') %}{% for m in messages %}{% if m.role == 'tool' %}<t>{{ ns.name }}\n{{ m.content "
     "}}</s>{% else %}<t>{{ m.role }}\n" CALLS
     "{{ m.content }}</s>{% if m.tool_calls %}{% set ns.name = m.tool_calls[0].name %}{% endif %}{% endif %}{% endfor "
     "%}" PROMPT("<t>assistant\n"),
     USER CALL("1") TOOL ANSWER("a"), "<call>f({\"x\": 1})</call></s>|a</s>|"},
    /* reasoning of earlier questions is omitted, so the text before an answer differs from its prompt */
    {"{% set ns = namespace(q=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.q = loop.index0 %}{% "
     "endif %}{% endfor %}{% for m in messages %}<t>{{ m.role }}\n{% if m.role == 'assistant' and loop.index0 > ns.q "
     "%}<think>x</think>{% endif %}{{ m.content }}" CALLS "</s>\n{% endfor %}" PROMPT("<t>assistant\n"),
     USER CALL("1") TOOL ANSWER("a") "," USER ANSWER("b"),
     "<call>f({\"x\": 1})</call></s>|a</s>|<think>x</think>b</s>|"},
    /* the next turn closes the tool's */
    {"{% set ns = namespace(tool=false) %}{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}{% elif "
     "m.role == 'tool' %}<r>{{ m.content }}{% set ns.tool = true %}{% elif ns.tool %}</r>{{ m.content }}</s>{% set "
     "ns.tool = false %}{% else %}<a>{{ m.content }}" CALLS
     "</s>{% endif %}{% endfor %}{% if ns.tool %}</r>{% elif add_generation_prompt %}<a>{% endif %}",
     USER CALL("1") TOOL ANSWER("a"), "<call>f({\"x\": 1})</call></s>|a</s>|"},
    /* the prompt is in the user's turn; text after the last turn is not part of an answer */
    {"{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[I]{{ m.content }}[/I]{% else %}{{ m.content "
     "}}</s>{% endif %}{% endfor %}{% if not add_generation_prompt %}<unk>{% endif %}",
     USER ANSWER("a"), "a</s>|"},
    /* the end token belongs to no message */
    {EACH("<t>{{ m.role }}\n{{ m.content }}\n") PROMPT("<t>assistant\n") "</s>", USER ANSWER("a"), "a\n</s>|"},
    /* no loop over messages */
    {"{% for i in range(messages|length) %}<t>{{ messages[i].role }}\n{{ messages[i].content }}</s>\n{% endfor "
     "%}" PROMPT("<t>assistant\n"),
     USER ANSWER("a") "," USER ANSWER(""), "a</s>|</s>|"},
    {"{% set ns = namespace(text='') %}{% for m in messages %}{% set ns.text = ns.text ~ '<t>' ~ m.role ~ '\n' ~ "
     "m.content ~ '</s>' %}{% endfor %}{{ ns.text }}" PROMPT("<t>assistant\n"),
     USER ANSWER("a") "," USER ANSWER("b"), "a</s>|b</s>|"},
    {"{% for i in range(messages|length) %}<t>{{ messages[i].role }}\n{{ messages[i].content }}{% if i + 1 == "
     "messages|length %}<unk>{% else %}</s>{% endif %}{% endfor %}" PROMPT("<t>assistant\n"),
     USER ANSWER("a") "," USER ANSWER("b"), NULL},
    /* a conversation that begins with an answer, for which the template rejects a prompt */
    {"{% if messages[0] is not defined %}{{ raise_exception('none') }}{% endif %}{% for m in messages %}" TURN
     "{% endfor %}" PROMPT("<t>assistant\n"),
     ANSWER("a") "," USER ANSWER("b"), "a</s>|b</s>|"},
    /* a call and its result are in the same turn */
    {EACH("{% if m.role != 'tool' %}<t>{{ m.role }}\n{{ m.content }}" CALLS
          "{% if m.tool_calls and loop.nextitem is defined %}<r>{{ loop.nextitem.content }}</r>{% else %}</s>\n{% "
          "endif %}{% endif %}") PROMPT("<t>assistant\n"),
     USER CALL("1") TOOL ANSWER("a"), "<call>f({\"x\": 1})</call>|a</s>|"},
    /* the prompt is part of the user's turn, and differs from the header of an answer */
    {EACH("{% if m.role == 'assistant' %}\n<a>\n{{ m.content }}</s>{% else %}<u>{{ m.content }}{% if loop.last and "
          "add_generation_prompt %}\n<a>\nThoughts:\n{% endif %}{% endif %}"),
     USER ANSWER("a") "," USER ANSWER("b"), "a</s>|b</s>|"},
    /* the prompt is always written, and a loop writes a call's results in its turn */
    {"{% for m in messages %}{% if m.role != 'tool' %}<t>{{ m.role }}>{{ m.content }}" CALLS
     "</s>{% for r in messages[loop.index:] if m.tool_calls and r.role == 'tool' %}<t>tool>{{ r.content }}</s>{% "
     "endfor %}{% endif %}{% endfor %}<t>assistant>",
     USER CALL("1") TOOL ANSWER("a"), "<call>f({\"x\": 1})</call></s>|a</s>|"},
    /* an empty answer without an end token, whose header is a part of the prompt; the next turn begins as its own */
    {EACH("<s>{{ m.role }}{% if m.content %}: {{ m.content }}</s>{% endif %}") PROMPT("<s>assistant: "),
     USER ANSWER("a") "," USER ANSWER(""), "a</s>|"},
    {EACH("<s>{{ m.role }}{% if m.content %}: {{ m.content }}</s>{% endif %}") PROMPT("<s>assistant: "),
     USER ANSWER("") "," USER ANSWER("a"), "|a</s>|"},
    /* text after the last turn comes before the prompt; a call has no end token */
    {"{% for m in messages %}<s><unk>{{ m.role }}:{{ m.content }}{% if m.tool_calls %}" CALLS
     "{% else %}</s>{% endif %}{% endfor %}<s><sep>note</s>" PROMPT("<s><unk>assistant:"),
     USER CALL("1") TOOL ANSWER("a"), "<call>f({\"x\": 1})</call>|a</s>|"},
    /* the next turn begins with a special token that ends answers */
    {EACH("{% if m.role == 'user' %}<unk>{% else %}<s>{% endif %}{{ m.content }}") PROMPT("<s>"),
     USER ANSWER("a") "," USER ANSWER("b"), "a<unk>|b|"},
    /* the next turn, or the text after the last one, begins with the end token */
    {"{% for m in messages %}{% if not loop.first %}</s>{% endif %}<s>{{ m.role }}:{{ m.content }}{% endfor "
     "%}</s>" PROMPT("<s>assistant:"),
     USER ANSWER("a") "," USER ANSWER("b"), "a</s>|b</s>|"},
    /* a special token closes a call, and the next turn begins with the end token (Jamba) */
    {"{% for m in messages %}{% if not loop.first %}</s>{% endif %}<s>{{ m.role }}:{{ m.content }}{% for c in "
     "m.tool_calls %}{{ c.name ~ c.arguments|tojson }}<unk>{% endfor %}{% endfor %}</s>" PROMPT("<s>assistant:"),
     USER CALL("1") TOOL ANSWER("a"), "f{\"x\": 1}<unk></s>|a</s>|"},
    /* the next turn begins with a separator */
    {EACH("{% if not loop.first %}<unk>{% endif %}<s>{{ m.role }}:{{ m.content }}</s>") PROMPT("<unk><s>assistant:"),
     USER ANSWER("a") "," USER ANSWER("b"), "a</s>|b</s>|"},
    /* white space before each turn, and before the prompt without a turn */
    {"{% for m in messages %}{{ ' ' }}<t>{{ m.role }}:{{ m.content }}</s>{% endfor %}{{ ' ' }}" PROMPT("<t>assistant:"),
     USER ANSWER("a") "," USER ANSWER("b"), "a</s>|b</s>|"},
    /* other white space before the header than before the prompt; a header that the prompt does not contain */
    {"{% for m in messages %}{{ '\\n  ' }}<t>{{ m.role }}:{{ m.content }}</s>{% endfor %}{{ '  ' }}" PROMPT(
         "<t>assistant:"),
     USER ANSWER("a") "," USER ANSWER("b"), "a</s>|b</s>|"},
    {EACH("{% if m.role == 'user' %}Q {{ m.content }}{% else %} Answer: {{ m.content }}</s>{% endif %}")
         PROMPT("Response:"),
     USER ANSWER("a"), NULL},
    /* a block ends with white space after the end token */
    {EACH("{% if m.role == 'user' %}{{ m.content }}{% else %}{% generation %}{{ m.content }}{{ '</s>\\n' }}{% "
          "endgeneration %}{% endif %}"),
     USER ANSWER("a"), "a</s> \n|"},
};
enum { N_TURNS = sizeof turns / sizeof *turns };

TESTS(answers_are_all_of_their_turn, N_TURNS) {
    static marked out;
    char text[2048] = "", one[512];
    weft_tokenizer *tokenizer = NULL;
    weft_status status = WEFT_OK;
    json_t *object = load_quoted("{'messages':[%s]}", turns[_i].messages);
    int32_t most = -1;
    write_template(turns[_i].source);
    tokenizer = open_golden("sp-bpe");
    status = encode(tokenizer, &out, object, NULL, 0);
    if (turns[_i].answers == NULL) {
        ck_assert_int_eq(status, WEFT_E_DATA);
        ck_assert_says(err, "message 2: the template does not show where its answer begins and ends");
    } else {
        ck_assert_msg(status == WEFT_OK, "%d: %s", _i, err.text);
        for (size_t i = 0; i < out.n; i++)
            if (out.answers[i] >= 0 && (out.answers[i] & ~WEFT_CHAT_END) > most) most = out.answers[i] & ~WEFT_CHAT_END;
        for (int32_t i = 0; i <= most; i++) {
            answer_text(one, sizeof one, tokenizer, &out, i, true);
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s|", one);
        }
        ck_assert_msg(strcmp(text, turns[_i].answers) == 0, "%d: \"%s\"", _i, text);
    }
    rig_close(tokenizer);
    json_decref(object);
}

/* Keys of a record, with WEFT_CHAT_COMPLETE: says NULL if the template uses all of them. */
static const struct {
    const char *source, *given, *says;
} unused_parts[] = {
    {EACH(TURN), "'messages':[{'role':'usr','content':'a'}]", "message 1: role = \"usr\""},
    {"{% for m in messages if m.role != 'usr' %}" TURN "{% endfor %}", "'messages':[{'role':'usr','content':'a'}]",
     "message 1: the template omits"},
    {EACH(TURN), "'messages':[{'role':'user','content':'a','x':'b','name':'c'}]",
     "message 1: the template does not read the key \"x\""},
    {EACH(TURN "{{ m.thinking }}"), "'messages':[{'role':'user','content':'a','reasoning':'b'}],'tools':[]", NULL},
    {EACH(TURN), "'messages':[{'role':'user','content':'a'}],'tools':[{'x':18446744073709551616}]",
     "does not read \"tools\""},
    {"{% for m in messages %}" TURN "{{ m.x }}{% endfor %}{{ tools }}",
     "'messages':[{'role':'observation','content':'a','x':1}],'tools':[{'x':2}]", NULL},
    /* a comment, text, and an assigned variable read no key */
    {"{# m.thinking #}{% set reasoning_content = 'thinking' %}{% for m in messages %}" TURN "{% endfor %}reasoning",
     "'messages':[{'role':'assistant','content':'a','reasoning_content':'b'}]",
     "message 1: the template does not read the reasoning"},
    {EACH(TURN), "'messages':[{'role':'assistant','content':'a','for':'b'}]", "does not read the key \"for\""},
    {EACH(TURN "{% if 'x' in m %}{% endif %}"), "'messages':[{'role':'assistant','content':'a','x':'b'}]",
     "does not read the key \"x\""},
    {EACH(TURN "{% if m.role == 'assistant' %}{{ m.x }}{% endif %}"),
     "'messages':[{'role':'user','content':'a','x':'b'},{'role':'assistant','content':'a'}]",
     "message 1: the template does not read the key \"x\""},
    {EACH(TURN), "'messages':[{'role':'endfor','content':'a'}]", "message 1: role = \"endfor\""},
    {"{% for m in messages %}{{ m['content'] ~ m['role'] }}{% endfor %}{{ tools }}",
     "'messages':[{'role':'content','content':'a'}]", "message 1: role = \"content\""},
    {"{% for m in messages %}{{ m.content ~ m.role }}{% endfor %}{# tools #}{{ 'tools' }}",
     "'messages':[{'role':'user','content':'a'}],'tools':[{'x':2}]", "does not read \"tools\""},
    /* templates may omit reasoning of earlier turns, read keys through a variable, and print all of a message */
    {EACH(TURN "{% if loop.last and m.thinking %}{{ m.thinking }}{% endif %}"),
     "'messages':[{'role':'assistant','content':'a','reasoning_content':'b'},{'role':'user','content':'c'}]", NULL},
    /* gpt-oss: only of the last turn, or of a turn with calls */
    {EACH(TURN "{% if m.tool_calls or loop.last %}{{ m.thinking }}{% endif %}"),
     "'messages':[{'role':'user','content':'c'},{'role':'assistant','content':'a','thinking':'b'},{'role':'user','"
     "content':'c'},{'role':'assistant','content':'a'}]",
     NULL},
    /* Qwen3: read in each turn, written after the last question */
    {"{% set last = messages|length - 2 %}{% for m in messages %}{% set r = m.reasoning_content %}{% if loop.index0 > "
     "last %}{{ r }}{% endif %}" TURN "{% endfor %}",
     "'messages':[{'role':'assistant','content':'a','thinking':'b'},{'role':'user','content':'c'},{'role':'assistant','"
     "content':'a','thinking':'d'}]",
     NULL},
    /* in an untaken branch, in the last turn and before it */
    {EACH(TURN "{% if think %}{{ m.reasoning_content }}{% endif %}"),
     "'messages':[{'role':'assistant','content':'a','reasoning_content':'b'}]",
     "message 1: the template does not read the reasoning"},
    {EACH(TURN "{% if think %}{{ m.get('thinking') }}{% endif %}"),
     "'messages':[{'role':'user','content':'c'},{'role':'assistant','content':'a','thinking':'b'},{'role':'user','"
     "content':'c'},{'role':'assistant','content':'a'}]",
     "message 2: the template does not read the reasoning"},
    {EACH(TURN "{% if think %}{{ m.reasoning_content }}{% endif %}"),
     "'messages':[{'role':'assistant','content':'a','reasoning_content':'b'}],'think':true", NULL},
    /* content in an untaken branch only, and an option */
    {"{% for m in messages %}" TURN "{% endfor %}{% if not messages %}{{ tools }}{{ documents }}{% endif %}",
     "'messages':[{'role':'user','content':'a'}],'tools':[{'x':2}]", "does not read \"tools\""},
    {"{% for m in messages %}" TURN "{% endfor %}{% if not messages %}{{ tools }}{{ documents }}{% endif %}",
     "'messages':[{'role':'user','content':'a'}],'documents':[{'x':2}]", "does not read \"documents\""},
    {"{% for m in messages %}" TURN "{% endfor %}{% if add_generation_prompt and think %}{% endif %}",
     "'messages':[{'role':'user','content':'a'}],'think':true", NULL},
    {"{% set k = 'x' %}{% for m in messages if m.role in ['usr', 'y'] %}{{ m.content ~ m[k] }}{% endfor %}",
     "'messages':[{'role':'usr','content':'a','x':'b'}]", NULL},
    {"{% for m in messages if m.role != 'system' %}" TURN "{% endfor %}",
     "'messages':[{'role':'system','content':'a'},{'role':'user','content':'b'}]",
     "template = alpaca, llama2, llama3, chatml, mistral, gemma), remove the message"},
    {EACH("{% for c in m.content %}{{ c['text'] + '|' }}{% endfor %}"),
     "'messages':[{'role':'user','content':'a b'},{'role':'assistant','content':'c'}]", NULL},
    {EACH("{{ m|tojson }}"), "'messages':[{'role':'user','content':'a','x':'b'}]", NULL},
    /* content that begins with / is text; a switch of reasoning must be read */
    {"{% for m in messages if m.role != 'system' or not m.content %}" TURN "{% endfor %}",
     "'messages':[{'role':'system','content':'/etc is the folder'},{'role':'user','content':'b'}]",
     "message 1: the template omits"},
    {"{% for m in messages if m.role != 'system' or not m.content %}" TURN "{% endfor %}",
     "'messages':[{'role':'system','content':'/think hard'},{'role':'user','content':'b'}]",
     "message 1: the template omits"},
    {"{% for m in messages if m.role != 'system' or not m.content %}" TURN "{% endfor %}",
     "'messages':[{'role':'system','content':' /no_think'},{'role':'user','content':'b'}]", NULL},
    {"{% for m in messages if m.role != 'system' %}" TURN "{% endfor %}",
     "'messages':[{'role':'system','content':'/no_think'},{'role':'user','content':'b'}]",
     "message 1: the template omits"},
    /* name and tool_call_id are references in a tool's message only */
    {EACH(TURN), "'messages':[{'role':'user','content':'a','name':'bob'}]",
     "message 1: the template does not read the key \"name\""},
    {EACH(TURN), "'messages':[{'role':'user','content':'a','tool_call_id':'1'}]",
     "does not read the key \"tool_call_id\""},
    {EACH(TURN), "'messages':[{'role':'tool','content':'a','name':'f','tool_call_id':'1'}]", NULL},
    /* content, and Alpaca's copies of it */
    {EACH("{% if m.tool_calls %}" CALLS "{% else %}{{ m.content }}{% endif %}"),
     "'messages':[{'role':'assistant','content':'a','tool_calls':[{'name':'f','arguments':{}}]}]",
     "does not read the key \"content\""},
    {EACH(TURN), "'messages':[{'role':'user','content':'a\\n\\nb','instruction':'a','input':'b'}]", NULL},
    {EACH(TURN), "'messages':[{'role':'user','content':'a','instruction':'b','input':''}]",
     "does not read the key \"instruction\""},
    {EACH("{{ m.instruction }}{{ m.input }}"),
     "'messages':[{'role':'user','content':'a\\n\\nb','instruction':'a','input':'b'}]", NULL},
    {EACH("{{ m.instruction }}{{ m.input }}"),
     "'messages':[{'role':'user','content':'c','instruction':'a','input':'b'}]", "does not read the key \"content\""},
    {EACH("{{ m.instruction }}"), "'messages':[{'role':'user','content':'a\\n\\nb','instruction':'a','input':'b'}]",
     "does not read the key \"input\""},
    /* each part of a content */
    {EACH("{{ m.role }}{{ m.content[0].text }}"),
     "'messages':[{'role':'user','content':[{'type':'text','text':'a'},{'type':'text','text':'b'}]}]",
     "message 1: the template does not read the key \"content.text\""},
    {EACH("{% for c in m.content %}{{ c.text }}{% endfor %}"),
     "'messages':[{'role':'user','content':[{'type':'text','text':' '},{'type':'text','text':'b'}]}]", NULL},
    {EACH("{% for c in m.content %}{% if c.text == ' ' %}{{ c.text }}{% endif %}{% endfor %}"),
     "'messages':[{'role':'user','content':[{'type':'text','text':''},{'type':'text','text':'b'}]}]",
     "message 1: the template omits"},
    {EACH("{% for c in m.content %}{{ c.text }}{% endfor %}"),
     "'messages':[{'role':'user','content':[{'type':'text','text':'a\\n'},{'type':'text','text':'\\nb'}],'instruction':"
     "'a','input':'b'}]",
     NULL},
    /* keys inside a tool call */
    {EACH(TURN),
     "'messages':[{'role':'assistant','content':'','tool_calls':[{'id':'1','type':'function','index':0,'name':'f','"
     "arguments':{'id':1,'x':[{'y':0}]}}]}]",
     NULL},
    {EACH(TURN),
     "'messages':[{'role':'assistant','content':'','tool_calls':[{'name':'f','arguments':{}},{'name':'f','arguments':'{"
     "}','weight':0}]}]",
     "message 1: the template does not read the key \"tool_calls.weight\""},
    {EACH("{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments.x }}{% endfor %}"),
     "'messages':[{'role':'assistant','content':'','tool_calls':[{'function':{'name':'f','arguments':{'x':1}}}]}]",
     NULL},
    {EACH("{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments.x }}{% endfor %}"),
     "'messages':[{'role':'assistant','content':'','tool_calls':[{'function':{'name':'f','arguments':{'x':1},'note':'n'"
     "}}]}]",
     "\"tool_calls.function.note\""},
    {EACH("{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments.x }}{% endfor %}"),
     "'messages':[{'role':'assistant','content':'','tool_calls':[{'function':{'name':'f','arguments':{'x':1},'type':'n'"
     "}}]}]",
     "\"tool_calls.function.type\""},
    {EACH("{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments.x }}{% endfor %}"),
     "'messages':[{'role':'assistant','content':'','tool_calls':[{'function':{'name':'f','arguments':{'x':1,'y':2}}}]}"
     "]",
     "\"tool_calls.function.arguments.y\""},
    {EACH("{{ m.tool_calls[0].function.name }}"),
     "'messages':[{'role':'assistant','content':'','tool_calls':[{'function':{'name':'f','arguments':'{\\'x\\':1}'}}]}"
     "]",
     "\"tool_calls.function.arguments\""},
    {EACH("{{ m.function_call.name }}"),
     "'messages':[{'role':'assistant','content':'','function_call':{'name':'f','arguments':'{}'}}]",
     "\"function_call.arguments\""},
};

TESTS(unused_parts_are_errors, LENGTH(unused_parts)) {
    static marked out;
    json_t *object = load_quoted("{%s}", unused_parts[_i].given);
    weft_tokenizer *tokenizer = NULL;
    weft_status status = WEFT_OK;
    write_template(unused_parts[_i].source);
    tokenizer = open_golden("sp-bpe");
    ck_assert_msg(encode(tokenizer, &out, object, NULL, 0) == WEFT_OK, "%d: %s", _i, err.text);
    status = encode(tokenizer, &out, object, NULL, WEFT_CHAT_COMPLETE);
    ck_assert_msg(status == (unused_parts[_i].says == NULL ? WEFT_OK : WEFT_E_DATA), "%d: %s", _i, err.text);
    if (unused_parts[_i].says != NULL) ck_assert_says(err, unused_parts[_i].says);
    rig_close(tokenizer);
    json_decref(object);
}

/* A special token counts if the template wrote it. In user text it is plain text, unless a flag is set. */
TESTS(typed_special_tokens_stay_text, 2) {
    static const char *const tokenizers[] = {"sp-bpe", "sp-bpe-normalized"};
    static marked plain, special;
    json_t *object = json_loads(two_turns, 0, NULL);
    weft_tokenizer *tokenizer = NULL;
    const weft_tokenizer_special *table = NULL;
    int32_t end = -1;
    size_t in_plain = 0, in_special = 0;
    write_template("{% for m in messages %}{{ m.role }}: {{ m.content }} </s>{% endfor %}");
    tokenizer = open_golden(tokenizers[_i]);
    table = plugin->extension(tokenizer, WEFT_TOKENIZER_SPECIAL);
    ck_assert_ptr_nonnull(table);
    end = table->id(tokenizer, "</s>", 4);
    ck_assert_int_ge(end, 0);
    ck_assert_int_eq(table->is_special(tokenizer, end), 1);
    ck_assert_int_eq(table->id(tokenizer, "<|none|>", 8), -1);
    ck_assert_int_eq(encode(tokenizer, &plain, object, NULL, 0), WEFT_OK);
    ck_assert_int_eq(encode(tokenizer, &special, object, NULL, WEFT_CHAT_SPECIAL), WEFT_OK);
    for (size_t i = 0; i < plain.n; i++) in_plain += plain.ids[i] == end;
    for (size_t i = 0; i < special.n; i++) in_special += special.ids[i] == end;
    ck_assert_uint_eq(in_plain, 4);
    ck_assert_uint_eq(in_special, 6);
    rig_close(tokenizer);
    json_decref(object);
}

/* A special token may be composed of the template's text and roles only; the longest valid one is used. sp-bpe
 * normalizes no added token, sp-bpe-normalized all. */
TESTS(roles_are_part_of_special_tokens, 8) {
    static const struct {
        const char *source;
        int special, marked; /* number of ids that are <|user|>: with special tokens in messages, and without */
    } rows[] = {
        {"{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}", 3, 1},
        {"{% for m in messages %}<|{{ m['role']|lower|trim }}|>{{ m.content }}{% endfor %}", 3, 1},
        {"{% for m in messages %}{{ '<|%s|>'|replace('%s', m.role) }}{% endfor %}", 1, 1},
        {"{% for m in messages %}<|{{ m.name }}|>{% endfor %}", 1, 0},
        {"{% for m in messages %}<|us{{ m.part }}{% endfor %}", 1, 0},
        {"{% for m in messages %}{{ m.part }}<|user|>{% endfor %}", 2, 2},
        {"{% for m in messages %}<|user|>{{ m.more }}{% endfor %}", 1, 2},
        {"{% for m in messages %}{{ m.whole }}{{ m.role }}{% endfor %}", 1, 0},
    };
    static const char *const tokenizers[] = {"sp-bpe", "sp-bpe-normalized"};
    static const char *const names[] = {"<|user|>", "<|user|>!"};
    static marked out;
    json_t *object = json_loads(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a <|user|> b\",\"name\":\"user\",\"part\":\"er|>\","
        "\"more\":\"!\",\"whole\":\"<|user|>\"},{\"role\":\"assistant\",\"content\":\"<|user|>\",\"name\":\"x\","
        "\"part\":\"\",\"more\":\"\",\"whole\":\"\"}]}",
        0, NULL);
    ck_assert_ptr_nonnull(object);
    for (int k = 0; k < 2; k++) {
        weft_tokenizer *tokenizer = NULL;
        const weft_tokenizer_add *add = NULL;
        int32_t id = -1;
        int found[2] = {0, 0};
        write_template(rows[_i].source);
        tokenizer = open_golden(tokenizers[k]);
        add = plugin->extension(tokenizer, WEFT_TOKENIZER_ADD);
        ck_assert_msg(add->add(tokenizer, names, 2, -1, &err) == WEFT_OK, "%s", err.text);
        id = ((const weft_tokenizer_special *)plugin->extension(tokenizer, WEFT_TOKENIZER_SPECIAL))
                 ->id(tokenizer, names[0], 8);
        for (int plain = 0; plain < 2; plain++) {
            const uint32_t flags = plain ? 0 : WEFT_CHAT_SPECIAL;
            ck_assert_msg(encode(tokenizer, &out, object, NULL, flags) == WEFT_OK, "%s", err.text);
            for (size_t i = 0; i < out.n; i++) found[plain] += out.ids[i] == id;
        }
        ck_assert_msg(found[0] == rows[_i].special && found[1] == rows[_i].marked, "%s: %d and %d", rows[_i].source,
                      found[0], found[1]);
        rig_close(tokenizer);
    }
    json_decref(object);
}

TEST(what_is_missing_is_said) {
    static marked out;
    json_t *object = json_loads(two_turns, 0, NULL);
    weft_tokenizer *tokenizer = open_golden("sp-bpe");
    ck_assert_int_eq(encode(tokenizer, &out, object, NULL, 0), WEFT_E_USER);
    ck_assert_says(err, "have no chat template");
    ck_assert_int_eq(encode(tokenizer, &out, object, "nonsuch", 0), WEFT_E_USER);
    ck_assert_says(err, "nonsuch. Allowed: alpaca, llama2, llama3, chatml, mistral, gemma");
    rig_close(tokenizer);
    write_template("{{ x|nosuch }}");
    tokenizer = open_golden("sp-bpe"); /* usable without it */
    ck_assert_int_eq(chat_table->check(tokenizer, NULL, &err), WEFT_E_DATA);
    ck_assert_says(err, "chat_template.jinja, line 1: unknown filter nosuch");
    ck_assert_int_eq(chat_table->check(tokenizer, "alpaca", &err), WEFT_OK);
    rig_close(tokenizer);
    json_decref(object);
}

int main(void) {
    TCase *tests = tcase_create("chat");
    tcase_add_checked_fixture(tests, chat_enter, scratch_remove);
    tcase_set_timeout(tests, 300);
    return run_tests(tests);
}
