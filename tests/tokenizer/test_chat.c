/* Conversations as ids: those of transformers, with its mask of answers; special tokens that a user typed; and
 * answers of templates that have no blocks for them. */
#include "golden.h"
#include "rig.h"

#include "base/text.h"

static const weft_tokenizer_chat *chat_table;

static void chat_enter(void) {
    scratch_make();
    rig_load();
}

static void copy_file(const char *to, const char *from) {
    char path[1024];
    char *text = NULL;
    size_t n = 0;
    weft_error err = WEFT_ERROR_INIT;
    FILE *file = NULL;
    golden_path(path, sizeof path, from);
    ck_assert_msg(weft_text_read(&text, &n, path, 1 << 26, &err) == WEFT_OK, "%s", err.text);
    file = fopen(scratch_path(to), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
    free(text);
}

static void write_template(const char *source) {
    FILE *file = fopen(scratch_path("chat_template.jinja"), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert(fputs(source, file) >= 0);
    ck_assert_int_eq(fclose(file), 0);
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

/* object: messages, and the rest as variables. */
static weft_status encode(const weft_tokenizer *tokenizer, marked *out, json_t *object, const char *named,
                          uint32_t flags, weft_error *err) {
    json_t *messages = json_incref(json_object_get(object, "messages")), *rest = json_copy(object);
    const size_t n = json_array_size(messages);
    weft_chat_message *list = calloc(n + 1, sizeof *list);
    const weft_chat_sink sink = {out, take};
    weft_chat chat = {.struct_size = (uint32_t)sizeof chat, .flags = flags, .messages = list, .n_messages = n};
    weft_status status = WEFT_OK;
    (void)json_object_del(rest, "messages");
    for (size_t i = 0; i < n; i++) {
        list[i].struct_size = (uint32_t)sizeof *list;
        list[i].more = json_dumps(json_array_get(messages, i), 0);
        list[i].more_bytes = strlen(list[i].more);
    }
    chat.stride = (uint32_t)sizeof *list;
    chat.named = named;
    chat.variables = json_dumps(rest, 0);
    chat.variables_bytes = strlen(chat.variables);
    out->n = 0;
    status = chat_table->encode(tokenizer, &sink, &chat, err);
    for (size_t i = 0; i < n; i++) free((char *)(uintptr_t)list[i].more);
    free((char *)(uintptr_t)chat.variables);
    free(list);
    json_decref(messages);
    json_decref(rest);
    return status;
}

static uint32_t fnv(const int32_t *numbers, size_t n, bool as_mask) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (as_mask ? (uint64_t)(numbers[i] >= 0) : (uint64_t)(uint32_t)numbers[i])) * 1099511628211u;
    return (uint32_t)(h >> 32);
}

/* --- transformers --- */

START_TEST(ids_and_masks_are_those_of_transformers) {
    static const char *const tokenizers[] = {"gpt2-style", "llama3-style", "sp-bpe", "sp-bpe-normalized"};
    char path[1024], name[32], template[32], before[32] = "", mask[16], file[64];
    static char line[4096];
    json_t *conversations[500];
    int number = 0, held = 0;
    unsigned ids = 0;
    static marked out;
    weft_tokenizer *tokenizer = NULL;
    FILE *expected = NULL, *all = NULL;
    golden_path(path, sizeof path, "chat/conversations.jsonl");
    all = fopen(path, "rb");
    ck_assert_ptr_nonnull(all);
    for (int i = 0; i < 500; i++) {
        conversations[i] = json_loadf(all, JSON_DISABLE_EOF_CHECK, NULL);
        ck_assert_ptr_nonnull(conversations[i]);
    }
    (void)fclose(all);
    golden_path(path, sizeof path, "chat/ids.txt");
    expected = fopen(path, "rb");
    ck_assert_ptr_nonnull(expected);
    while (fgets(line, sizeof line, expected) != NULL) {
        weft_error err = WEFT_ERROR_INIT;
        ck_assert_int_eq(sscanf(line, "%31s %31s %d %x %15s", name, template, &number, &ids, mask), 5);
        if (strcmp(name, tokenizers[_i]) != 0) continue;
        if (strcmp(template, before) != 0) {
            if (tokenizer != NULL) rig_close(tokenizer);
            (void)snprintf(file, sizeof file, "chat/%s.jinja", template);
            copy_file("chat_template.jinja", file);
            tokenizer = open_golden(name);
            (void)snprintf(before, sizeof before, "%s", template);
        }
        ck_assert_msg(encode(tokenizer, &out, conversations[number], NULL, WEFT_CHAT_SPECIAL, &err) == WEFT_OK,
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
END_TEST

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

/* A text by itself and the same text as a template's are what AutoTokenizer makes of the files. */
static void check_auto_text(const weft_tokenizer *tokenizer, const char *name, const json_t *text,
                            const json_t *expected) {
    static marked chat;
    json_t *object = json_pack("{s:[{s:s, s:O}]}", "messages", "role", "user", "content", text);
    weft_error err = WEFT_ERROR_INIT;
    weft_bytes ids = rig_encode(tokenizer, json_string_value(text), json_string_length(text), 0);
    ck_assert_msg(same_ids(expected, (const int32_t *)(const void *)ids.data, rig_n(&ids)), "%s: \"%s\"", name,
                  json_string_value(text));
    ck_assert_msg(encode(tokenizer, &chat, object, NULL, WEFT_CHAT_SPECIAL, &err) == WEFT_OK, "%s", err.text);
    ck_assert_msg(same_ids(expected, chat.ids, chat.n), "%s: \"%s\" in a conversation", name, json_string_value(text));
    weft_bytes_free(&ids);
    json_decref(object);
}

START_TEST(files_mean_what_they_mean_to_auto_tokenizer) {
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
END_TEST

/* --- what is an answer --- */

static const char two_turns[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"ab </s> c\"},"
                                "{\"role\":\"assistant\",\"content\":\"no\"},{\"role\":\"user\",\"content\":\"d\"},"
                                "{\"role\":\"assistant\",\"content\":\"yes </s>\"}]}";

/* The text of the ids with answer `answer`; the end token as its name. */
static void answer_text(char *out, size_t size, const weft_tokenizer *tokenizer, const marked *ids, int32_t answer,
                        bool with_end) {
    int32_t chosen[256];
    size_t n = 0;
    weft_bytes text = {0};
    const weft_text_sink sink = {&text, weft_bytes_put_text};
    weft_error err = WEFT_ERROR_INIT;
    for (size_t i = 0; i < ids->n; i++) {
        const bool end = ids->answers[i] >= 0 && (ids->answers[i] & WEFT_CHAT_END) != 0;
        if (ids->answers[i] < 0 || (ids->answers[i] & ~WEFT_CHAT_END) != answer || (end && !with_end)) continue;
        chosen[n++] = ids->ids[i];
    }
    ck_assert_int_eq(plugin->decode(tokenizer, &sink, chosen, n, WEFT_DECODE_KEEP_SPECIAL, &err), WEFT_OK);
    (void)snprintf(out, size, "%.*s", (int)text.n, text.data == NULL ? "" : text.data);
    weft_bytes_free(&text);
}

START_TEST(answers_come_from_where_their_bytes_do) {
    static const struct {
        const char *source, *named, *first, *second;
        int n_ends;
    } rows[] = {
        /* whatever the template puts around them */
        {"{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}", NULL, "no</s>", "yes </s></s>", 2},
        {"{% for m in messages %}{{ m.role + '=' + m.content|trim|upper + ' ' + '</s>' }}\n{% endfor %}", NULL,
         "NO </s>", "YES </S> </s>", 2},
        {"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", NULL, "no", "yes </s>", 0},
        {"{% for m in messages %}{{ m.role }}: {{ m.content }} over </s>{% endfor %}", NULL, "no", "yes </s>", 0},
        {"{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}{% generation %}A:{{ m.content "
         "}}</s>"
         "{% endgeneration %}{% endif %}{% endfor %}",
         NULL, "A:no</s>", "A:yes </s></s>", 2},
        {NULL, "chatml", "no<|im_end|>", "yes </s><|im_end|>", 0},
    };
    static marked out;
    char text[256];
    json_t *object = json_loads(two_turns, 0, NULL);
    weft_error err = WEFT_ERROR_INIT;
    weft_tokenizer *tokenizer = NULL;
    int ends = 0;
    if (rows[_i].source != NULL) write_template(rows[_i].source);
    tokenizer = open_golden("sp-bpe");
    ck_assert_msg(encode(tokenizer, &out, object, rows[_i].named, 0, &err) == WEFT_OK, "%s", err.text);
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
END_TEST

/* A special token is one where the template wrote it; typed, it is text, unless a flag says else. */
START_TEST(typed_special_tokens_stay_text) {
    static const char *const tokenizers[] = {"sp-bpe", "sp-bpe-normalized"};
    static marked plain, special;
    json_t *object = json_loads(two_turns, 0, NULL);
    weft_error err = WEFT_ERROR_INIT;
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
    ck_assert_int_eq(encode(tokenizer, &plain, object, NULL, 0, &err), WEFT_OK);
    ck_assert_int_eq(encode(tokenizer, &special, object, NULL, WEFT_CHAT_SPECIAL, &err), WEFT_OK);
    for (size_t i = 0; i < plain.n; i++) in_plain += plain.ids[i] == end;
    for (size_t i = 0; i < special.n; i++) in_special += special.ids[i] == end;
    ck_assert_uint_eq(in_plain, 4);
    ck_assert_uint_eq(in_special, 6);
    rig_close(tokenizer);
    json_decref(object);
}
END_TEST

/* A special token may be composed of the template's text and roles, and of nothing else; the longest that counts is
 * taken. sp-bpe normalizes no token, sp-bpe-normalized each. */
START_TEST(roles_are_part_of_special_tokens) {
    static const struct {
        const char *source;
        int special, marked; /* ids that are <|user|>: with special tokens in messages, and without */
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
        weft_error err = WEFT_ERROR_INIT;
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
            ck_assert_msg(encode(tokenizer, &out, object, NULL, flags, &err) == WEFT_OK, "%s", err.text);
            for (size_t i = 0; i < out.n; i++) found[plain] += out.ids[i] == id;
        }
        ck_assert_msg(found[0] == rows[_i].special && found[1] == rows[_i].marked, "%s: %d and %d", rows[_i].source,
                      found[0], found[1]);
        rig_close(tokenizer);
    }
    json_decref(object);
}
END_TEST

START_TEST(what_is_missing_is_said) {
    static marked out;
    json_t *object = json_loads(two_turns, 0, NULL);
    weft_error err = WEFT_ERROR_INIT;
    weft_tokenizer *tokenizer = open_golden("sp-bpe");
    ck_assert_int_eq(encode(tokenizer, &out, object, NULL, 0, &err), WEFT_E_USER);
    ck_assert_says(err, "have no chat template");
    ck_assert_int_eq(encode(tokenizer, &out, object, "nonsuch", 0, &err), WEFT_E_USER);
    ck_assert_says(
        err, "there is no chat template named nonsuch; there are: alpaca, llama2, llama3, chatml, mistral, gemma");
    rig_close(tokenizer);
    write_template("{{ x|wordwrap }}");
    tokenizer = open_golden("sp-bpe"); /* which is of use without it */
    ck_assert_int_eq(chat_table->check(tokenizer, NULL, &err), WEFT_E_DATA);
    ck_assert_says(err, "chat_template.jinja, line 1: the filter wordwrap is not known here");
    ck_assert_int_eq(chat_table->check(tokenizer, "alpaca", &err), WEFT_OK);
    rig_close(tokenizer);
    json_decref(object);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tokenizer chat");
    TCase *tests = tcase_create("chat");
    tcase_add_checked_fixture(tests, chat_enter, scratch_remove);
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, ids_and_masks_are_those_of_transformers, 0, 4);
    tcase_add_test(tests, files_mean_what_they_mean_to_auto_tokenizer);
    tcase_add_loop_test(tests, answers_come_from_where_their_bytes_do, 0, 6);
    tcase_add_loop_test(tests, typed_special_tokens_stay_text, 0, 2);
    tcase_add_loop_test(tests, roles_are_part_of_special_tokens, 0, 8);
    tcase_add_test(tests, what_is_missing_is_said);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
