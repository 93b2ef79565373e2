/* Weights between Hugging Face directories and a flat region: values are read exactly, saved as read, and a directory
 * that does not match is rejected as a whole. */
#include <jansson.h>
#include <math.h>
#include <weft/random.h>

#include "bench.h"
#include "suite.h"
#include "model/config_json.h"
#include "model/convert.h"
#include "base/safetensors.h"
#include "model/weights.h"

/* Checks that all elements outside parameters are zero. */
static void check_padding(const bench *b) {
    const float *region = (const float *)(const void *)(b->buffer.bytes + 256);
    for (int32_t g = 0; g < b->layout->n_groups; g++) {
        const weft_group *group = &b->layout->groups[g];
        int64_t at = 0;
        for (int32_t m = 0; m <= group->n_members; m++) {
            const weft_parameter *p = m < group->n_members ? &b->declared->parameters[group->members[m]] : NULL;
            const int64_t until = p == NULL ? group->numel : p->offset;
            for (; at < until; at++)
                if (region[group->base / 4 + at] != 0)
                    ck_abort_msg("padding of group %d, element %lld", g, (long long)at);
            if (p != NULL) at += p->numel;
        }
    }
}

/* ---- golden directories ---- */

static const struct {
    const char *name, *config;
    int32_t dtype;
    const char *torch;
} golden[] = {{"llama-tied", "llama-tied/config.json", WEFT_F32, "float32"},
              {"llama-gqa", "llama-gqa/config.json", WEFT_F32, "float32"},
              {"llama-bf16", "llama-bf16/config.json", WEFT_BF16, "bfloat16"},
              {"llama-fp16", "llama-fp16/config.json", WEFT_F16, "float16"}};

TESTS(loads_the_values_of_the_files, 4) {
    weft_error err = WEFT_ERROR_INIT;
    BENCH(seen, llama_golden(golden[_i].config), "all", true);
    BENCH(unseen, llama_golden(golden[_i].config), "all", false);
    ck_assert_ok(load(seen, llama_golden(golden[_i].name), &err), err);
    ck_assert_ok(load(unseen, llama_golden(golden[_i].name), &err), err);
    check_against_files(seen, llama_golden(golden[_i].name));
    check_padding(seen);
    ck_assert(same_region(seen, unseen));
    ck_assert_int_eq(seen->device.written, 0); /* no second copy */
    ck_assert_int_eq(unseen->device.written, unseen->layout->bytes);
    bench_free(seen);
    bench_free(unseen);
}

TEST(a_frozen_part_is_read_like_any_other) {
    weft_error err = WEFT_ERROR_INIT;
    BENCH(b, llama_golden("llama-bf16/config.json"), "last:1,*norm.weight", true);
    ck_assert_ok(load(b, llama_golden("llama-bf16"), &err), err);
    check_against_files(b, llama_golden("llama-bf16"));
    check_padding(b);
    bench_free(b);
}

TESTS(the_type_of_a_directory_is_that_of_most_of_it, 4) {
    weft_error err = WEFT_ERROR_INIT;
    int32_t dtype = 0;
    ck_assert_ok(weft_weights_dtype(&dtype, NULL, llama_golden(golden[_i].name), &err), err);
    ck_assert_int_eq(dtype, golden[_i].dtype);
    ck_assert_int_ne(weft_weights_dtype(&dtype, NULL, "/nowhere", &err), WEFT_OK);
}

/* ---- writing ---- */

static const char *golden_file(int i, const char *name) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", golden[i].name, name);
    return llama_golden(path);
}

/* Returns text with its first `from` replaced. The caller frees it. */
static char *replaced(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    char *out = NULL;
    ck_assert_ptr_nonnull(at);
    ck_assert_int_ge(asprintf(&out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)), 0);
    return out;
}

TESTS(another_type_changes_one_word_of_the_configuration, 12) {
    static const struct {
        int32_t dtype;
        const char *torch;
    } types[] = {{WEFT_F32, "\"float32\""}, {WEFT_BF16, "\"bfloat16\""}, {WEFT_F16, "\"float16\""}};
    weft_error err = WEFT_ERROR_INIT;
    char from[32];
    const char *torch = types[_i / 4].torch;
    const int model = _i % 4;
    char *base = read_bytes(golden_file(model, "config.json"), NULL), *expected = NULL, *text = NULL;
    char *spelled = NULL;
    size_t n = 0;
    weft_safetensors *files = NULL;
    BENCH(b, llama_golden(golden[model].config), "all", false);
    ck_assert_ok(load(b, llama_golden(golden[model].name), &err), err);
    ck_assert_ok(save(b, scratch, types[_i / 4].dtype, WEFT_SHARD_BYTES, &err), err);
    (void)snprintf(from, sizeof from, "\"%s\"", golden[model].torch);
    expected = replaced(base, from, torch);
    text = read_bytes(scratch_path("config.json"), NULL);
    spelled = strdup(expected);
    n = strlen(spelled);
    ck_assert_int_eq(weft_config_json_add_spellings(&spelled, &n, NULL), WEFT_OK);
    ck_assert_str_eq(text, spelled);
    check_same_file(golden_file(model, "generation_config.json"), scratch_path("generation_config.json"));
    ck_assert_ok(weft_safetensors_open_directory(&files, scratch, &err), err);
    ck_assert_int_eq(files->n_files, 1);
    ck_assert_int_eq(files->n_tensors, b->declared->n_parameters);
    for (int32_t i = 0; i < files->n_tensors; i++) {
        const weft_tensor *t = &files->tensors[i];
        void *narrow = malloc((size_t)t->bytes + 1);
        ck_assert_int_eq(t->dtype, types[_i / 4].dtype);
        ck_assert(weft_convert(narrow, t->dtype, values(b, t->name), WEFT_F32, t->numel));
        ck_assert_int_eq(memcmp(narrow, t->data, (size_t)t->bytes), 0);
        free(narrow);
    }
    weft_safetensors_close(files);
    free(text);
    free(spelled);
    free(expected);
    free(base);
    bench_free(b);
}

TEST(large_models_are_dealt_to_files_with_an_index) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *files = NULL;
    json_t *index = NULL;
    int64_t sizes[16] = {0};
    BENCH(b, llama_golden("llama-gqa/config.json"), "all", true);
    BENCH(back, llama_golden("llama-gqa/config.json"), "all", true);
    ck_assert_ok(load(b, llama_golden("llama-gqa"), &err), err);
    ck_assert_ok(save(b, scratch, WEFT_F32, 20000, &err), err); /* the embedding has 22008 by itself */
    ck_assert_int_ne(access(scratch_path("model.safetensors"), F_OK), 0);
    index = json_load_file(scratch_path("model.safetensors.index.json"), 0, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
                     4 * weft_declared_numel(b->declared, false));
    ck_assert_str_eq(json_string_value(
                         json_object_get(json_object_get(index, "weight_map"), "model.embed_tokens.weight")),
                     "model-00001-of-00012.safetensors");
    json_decref(index);
    ck_assert_ok(weft_safetensors_open_directory(&files, scratch, &err), err);
    ck_assert_int_eq(files->n_files, 12);
    for (int32_t i = 0; i < files->n_tensors; i++) sizes[files->tensors[i].file] += files->tensors[i].bytes;
    for (int i = 0; i < 10; i++) ck_assert(sizes[i] <= 20000 || sizes[i] == 131 * 42 * 4);
    weft_safetensors_close(files);
    ck_assert_ok(load(back, scratch, &err), err);
    ck_assert(same_region(b, back));
    bench_free(b);
    bench_free(back);
}

TEST(saving_needs_a_few_megabytes_beside_the_weights) {
    char text[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 64, \"num_hidden_layers\": 1,"
        " \"num_attention_heads\": 4, \"vocab_size\": 40000}";
    weft_error err = WEFT_ERROR_INIT;
    write_text(scratch_path("base.json"), text);
    BENCH(b, scratch_path("base.json"), "all", false);
    BENCH(back, scratch_path("base.json"), "all", false);
    BENCH(seen, scratch_path("base.json"), "all", true);
    ck_assert_ok(init(b, 3, &err), err);
    ck_assert_ok(init(seen, 3, &err), err);
    ck_assert(same_region(b, seen)); /* chunks join exactly */
    ck_assert_ok(save(b, scratch, WEFT_F32, WEFT_SHARD_BYTES, &err), err);
    ck_assert_ok(load(back, scratch, &err), err);
    ck_assert(same_region(b, back));
    ck_assert_int_le(b->device.most, 4 << 20);
    ck_assert_int_gt(b->device.read, 4 << 20);
    ck_assert_int_le(back->device.most, 4 << 20);
    ck_assert_int_ne(access(scratch_path("generation_config.json"), F_OK), 0); /* the base had no such file */
    bench_free(b);
    bench_free(back);
    bench_free(seen);
}

TESTS(the_text_of_a_configuration_is_kept, 13) {
    static const struct {
        const char *before, *after;
    } texts[] = {
        {"{}", "{}"},
        {"{\"a\": 1}\n", "{\"a\": 1}\n"},
        {"{\"dtype\":\"float32\"}", "{\"dtype\":\"bfloat16\"}"},
        {"{ \"torch_dtype\"\n:\t\"float16\" , \"x\": [1, 2]}  ",
         "{ \"torch_dtype\"\n:\t\"bfloat16\" , \"x\": [1, 2]}  "},
        {"{\"torch_dtype\": \"torch.float32\"}", "{\"torch_dtype\": \"torch.bfloat16\"}"},
        {"{\"dtype\": null, \"torch_dtype\": \"float32\"}", "{\"dtype\": null, \"torch_dtype\": \"bfloat16\"}"},
        {"{\"dtype\": \"float32\", \"torch_dtype\": \"float32\"}",
         "{\"dtype\": \"bfloat16\", \"torch_dtype\": \"bfloat16\"}"},
        {"{\"q\": {\"dtype\": \"q4\"}, \"l\": [{\"dtype\": \"x\"}]}",
         "{\"q\": {\"dtype\": \"q4\"}, \"l\": [{\"dtype\": \"x\"}]}"},
        {"{\"name\": \"dtype\", \"b\": \"\\\"dtype\\\": \\\"float32\\\"\"}",
         "{\"name\": \"dtype\", \"b\": \"\\\"dtype\\\": \\\"float32\\\"\"}"},
        {"{\"brace\": \"{[\", \"dtype\": \"float32\"}", "{\"brace\": \"{[\", \"dtype\": \"bfloat16\"}"},
        {"{\"dtype\": \"bfloat16\", \"\xc3\xa9\": \"\xe2\x82\xac\"}",
         "{\"dtype\": \"bfloat16\", \"\xc3\xa9\": \"\xe2\x82\xac\"}"},
        {"{\"dtype\"", "{\"dtype\""},
        {"{\"dtype\": \"flo", "{\"dtype\": \"bfloat16\""},
    };
    size_t n = strlen(texts[_i].before);
    char *out = strdup(texts[_i].before);
    ck_assert_int_eq(weft_config_json_set_dtype(&out, &n, WEFT_BF16, NULL), WEFT_OK);
    ck_assert_uint_eq(n, strlen(texts[_i].after));
    ck_assert_int_eq(memcmp(out, texts[_i].after, n), 0);
    free(out);
}

/* Keys of transformers 5 are also written in the spelling of transformers 4; existing keys are not repeated. */
TESTS(a_saved_configuration_has_both_spellings, 10) {
    static const struct {
        const char *before, *added;
    } texts[] = {
        {"{\"a\": 1}", ""},
        {"{\"dtype\": \"float32\"}", "\n  \"torch_dtype\": \"float32\","},
        {"{\"torch_dtype\": \"float32\"}", "\n  \"dtype\": \"float32\","},
        {"{\"rope_theta\": 5, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}", ""},
        {"{\"rope_parameters\": null}", ""},
        {"{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}}",
         "\n  \"rope_theta\": 10000.0,"},
        {"{\"rope_theta\": 7, \"rope_parameters\": {\"rope_type\": \"linear\", \"rope_theta\": 7, \"factor\": 2}}",
         "\n  \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2},"},
        {"{\"rope_parameters\": {\"rope_type\": \"longrope\", \"rope_theta\": 7, \"partial_rotary_factor\": 0.5, "
         "\"short_factor\": [1], \"long_factor\": [2]}}",
         "\n  \"rope_theta\": 7,\n  \"partial_rotary_factor\": 0.5,\n  \"rope_scaling\": {\"short_factor\": [1], "
         "\"long_factor\": [2], \"type\": \"longrope\"},"},
        {"{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"rope_theta\": 9, \"factor\": 8}, "
         "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 3}}}",
         "\n  \"rope_theta\": 9,\n  \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8},\n  "
         "\"rope_local_base_freq\": 3,"},
        {"not JSON {", ""},
    };
    char after[1000];
    const char *before = texts[_i].before, *brace = strchr(before, '{');
    size_t n = strlen(before);
    char *out = strdup(before);
    ck_assert_int_eq(weft_config_json_add_spellings(&out, &n, NULL), WEFT_OK);
    (void)snprintf(after, sizeof after, "%.*s%s%s", (int)(brace + 1 - before), before, texts[_i].added, brace + 1);
    ck_assert_msg(n == strlen(after) && memcmp(out, after, n) == 0, "%.*s is not %s", (int)n, out, after);
    free(out);
}

TEST(fills_null_values) {
    static const char before[] = "{\"rope_scaling\": null, \"rope_theta\": 2, \"rope_parameters\": {\"rope_theta\": 2, "
                                 "\"rope_type\": \"linear\", \"factor\": 3}}";
    static const char wanted[] = "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 3}, \"rope_theta\": 2, ";
    size_t n = sizeof before - 1;
    char *out = strdup(before);
    ck_assert_int_eq(weft_config_json_add_spellings(&out, &n, NULL), WEFT_OK);
    ck_assert_msg(n > sizeof wanted && memcmp(out, wanted, sizeof wanted - 1) == 0, "%.*s", (int)n, out);
    free(out);
}

TEST(keys_are_changed_where_they_stand_or_put_in_front) {
    static const char before[] = "{ \"a\" : {\"b\": [1, \"}\"]}, \"c\":2,\"d\": {\"c\": 5}, \"e\": null\n}";
    static const char after[] = "{\n  \"f\": 6, \"a\" : 1, \"c\":3,\"d\": {\"c\": 5}, \"e\": [4]\n}";
    const weft_json_change changes[] = {{"c", "3"}, {"e", "[4]"}, {"a", "1"}, {"f", "6"}};
    size_t n = sizeof before - 1;
    char *out = strdup(before);
    ck_assert_int_eq(weft_config_json_change(&out, &n, changes, 4, NULL), WEFT_OK);
    ck_assert_msg(n == sizeof after - 1 && memcmp(out, after, n) == 0, "%.*s", (int)n, out);
    free(out);
}

/* ---- a vocabulary larger than the files' ---- */

static weft_declared *declared_at(const char *path, weft_vocabulary vocabulary) {
    const llama_test_settings settings = {""};
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *declared = NULL;
    ck_assert_ok(weft_declared_create(&declared, &fixture_host, llama_plugin(), &settings, path, &vocabulary, &err),
                 err);
    return declared;
}

static weft_declared *declared_with(const char *model, weft_vocabulary vocabulary) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/config.json", llama_golden(model));
    return declared_at(path, vocabulary);
}

/* Checks the rows of the directory's file, followed by their mean. */
static void check_grown(const bench *b, const char *directory, const char *name, int64_t rows) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *files = NULL;
    const weft_tensor *tensor = NULL;
    const float *found = values(b, name);
    float *file = NULL;
    ck_assert_ok(weft_safetensors_open_directory(&files, directory, &err), err);
    tensor = weft_safetensors_find(files, name);
    file = malloc((size_t)tensor->numel * sizeof *file);
    ck_assert_int_eq(tensor->dims[0], rows);
    ck_assert(weft_convert(file, WEFT_F32, tensor->data, tensor->dtype, tensor->numel));
    ck_assert_int_eq(memcmp(found, file, (size_t)tensor->numel * sizeof *file), 0);
    for (int64_t i = 0; i < tensor->dims[1]; i++) {
        double sum = 0;
        for (int64_t row = 0; row < rows; row++) sum += (double)file[row * tensor->dims[1] + i];
        ck_assert_msg(found[tensor->numel + i] == (float)(sum / (double)rows),
                      "element %lld of the new row of %s is %g", (long long)i, name, (double)found[tensor->numel + i]);
    }
    free(file);
    weft_safetensors_close(files);
}

TESTS(a_row_that_is_added_is_the_mean_of_the_others, 6) {
    static const struct {
        const char *model;
        int64_t rows;
        bool tied;
    } grown[] = {{"llama-tied", 97, true}, {"llama-gqa", 131, false}, {"llama-bf16", 89, false}};
    const int k = _i / 2;
    const weft_vocabulary with = {grown[k].rows, grown[k].rows + 1, (int32_t)grown[k].rows};
    bench bench_here = bench_of(declared_with(grown[k].model, with), _i % 2 == 0), *b = bench_bind(&bench_here);
    char said[64];
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_int_eq(b->declared->info.vocab_size, grown[k].rows + 1);
    (void)snprintf(said, sizeof said, "\"vocab_size\": %lld", (long long)grown[k].rows + 1);
    ck_assert_ptr_nonnull(strstr(b->declared->config_text, said));
    (void)snprintf(said, sizeof said, "\"pad_token_id\": %lld", (long long)grown[k].rows);
    ck_assert_ptr_nonnull(strstr(b->declared->config_text, said));
    ck_assert_ok(load(b, llama_golden(grown[k].model), &err), err);
    check_grown(b, llama_golden(grown[k].model), "model.embed_tokens.weight", grown[k].rows);
    if (!grown[k].tied) check_grown(b, llama_golden(grown[k].model), "lm_head.weight", grown[k].rows);
    bench_free(b);
}

/* Rows of 24 elements; one row crosses the boundary of chunks of 65,536 elements. */
TEST(a_row_may_be_added_in_two_pieces) {
    enum { ROWS = 2730 };
    const weft_vocabulary with = {ROWS, ROWS + 1, ROWS};
    weft_error err = WEFT_ERROR_INIT;
    char *base = read_bytes(golden_file(0, "config.json"), NULL);
    char *text = replaced(base, "\"vocab_size\": 97", "\"vocab_size\": 2730");
    write_bytes(scratch_path("small.json"), text, strlen(text));
    {
        BENCH(small, scratch_path("small.json"), "all", true);
        bench bench_here = bench_of(declared_at(scratch_path("small.json"), with), true), *b = bench_bind(&bench_here);
        ck_assert_ok(init(small, 5, &err), err);
        ck_assert_ok(save(small, scratch, WEFT_F32, WEFT_SHARD_BYTES, &err), err);
        ck_assert_ok(load(b, scratch, &err), err);
        check_grown(b, scratch, "model.embed_tokens.weight", ROWS);
        bench_free(small);
        bench_free(b);
    }
    free(text);
    free(base);
}

/* One row is added, not two, and only to a vocabulary. */
TEST(rows_that_were_not_asked_for_are_missed) {
    const weft_vocabulary more = {96, 98, 96}, spare = {97, 97, 5};
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *declared = declared_with("llama-tied", more);
    ck_assert_int_eq(weft_weights_check(declared, llama_golden("llama-tied"), &err), WEFT_E_DATA);
    ck_assert_says(err, "model.embed_tokens.weight is (97, 24), not (98, 24)");
    weft_declared_destroy(declared);
    declared = declared_with("llama-tied", spare);
    ck_assert_ok(weft_weights_check(declared, llama_golden("llama-tied"), &err), err);
    weft_declared_destroy(declared);
}

/* ---- mismatches ---- */

/* Tensors of llama-tied (or another model) with changes, as scratch/model.safetensors. */
typedef struct change {
    const char *name; /* tensor to change */
    const char *as;   /* its new name; NULL: removed */
    int32_t dtype;    /* 0: unchanged; else its bytes are reinterpreted as this dtype, with as many elements as fit */
    bool transposed;
    const char *twice;  /* name of a second copy */
    bool spoiled;       /* the second copy differs in its last number */
    const char *before; /* prefix of all names; NULL: no prefix */
    bool headless;      /* all names lack "model." */
    const char *after;  /* text in names after which `insert` is added; NULL: nothing */
    const char *insert;
} change;

/* Returns a name after the change, valid until the next file is written. */
static const char *renamed(const change *c, int32_t n, const char *name) {
    static char names[64][256];
    const char *at = c->after == NULL ? NULL : strstr(name, c->after);
    const size_t before = at == NULL ? 0 : (size_t)(at - name) + strlen(c->after);
    if (c->headless && strncmp(name, "model.", 6) == 0) name += 6;
    (void)snprintf(names[n], sizeof names[n], "%s%.*s%s%s", c->before == NULL ? "" : c->before, (int)before, name,
                   at == NULL ? "" : c->insert, name + before);
    return names[n];
}

static void write_changed(const char *model, const change *c) {
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *files = NULL;
    weft_tensor_spec specs[64];
    const unsigned char *data[64];
    int64_t bytes[64];
    int32_t n = 0, spoiled = -1;
    weft_tensor_writer *writer = NULL;
    ck_assert_ok(weft_safetensors_open_directory(&files, llama_golden(model), &err), err);
    for (int32_t i = 0; i < files->n_tensors; i++) {
        const weft_tensor *t = &files->tensors[i];
        const bool hit = c->name != NULL && strcmp(t->name, c->name) == 0;
        for (int copy = 0; copy < (hit && c->twice != NULL ? 2 : 1); copy++) {
            weft_tensor_spec *s = &specs[n];
            if (hit && copy == 0 && c->as == NULL) continue;
            memset(s, 0, sizeof *s);
            s->name = renamed(c, n, !hit ? t->name : copy == 1 ? c->twice : c->as);
            s->dtype = t->dtype;
            s->rank = t->rank;
            memcpy(s->dims, t->dims, sizeof s->dims);
            data[n] = t->data;
            bytes[n] = t->bytes;
            if (hit && c->transposed) {
                s->dims[0] = t->dims[1];
                s->dims[1] = t->dims[0];
            }
            if (hit && c->dtype != 0) {
                s->dtype = c->dtype;
                bytes[n] = t->numel * weft_dtype_bytes(c->dtype);
                if (bytes[n] > t->bytes) data[n] = NULL; /* zeros */
            }
            if (copy == 1 && c->spoiled) spoiled = n;
            n++;
        }
    }
    ck_assert_ok(weft_tensor_writer_open(&writer, scratch_path("model.safetensors"), specs, n, true, &err), err);
    for (int32_t i = 0; i < n; i++)
        if (data[i] != NULL) ck_assert_ok(weft_tensor_writer_write(writer, i, 0, data[i], bytes[i], &err), err);
    if (spoiled >= 0)
        ck_assert_ok(weft_tensor_writer_write(writer, spoiled, bytes[spoiled] - 4, "\1\2\3", 4, &err), err);
    ck_assert_ok(weft_tensor_writer_finish(writer, &err), err);
    weft_safetensors_close(files);
}

static const struct {
    const char *model;
    change change;
    const char *texts[2];
} misfits[] = {
    {"llama-tied", {.name = "model.norm.weight"}, {"1 missing (model.norm.weight)", "llama-tied/config.json"}},
    {"llama-gqa", {.name = "lm_head.weight"}, {"1 missing (lm_head.weight)", "AutoModel saves no head"}},
    {"llama-tied",
     {.name = "model.norm.weight", .as = "model.norm.wait"},
     {"1 missing (model.norm.weight)", "1 unexpected (model.norm.wait)"}},
    {"llama-tied",
     {.name = "model.norm.weight", .as = "model.norm.weight", .twice = "extra"},
     {"1 unexpected (extra)"}},
    {"llama-tied", {.before = "student."}, {"unexpected (student.model.", "removeprefix(\"student.\")"}},
    {"llama-tied",
     {.after = "q_proj.", .insert = "base_layer."},
     {"unexpected (model.layers.0.self_attn.q_proj.base_layer.weight", "merge_and_unload()"}},
    {"llama-tied",
     {.name = "model.norm.weight",
      .as = "model.norm.weight",
      .twice = "model.layers.0.self_attn.q_proj.lora_A.default.weight"},
     {"1 unexpected (model.layers.0.self_attn.q_proj.lora_A.default.weight)", "merge_and_unload()"}},
    {"llama-tied",
     {.name = "model.norm.weight", .as = "ema.module.norm.weight"},
     {"1 missing (model.norm.weight)", "removeprefix(\"ema.\")"}},
    {"llama-tied",
     {.name = "model.layers.1.mlp.up_proj.weight", .as = "model.layers.1.mlp.up_proj.weight", .transposed = true},
     {"1 of another shape (model.layers.1.mlp.up_proj.weight is (24, 41), not (41, 24))"}},
    {"llama-tied",
     {.name = "model.norm.weight", .as = "model.norm.weight", .dtype = WEFT_I32},
     {"1 of a type that is not read, which are F32, BF16 and F16 (model.norm.weight is I32)"}},
    {"llama-tied",
     {.name = "model.norm.weight", .as = "model.norm.weight", .dtype = WEFT_F64},
     {"model.norm.weight is F64"}},
    {"llama-tied",
     {.name = "model.embed_tokens.weight",
      .as = "model.embed_tokens.weight",
      .twice = "lm_head.weight",
      .spoiled = true},
     {"'model.embed_tokens.weight' and 'lm_head.weight' differ, but the model ties them"}},
};

TESTS(a_directory_that_does_not_fit_is_refused_and_nothing_is_touched, LENGTH(misfits)) {
    weft_error err = WEFT_ERROR_INIT;
    char path[64];
    (void)snprintf(path, sizeof path, "%s/config.json", misfits[_i].model);
    BENCH(b, llama_golden(path), "all", true);
    write_changed(misfits[_i].model, &misfits[_i].change);
    ck_assert_int_eq(load(b, scratch, &err), WEFT_E_DATA);
    ck_assert_says(err, scratch);
    for (int i = 0; i < 2 && misfits[_i].texts[i] != NULL; i++) ck_assert_says(err, misfits[_i].texts[i]);
    for (int64_t i = 0; i < b->buffer.n; i++)
        if (b->buffer.bytes[i] != 0xFF) ck_abort_msg("byte %lld was written", (long long)i);
    bench_free(b);
}

TESTS(tied_storage_is_read_under_any_of_its_names, 2) {
    const change changes[] = {
        {.name = "model.embed_tokens.weight", .as = "model.embed_tokens.weight", .twice = "lm_head.weight"},
        {.name = "model.embed_tokens.weight", .as = "lm_head.weight"}};
    weft_error err = WEFT_ERROR_INIT;
    BENCH(whole, llama_golden("llama-tied/config.json"), "all", true);
    BENCH(b, llama_golden("llama-tied/config.json"), "all", true);
    write_changed("llama-tied", &changes[_i]);
    ck_assert_ok(load(whole, llama_golden("llama-tied"), &err), err);
    ck_assert_ok(load(b, scratch, &err), err);
    ck_assert(same_region(whole, b));
    bench_free(whole);
    bench_free(b);
}

TESTS(names_of_another_class_or_wrapper_are_read, 17) {
    static const change changes[] = {{.headless = true},
                                     {.before = "_orig_mod."},
                                     {.before = "module._orig_mod."},
                                     {.before = "language_model."},
                                     {.before = "_orig_mod.", .headless = true},
                                     {.before = "_orig_mod.module."},
                                     {.before = "base_model.model."},
                                     {.before = "module.base_model.model._orig_mod."},
                                     {.before = "base_model.model.", .headless = true},
                                     {.before = "model.language_model.", .headless = true},
                                     {.before = "language_model.", .headless = true},
                                     {.before = "_fsdp_wrapped_module."},
                                     /* in the middle of names, and only of some */
                                     {.after = "model.layers.1.", .insert = "_fsdp_wrapped_module."},
                                     {.after = "model.layers.0.", .insert = "_checkpoint_wrapped_module._orig_mod."},
                                     {.after = "model.", .insert = "language_model."},
                                     /* at the front, but only of some */
                                     {.name = "model.norm.weight", .as = "module.model.norm.weight"},
                                     {.name = "model.norm.weight", .as = "_orig_mod.norm.weight"}};
    char *text = read_bytes(llama_golden("llama-tied/config.json"), NULL), *other = NULL, *saved = NULL;
    weft_error err = WEFT_ERROR_INIT;
    write_changed("llama-tied", &changes[_i]);
    other = changes[_i].headless ? replaced(text, "LlamaForCausalLM", "LlamaModel") : strdup(text);
    write_text(scratch_path("config.json"), other);
    BENCH(whole, llama_golden("llama-tied/config.json"), "all", true);
    BENCH(b, scratch_path("config.json"), "all", true);
    ck_assert_ok(load(whole, llama_golden("llama-tied"), &err), err);
    ck_assert_ok(load(b, scratch, &err), err);
    ck_assert(same_region(whole, b));
    /* The saved model has the names and the class of the model with its head. */
    ck_assert_int_eq(mkdir(scratch_path("out"), 0777), 0);
    ck_assert_ok(save(b, scratch_path("out"), WEFT_F32, WEFT_SHARD_BYTES, &err), err);
    check_against_files(whole, scratch_path("out"));
    saved = read_bytes(scratch_path("out/config.json"), NULL);
    ck_assert_ptr_nonnull(strstr(saved, "\"LlamaForCausalLM\""));
    ck_assert_ptr_null(strstr(saved, "\"LlamaModel\""));
    free(saved);
    free(other);
    free(text);
    bench_free(whole);
    bench_free(b);
}

/* Without the prefix, one tensor would have the name of another. */
TESTS(two_tensors_of_one_name_are_refused, 3) {
    static const char *const twice[] = {"norm.weight", "module.model.norm.weight",
                                        "model._fsdp_wrapped_module.norm.weight"};
    const change both = {.name = "model.norm.weight", .as = "model.norm.weight", .twice = twice[_i]};
    weft_error err = WEFT_ERROR_INIT;
    BENCH(b, llama_golden("llama-tied/config.json"), "all", true);
    write_changed("llama-tied", &both);
    ck_assert_int_eq(load(b, scratch, &err), WEFT_E_DATA);
    ck_assert_says(err, "model.norm.weight");
    bench_free(b);
}

TEST(buffers_of_old_checkpoints_are_passed_over) {
    const change old = {.name = "model.norm.weight",
                        .as = "model.norm.weight",
                        .twice = "model.layers.0.self_attn.rotary_emb.inv_freq"};
    weft_error err = WEFT_ERROR_INIT;
    BENCH(b, llama_golden("llama-tied/config.json"), "all", true);
    write_changed("llama-tied", &old);
    ck_assert_ok(load(b, scratch, &err), err);
    bench_free(b);
}

TEST(a_model_of_another_size_shows_a_few_names_of_many) {
    weft_error err = WEFT_ERROR_INIT;
    BENCH(b, llama_golden("llama-gqa/config.json"), "all", true);
    ck_assert_int_eq(load(b, llama_golden("llama-tied"), &err), WEFT_E_DATA);
    ck_assert_says(err, "1 missing (lm_head.weight)");
    ck_assert_says(err, "20 of another shape (");
    ck_assert_says(err, ", ...)");
    ck_assert_says(err, "9 unexpected (model.layers.2.");
    bench_free(b);
}

/* ---- fresh start ---- */

TEST(a_fresh_start_is_the_formula_that_is_stated) {
    weft_error err = WEFT_ERROR_INIT;
    const char *name = "model.layers.0.self_attn.q_proj.weight";
    const float *x = NULL;
    BENCH(b, llama_golden("llama-gqa/config.json"), "all", true);
    ck_assert_ok(init(b, 77, &err), err);
    x = values(b, name);
    for (int64_t e = 0; e < 60 * 42; e++) {
        const weft_random4 r =
            weft_random(77, WEFT_RANDOM_INIT, (uint64_t)weft_declared_find(b->declared, name), (uint64_t)e / 4);
        const uint32_t u = r.v[e % 4 / 2 * 2], a = r.v[e % 4 / 2 * 2 + 1];
        const double radius = sqrt(-2 * log((u + 1.0) / 4294967296.0)),
                     angle = 2 * 3.14159265358979323846 * a / 4294967296.0;
        const double z = e % 2 == 0 ? radius * cos(angle) : radius * sin(angle);
        if (fabs((double)x[e] - 0.02 * z) > 1e-8) ck_abort_msg("element %lld", (long long)e);
    }
    for (int i = 0; i < 42; i++) ck_assert_float_eq(values(b, "model.norm.weight")[i], 1);
    check_padding(b);
    bench_free(b);
}

TEST(fresh_weights_depend_on_seed_and_model_alone) {
    weft_error err = WEFT_ERROR_INIT;
    BENCH(a, llama_golden("llama-tied/config.json"), "all", true);
    BENCH(b, llama_golden("llama-tied/config.json"), "head", false);
    ck_assert_ok(init(a, 5, &err), err);
    ck_assert_ok(init(b, 5, &err), err);
    for (int32_t p = 0; p < a->declared->n_parameters; p++) {
        const weft_parameter *parameter = &a->declared->parameters[p];
        ck_assert_int_eq(memcmp(values(a, parameter->name), values(b, parameter->name), (size_t)parameter->numel * 4),
                         0);
    }
    ck_assert_ok(init(b, 6, &err), err);
    ck_assert_float_ne(values(a, "model.embed_tokens.weight")[0], values(b, "model.embed_tokens.weight")[0]);
    ck_assert_float_ne(values(a, "model.layers.0.self_attn.q_proj.weight")[0],
                       values(a, "model.layers.1.self_attn.q_proj.weight")[0]);
    bench_free(a);
    bench_free(b);
}

/* ---- single files ---- */

TESTS(masters_and_state_are_written_by_name, 2) {
    const char *const trained[] = {"all", "last:1,*norm.weight"};
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *file = NULL;
    BENCH(b, llama_golden("llama-bf16/config.json"), trained[_i], false);
    const weft_region region = whole(b);
    ck_assert_ok(init(b, 9, &err), err);
    ck_assert_ok(weft_weights_save_file(&region, scratch_path("s"), _i == 1, NULL, &err), err);
    ck_assert_ok(weft_safetensors_open(&file, scratch_path("s"), &err), err);
    ck_assert_int_eq(file->n_tensors, _i == 0 ? 21 : 9 + 2 + 1);
    for (int32_t i = 0; i < file->n_tensors; i++) {
        const weft_tensor *t = &file->tensors[i];
        ck_assert(b->declared->parameters[weft_declared_find(b->declared, t->name)].trainable);
        ck_assert_int_eq(t->dtype, WEFT_F32);
        ck_assert_int_eq(memcmp(t->data, values(b, t->name), (size_t)t->bytes), 0);
    }
    weft_safetensors_close(file);
    bench_free(b);
}

int main(void) {
    return run_tests(test_case("weights", 60, scratch_make, scratch_remove));
}
