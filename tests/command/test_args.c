/* Parsing of a command line into flags, overrides, the INI file and arguments; invalid command lines. */
#include "suite.h"

#include <check.h>
#include <stdlib.h>

#include "cli/cli.h"

static weft_exit never_run(const weft_args *args, weft_error *err) {
    (void)args;
    (void)err;
    return WEFT_EXIT_FAILED;
}

static const weft_flag flags[] = {{"json", NULL, false, "An object."},
                                  {"tokens", "N", false, "How many."},
                                  {"temperature", "T", false, "How wild."},
                                  {"resume", "HOW", true, "Go on."},
                                  {NULL, NULL, false, NULL}};
static const weft_command with_config = {
    .name = "eval", .usage = "run.ini", .takes = WEFT_TAKES_CONFIG, .flags = flags, .run = never_run};
static const weft_command with_words = {.name = "cut",
                                        .usage = "A [B]",
                                        .takes = WEFT_TAKES_ARGUMENTS,
                                        .min_extra = 1,
                                        .max_extra = 2,
                                        .flags = flags,
                                        .run = never_run};

static weft_args *args;
static weft_error err;

static void setup(void) {
    const weft_error none = WEFT_ERROR_INIT;
    err = none;
    args = NULL;
}

static void teardown(void) {
    weft_args_free(args);
}

/* words: separated by blanks. */
static bool parse(const weft_command *command, const char *words) {
    static char copy[512];
    char *argv[32];
    int argc = 0;
    weft_args_free(args);
    (void)snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) argv[argc++] = word;
    return weft_args_parse(&args, command, argc, argv, &err) == WEFT_OK;
}

TEST(words_come_in_any_order) {
    static const char *const lines[] = {"run.ini train.steps=5 a.b=x=y --json --tokens 3",
                                        "--json train.steps=5 run.ini --tokens=3 a.b=x=y",
                                        "--tokens 3 train.steps=5 a.b=x=y -- run.ini", /* --json is absent here */
                                        "train.steps=5 --json a.b=x=y --tokens=3 run.ini",
                                        "--train.steps=5 --json --a.b=x=y --tokens=3 run.ini"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        size_t n = 0;
        int64_t tokens = 0;
        ck_assert_msg(parse(&with_config, lines[i]), "%s", err.text);
        ck_assert_str_eq(weft_args_config(args), "run.ini");
        const char *const *overrides = weft_args_overrides(args, &n);
        ck_assert_uint_eq(n, 2);
        ck_assert_str_eq(overrides[0], "train.steps=5");
        ck_assert_str_eq(overrides[1], "a.b=x=y");
        ck_assert(weft_args_has(args, "json") == (i != 2));
        ck_assert(weft_args_i64(args, &tokens, "tokens", "[1,inf)", 9, &err));
        ck_assert_int_eq(tokens, 3);
        ck_assert_ptr_null(weft_args_extra(args, 0));
    }
}

TEST(a_path_with_an_equals_sign_is_a_file) {
    static const char *const lines[] = {"./a.b=c.ini", "dir.d/a=b.ini", "=", ".hidden=x"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        ck_assert_msg(parse(&with_config, lines[i]), "%s", err.text);
        ck_assert_str_eq(weft_args_config(args), lines[i]);
    }
}

TEST(optional_values_come_only_after_an_equals_sign) {
    ck_assert(parse(&with_config, "--resume run.ini"));
    ck_assert(weft_args_has(args, "resume"));
    ck_assert_ptr_null(weft_args_value(args, "resume"));
    ck_assert_str_eq(weft_args_config(args), "run.ini");
    ck_assert(parse(&with_config, "--resume=inexact run.ini"));
    ck_assert_str_eq(weft_args_value(args, "resume"), "inexact");
    ck_assert(parse(&with_config, "run.ini"));
    ck_assert(!weft_args_has(args, "resume"));
}

TEST(a_value_is_the_next_word_whatever_it_is) {
    double temperature = 0;
    ck_assert(parse(&with_config, "--temperature -1 run.ini"));
    ck_assert(weft_args_f64(args, &temperature, "temperature", "", 0, &err));
    ck_assert(temperature == -1);
    ck_assert(parse(&with_config, "--temperature --json run.ini"));
    ck_assert_str_eq(weft_args_value(args, "temperature"), "--json");
    ck_assert(!weft_args_has(args, "json"));
}

TEST(numbers_of_flags_are_judged) {
    int64_t whole = 7;
    double real = 7;
    ck_assert(parse(&with_config, "run.ini"));
    ck_assert(weft_args_i64(args, &whole, "tokens", "[1,inf)", 40, &err));
    ck_assert_int_eq(whole, 40);
    ck_assert(parse(&with_config, "run.ini --tokens 0 --temperature x"));
    ck_assert(!weft_args_i64(args, &whole, "tokens", "[1,inf)", 40, &err));
    ck_assert_int_eq(whole, 40);
    ck_assert_str_eq(err.text, "--tokens '0' is not in [1,inf). Allowed: a whole number of 1 or more");
    ck_assert(!weft_args_f64(args, &real, "temperature", "[0,inf)", 1, &err));
    ck_assert_str_eq(err.text, "--temperature 'x' is not in [0,inf). Allowed: a number of 0 or more");
}

TEST(plain_arguments_are_kept_in_order) {
    ck_assert(parse(&with_words, "a.b=c --json -- --tokens"));
    ck_assert_str_eq(weft_args_extra(args, 0), "a.b=c");
    ck_assert_str_eq(weft_args_extra(args, 1), "--tokens");
    ck_assert_ptr_null(weft_args_extra(args, 2));
    ck_assert_ptr_null(weft_args_config(args));
}

static const struct {
    const weft_command *command;
    const char *words, *says;
} refused[] = {
    {&with_config, "", "the configuration file is missing"},
    {&with_config, "train.steps=5", "the configuration file is missing"},
    {&with_config, "run.ini other.ini", "'other.ini' is one argument too many"},
    {&with_config, "run.ini stepps=5", "'stepps=5' is one argument too many; an override is section.key=value"},
    {&with_config, "run.ini steps=5", "an override is section.key=value: train.steps=5"},
    {&with_config, "run.ini lr=3e-4", "an override is section.key=value: optimizer.lr=3e-4"},
    {&with_config, "run.ini every=5", "'every=5' is one argument too many; an override is section.key=value"},
    {&with_config, "run.ini --lr 3e-4", "there is no flag --lr; it is a key: optimizer.lr=VALUE"},
    {&with_config, "run.ini train.steps 5", "an override has no blanks: train.steps=VALUE"},
    {&with_config, "--config run.ini", "there is no flag --config: pass the file as an argument, weft eval run.ini"},
    {&with_config, "run.ini --device cuda", "Weft has it as plugin in [device]: device.plugin=VALUE"},
    {&with_words, "a --lr", "there is no flag --lr"},
    {&with_config, "run.ini learning_rate=1e-4", "an override is section.key=value: optimizer.lr=1e-4"},
    {&with_config, "run.ini --learning-rate 1e-4", "Weft has it as lr in [optimizer]: optimizer.lr=VALUE"},
    /* Values with another meaning in Weft are not passed on. */
    {&with_config, "run.ini load_in_4bit=true", "an override is section.key=value: model.base=nf4"},
    {&with_config, "run.ini load_in_4bit=False", "Weft has it as base in [model] (nf4)"},
    {&with_config, "run.ini gradient_accumulation_steps=2",
     "an override is section.key=value: train.global_batch=VALUE (micro_batch times accumulation times ranks)"},
    {&with_config, "run.ini --bf16=true", "Weft has it as precision in [train] (bf16): train.precision=bf16"},
    {&with_config, "run.ini overwrite_output_dir=true", "Weft has it as the flag --overwrite"},
    {&with_config, "run.ini early_stopping_patience=3",
     "Weft has no such setting: training runs to its last step; [checkpoint] keep_best keeps the checkpoint with the "
     "lowest loss"},
    {&with_config, "run.ini --Resume_From-checkpoint=x", "Weft has it as the flag --resume"},
    {&with_config, "run.ini --optimizer.lr 1e-4",
     "--optimizer.lr needs its value after an equals sign: optimizer.lr=VALUE"},
    {&with_words, "a --optimizer.lr=1", "there is no flag --optimizer.lr"},
    {&with_config, "run.ini --jsno", "there is no flag --jsno; did you mean --json?"},
    {&with_config, "run.ini --zzzzzz", "there is no flag --zzzzzz"},
    {&with_config, "run.ini -j", "there is no flag -j; flags begin with two dashes"},
    {&with_config, "run.ini --json=yes", "--json takes no value"},
    {&with_config, "run.ini --json --json", "--json is set twice"},
    {&with_config, "run.ini --tokens", "--tokens needs a value: --tokens N"},
    {&with_words, "--json", "an argument is missing"},
    {&with_words, "a b c", "'c' is one argument too many"},
};

TESTS(wrong_usage_is_refused, LENGTH(refused)) {
    ck_assert(!parse(refused[_i].command, refused[_i].words));
    ck_assert_uint_ge(strlen(err.text), strlen(refused[_i].says)); /* the message ends with the fact */
    ck_assert_str_eq(err.text + strlen(err.text) - strlen(refused[_i].says), refused[_i].says);
}

TEST(exit_statuses) {
    ck_assert_int_eq(weft_exit_from(WEFT_OK), 0);
    ck_assert_int_eq(weft_exit_from(WEFT_E_USER), 1);
    ck_assert_int_eq(weft_exit_from(WEFT_E_PLUGIN), 1);
    ck_assert_int_eq(weft_exit_from(WEFT_E_STOPPED), 75);
}

/* The commands of the program `weft` are complete. */
extern const weft_command weft_command_eval, weft_command_generate, weft_command_train;

TEST(the_registry_is_sound) {
    static const weft_command *const commands[] = {&weft_command_eval, &weft_command_generate, &weft_command_train};
    for (size_t n = 0; n < sizeof commands / sizeof *commands; n++) {
        const weft_command *command = commands[n];
        ck_assert(command->run != NULL && *command->name != '\0');
        ck_assert(command->takes >= WEFT_TAKES_CONFIG && command->takes <= WEFT_TAKES_DIRECTORY);
        ck_assert(command->max_extra < 0 || command->min_extra <= command->max_extra);
        for (const weft_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++) {
            ck_assert(strncmp(flag->name, "--", 2) != 0 && *flag->help != '\0');
        }
    }
}

int main(void) {
    TCase *tests = tcase_create("words");
    tcase_add_checked_fixture(tests, setup, teardown);
    return run_tests(tests);
}
