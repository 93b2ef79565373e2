/* Files and overrides with key tables: precedence, errors, path resolution, and writing. */
#include "loaded.h"

#include <jansson.h>

#include "tools/config/explain.h"

/* Keys as declared by a host section and a plugin section. */
#define HOST_KEYS(K)                                                                                                   \
    K(I64, steps, "none", "[1,inf) | none", "steps", WEFT_SAME, "Steps.")                                              \
    K(F64, clip, "none", "(0,inf) | none", "", WEFT_SAME, "Clip.")                                                     \
    K(ENUM, schedule, "constant", "constant,linear,cosine", "", WEFT_SAME, "Schedule.")                                \
    K(BOOL, shuffle, "yes", "", "", 0, "Shuffle.")                                                                     \
    K(LIST, trainable, "all", "", "", 0, "Trainable.")                                                                 \
    K(LIST, search, "", "", "", WEFT_PATHS, "Directories.")                                                            \
    K(STR, token, "", "", "", WEFT_SECRET, "A secret.")                                                                \
    K(STR, old, NULL, "", "", WEFT_REMOVED, "use steps instead.")
#define PLUGIN_KEYS(K)                                                                                                 \
    K(PATH, path, NULL, "none", "", WEFT_SAME, "The text.")                                                            \
    K(I64, context, "256", "[1,inf)", "places", WEFT_SAME, "Places of a row.")                                         \
    K(STR, separator, "", "", "", WEFT_SAME, "Separator.")

WEFT_KEYS(host_config, HOST_KEYS)
WEFT_KEYS(plugin_config, PLUGIN_KEYS)

static host_config host;
static plugin_config plugin;
static const char *id;

static weft_status fill_all(void) {
    weft_status status = weft_config_fill(config, &host, "train", host_config_keys(), host_config_n_keys,
                                          (uint32_t)sizeof(weft_key), &err);
    if (status == WEFT_OK) status = weft_config_plugin(config, &id, "data", "text", &err);
    if (status == WEFT_OK) {
        status = weft_config_fill(config, &plugin, "data", plugin_config_keys(), plugin_config_n_keys,
                                  (uint32_t)sizeof(weft_key), &err);
    }
    return status == WEFT_OK ? weft_config_finish(config, &err) : status;
}

static weft_status load(const char *path, const char *const *overrides, size_t n) {
    const weft_status status = load_config(path, overrides, n);
    return status == WEFT_OK ? fill_all() : status;
}

static weft_status load_text(const char *text) {
    write_text("run.ini", text);
    return load("run.ini", NULL, 0);
}

TEST(values_come_from_the_file) {
    ck_assert_ok(load_text("[train]\nsteps = 1k\nclip = 0.5\nschedule = cosine\nshuffle = off\ntrainable = a.*, b\n"
                           "[data]\nplugin = rows\npath = x.txt\nseparator = \" # \"\n"));
    ck_assert_int_eq(host.steps, 1000);
    ck_assert(host.clip == 0.5);
    ck_assert_int_eq(host.schedule, 2);
    ck_assert_int_eq(host.shuffle, 0);
    ck_assert_str_eq(host.trainable, "a.*,b");
    ck_assert_str_eq(host.token, "");
    ck_assert_str_eq(id, "rows");
    ck_assert_str_eq(plugin.path, scratch_path("x.txt"));
    ck_assert_int_eq(plugin.context, 256);
    ck_assert_str_eq(plugin.separator, " # ");
}

TEST(defaults_stand_where_nothing_is_set) {
    ck_assert_ok(load_text("[data]\npath = none\n"));
    ck_assert(host.steps == WEFT_NONE_I64);
    ck_assert(host.clip == WEFT_NONE_F64);
    ck_assert_int_eq(host.shuffle, 1);
    ck_assert_str_eq(host.trainable, "all");
    ck_assert_str_eq(id, "text");
    ck_assert_str_eq(plugin.path, "none");
}

TEST(an_override_counts_more_and_the_last_one_most) {
    const char *const overrides[] = {"train.steps=5", "data.path=b", "train.steps=7", "data.separator=a # \"b\""};
    write_text("run.ini", "[train]\nsteps = 3\n[data]\npath = a\n");
    ck_assert_ok(load("run.ini", overrides, 4));
    ck_assert_int_eq(host.steps, 7);
    ck_assert_str_eq(plugin.path, scratch_path("b"));
    ck_assert_str_eq(plugin.separator, "a # \"b\"");
}

TEST(paths_are_relative_to_what_sets_them) {
    const char *const overrides[] = {"data.path=d/../over.txt"};
    ck_assert_int_eq(mkdir("sub", 0777), 0);
    write_text("sub/run.ini", "[data]\npath = ../up.txt\nplugin = ./my.so\n[train]\nsearch = p, /q/, ../r\n");
    ck_assert_ok(load("sub/run.ini", NULL, 0));
    ck_assert_str_eq(plugin.path, scratch_path("up.txt"));
    ck_assert_str_eq(id, scratch_path("sub/my.so"));
    char expected[512];
    (void)snprintf(expected, sizeof expected, "%s/sub/p,/q,%s/r", scratch, scratch);
    ck_assert_str_eq(host.search, expected);
    ck_assert_ok(load("sub/run.ini", overrides, 1));
    ck_assert_str_eq(plugin.path, scratch_path("over.txt"));
}

TEST(a_section_may_be_filled_by_two_tables) {
    write_text("run.ini", "[data]\nsteps = 4\npath = a\n");
    ck_assert_ok(weft_config_load(&config, "run.ini", NULL, 0, &err));
    ck_assert_ok(
        weft_config_fill(config, &host, "data", host_config_keys(), host_config_n_keys, sizeof(weft_key), &err));
    ck_assert_ok(
        weft_config_fill(config, &plugin, "data", plugin_config_keys(), plugin_config_n_keys, sizeof(weft_key), &err));
    ck_assert_ok(weft_config_finish(config, &err));
    ck_assert_int_eq(host.steps, 4);
    ck_assert_str_eq(plugin.path, scratch_path("a"));
    /* Filling from the same table again has the same values; another table with a key of that name is rejected. */
    host.steps = 0;
    ck_assert_ok(
        weft_config_fill(config, &host, "data", host_config_keys(), host_config_n_keys, sizeof(weft_key), &err));
    ck_assert_int_eq(host.steps, 4);
    weft_key twin = host_config_keys()[0];
    ck_assert_int_eq(weft_config_fill(config, &host, "data", &twin, 1, sizeof(weft_key), &err), WEFT_E_PLUGIN);
    ck_assert_says(err, "[data] steps is declared by two key tables");
}

TEST(rows_may_be_larger_than_ours) {
    struct {
        weft_key key;
        uint64_t newer[2];
    } rows[host_config_n_keys];
    for (int i = 0; i < host_config_n_keys; i++) rows[i].key = host_config_keys()[i];
    write_text("run.ini", "[train]\nsteps = 4\ntrainable = x\n");
    ck_assert_ok(weft_config_load(&config, "run.ini", NULL, 0, &err));
    ck_assert_ok(weft_config_fill(config, &host, "train", &rows[0].key, host_config_n_keys, sizeof rows[0], &err));
    ck_assert_int_eq(host.steps, 4);
    ck_assert_str_eq(host.trainable, "x");
}

TEST(a_failed_fill_touches_nothing) {
    memset(&host, 0x55, sizeof host);
    const host_config before = host;
    ck_assert_int_eq(load_text("[train]\nsteps = 4\nshuffle = perhaps\n"), WEFT_E_USER);
    ck_assert_mem_eq(&host, &before, sizeof host);
}

/* File text, and required parts of the message. */
static const struct {
    const char *text, *says[3];
} refused[] = {
    {"[train]\n\nclip = -1\n[data]\npath=a\n",
     {"run.ini:3: [train] clip = -1 is outside (0,inf) | none: give a positive number, or none"}},
    {"[train]\nsteps = ten\n",
     {"run.ini:2: [train] steps = ten is not a whole number: give a whole number of 1 or more"}},
    {"[train]\nsteps =\n", {"run.ini:2: [train] steps = \"\" is empty: give"}},
    {"[train]\nschedule = linaer\n", {"run.ini:2: [train] schedule = linaer", "did you mean linear?"}},
    {"[train]\nold = 3\n", {"run.ini:2: [train] old was removed: use steps instead."}},
    {"[train]\ntoken = s3cret\nstep = 3\n[data]\npath=a\n",
     {"run.ini:3: [train] has no key step; did you mean steps?", "Its keys are: steps, clip, schedule"}},
    {"[train]\nzzz = 3\n[data]\npath=a\n", {"[train] has no key zzz. Its keys are: "}},
    {"[train]\ncontext = 3\n[data]\npath=a\n", {"[train] has no key context; [data] has a key of that name: "}},
    {"[trian]\nsteps = 3\n[data]\npath=a\n",
     {"run.ini:1: there is no section [trian]; did you mean train?", "The sections are: train, data"}},
    {"[data]\npath=a\n[empty]\n", {"run.ini:3: there is no section [empty]."}},
    {"[Train]\nsteps = 3\n[data]\npath=a\n", {"no section [Train]; did you mean train?"}},
    {"[train]\nsteps = 3\n", {"run.ini: [data] path is missing and has no default. The text."}},
    {"[train]\nsteps = 3\n[data]\npath = a\n[train]\nsteps = 3\n",
     {"run.ini:6: [train] steps is set twice, in line 2 and in line 6"}},
    {"[data]\nplugin =\n", {"run.ini:2: [data] plugin = \"\" is empty"}},
    {"steps = 3\n", {"run.ini:1: key steps precedes the first [section]"}},
};

TESTS(mistakes_are_refused_with_a_sentence, LENGTH(refused)) {
    ck_assert_int_eq(load_text(refused[_i].text), WEFT_E_USER);
    ck_assert_int_eq(err.code, WEFT_E_USER);
    for (int k = 0; k < 3 && refused[_i].says[k] != NULL; k++) ck_assert_says(err, refused[_i].says[k]);
}

static const struct {
    const char *override, *says;
} refused_overrides[] = {
    {"train.clip=-1", "command line: [train] clip = -1 is outside"},
    {"train.stesp=1", "command line: [train] has no key stesp; did you mean steps?"},
    {"trian.steps=1", "command line: there is no section [trian]; did you mean train?"},
    {"train.steps", "command line: 'train.steps' is not section.key=value"},
    {"steps=3", "'steps=3' is not section.key=value"},
    {".steps=3", "is not section.key=value"},
    {"train.=3", "is not section.key=value"},
    {"=3", "is not section.key=value"},
    {"", "is not section.key=value"},
    {"data.separator=\n", "control character"},
    {"data.separator=\xFF", "UTF-8"},
    {"train.old=1", "command line: [train] old was removed"},
};

TESTS(mistaken_overrides_are_refused, LENGTH(refused_overrides)) {
    write_text("run.ini", "[data]\npath = a\n");
    ck_assert_int_eq(load("run.ini", &refused_overrides[_i].override, 1), WEFT_E_USER);
    ck_assert_says(err, refused_overrides[_i].says);
}

TEST(files_that_cannot_be_read_are_named) {
    char *large = malloc(2 << 20);
    memset(large, '\n', 2 << 20);
    write_bytes("large.ini", large, 2 << 20);
    free(large);
    ck_assert_int_eq(mkdir("dir.ini", 0777), 0);
    ck_assert_int_eq(load("no/such.ini", NULL, 0), WEFT_E_USER);
    ck_assert_says(err, "no/such.ini: cannot be opened: No such file");
    ck_assert_int_eq(load("dir.ini", NULL, 0), WEFT_E_USER);
    ck_assert_says(err, "dir.ini: is not a file");
    ck_assert_int_eq(load("large.ini", NULL, 0), WEFT_E_USER);
    ck_assert_says(err, "large.ini: has");
}

TEST(a_missing_plugin_is_asked_for) {
    write_text("run.ini", "[data]\npath = a\n");
    ck_assert_ok(weft_config_load(&config, "run.ini", NULL, 0, &err));
    ck_assert_int_eq(weft_config_plugin(config, &id, "model", NULL, &err), WEFT_E_USER);
    ck_assert_says(err, "run.ini: [model] plugin is missing: name the model plugin to use");
}

/* Only the names, before any value is read: first with the plugin's keys, then without. */
TEST(names_are_judged_before_values) {
    write_text("run.ini", "[data]\nzzz = 1\ncontxt = 3\nsteps = 9\npluign = x\n");
    ck_assert_ok(weft_config_load(&config, "run.ini", NULL, 0, &err));
    weft_config_declare(config, "data", host_config_keys(), host_config_n_keys, sizeof(weft_key));
    ck_assert_ok(weft_config_misspelt(config, "data", &err));
    ck_assert_int_eq(weft_config_plugin(config, &id, "data", NULL, &err), WEFT_E_USER);
    ck_assert_int_eq(weft_config_misspelt(config, "data", &err), WEFT_E_USER);
    ck_assert_says(err, "run.ini:5: [data] has no key pluign; did you mean plugin?");
    ck_assert_says(err, "trainable, search, token, plugin, and those of its plugin");
    weft_config_declare(config, "data", plugin_config_keys(), plugin_config_n_keys, sizeof(weft_key));
    ck_assert_int_eq(weft_config_unknown(config, "data", &err), WEFT_E_USER);
    ck_assert_says(err, "run.ini:5: [data] has no key pluign; did you mean plugin?");
    ck_assert_ok(weft_config_unknown(config, "train", &err));
}

TEST(without_its_plugin_a_section_may_hold_keys_that_nobody_knows) {
    write_text("run.ini", "[data]\nstep = 1\nsteps = 2\nzzz = 3\nclp = 4\n");
    ck_assert_ok(weft_config_load(&config, "run.ini", NULL, 0, &err));
    weft_config_declare(config, "data", host_config_keys(), host_config_n_keys, sizeof(weft_key));
    ck_assert_int_eq(weft_config_misspelt(config, "data", &err), WEFT_E_USER);
    ck_assert_says(err, "run.ini:5: [data] has no key clp; did you mean clip?"); /* step is not `steps` misspelt */
    ck_assert_int_eq(weft_config_unknown(config, "data", &err), WEFT_E_USER);
    ck_assert_says(err, "run.ini:2: [data] has no key step; did you mean steps?");
}

TEST(what_a_plugin_says_of_a_key_gets_its_place) {
    static const char *const overrides[] = {"train.clip=2"};
    static const struct {
        const char *section, *text, *located; /* NULL: unchanged, with the section's location */
        const char *place;
    } rows[] = {{"train", "steps = 3 is odd", "run.ini:2: [train] steps = 3 is odd", NULL},
                {"train", "[train] steps = 3 is odd", "run.ini:2: [train] steps = 3 is odd", NULL},
                {"train", "clip is odd", "command line: [train] clip is odd", NULL},
                {"train", "shuffle = no is odd", "run.ini: by default, [train] shuffle = no is odd", NULL},
                {"train", "step = 3 is odd", NULL, "run.ini: [train] "}, /* set in the file and outside it */
                {"train", "stepss is odd", NULL, "run.ini: [train] "},
                {"train", "[data] path is odd", NULL, "run.ini: [train] "},
                {"data", "something is odd", NULL, "run.ini:3: [data] "},
                {"data", "path", "run.ini:4: [data] path", NULL},
                {"data", "steps is odd", NULL, "run.ini:3: [data] "},
                {"data", "", NULL, "run.ini:3: [data] "},
                {"other", "it is odd", NULL, "run.ini: [other] "}};
    write_text("run.ini", "[train]\nsteps = 3\n[data]\npath = a\n");
    ck_assert_ok(load("run.ini", overrides, 1));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char expected[200];
        (void)weft_error_set(&err, WEFT_E_DATA, "%s", rows[i].text);
        ck_assert_msg(weft_config_locate(config, rows[i].section, &err) == (rows[i].located != NULL), "%s", err.text);
        ck_assert_str_eq(err.text, rows[i].located != NULL ? rows[i].located : rows[i].text);
        (void)weft_error_set(&err, WEFT_E_DATA, "%s", rows[i].text);
        weft_config_locate_section(config, rows[i].section, &err);
        (void)snprintf(expected, sizeof expected, "%s%s", rows[i].place != NULL ? rows[i].place : "",
                       rows[i].located != NULL ? rows[i].located : rows[i].text);
        ck_assert_str_eq(err.text, expected);
        ck_assert_int_eq(err.code, WEFT_E_DATA);
    }
    ck_assert(!weft_config_locate(config, "train", NULL));
    weft_config_locate_section(config, "train", NULL);
    write_text("run.ini", "[data]\npath = a\n");
    ck_assert_ok(load("run.ini", overrides, 1));
    (void)weft_error_set(&err, WEFT_E_USER, "it is odd");
    weft_config_locate_section(config, "train", &err);
    ck_assert_str_eq(err.text, "command line: [train] it is odd");
}

TEST(sections_can_be_judged_before_any_key) {
    static const char *const sections[] = {"train", "data"};
    write_text("run.ini", "[data]\n[Train]\nsteps = 3\n");
    ck_assert_ok(weft_config_load(&config, "run.ini", NULL, 0, &err));
    ck_assert_int_eq(weft_config_sections(config, sections, 2, NULL, 0, &err), WEFT_E_USER);
    ck_assert_str_eq(err.text, "run.ini:2: there is no section [Train]; did you mean train? The sections are: train, "
                               "data");
    weft_config_free(config);
    config = NULL;
    write_text("run.ini", "[data]\n[train]\nstep = 3\n");
    ck_assert_ok(weft_config_load(&config, "run.ini", NULL, 0, &err));
    ck_assert_ok(weft_config_sections(config, sections, 2, NULL, 0, &err));
}

TEST(rules_across_keys_name_the_value) {
    write_text("run.ini", "[train]\nsteps = 3\ntoken = s3cret\n[data]\npath = a\n");
    ck_assert_ok(load("run.ini", NULL, 0));
    ck_assert_int_eq(weft_config_reject(config, "train", "steps", &err, "is %d too few", 2), WEFT_E_USER);
    ck_assert_str_eq(err.text, "run.ini:2: [train] steps = 3 is 2 too few");
    (void)weft_config_reject(config, "data", "context", &err, "is odd");
    ck_assert_str_eq(err.text, "run.ini: [data] context = 256 (its default) is odd");
    (void)weft_config_reject(config, "train", "token", &err, "is bad");
    ck_assert_str_eq(err.text, "run.ini:3: [train] token is bad");
    (void)weft_config_reject(config, "run", "out", &err, "is not there");
    ck_assert_str_eq(err.text, "run.ini: [run] out is not there");
}

#define HELD_KEYS(K) K(PATH, held, "0.1", "none | number", "", WEFT_SAME, "A fraction, a number, or a file.")

WEFT_KEYS(held_config, HELD_KEYS)

/* Returns the value of `[data] held`. */
static const char *held(const char *path) {
    static held_config filled;
    weft_config_free(config);
    config = NULL;
    ck_assert_ok(weft_config_load(&config, path, NULL, 0, &err));
    ck_assert_ok(weft_config_fill(config, &filled, "data", held_config_keys(), held_config_n_keys,
                                  (uint32_t)sizeof(weft_key), &err));
    ck_assert_ok(weft_config_finish(config, &err));
    return filled.held;
}

TEST(a_number_in_a_path_key_is_no_file) {
    static const char *const rows[][2] = {{"", "0.1"},
                                          {"held = 5\n", "5"},
                                          {"held = 2.50\n", "2.50"},
                                          {"held = none\n", "none"},
                                          {"held = ./5\n", NULL},
                                          {"held = 5.txt\n", NULL}};
    ck_assert_int_eq(mkdir("sub", 0777), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *expected = rows[i][1] != NULL ? rows[i][1] : scratch_path(i == 4 ? "sub/5" : "sub/5.txt");
        char text[64];
        (void)snprintf(text, sizeof text, "[data]\n%s", rows[i][0]);
        write_text("sub/run.ini", text);
        ck_assert_str_eq(held("sub/run.ini"), expected);
        ck_assert_ok(weft_config_save_resolved(config, "one.ini", &err));
        ck_assert_str_eq(held("one.ini"), expected);
    }
}

TEST(resolved_reads_back_the_same) {
    const char *const overrides[] = {"data.separator= \"a\\b\" ; c ", "train.clip=0.1"};
    char *first = NULL, *second = NULL;
    ck_assert_int_eq(mkdir("sub", 0777), 0);
    ck_assert_int_eq(mkdir("else", 0777), 0);
    write_text("sub/run.ini", "[train]\nsteps = 2Ki\nschedule = cosine\nshuffle = 0\ntrainable = a, b\nsearch = p,q\n"
                              "token = s3cret\n[data]\npath = t.txt\nplugin = ./p.so\n");
    ck_assert_ok(load("sub/run.ini", overrides, 2));
    const host_config before = host;
    const double clip = host.clip;
    ck_assert_ok(weft_config_save_resolved(config, "else/one.ini", &err));
    ck_assert_ok(load("else/one.ini", NULL, 0));
    ck_assert_int_eq(host.steps, 2048);
    ck_assert_int_eq(host.schedule, before.schedule);
    ck_assert_int_eq(host.shuffle, 0);
    ck_assert(host.clip == clip);
    ck_assert_str_eq(host.trainable, "a,b");
    ck_assert_str_eq(plugin.path, scratch_path("sub/t.txt"));
    ck_assert_str_eq(plugin.separator, " \"a\\b\" ; c ");
    ck_assert_str_eq(id, scratch_path("sub/p.so"));
    ck_assert_ok(weft_config_save_resolved(config, "two.ini", &err));
    first = read_bytes("else/one.ini", NULL);
    second = read_bytes("two.ini", NULL);
    ck_assert_str_eq(first, second);
    ck_assert_ptr_null(strstr(first, "s3cret"));
    ck_assert_ptr_null(strstr(first, "token"));
    ck_assert_ptr_null(strstr(first, "old"));
    ck_assert_ptr_nonnull(strstr(first, "\n\n[data]\nplugin = "));
    free(first);
    free(second);
}

TEST(explain_tells_every_source) {
    const char *const overrides[] = {"train.clip=0.1"};
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    write_text("run.ini", "[train]\nsteps = 12\ntoken = s3cret\n[data]\npath = none\n");
    ck_assert_ok(load("run.ini", overrides, 1));
    ck_assert_ok(weft_config_explain(config, file, false, &err));
    (void)fclose(file);
    ck_assert_str_eq(text, "train.steps      12        run.ini:2\n"
                           "train.clip       0.1       command line\n"
                           "train.schedule   constant  default\n"
                           "train.shuffle    yes       default\n"
                           "train.trainable  all       default\n"
                           "train.search     \"\"        default\n"
                           "train.token      (secret)  run.ini:3\n"
                           "data.plugin      text      default\n"
                           "data.path        none      run.ini:5\n"
                           "data.context     256       default\n"
                           "data.separator   \"\"        default\n");
    free(text);
}

TEST(explain_as_json_is_typed) {
    static const char *const expected[] = {"{\"key\":\"train.steps\",\"value\":12,\"source\":\"run.ini:2\"}",
                                           "{\"key\":\"train.clip\",\"value\":\"none\",\"source\":\"default\"}",
                                           "{\"key\":\"train.shuffle\",\"value\":true,\"source\":\"default\"}",
                                           "{\"key\":\"train.token\",\"value\":null,\"source\":\"run.ini:3\"}",
                                           "{\"key\":\"data.plugin\",\"value\":\"text\",\"source\":\"default\"}"};
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    json_t *array = NULL;
    ck_assert_ok(load_text("[train]\nsteps = 12\ntoken = s3cret\n[data]\npath = none\n"));
    ck_assert_ok(weft_config_explain(config, file, true, &err));
    (void)fclose(file);
    array = json_loads(text, 0, NULL);
    ck_assert_uint_eq(json_array_size(array), 11);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        json_t *object = json_loads(expected[i], 0, NULL);
        size_t found = 0, at = 0;
        json_t *item = NULL;
        json_array_foreach(array, at, item) found += (size_t)json_equal(item, object);
        ck_assert_msg(found == 1, "%s", expected[i]);
        json_decref(object);
    }
    ck_assert_ptr_null(strstr(text, "s3cret"));
    json_decref(array);
    free(text);
}

TEST(a_secret_is_not_in_its_own_error) {
    weft_key row = {(uint32_t)sizeof row, WEFT_SECRET, WEFT_KEY_I64, 0, "pin", "0", "[0,9]", "", "A secret."};
    int64_t out = 0;
    write_text("run.ini", "[data]\npin = 4711\n");
    ck_assert_ok(weft_config_load(&config, "run.ini", NULL, 0, &err));
    ck_assert_int_eq(weft_config_fill(config, &out, "data", &row, 1, sizeof row, &err), WEFT_E_USER);
    ck_assert_says(err, "run.ini:2: [data] pin is outside [0,9]");
    ck_assert_ptr_null(strstr(err.text, "4711"));
}

int main(void) {
    TCase *tests = tcase_create("config");
    tcase_add_checked_fixture(tests, setup, teardown);
    return run_tests(tests);
}
