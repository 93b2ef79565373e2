/* Files: errors for invalid ones, and the properties that a tokenizer reports. */
#include "rig.h"

#include <time.h>

static weft_error err = WEFT_ERROR_INIT;

/* Loads JSON written with ' for each ". */
static json_t *load_quoted(const char *text) {
    json_error_t why;
    char *copy = strdup(text);
    json_t *json = NULL;
    for (char *quote = copy; (quote = strchr(quote, '\'')) != NULL;) *quote = '"';
    json = json_loads(copy, JSON_DECODE_ANY, &why);
    ck_assert_msg(json != NULL, "%s: %s", text, why.text);
    free(copy);
    return json;
}

/* A small valid tokenizer.json, of which each case damages one value. */
static json_t *sound(void) {
    return load_quoted(
        "{'version': '1.0', 'truncation': null, 'padding': null, 'added_tokens': ["
        "{'id': 0, 'content': '<unk>', 'special': true, 'normalized': false}, "
        "{'id': 1, 'content': '<s>', 'special': true, 'normalized': false}, "
        "{'id': 6, 'content': '</s>', 'special': true, 'normalized': false}], "
        "'normalizer': {'type': 'Prepend', 'prepend': ' '}, "
        "'pre_tokenizer': {'type': 'Digits', 'individual_digits': true}, "
        "'post_processor': {'type': 'TemplateProcessing', 'pair': [], "
        "'single': [{'SpecialToken': {'id': '<s>', 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}}], "
        "'special_tokens': {'<s>': {'id': '<s>', 'ids': [1], 'tokens': ['<s>']}}}, 'decoder': {'type': 'Fuse'}, "
        "'model': {'type': 'BPE', 'unk_token': '<unk>', 'merges': [['a', 'b']], "
        "'vocab': {'<unk>': 0, '<s>': 1, 'a': 2, 'b': 3, 'ab': 4, ' ': 5}}}");
}

/* Sets the value at "model.merges.0". Numbers are indices; an index after the last one appends. */
static void put(json_t *root, const char *path, json_t *value) {
    char copy[128], *rest = copy, *name = NULL;
    json_t *at = root;
    ck_assert_uint_lt(strlen(path), sizeof copy);
    strcpy(copy, path);
    while ((name = strsep(&rest, ".")) != NULL) {
        const size_t i = (size_t)atoi(name);
        if (rest == NULL && json_is_array(at) && i < json_array_size(at))
            ck_assert_int_eq(json_array_set_new(at, i, value), 0);
        else if (rest == NULL && json_is_array(at)) ck_assert_int_eq(json_array_append_new(at, value), 0);
        else if (rest == NULL) ck_assert_int_eq(json_object_set_new(at, name, value), 0);
        at = json_is_array(at) ? json_array_get(at, i) : json_object_get(at, name);
        ck_assert_ptr_nonnull(at);
    }
}

/* Returns the error for the directory. */
static void refused(const char *what) {
    weft_tokenizer *tokenizer = NULL;
    ck_assert_msg(plugin->create(&tokenizer, rig_host(), NULL, scratch, &err) != WEFT_OK, "accepted: %s", what);
    ck_assert_ptr_null(tokenizer);
    ck_assert_int_eq(rig_held, 0);
    ck_assert_msg(strstr(err.text, scratch) != NULL, "%s: the sentence names no file: %s", what, err.text);
}

static const struct {
    const char *path, *value, *says;
} spoiled[] = {
    {"version", "'2.0'", "version: must be"},
    {"postprocessor", "null", "\"postprocessor\": unknown key"},
    {"model", "[]", "model: must be an object, but is an array"},
    {"model.type", "'Unigram'", "model.type: is \"Unigram\""},
    {"model.dropout", "0.1", "model.dropout: must be null or 0"},
    {"model.continuing_subword_prefix", "'##'", "model.continuing_subword_prefix: must be null or empty"},
    {"model.end_of_word_suffix", "'</w>'", "model.end_of_word_suffix: must be null or empty"},
    {"model.fuse_unk", "1", "model.fuse_unk: must be true or false, but is an integer"},
    {"model.unk_token", "7", "model.unk_token: must be a string"},
    {"model.max_input_chars_per_word", "100", "model.\"max_input_chars_per_word\": unknown key"},
    {"model.vocab", "[]", "model.vocab: must be an object"},
    {"model.vocab", "{}", "model.vocab: has no token"},
    {"model.vocab.ab", "-1", "model.vocab.\"ab\": an id must be in 0..16777215, but is -1"},
    {"model.vocab.ab", "1e3", "model.vocab.\"ab\": an id must be an integer, but is a number"},
    {"model.vocab.ab", "99999999999", "0..16777215, but is 99999999999"},
    {"model.vocab.ab", "3", "model.vocab: id 3 belongs to \"b\" and to \"ab\""},
    {"model.merges", "null", "model.merges: must be an array, but is null"},
    {"model.merges.1", "'a  b'", "model.merges[1]: a merge must be"},
    {"model.merges.1", "'ab'", "model.merges[1]: a merge must be"},
    {"model.merges.1", "['a']", "model.merges[1]: a merge must be"},
    {"model.merges.1", "['a', 'b', 'a']", "model.merges[1]: a merge must be"},
    {"model.merges.1", "['a', 7]", "model.merges[1]: a merge must be"},
    {"model.merges.1", "['a', 'x']", "model.merges[1]: the merge needs the token \"x\""},
    {"model.merges.1", "['a', 'a']", "model.merges[1]: the merge needs the token \"aa\""},
    {"added_tokens", "{}", "added_tokens: must be an array"},
    {"added_tokens.0", "7", "added_tokens[0]: must be an object"},
    {"added_tokens.0.id", "2", "added_tokens[0]: \"<unk>\" has id 2 here and 0 in model.vocab"},
    {"added_tokens.2.id", "4", "added_tokens[2]: id 4 of \"</s>\" is used by the token \"ab\""},
    {"added_tokens.2.id", "8", "added_tokens[2]: \"</s>\" has id 8, but the next free one is 6"},
    {"added_tokens.2.content", "'<s>'", "added_tokens[2]: \"<s>\""},
    {"added_tokens.2.id", "1", "added_tokens[2]: id 1 "},
    {"added_tokens.2.lstrip", "'yes'", "added_tokens[2].lstrip: must be true or false, but is a string"},
    {"added_tokens.2.weight", "1", "added_tokens[2].\"weight\": unknown key"},
    {"normalizer", "{'type': 'Precompiled'}", "normalizer.type: the normalizer \"Precompiled\" is not supported"},
    {"normalizer", "{'type': 'Sequence', 'normalizers': [{'type': 'Nmt'}]}", "normalizer.normalizers[0].type: "},
    {"normalizer", "'NFC'", "normalizer: must be an object, but is a string"},
    {"normalizer.prepend", "null", "normalizer.prepend: must be a string, but is null"},
    {"normalizer", "{'type': 'Replace', 'pattern': ' ', 'content': ''}", "normalizer.pattern: a pattern must be"},
    {"normalizer", "{'type': 'Replace', 'pattern': {'Regex': 'a('}, 'content': ''}", "normalizer.pattern.Regex: "},
    {"pre_tokenizer", "{'type': 'Whitespace'}",
     "pre_tokenizer.type: the pre-tokenizer \"Whitespace\" is not supported"},
    {"pre_tokenizer.individual_digits", "0", "pre_tokenizer.individual_digits: must be true or false"},
    {"pre_tokenizer", "{'type': 'ByteLevel', 'trim_offsets': true}", "pre_tokenizer.add_prefix_space: must be true or"},
    {"pre_tokenizer", "{'type': 'Split', 'pattern': {'String': ''}, 'behavior': 'Isolated'}", "the pattern is empty"},
    {"pre_tokenizer", "{'type': 'Split', 'pattern': {'String': 'a'}, 'behavior': 'Merged'}",
     "pre_tokenizer.behavior: "},
    {"pre_tokenizer", "{'type': 'Split', 'pattern': {'Regex': '[a[bc]]'}, 'behavior': 'Isolated'}",
     "a set inside a set"},
    {"pre_tokenizer", "{'type': 'Split', 'pattern': {'Regex': '[a&&b]'}, 'behavior': 'Isolated'}", "&& inside a set"},
    {"pre_tokenizer", "{'type': 'Split', 'pattern': {'Regex': '\\\\w+'}, 'behavior': 'Isolated'}", "an escape other"},
    {"pre_tokenizer", "{'type': 'Split', 'pattern': {'Regex': 'a{2}+'}, 'behavior': 'Isolated'}", "behind {n,m}"},
    {"pre_tokenizer", "{'type': 'Split', 'pattern': {'Regex': 'a(?i)b'}, 'behavior': 'Isolated'}", "a group other"},
    {"pre_tokenizer", "{'type': 'Split', 'pattern': {'Regex': '\\\\p{Han}'}, 'behavior': 'Isolated'}",
     "a property other"},
    {"pre_tokenizer", "{'type': 'Split', 'pattern': {'Regex': '\\\\xE2'}, 'behavior': 'Isolated'}", "an \\x other"},
    {"pre_tokenizer", "{'type': 'Split', 'pattern': {'Regex': '\\\\p'}, 'behavior': 'Isolated'}", "a property other"},
    {"pre_tokenizer", "{'type': 'Metaspace', 'replacement': '__'}", "pre_tokenizer.replacement: must be one character"},
    {"pre_tokenizer", "{'type': 'Metaspace', 'replacement': '_', 'prepend_scheme': 'last'}",
     "pre_tokenizer.prepend_scheme: "},
    {"pre_tokenizer", "{'type': 'Metaspace', 'replacement': '_', 'prepend_scheme': 'first', 'add_prefix_space': false}",
     "pre_tokenizer.add_prefix_space: is false"},
    {"post_processor", "{'type': 'BertProcessing'}", "post_processor.type: the post-processor \"BertProcessing\""},
    {"post_processor.single.2", "{'Sequence': {'id': 'B'}}", "post_processor.single[2]: must be"},
    {"post_processor.single.0", "{'SpecialToken': {'id': '<x>'}}", "post_processor.special_tokens.<x>.ids: must be"},
    {"post_processor.single.0", "{'Sequence': {'id': 'A'}}", "post_processor.single[1]: must be"},
    {"post_processor.special_tokens.<s>.ids.0", "77", "post_processor: adds id 77 to a text"},
    {"post_processor.special_tokens.<s>.ids.1", "2",
     "post_processor.special_tokens.<s>.ids: must be an array of one id"},
    {"decoder", "{'type': 'WordPiece'}", "decoder.type: the decoder \"WordPiece\" is not supported"},
    {"decoder", "{'type': 'Strip', 'content': ' ', 'start': -1, 'stop': 0}", "decoder.start: must be an integer"},
    {"decoder.cleanup", "true", "decoder.\"cleanup\": unknown key"},
};

TEST(rejects_unsupported_values_by_their_key) {
    json_t *json = sound();
    rig_write_json("tokenizer.json", json);
    rig_close(rig_open(scratch)); /* the valid one */
    json_decref(json);
    for (size_t i = 0; i < sizeof spoiled / sizeof spoiled[0]; i++) {
        json = sound();
        put(json, spoiled[i].path, load_quoted(spoiled[i].value));
        rig_write_json("tokenizer.json", json);
        json_decref(json);
        refused(spoiled[i].says);
        ck_assert_int_eq(err.code, WEFT_E_DATA);
        ck_assert_msg(strstr(err.text, "tokenizer.json: ") != NULL && strstr(err.text, spoiled[i].says) != NULL,
                      "expected \"%s\", got: %s", spoiled[i].says, err.text);
    }
}

static const struct {
    const char *text, *says;
} broken[] = {
    {"", "tokenizer.json:1:"},
    {"\xEF\xBB\xBF{}", "tokenizer.json:1:1: is not JSON: a byte order mark"},
    {"{}\n x", "tokenizer.json:2:2: is not JSON"},
    {"[]", "must be a JSON object"},
    {"{\"model\": ", "is not JSON"},
    {"{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}", "duplicate object key"},
    {"{}", "model: must be an object, but is missing"},
    {"{\"model\": {\"type\": \"BPE\", \"merges\": []}}", "model.vocab: must be an object"},
    {"{\"model\": {\"vocab\": {\"\xff\": 0}}}", "is not JSON"},
};

TEST(rejects_invalid_json_with_its_position) {
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        write_bytes(scratch_path("tokenizer.json"), broken[i].text, strlen(broken[i].text));
        refused(broken[i].text);
        ck_assert_msg(strstr(err.text, broken[i].says) != NULL, "expected \"%s\", got: %s", broken[i].says, err.text);
    }
}

/* transformers writes 10^30 if the maximal length is unlimited. */
TEST(a_number_of_any_size_is_read) {
    json_t *json = sound();
    char *text = json_dumps(json, 0);
    write_text(scratch_path("tokenizer.json"), text);
    write_text(scratch_path("tokenizer_config.json"), "{\"model_max_length\": 1000000000000000019884624838656}");
    rig_close(rig_open(scratch));
    free(text);
    json_decref(json);
}

TEST(a_directory_without_the_file_is_refused) {
    refused("nothing");
    ck_assert_int_eq(err.code, WEFT_E_USER);
    ck_assert_ptr_nonnull(strstr(err.text, "tokenizer.json is missing"));
    write_bytes(scratch_path("tokenizer.model"), "x", 1);
    refused("another format");
    ck_assert_ptr_nonnull(strstr(err.text, "tokenizer.json is missing"));
}

static const struct {
    const char *config, *map, *says;
} configs[] = {
    {"{\"bos_token\": 7}", NULL, "tokenizer_config.json: bos_token: must be a string"},
    {"{\"bos_token\": \"<bos>\"}", NULL, "bos_token: tokenizer.json has no \"<bos>\""},
    {"{\"pad_token\": {\"content\": \"<pad>\"}}", NULL, "pad_token: tokenizer.json has no \"<pad>\""},
    {"{\"split_special_tokens\": true}", NULL, "split_special_tokens: true is not supported"},
    {"{\"bos_token\": \"a\"}", NULL, "post_processor: adds id 1 to a text, but bos_token has id 2"},
    {"{\"added_tokens_decoder\": {\"1\": {\"content\": \"</s>\"}}}", NULL,
     "added_tokens_decoder.1: tokenizer.json has no"},
    {"[]", NULL, "must be a JSON object"},
    {NULL, "{\"eos_token\": \"<end>\"}", "special_tokens_map.json: eos_token: tokenizer.json has no \"<end>\""},
    {NULL, "{", "special_tokens_map.json:1:"},
};

TEST(files_that_contradict_each_other_are_refused) {
    json_t *json = sound();
    rig_write_json("tokenizer.json", json);
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        if (configs[i].config != NULL)
            write_bytes(scratch_path("tokenizer_config.json"), configs[i].config, strlen(configs[i].config));
        else rig_remove("tokenizer_config.json");
        if (configs[i].map != NULL) write_text(scratch_path("special_tokens_map.json"), configs[i].map);
        refused(configs[i].says);
        ck_assert_msg(strstr(err.text, configs[i].says) != NULL, "expected \"%s\", got: %s", configs[i].says, err.text);
    }
    json_decref(json);
}

/* --- properties --- */

static const struct {
    const char *config, *map;
    int32_t bos, eos, pad, auto_bos, auto_eos;
} told[] = {
    {NULL, NULL, 1, -1, -1, 1, 0},
    {"{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}, \"pad_token\": null}", NULL, 1, 6, -1, 1, 0},
    {"{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_bos_token\": false, \"add_eos_token\": true}", NULL, 1, 6,
     -1, 1, 0}, /* the two keys have no effect */
    {"{\"add_eos_token\": true}", "{\"eos_token\": \"</s>\", \"pad_token\": \"<unk>\"}", 1, 6, 0, 1, 0},
    {"{\"add_eos_token\": true}", NULL, 1, -1, -1, 1, 0},
    {"{\"eos_token\": \"</s>\", \"pad_token\": \"a\"}", "{\"eos_token\": null, \"pad_token\": \"b\"}", 1, -1, 3, 1, 0},
    {"{\"eos_token\": \"</s>\", \"added_tokens_decoder\": {}}", "{\"eos_token\": null, \"pad_token\": \"b\"}", 1, 6, -1,
     1, 0},
};

TEST(special_ids_come_from_three_files) {
    json_t *json = sound();
    rig_write_json("tokenizer.json", json);
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        weft_tokenizer *tokenizer = NULL;
        weft_tokenizer_info info;
        rig_remove("tokenizer_config.json");
        rig_remove("special_tokens_map.json");
        if (told[i].config != NULL) write_text(scratch_path("tokenizer_config.json"), told[i].config);
        if (told[i].map != NULL) write_bytes(scratch_path("special_tokens_map.json"), told[i].map, strlen(told[i].map));
        tokenizer = rig_open(scratch);
        info = rig_info(tokenizer);
        ck_assert_int_eq(info.vocab_size, 7);
        ck_assert_int_eq(info.unk, 0);
        ck_assert_int_eq(info.bos, told[i].bos);
        ck_assert_int_eq(info.eos, told[i].eos);
        ck_assert_int_eq(info.pad, told[i].pad);
        ck_assert_int_eq(info.auto_bos, told[i].auto_bos);
        ck_assert_int_eq(info.auto_eos, told[i].auto_eos);
        rig_close(tokenizer);
    }
    json_decref(json);
}

TEST(its_files_are_listed) {
    static const char *const names[] = {"tokenizer.json", "special_tokens_map.json", "tokenizer.model",
                                        "chat_template.jinja"};
    weft_tokenizer *tokenizer = NULL;
    json_t *json = sound();
    rig_write_json("tokenizer.json", json);
    write_bytes(scratch_path("chat_template.jinja"), "", 0);
    write_bytes(scratch_path("special_tokens_map.json"), "{}", 2);
    write_bytes(scratch_path("tokenizer.model"), "", 0);
    write_bytes(scratch_path("config.json"), "{}", 2);
    tokenizer = rig_open(scratch);
    for (uint32_t i = 0; i < 4; i++) ck_assert_str_eq(plugin->file(tokenizer, i), names[i]);
    ck_assert_ptr_null(plugin->file(tokenizer, 4));
    ck_assert_ptr_null(plugin->file(tokenizer, 4000000000u));
    rig_close(tokenizer);
    json_decref(json);
}

/* A token that is or contains NUL, in a file that is saved with an added token. */
TEST(a_piece_may_hold_nul) {
    static const char *const names[] = {"<x>"};
    static const char text[] = "{\"added_tokens\": [], \"model\": {\"vocab\": {\"\\u0000\": 0, \"a\" : 1, "
                               "\"a\\u0000\": 2, \"\\\\u0000\": 3}, \"merges\": [\"a \\u0000\"]}}";
    weft_bytes saved = {NULL, 0, 0}, ids;
    const weft_text_sink sink = {&saved, rig_put_text};
    const weft_tokenizer_add *add = NULL;
    weft_tokenizer *tokenizer = NULL;
    int32_t changed = 0;
    write_text(scratch_path("tokenizer.json"), text);
    tokenizer = rig_open(scratch);
    add = plugin->extension(tokenizer, WEFT_TOKENIZER_ADD);
    ck_assert_msg(add->add(tokenizer, names, 1, -1, &err) == WEFT_OK, "%s", err.text);
    ids = rig_encode(tokenizer, "\0a\0<x>", 6, 0);
    ck_assert_uint_eq(rig_n(&ids), 3);
    ck_assert_int_eq(rig_id(&ids, 0), 0);
    ck_assert_int_eq(rig_id(&ids, 1), 2);
    ck_assert_int_eq(rig_id(&ids, 2), 4);
    ck_assert_msg(add->file(tokenizer, 0, &sink, &changed, &err) == WEFT_OK, "%s", err.text);
    ck_assert_int_eq(changed, 1);
    rig_close(tokenizer);
    ck_assert_ptr_nonnull(memmem(saved.data, saved.n, "\"a\\u0000\":2,\"\\\\u0000\":3", 20));
    write_bytes(scratch_path("tokenizer.json"), saved.data, saved.n);
    rig_close(rig_open(scratch));
    ck_assert_int_eq(weft_bytes_put(&saved, "", 1), WEFT_OK); /* and a NUL outside of JSON */
    write_bytes(scratch_path("tokenizer.json"), saved.data, saved.n);
    refused("a NUL behind it");
    ck_assert_ptr_nonnull(strstr(err.text, "tokenizer.json:"));
    ck_assert_ptr_nonnull(strstr(err.text, ": is not JSON: a NUL byte"));
    weft_bytes_free(&saved);
    weft_bytes_free(&ids);
}

static double seconds_for(int n) {
    json_t *json = sound(), *tokens = json_object_get(json, "added_tokens");
    clock_t before = 0;
    for (int i = 0; i < n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "<token-%d>", i);
        ck_assert_int_eq(json_array_append_new(tokens, json_pack("{s:i, s:s, s:b, s:b}", "id", 7 + i, "content", name,
                                                                 "special", 1, "normalized", 0)),
                         0);
    }
    rig_write_json("tokenizer.json", json);
    json_decref(json);
    before = clock();
    rig_close(rig_open(scratch));
    return (double)(clock() - before) / CLOCKS_PER_SEC;
}

TEST(added_tokens_take_time_by_their_number) {
    const double one = seconds_for(10000), eight = seconds_for(80000);
    ck_assert_msg(eight < 24 * one + 0.1, "10,000 take %.2f s, 80,000 take %.2f s", one, eight);
}

int main(void) {
    TCase *tests = tcase_create("bpe");
    tcase_add_checked_fixture(tests, rig_enter, scratch_remove);
    tcase_set_timeout(tests, 300);
    return run_tests(tests);
}
