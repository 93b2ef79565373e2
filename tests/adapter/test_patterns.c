/* Module patterns in rank_pattern, alpha_pattern and exclude. Those in PEFT's files have PEFT's meaning
 * (tests/golden/make_peft_patterns.py); those in keys have the meaning of `targets`. Also tests the error messages. */
#include "common/expression.h"
#include "common/targets.h"
#include "golden.h"
#include "lora/patterns.h"
#include "suite.h"

enum { MOST_SITES = 64, KINDS = 1u << WEFT_SITE_LINEAR | 1u << WEFT_SITE_EMBEDDING };
static const char *const source = "there/adapter_config.json";

/* A model with these paths; chosen weights are never read. */
typedef struct rig {
    weft_site sites[MOST_SITES];
    weft_adapter_job job;
    uint8_t chosen[MOST_SITES];
    double values[MOST_SITES];
} rig;

static void add_site(rig *self, const char *path) {
    static char weight;
    weft_site *site = &self->sites[self->job.n_sites++];
    ck_assert_uint_le(self->job.n_sites, MOST_SITES);
    *site = (weft_site){.path = path, .weight = (weft_weight *)(void *)&weight, .whole = -1, .layer = -1};
    site->kind = strstr(path, "embed") != NULL     ? WEFT_SITE_EMBEDDING
                 : strstr(path, "lm_head") != NULL ? WEFT_SITE_HEAD
                                                   : WEFT_SITE_LINEAR;
    self->job.sites = self->sites;
    self->job.site_stride = (uint32_t)sizeof *site;
    self->chosen[self->job.n_sites - 1] = 1;
}

static void open_small(rig *self) {
    static const char *const paths[] = {"model.embed_tokens",
                                        "model.layers.0.self_attn.q_proj",
                                        "model.layers.0.self_attn.v_proj",
                                        "model.layers.0.mlp.up_proj",
                                        "model.layers.1.self_attn.q_proj",
                                        "model.layers.1.self_attn.v_proj",
                                        "model.layers.1.mlp.up_proj",
                                        "lm_head"};
    *self = (rig){.job = {.n_layers = 2}};
    for (size_t i = 0; i < LENGTH(paths); i++) add_site(self, paths[i]);
    self->chosen[0] = self->chosen[7] = 0;
}

/* ---- PEFT's patterns ---- */

static json_t *open_golden(void) {
    char path[4096];
    json_error_t why;
    json_t *all = NULL;
    golden_path(path, sizeof path, "peft_patterns.json");
    all = json_load_file(path, 0, &why);
    ck_assert_msg(all != NULL, "%s: %s", path, why.text);
    return all;
}

static void open_paths(rig *self, const json_t *golden) {
    const json_t *paths = json_object_get(golden, "paths");
    *self = (rig){.job = {.n_layers = 12}};
    for (size_t i = 0; i < json_array_size(paths); i++) add_site(self, json_string_value(json_array_get(paths, i)));
}

/* An entry that matches no path is rejected; without such entries the ranks equal PEFT's. */
static int refuse_unmet(rig *self, json_t *row) {
    const json_t *unmet = json_object_get(row, "unmet");
    json_t *object = json_object_get(row, "pattern");
    patterns found = {0};
    weft_error err = WEFT_ERROR_INIT;
    char quoted[256];
    if (json_array_size(unmet) == 0) return 0;
    (void)snprintf(quoted, sizeof quoted, "rank_pattern has '%s'", json_string_value(json_array_get(unmet, 0)));
    ck_assert_int_eq(patterns_of_file(&found, PATTERN_RANK, object, source, &err), WEFT_OK);
    ck_assert_int_eq(patterns_give(&found, &self->job, self->chosen, self->values, &err), WEFT_E_DATA);
    ck_assert_msg(strstr(err.text, quoted) != NULL && strstr(err.text, source) == err.text, "%s", err.text);
    patterns_free(&found);
    for (size_t i = 0; i < json_array_size(unmet); i++)
        ck_assert_int_eq(json_object_del(object, json_string_value(json_array_get(unmet, i))), 0);
    return 1;
}

static void expect_ranks(rig *self, json_t *row) {
    const json_t *ranks = json_object_get(row, "ranks");
    patterns found = {0};
    weft_error err = WEFT_ERROR_INIT;
    memset(self->values, 0, sizeof self->values);
    ck_assert_ok(patterns_of_file(&found, PATTERN_RANK, json_object_get(row, "pattern"), source, &err), err);
    ck_assert_ok(patterns_give(&found, &self->job, self->chosen, self->values, &err), err);
    for (uint32_t i = 0; i < self->job.n_sites; i++)
        ck_assert_msg(self->values[i] == json_number_value(json_array_get(ranks, i)), "%s gives %s rank %g",
                      json_dumps(json_object_get(row, "pattern"), 0), self->sites[i].path, self->values[i]);
    patterns_free(&found);
}

TEST(ranks_as_peft_gives_them) {
    int refused = 0;
    json_t *golden = open_golden(), *rows = json_object_get(golden, "rank_pattern");
    rig self;
    open_paths(&self, golden);
    ck_assert_uint_gt(json_array_size(rows), 10);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        refused += refuse_unmet(&self, json_array_get(rows, i));
        expect_ranks(&self, json_array_get(rows, i));
    }
    ck_assert_int_gt(refused, 3);
    json_decref(golden);
}

/* Returns "a,b" for a list. */
static char *join(const json_t *list) {
    char all[512] = "";
    for (size_t i = 0; i < json_array_size(list); i++) {
        const size_t used = strlen(all);
        (void)snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? "," : "",
                       json_string_value(json_array_get(list, i)));
    }
    return strdup(all);
}

static void expect_left_out(rig *self, const json_t *row) {
    const json_t *modules = json_object_get(row, "modules"), *left_out = json_object_get(row, "left_out");
    char *names = join(modules);
    const targets wanted = {
        {"", ".*", source}, {names, json_is_string(modules) ? json_string_value(modules) : "", source}, "all", KINDS};
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(targets_choose(&wanted, &self->job, self->chosen, &err), err);
    for (uint32_t i = 0; i < self->job.n_sites; i++)
        ck_assert_msg(self->chosen[i] == !json_integer_value(json_array_get(left_out, i)), "%s and %s",
                      json_dumps(modules, JSON_ENCODE_ANY), self->sites[i].path);
    free(names);
}

TEST(modules_left_out_as_peft_leaves_them) {
    json_t *golden = open_golden(), *rows = json_object_get(golden, "exclude_modules");
    rig self;
    open_paths(&self, golden);
    ck_assert_uint_gt(json_array_size(rows), 10);
    for (size_t i = 0; i < json_array_size(rows); i++) expect_left_out(&self, json_array_get(rows, i));
    json_decref(golden);
}

/* Syntax of Python's re that PCRE2 lacks, syntax only in PCRE2, and syntax with different meanings. */
static const char *const differing[] = {"[[:alpha:]]+", "a{,3}",     "a{ 1}",    "\\h",     "\\Kq",    "\\Qq",
                                        "\\pL",         "\\x5",      "\\v",      "\\u0071", "\\10",    "\\07",
                                        "[\\1]",        "(*F)",      "(?R)",     "(?1)",    "(?<n>q)", "(?|q|k)",
                                        "(?a)q",        "(?(1)q|k)", "(?#q)",    "(?x: q)", "(?P>n)",  "q(?i)",
                                        "\\N",          "\\z",       "(?i-s:q)", "\\R",     "{",       "[\\h]"};

TEST(rejects_syntax_that_python_reads_differently) {
    expression_fault why = {""};
    expression *mine = expression_open("(?|q|k)\\h?", EXPRESSION_WHOLE, false, &why);
    for (size_t i = 0; i < LENGTH(differing); i++) {
        ck_assert_msg(expression_open(differing[i], EXPRESSION_WHOLE, true, &why) == NULL, "%s", differing[i]);
        ck_assert_msg(strstr(why.text, "which Python's re treats differently") != NULL, "%s: %s", differing[i],
                      why.text);
    }
    ck_assert_ptr_null(expression_open("(?i)q_proj", EXPRESSION_END, true, &why));
    ck_assert_ptr_null(expression_open("(q_proj", EXPRESSION_END, true, &why));
    ck_assert_ptr_nonnull(strstr(why.text, "is no regular expression: missing closing parenthesis"));
    ck_assert_int_eq(expression_fits(mine, "k"), 1); /* in a key: PCRE2 */
    expression_close(mine);
}

/* A nested repetition exceeds PCRE2's step limit, which differs from "does not match". */
TEST(expressions_without_end) {
    rig self;
    weft_error err = WEFT_ERROR_INIT;
    patterns found = {0};
    json_t *object = json_pack("{s:i}", "((\\w+)+\\.?)+[!?]", 3);
    open_small(&self);
    self.sites[1].path = "model.a_module_whose_name_is_so_long_that_its_parts_can_be_cut_in_many_ways_without_an_end";
    ck_assert_int_eq(patterns_of_file(&found, PATTERN_RANK, object, source, &err), WEFT_OK);
    ck_assert_int_eq(patterns_give(&found, &self.job, self.chosen, self.values, &err), WEFT_E_DATA);
    ck_assert_says(err, "needs too many steps to be compared with a path");
    patterns_free(&found);
    json_decref(object);
}

/* ---- patterns in keys ---- */

TEST(reads_entries_of_a_key) {
    rig self;
    patterns found = {0};
    weft_error err = WEFT_ERROR_INIT;
    const double expected[] = {8, 4, 2, 1, 16, 2, 8, 8};
    open_small(&self);
    for (uint32_t i = 0; i < self.job.n_sites; i++) self.values[i] = 8;
    ck_assert_ok(patterns_of_key(&found, PATTERN_RANK, "layers.0.self_attn.q_proj:4,q_proj : 16,*.v_proj:2,*.0.mlp.*:1",
                                 &err),
                 err);
    ck_assert_ok(patterns_give(&found, &self.job, self.chosen, self.values, &err), err);
    for (uint32_t i = 0; i < self.job.n_sites; i++) ck_assert_double_eq(self.values[i], expected[i]);
    patterns_free(&found);
}

TEST(accepts_an_empty_key) {
    const char *const none[] = {"auto", "none", ""};
    weft_error err = WEFT_ERROR_INIT;
    for (int i = 0; i < 3; i++) {
        patterns found = {0};
        ck_assert_int_eq(patterns_of_key(&found, PATTERN_ALPHA, none[i], &err), WEFT_OK);
        ck_assert_uint_eq(found.n, 0);
    }
}

static const struct {
    pattern_sort sort;
    const char *text, *says;
} refusals[] = {{PATTERN_RANK, "q_proj",
                 "rank_pattern has 'q_proj', which is no module and its rank: an entry is a name or pattern"},
                {PATTERN_RANK, ":4", "rank_pattern has ':4', which is no module and its rank"},
                {PATTERN_RANK, "q_proj:", "rank_pattern has 'q_proj:' with the rank ''"},
                {PATTERN_RANK, "q_proj:0", "rank_pattern has 'q_proj:0' with the rank '0'"},
                {PATTERN_RANK, "q_proj:-3", "with the rank '-3'"},
                {PATTERN_RANK, "q_proj:2.5", "with the rank '2.5'"},
                {PATTERN_RANK, "q_proj:65537", "with the rank '65537'"},
                {PATTERN_RANK, "q_proj:4x", "with the rank '4x'"},
                {PATTERN_RANK, "q_proj:nan", "with the rank 'nan'"},
                {PATTERN_ALPHA, "q_proj:0",
                 "alpha_pattern has 'q_proj:0' with the alpha '0'. Allowed: a number above 0"},
                {PATTERN_ALPHA, "q_proj:inf", "with the alpha 'inf'"},
                {PATTERN_ALPHA, "q_proj:1e999", "with the alpha '1e999'"},
                {PATTERN_RANK, "q_proj:4,v_proj:2,q_proj:8", "rank_pattern has 'q_proj' more than once"},
                {PATTERN_RANK, "q_prj:4",
                 "rank_pattern has 'q_prj', which is no adapted module; the nearest is q_proj. Adapted are "
                 "q_proj, v_proj, up_proj. Allowed: names"},
                {PATTERN_RANK, "embed_tokens:4", "'embed_tokens', which is no adapted module"},
                {PATTERN_ALPHA, "*:4,q_proj:8",
                 "alpha_pattern has 'q_proj', and each module that it matches has its alpha by an earlier entry"}};

TESTS(rejects_invalid_entries, LENGTH(refusals)) {
    rig self;
    patterns found = {0};
    weft_error err = WEFT_ERROR_INIT;
    weft_status status = patterns_of_key(&found, refusals[_i].sort, refusals[_i].text, &err);
    open_small(&self);
    if (status == WEFT_OK) status = patterns_give(&found, &self.job, self.chosen, self.values, &err);
    ck_assert_int_eq(status, WEFT_E_USER);
    ck_assert_msg(strstr(err.text, refusals[_i].says) != NULL, "%s: %s", refusals[_i].text, err.text);
    patterns_free(&found);
}

static const struct {
    const char *json, *says;
} spoiled[] = {{"[\"q_proj\"]", "there/adapter_config.json: rank_pattern is no object of modules, each with its rank"},
               {"{\"q_proj\": 0}", "rank_pattern sets 'q_proj' to an invalid rank"},
               {"{\"q_proj\": 4.0}", "rank_pattern sets 'q_proj' to an invalid rank"},
               {"{\"q_proj\": \"4\"}", "rank_pattern sets 'q_proj' to an invalid rank"},
               {"{\"(\": 4}", "there/adapter_config.json: rank_pattern '(' is no regular expression"},
               {"{\"a{,2}\": 4}", "rank_pattern 'a{,2}' contains '{,2}', which Python's re"}};

TESTS(rejects_invalid_files, LENGTH(spoiled)) {
    rig self;
    patterns found = {0};
    weft_error err = WEFT_ERROR_INIT;
    json_t *object = json_loads(spoiled[_i].json, 0, NULL);
    weft_status status = patterns_of_file(&found, PATTERN_RANK, object, source, &err);
    open_small(&self);
    if (status == WEFT_OK) status = patterns_give(&found, &self.job, self.chosen, self.values, &err);
    ck_assert_int_eq(status, WEFT_E_DATA);
    ck_assert_says(err, spoiled[_i].says);
    patterns_free(&found);
    json_decref(object);
}

/* ---- exclusion ---- */

static weft_status choose(rig *self, const char *names, const char *left_out, const char *from, weft_error *err) {
    const targets wanted = {{names, "", from}, {left_out, "", from}, "all", KINDS};
    return targets_choose(&wanted, &self->job, self->chosen, err);
}

TEST(a_head_that_is_left_out_is_no_target) {
    rig self;
    weft_error err = WEFT_ERROR_INIT;
    open_small(&self);
    ck_assert_int_eq(choose(&self, "q_proj,lm_head", "", source, &err), WEFT_E_USER);
    ck_assert_ok(choose(&self, "q_proj,lm_head", "lm_head", source, &err), err);
    ck_assert(self.chosen[1] == 1 && self.chosen[4] == 1 && self.chosen[7] == 0);
    ck_assert_ok(choose(&self, "all-linear", "*.0.*,layers.1.mlp.up_proj", NULL, &err), err);
    for (uint32_t i = 0; i < self.job.n_sites; i++) ck_assert_int_eq(self.chosen[i], i == 4 || i == 5);
}

TEST(rejects_invalid_exclusions) {
    rig self;
    weft_error err = WEFT_ERROR_INIT;
    open_small(&self);
    ck_assert_int_eq(choose(&self, "all-linear", "q_prj", NULL, &err), WEFT_E_USER);
    ck_assert_msg(strstr(err.text, "exclude has 'q_prj', which is no module of this model that can be adapted; the "
                                   "nearest is q_proj") == err.text,
                  "%s", err.text);
    ck_assert_int_eq(choose(&self, "q_proj,v_proj", "*self_attn*", NULL, &err), WEFT_E_USER);
    ck_assert_msg(strstr(err.text,
                         "exclude = *self_attn* excludes every module that targets = q_proj,v_proj selects") ==
                      err.text,
                  "%s", err.text);
    ck_assert_int_eq(choose(&self, "q_proj,query_key_value", "q_proj", source, &err), WEFT_E_USER);
    ck_assert_msg(strstr(err.text, "there/adapter_config.json: exclude_modules = q_proj excludes every module") ==
                      err.text,
                  "%s", err.text);
}

/* ---- writing ---- */

/* Written as names if possible, else as paths. PEFT's rules reproduce the written values in any order. */
TEST(written_patterns_are_read_back) {
    const double given[] = {8, 4, 2, 8, 16, 2, 1, 8};
    rig self;
    json_t *object = NULL;
    char *text = NULL;
    patterns found = {0};
    weft_error err = WEFT_ERROR_INIT;
    open_small(&self);
    memcpy(self.values, given, sizeof given);
    object = patterns_write(PATTERN_RANK, &self.job, self.chosen, self.values, 8);
    text = json_dumps(object, JSON_SORT_KEYS | JSON_COMPACT);
    ck_assert_str_eq(text, "{\"model.layers.0.self_attn.q_proj\":4,\"model.layers.1.mlp.up_proj\":1,"
                           "\"model.layers.1.self_attn.q_proj\":16,\"v_proj\":2}");
    ck_assert_int_eq(patterns_of_file(&found, PATTERN_RANK, object, source, &err), WEFT_OK);
    for (uint32_t i = 0; i < self.job.n_sites; i++) self.values[i] = 8;
    ck_assert_int_eq(patterns_give(&found, &self.job, self.chosen, self.values, &err), WEFT_OK);
    for (uint32_t i = 0; i < self.job.n_sites; i++) ck_assert_double_eq(self.values[i], given[i]);
    patterns_free(&found);
    json_decref(object);
    free(text);
}

int main(void) {
    return run_tests(tcase_create("patterns"));
}
