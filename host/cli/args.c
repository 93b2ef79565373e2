/* host/cli/args.c: parses the words after a command into its INI file, overrides, flags and plain arguments. */
#include <ctype.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/directory.h"
#include "config/foreign.h"
#include "config/nearest.h"
#include "config/number.h"

struct weft_args {
    const weft_command *command;
    const char *config;
    const char **overrides;
    size_t n_overrides;
    const char **extra;
    size_t n_extra;
    bool *given; /* by flag */
    const char **values;
    char *adapter;            /* --adapter as an override; NULL: unset */
    weft_directory directory; /* replaces the INI file; empty: an INI file is used */
};

weft_exit weft_exit_from(weft_status status) {
    if (status == WEFT_OK) return WEFT_EXIT_DONE;
    return status == WEFT_E_STOPPED ? WEFT_EXIT_STOPPED : WEFT_EXIT_FAILED;
}

static size_t count_flags(const weft_command *command) {
    size_t n = 0;
    while (command->flags != NULL && command->flags[n].name != NULL) n++;
    return n;
}

/* Returns the index of the flag with that name of n letters; count_flags if it is unknown. */
static size_t find_flag(const weft_command *command, const char *name, size_t n) {
    const size_t count = count_flags(command);
    for (size_t i = 0; i < count; i++) {
        const char *known = command->flags[i].name;
        if (strlen(known) == n && memcmp(known, name, n) == 0) return i;
    }
    return count;
}

static weft_status unknown_flag(const weft_command *command, const char *name, size_t n, weft_error *err) {
    const bool with_config = command->takes != WEFT_TAKES_ARGUMENTS;
    const weft_foreign *foreign = weft_foreign_find(NULL, name, n);
    const char *home = weft_foreign_home(name, n);
    char word[64], meant[400] = "", override[200] = "";
    weft_nearest near = {word, "", 0};
    (void)snprintf(word, sizeof word, "%.*s", (int)(n < 60 ? n : 60), name);
    if (strcmp(word, "ranks") == 0)
        return weft_error_set(err, WEFT_E_USER, "%s runs on one rank; train and plan take --ranks", command->name);
    if (strcmp(word, "config") == 0 && with_config)
        return weft_error_set(err, WEFT_E_USER,
                              "there is no flag --config: pass the file as an argument, weft %s run.ini",
                              command->name);
    if (foreign != NULL) {
        weft_foreign_print(foreign, meant, sizeof meant);
        (void)weft_foreign_override(foreign, name[n] == '=' ? name + n + 1 : "VALUE", override, sizeof override);
        return weft_error_set(err, WEFT_E_USER, "there is no flag --%s; %s%s%s", word, meant,
                              *override != '\0' ? ": " : "", override);
    }
    if (with_config && home != NULL)
        return weft_error_set(err, WEFT_E_USER, "there is no flag --%s; it is a key: %s.%s=VALUE", word, home, word);
    for (size_t i = 0; i < count_flags(command); i++)
        weft_nearest_offer(&near, command->flags[i].name, strlen(command->flags[i].name));
    weft_nearest_offer(&near, "help", 4);
    if (*near.best != '\0') (void)snprintf(meant, sizeof meant, "; did you mean --%s?", near.best);
    return weft_error_set(err, WEFT_E_USER, "there is no flag --%s%s", word, meant);
}

/* Parses "--name" or "--name=value" in argv[*i]; -o means --out, and -n means --n. *i moves to the value if that is a
 * separate word. */
static weft_status take_flag(weft_args *self, int argc, char **argv, int *i, weft_error *err) {
    const char *name = argv[*i][1] == '-' ? argv[*i] + 2 : argv[*i][1] == 'o' ? "out" : "n";
    const size_t n = strcspn(name, "=");
    const size_t at = find_flag(self->command, name, n);
    const weft_flag *flag = NULL;
    if (at == count_flags(self->command)) return unknown_flag(self->command, name, n, err);
    flag = &self->command->flags[at];
    if (self->given[at]) return weft_error_set(err, WEFT_E_USER, "--%s is set twice", flag->name);
    self->given[at] = true;
    if (name[n] == '=' && flag->value == NULL)
        return weft_error_set(err, WEFT_E_USER, "--%s takes no value", flag->name);
    if (name[n] == '=') {
        self->values[at] = name + n + 1;
    } else if (flag->value != NULL && !flag->value_optional) {
        if (*i + 1 == argc)
            return weft_error_set(err, WEFT_E_USER, "--%s needs a value: --%s %s", flag->name, flag->name, flag->value);
        self->values[at] = argv[++*i];
    }
    return WEFT_OK;
}

/* Recognizes `--section.key`, with or without `=`, for a command that accepts overrides. */
static bool is_dotted_flag(const weft_command *command, const char *word) {
    const size_t n = strcspn(word + 2, "=");
    return command->takes != WEFT_TAKES_ARGUMENTS && memchr(word + 2, '.', n) != NULL;
}

/* Recognizes letters.anything= before any slash: a path such as ./a.b=c is not an override. */
static bool is_override(const char *word) {
    const size_t n = strcspn(word, ".=/");
    return n > 0 && word[n] == '.' && word[n + strcspn(word + n, "=/")] == '=';
}

static weft_status take_words(weft_args *self, int argc, char **argv, weft_error *err) {
    const bool with_config = self->command->takes != WEFT_TAKES_ARGUMENTS;
    bool only_words = false;
    weft_status status = WEFT_OK;
    for (int i = 0; i < argc && status == WEFT_OK; i++) {
        const char *word = argv[i];
        const bool dashed = !only_words && word[0] == '-' && word[1] != '\0', long_flag = dashed && word[1] == '-';
        if (long_flag && word[2] == '\0') {
            only_words = true;
        } else if (long_flag && is_dotted_flag(self->command, word)) {
            /* "--optimizer.lr=3e-4", the form of other programs, is optimizer.lr=3e-4 */
            if (is_override(word + 2)) self->overrides[self->n_overrides++] = word + 2;
            else
                status = weft_error_set(err, WEFT_E_USER, "%.100s needs its value after an equals sign: %.100s=VALUE",
                                        word, word + 2);
        } else if (long_flag || (dashed && ((strcmp(word, "-o") == 0 && weft_args_declares(self, "out")) ||
                                            (strcmp(word, "-n") == 0 && weft_args_declares(self, "n"))))) {
            status = take_flag(self, argc, argv, &i, err);
        } else if (dashed) {
            status = weft_error_set(err, WEFT_E_USER, "there is no flag %s; flags begin with two dashes", word);
        } else if (with_config && is_override(word)) {
            self->overrides[self->n_overrides++] = word;
        } else if (with_config && self->config == NULL) {
            self->config = word;
        } else {
            self->extra[self->n_extra++] = word;
        }
    }
    return status;
}

static bool is_file(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode);
}

/* Suggests the intended form of a word without an equals sign, if it is known. */
static void advise_word(char *out, size_t size, const weft_args *self, const char *word) {
    const size_t n = strcspn(word, ".");
    if (is_file(word) && !weft_words_end(word, ".ini"))
        (void)snprintf(out, size, "; data.path=%.100s makes it the data", word);
    else if (weft_args_declares(self, "prompt")) (void)snprintf(out, size, "; pass a text to continue with --prompt");
    else if (word[n] == '.' && weft_foreign_home(word + n + 1, strlen(word + n + 1)) != NULL)
        (void)snprintf(out, size, "; an override has no blanks: %.100s=VALUE", word);
}

/* Formats "; an override is section.key=value", with section and key if the name is known. */
static void advise_override(char *out, size_t size, const weft_args *self, const char *word) {
    const size_t n = strcspn(word, "=");
    const weft_foreign *foreign = weft_foreign_find(NULL, word, n);
    char meant[400];
    const char *home = weft_foreign_home(word, n);
    if (word[n] != '=') {
        advise_word(out, size, self, word);
        return;
    }
    if (foreign != NULL && weft_foreign_override(foreign, word + n + 1, meant, sizeof meant))
        (void)snprintf(out, size, "; an override is section.key=value: %s", meant);
    else if (foreign != NULL) {
        weft_foreign_print(foreign, meant, sizeof meant);
        (void)snprintf(out, size, "; %s", meant);
    } else if (home != NULL) (void)snprintf(out, size, "; an override is section.key=value: %s.%.100s", home, word);
    else (void)snprintf(out, size, "; an override is section.key=value");
}

static weft_status check_counts(const weft_args *self, weft_error *err) {
    const weft_command *command = self->command;
    char advice[460] = "";
    const char *first = NULL;
    if (command->takes != WEFT_TAKES_ARGUMENTS && self->config == NULL)
        return weft_error_set(err, WEFT_E_USER, "the configuration file%s is missing",
                              command->takes == WEFT_TAKES_DIRECTORY ? ", or a model's directory," : "");
    if (self->n_extra < (size_t)command->min_extra) return weft_error_set(err, WEFT_E_USER, "an argument is missing");
    if (command->max_extra < 0 || self->n_extra <= (size_t)command->max_extra) return WEFT_OK;
    first = self->extra[command->max_extra];
    if (command->takes != WEFT_TAKES_ARGUMENTS) advise_override(advice, sizeof advice, self, first);
    return weft_error_set(err, WEFT_E_USER, "'%.200s' is one argument too many%s", first, advice);
}

static bool overrides_have(const weft_args *self, const char *begin) {
    for (size_t i = 0; i < self->n_overrides; i++)
        if (strncmp(self->overrides[i], begin, strlen(begin)) == 0) return true;
    return false;
}

/* Replaces a directory by its INI file, if any, and puts its overrides before the user's. */
weft_status weft_args_locate(weft_args *self, weft_error *err) {
    const weft_directory *directory = &self->directory;
    const bool takes = self->command->takes == WEFT_TAKES_DIRECTORY;
    weft_status status = WEFT_OK;
    if (self->config == NULL) return WEFT_OK;
    if (!takes || !weft_is_directory(self->config))
        return weft_directory_check(self->config, self->command->name, takes, err);
    const bool has_length = overrides_have(self, "train.steps=") || overrides_have(self, "train.epochs=");
    status = weft_directory_read(&self->directory, self->config, has_length, err);
    if (status != WEFT_OK) return status;
    memmove(self->overrides + directory->n, self->overrides, self->n_overrides * sizeof *self->overrides);
    for (size_t i = 0; i < directory->n; i++) self->overrides[i] = directory->overrides[i];
    self->n_overrides += directory->n;
    self->config = directory->ini;
    return WEFT_OK;
}

weft_status weft_args_parse(weft_args **out, const weft_command *command, int argc, char **argv, weft_error *err) {
    const size_t n_flags = count_flags(command), n = (size_t)argc + 2 + WEFT_DIRECTORY_OVERRIDES;
    weft_args *self = weft_alloc(1, sizeof *self);
    const char *adapter = NULL;
    weft_status status = WEFT_OK;
    *out = self;
    self->command = command;
    self->overrides = weft_alloc(n, sizeof *self->overrides);
    self->extra = weft_alloc(n, sizeof *self->extra);
    self->given = weft_alloc(n_flags + 1, sizeof *self->given);
    self->values = weft_alloc(n_flags + 1, sizeof *self->values);
    status = take_words(self, argc, argv, err);
    if (status == WEFT_OK) status = check_counts(self, err);
    /* --adapter DIR is adapter.from=DIR, and --adapter NAME one of [adapter] named */
    if (weft_args_declares(self, "adapter")) adapter = weft_args_value(self, "adapter");
    if (status != WEFT_OK || adapter == NULL) return status;
    self->adapter = weft_text_of("adapter.%s=%s", weft_is_directory(adapter) ? "from" : "use", adapter);
    self->overrides[self->n_overrides++] = self->adapter;
    return WEFT_OK;
}

void weft_args_free(weft_args *self) {
    if (self == NULL) return;
    free(self->overrides);
    free(self->extra);
    free(self->given);
    free(self->values);
    free(self->adapter);
    weft_directory_clear(&self->directory);
    free(self);
}

const char *weft_args_config(const weft_args *self) {
    return self->config;
}

const char *const *weft_args_overrides(const weft_args *self, size_t *n) {
    *n = self->n_overrides;
    return self->overrides;
}

const char *weft_args_extra(const weft_args *self, size_t i) {
    return i < self->n_extra ? self->extra[i] : NULL;
}

bool weft_args_declares(const weft_args *self, const char *flag) {
    return find_flag(self->command, flag, strlen(flag)) < count_flags(self->command);
}

bool weft_args_has(const weft_args *self, const char *flag) {
    return self->given[find_flag(self->command, flag, strlen(flag))];
}

const char *weft_args_value(const weft_args *self, const char *flag) {
    return self->values[find_flag(self->command, flag, strlen(flag))];
}

/* Parses the flag's text by its range to *whole or *real, of the range's type; an unset one is valid. */
static bool read_number(const weft_args *self, int64_t *whole, double *real, const char *flag, const char *range,
                        weft_error *err) {
    const char *text = weft_args_value(self, flag);
    weft_bounds bounds;
    char advice[240];
    if (!weft_bounds_parse(&bounds, range, whole != NULL ? WEFT_KEY_I64 : WEFT_KEY_F64)) {
        (void)weft_error_set(err, WEFT_E_HOST, "--%s: its range '%s' cannot be read", flag, range);
        return false;
    }
    if (text == NULL) return true;
    if (whole != NULL ? weft_number_i64(whole, text) && weft_bounds_has(&bounds, (long double)*whole)
                      : weft_number_f64(real, text) && weft_bounds_has(&bounds, *real))
        return true;
    weft_bounds_advise(&bounds, advice, sizeof advice);
    (void)weft_error_set(err, WEFT_E_USER, "--%s '%.80s' is not in %s. Allowed: %s", flag, text, range, advice);
    return false;
}

bool weft_args_i64(const weft_args *self, int64_t *out, const char *flag, const char *range, int64_t fallback,
                   weft_error *err) {
    int64_t value = fallback;
    const bool is_valid = read_number(self, &value, NULL, flag, range, err);
    if (is_valid) *out = value;
    return is_valid;
}

bool weft_args_f64(const weft_args *self, double *out, const char *flag, const char *range, double fallback,
                   weft_error *err) {
    double value = fallback;
    const bool is_valid = read_number(self, NULL, &value, flag, range, err);
    if (is_valid) *out = value;
    return is_valid;
}
