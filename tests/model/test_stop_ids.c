/* Ids that end a text: eos_token_id of generation_config.json, else of config.json, else the tokenizer's. */
#include "model/stop_ids.h"

#include "scratch.h"
#include "suite.h"

static void put(const char *name, const char *text) {
    if (text == NULL) (void)unlink(scratch_path(name));
    else write_text(scratch_path(name), text);
}

static const struct {
    const char *generation, *config;
    int32_t fallback, n, first, last;
} rows[] = {
    {NULL, "{\"eos_token_id\": 2}", 7, 1, 2, 2},
    {NULL, "{\"eos_token_id\": [128001, 128008, 128009]}", -1, 3, 128001, 128009},
    {"{\"eos_token_id\": [2, 426]}", "{\"eos_token_id\": 5}", -1, 2, 2, 426},
    {"{}", "{\"eos_token_id\": 5}", 7, 1, 5, 5},
    {NULL, "{\"eos_token_id\": null}", 7, 1, 7, 7},
    {NULL, "{}", -1, 0, 0, 0},
};

TESTS(the_files_decide_in_order, LENGTH(rows)) {
    weft_stop_ids stop;
    weft_error err = WEFT_ERROR_INIT;
    put("generation_config.json", rows[_i].generation);
    put("config.json", rows[_i].config);
    ck_assert_ok(weft_stop_ids_read(&stop, scratch, rows[_i].fallback, &err), err);
    ck_assert_int_eq(stop.n, rows[_i].n);
    if (stop.n == 0) return;
    ck_assert_int_eq(stop.ids[0], rows[_i].first);
    ck_assert_int_eq(stop.ids[stop.n - 1], rows[_i].last);
}

static const char *const wrong[] = {"{\"eos_token_id\": \"</s>\"}", "{\"eos_token_id\": [2, \"x\"]}",
                                    "{\"eos_token_id\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}"};

TESTS(other_values_are_refused_by_file, LENGTH(wrong)) {
    weft_stop_ids stop;
    weft_error err = WEFT_ERROR_INIT;
    put("generation_config.json", wrong[_i]);
    ck_assert_int_eq(weft_stop_ids_read(&stop, scratch, -1, &err), WEFT_E_DATA);
    ck_assert_says(err, "generation_config.json");
}

static void expect(const char *name, const char *text) {
    char *found = access(scratch_path(name), F_OK) == 0 ? read_bytes(scratch_path(name), NULL) : strdup("");
    ck_assert_str_eq(found, text);
    free(found);
}

/* File contents before and after adding end id 4 to a model with end ids 2 and 3. "": no file. */
static const struct {
    const char *generation, *config, *generation_then, *config_then;
} saved[] = {
    {"{\n \"a\": 1,\n \"eos_token_id\": 2\n}", "{\"eos_token_id\": 2, \"b\": 0}",
     "{\n \"a\": 1,\n \"eos_token_id\": [4, 2]\n}", "{\"eos_token_id\": [4, 2], \"b\": 0}"},
    {"{\"eos_token_id\": [2, 4]}", "{\"eos_token_id\":   4 }", "{\"eos_token_id\": [2, 4]}",
     "{\"eos_token_id\":   4 }"},
    {"{}", "{\"eos_token_id\": [2,3]}", "{\n  \"eos_token_id\": [4, 2, 3]\n}\n", "{\"eos_token_id\": [4, 2, 3]}"},
    {NULL, "{\"eos_token_id\": null}", "", "{\"eos_token_id\": [4, 2, 3]}"},
    {NULL, NULL, "{\n  \"eos_token_id\": [4, 2, 3]\n}\n", ""},
};

TESTS(an_end_goes_before_those_of_the_files, LENGTH(saved)) {
    const weft_stop_ids first = {{4}, 1}, others = {{2, 3}, 2};
    weft_stop_ids stop;
    weft_error err = WEFT_ERROR_INIT;
    put("generation_config.json", saved[_i].generation);
    put("config.json", saved[_i].config);
    ck_assert_ok(weft_stop_ids_save(&first, &others, scratch, &err), err);
    expect("generation_config.json", saved[_i].generation_then);
    expect("config.json", saved[_i].config_then);
    ck_assert_int_eq(weft_stop_ids_read(&stop, scratch, -1, &err), WEFT_OK);
    ck_assert(weft_stop_ids_have(&stop, 4) && weft_stop_ids_have(&stop, 2));
}

int main(void) {
    return run_tests(test_case("stop ids", 0, scratch_make, scratch_remove));
}
