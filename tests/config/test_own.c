/* Sections of one plugin, [strategy.fsdp]: when their keys apply, and their handling otherwise. */
#include "loaded.h"

#include <check.h>

#include "config/settings.h"
#include "tools/config/explain.h"

#define FSDP_KEYS(K)                                                                                                   \
    K(ENUM, shard, "full", "full,hybrid", "", WEFT_SAME, "What is cut.")                                               \
    K(I64, group, "auto", "[1,inf) | auto", "ranks", WEFT_SAME, "How many share.")                                     \
    K(PATH, map, "none", "none", "", WEFT_SAME, "Who has what.")                                                       \
    K(STR, token, "", "", "", WEFT_SECRET, "A secret.")                                                                \
    K(STR, old, "", "", "", WEFT_REMOVED, "use shard instead.")
WEFT_KEYS(fsdp_config, FSDP_KEYS)

#define KEYS fsdp_config_keys(), fsdp_config_n_keys, (uint32_t)sizeof(weft_key)

static fsdp_config fsdp;
static weft_settings settings;

/* The host's keys of [strategy]; fsdp offers all of them. */
static void declare_capabilities(const char *section) {
    weft_settings_section table;
    size_t i = 0;
    while (weft_settings_table(&table, i) && strcmp(table.section, "strategy") != 0) i++;
    weft_config_declare(config, section, table.keys, table.n, (uint32_t)sizeof(weft_key));
}

/* Loads as a run that selects fsdp. */
static weft_status choose(const char *text, const char *const *overrides, size_t n) {
    const char *id = NULL;
    weft_status status = WEFT_OK;
    write_text("run.ini", text);
    status = load_config("run.ini", overrides, n);
    if (status == WEFT_OK) status = weft_config_plugin(config, &id, "strategy", "fsdp", &err);
    if (status != WEFT_OK) return status;
    weft_settings_declare(config);
    weft_config_choose(config, "strategy", "fsdp");
    weft_config_declare(config, "strategy", KEYS);
    weft_config_declare(config, "strategy.fsdp", KEYS);
    declare_capabilities("strategy.fsdp");
    status = weft_config_unknown(config, "strategy", &err);
    if (status == WEFT_OK) status = weft_config_unknown(config, "strategy.fsdp", &err);
    if (status == WEFT_OK) status = weft_config_doubles(config, "strategy", &err);
    if (status == WEFT_OK) status = weft_settings_load(&settings, config, &err);
    if (status == WEFT_OK) status = weft_config_fill(config, &fsdp, "strategy", KEYS, &err);
    return status == WEFT_OK ? weft_config_finish(config, &err) : status;
}

/* Loads as a run that selects another plugin. */
static weft_status leave(const char *text, const char *const *overrides, size_t n) {
    weft_status status = WEFT_OK;
    write_text("run.ini", text);
    status = load_config("run.ini", overrides, n);
    if (status != WEFT_OK) return status;
    weft_config_declare(config, "strategy.fsdp", KEYS);
    status = weft_config_unknown(config, "strategy.fsdp", &err);
    if (status == WEFT_OK) status = weft_config_idle(config, "strategy.fsdp", KEYS, &err);
    return status == WEFT_OK ? weft_config_finish(config, &err) : status;
}

#define MODEL "[model]\npath = m\n"

TEST(the_chosen_plugin_has_both_sections) {
    ck_assert_ok(
        choose(MODEL "[strategy]\nshard = hybrid\nreduce = tree\n[strategy.fsdp]\ngroup = 4\nprefetch = 3\n", NULL, 0));
    ck_assert_int_eq(fsdp.shard, 1);
    ck_assert_int_eq(fsdp.group, 4);
    ck_assert_int_eq(settings.strategy.reduce, 1);
    ck_assert_int_eq(settings.strategy.prefetch, 3);
}

TEST(the_last_override_of_either_section_counts) {
    const char *const plain[] = {"strategy.fsdp.group=7", "strategy.group=5"};
    const char *const own[] = {"strategy.group=5", "strategy.fsdp.group=7"};
    const char text[] = MODEL "[strategy]\nshard = full\n[strategy.fsdp]\ngroup = 4\n";
    ck_assert_ok(choose(text, plain, 2));
    ck_assert_int_eq(fsdp.group, 5);
    ck_assert_ok(choose(text, own, 2));
    ck_assert_int_eq(fsdp.group, 7);
    ck_assert_ok(choose(text, plain + 1, 1));
    ck_assert_int_eq(fsdp.group, 5);
}

/* An error of the file, with any override. */
TEST(a_key_in_both_sections_is_refused) {
    const char *const override[] = {"strategy.group=5"};
    for (size_t n = 0; n < 2; n++) {
        ck_assert_int_eq(choose(MODEL "[strategy]\ngroup = 2\n[strategy.fsdp]\nshard = full\ngroup = 4\n", override, n),
                         WEFT_E_USER);
        ck_assert_says(err, "run.ini:7: [strategy.fsdp] group is set in line 4 too, in [strategy], and both count for "
                            "this run: keep one of them");
    }
}

TEST(errors_name_the_section_that_a_value_stands_in) {
    ck_assert_int_eq(choose(MODEL "[strategy.fsdp]\ngroup = none\n", NULL, 0), WEFT_E_USER);
    ck_assert_says(err, "run.ini:4: [strategy.fsdp] group = none is");
    ck_assert_int_eq(choose(MODEL "[strategy.fsdp]\nold = 3\n", NULL, 0), WEFT_E_USER);
    ck_assert_says(err, "run.ini:4: [strategy.fsdp] old was removed: use shard instead.");
    ck_assert_int_eq(choose(MODEL "[strategy.fsdp]\ngruop = 3\n", NULL, 0), WEFT_E_USER);
    ck_assert_says(err, "run.ini:4: [strategy.fsdp] has no key gruop; did you mean group?");
    ck_assert_int_eq(choose(MODEL "[strategy.fsdp]\nplugin = fsdp\n", NULL, 0), WEFT_E_USER);
    ck_assert_says(err, "run.ini:4: [strategy.fsdp] has no key plugin");
    ck_assert_ok(choose(MODEL "[strategy.fsdp]\ngroup = 3\n", NULL, 0));
    (void)weft_error_set(&err, WEFT_E_USER, "group = 3 does not divide 4");
    ck_assert(weft_config_locate(config, "strategy", &err));
    ck_assert_str_eq(err.text, "run.ini:4: [strategy.fsdp] group = 3 does not divide 4");
    (void)weft_error_set(&err, WEFT_E_USER, "nothing fits");
    weft_config_locate_section(config, "strategy", &err);
    ck_assert_str_eq(err.text, "run.ini: [strategy] nothing fits");
}

TEST(idle_sections_are_judged) {
    static const struct {
        const char *text, *says;
    } bad[] = {{"[strategy.fsdp]\ngroup = few\n", "run.ini:2: [strategy.fsdp] group = few is not a whole number"},
               {"[strategy.fsdp]\nold = 3\n", "run.ini:2: [strategy.fsdp] old was removed: use shard instead."},
               {"[strategy.fsdp]\nshrad = full\n", "run.ini:2: [strategy.fsdp] has no key shrad; did you mean shard?"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(leave(bad[i].text, NULL, 0), WEFT_E_USER);
        ck_assert_says(err, bad[i].says);
    }
    ck_assert_ok(leave("[strategy.fsdp]\n", NULL, 0)); /* no key is required */
}

/* Returns the configuration written to a file in another directory; freed by the caller. */
static char *resolved(void) {
    ck_assert_int_eq(mkdir("else", 0777), 0);
    ck_assert_ok(weft_config_save_resolved(config, "else/config.ini", &err));
    return read_bytes("else/config.ini", NULL);
}

TEST(idle_sections_are_kept_as_they_are) {
    const char *const override[] = {"strategy.fsdp.shard=hybrid"};
    char *text = NULL, wanted[400];
    ck_assert_ok(
        leave("[strategy.fsdp]\nshard = full\ngroup = 2Ki ; of a node\nmap = a/b.txt\ntoken = s3cret\n", override, 1));
    text = resolved();
    (void)snprintf(wanted, sizeof wanted, "[strategy.fsdp]\ngroup = 2Ki\nmap = %s\nshard = hybrid\n",
                   scratch_path("a/b.txt"));
    ck_assert_str_eq(text, wanted);
    free(text);
}

TEST(what_cannot_be_judged_is_kept) {
    char *text = NULL;
    write_text("run.ini", "[device.far]\nspeed = \" a # b\"\n");
    ck_assert_ok(load_config("run.ini", NULL, 0));
    ck_assert_ok(weft_config_idle(config, "device.far", NULL, 0, 0, &err));
    ck_assert_ok(weft_config_finish(config, &err));
    text = resolved();
    ck_assert_str_eq(text, "[device.far]\nspeed = \" a # b\"\n");
    free(text);
}

/* A default of the plugin's own key would be unknown to another plugin, so it is written to the plugin's section. */
TEST(a_resolved_file_can_still_change_its_plugin) {
    char *text = NULL;
    ck_assert_ok(choose(MODEL "[strategy]\nshard = hybrid\n[strategy.fsdp]\nprefetch = 2\n", NULL, 0));
    text = resolved();
    ck_assert_ptr_nonnull(
        strstr(text, "[strategy]\nplugin = fsdp\nreduce = ordered\nreduce_dtype = fp32\nshard = hybrid\n"));
    ck_assert_ptr_nonnull(strstr(text, "[strategy.fsdp]\nprefetch = 2\ngroup = auto\nmap = none\n"));
    free(text);
}

static char *explained(bool json) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    ck_assert_ok(weft_config_explain(config, file, json, &err));
    (void)fclose(file);
    return text;
}

TEST(explain_tells_the_section) {
    char *text = NULL;
    ck_assert_ok(choose(MODEL "[strategy.fsdp]\nprefetch = 2\n", NULL, 0));
    text = explained(false);
    ck_assert_ptr_nonnull(strstr(text, "run.ini:4, in [strategy.fsdp]\n"));
    free(text);
    ck_assert_ok(leave("[strategy.fsdp]\ngroup = 2Ki\ntoken = s3cret\n", NULL, 0));
    text = explained(false);
    ck_assert_str_eq(text, "strategy.fsdp.group  2048      run.ini:2, idle\n"
                           "strategy.fsdp.token  (secret)  run.ini:3, idle\n");
    free(text);
    text = explained(true);
    ck_assert_ptr_nonnull(strstr(text, "\"value\": 2048"));
    ck_assert_ptr_nonnull(strstr(text, "\"idle\": true"));
    ck_assert_ptr_null(strstr(text, "s3cret"));
    free(text);
}

TEST(a_section_is_forgotten_with_those_of_its_plugins) {
    const char *const overrides[] = {"strategy.mp.schedule=gpipe", "!strategy", "strategy.group=2"};
    write_text("run.ini", "[strategy]\nshard = full\n[strategy.fsdp]\ngroup = 4\n[strategyx]\na = 1\n");
    ck_assert_ok(load_config("run.ini", overrides, 3));
    ck_assert(weft_config_has_section(config, "strategy"));
    ck_assert(!weft_config_has_key(config, "strategy", "shard"));
    ck_assert(weft_config_has_key(config, "strategy", "group"));
    ck_assert_ptr_null(weft_config_plugin_section(config, "strategy", 0));
    ck_assert(weft_config_has_key(config, "strategyx", "a"));
}

TEST(sections_of_plugins_belong_to_a_kind) {
    static const char *const sections[] = {"train", "strategy"}, *const kinds[] = {"strategy"};
    static const struct {
        const char *section, *says;
    } rows[] = {{"strategy.fsdp", NULL},
                {"strategy.my-own_2", NULL},
                {"strategy.", "there is no section [strategy.]"},
                {"strategy.a.b", "there is no section [strategy.a.b]"},
                {"train.fsdp", "there is no section [train.fsdp]. The sections are: train, strategy"},
                {"stratgey.fsdp", "there is no section [stratgey.fsdp]; did you mean strategy.fsdp?"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[100];
        (void)snprintf(text, sizeof text, "[%s]\n", rows[i].section);
        write_text("run.ini", text);
        ck_assert_ok(load_config("run.ini", NULL, 0));
        const weft_status status = weft_config_sections(config, sections, 2, kinds, 1, &err);
        ck_assert_int_eq(status, rows[i].says == NULL ? WEFT_OK : WEFT_E_USER);
        if (rows[i].says != NULL) ck_assert_says(err, rows[i].says);
    }
}

int main(void) {
    TCase *tests = tcase_create("own");
    tcase_add_checked_fixture(tests, setup, teardown);
    return run_tests(tests);
}
