/* host/config/settings.c: the host's key tables, and the rules across their keys. */
#include "config/settings.h"

#include <math.h>

#include "base/text.h"
#include "config/number.h"

/* run_table, model_table, ...: the tables of settings.h's lists. */
#define TABLE(name, LIST)                                                                                              \
    static weft_settings_section name##_table(void) {                                                                  \
        typedef weft_##name##_settings WEFT_KEYS_STRUCT_;                                                              \
        static const weft_key rows[] = {LIST(WEFT_KEY_ROW_)};                                                          \
        return (weft_settings_section){#name, rows, sizeof rows / sizeof *rows, offsetof(weft_settings, name),         \
                                       sizeof(WEFT_KEYS_STRUCT_)};                                                     \
    }
WEFT_SETTINGS_SECTIONS(TABLE)

bool weft_settings_table(weft_settings_section *out, size_t i) {
#define SECTION(name, LIST) name##_table,
    static weft_settings_section (*const tables[])(void) = {WEFT_SETTINGS_SECTIONS(SECTION)};
#undef SECTION
    if (i >= sizeof tables / sizeof *tables) return false;
    *out = tables[i]();
    return true;
}

static weft_status fill(void *out, weft_config *config, weft_settings_section table, weft_error *err) {
    return weft_config_fill(config, out, table.section, table.keys, table.n, (uint32_t)sizeof(weft_key), err);
}

int32_t weft_precision_dtype(int64_t precision) {
    static const int32_t dtypes[] = {
        [WEFT_PRECISION_FP32] = WEFT_F32, [WEFT_PRECISION_BF16] = WEFT_BF16, [WEFT_PRECISION_FP16] = WEFT_F16};
    return dtypes[precision];
}

/* Returns the divisors of n nearest to m: the largest below and the smallest above. */
static void nearest_divisors(int64_t n, int64_t m, int64_t *below, int64_t *above) {
    *below = 1;
    *above = n;
    for (int64_t i = 1; i <= n / i; i++) {
        if (n % i != 0) continue;
        const int64_t pair[2] = {i, n / i};
        for (int k = 0; k < 2; k++) {
            if (pair[k] < m && pair[k] > *below) *below = pair[k];
            if (pair[k] > m && pair[k] < *above) *above = pair[k];
        }
    }
}

static weft_status check_batches(const weft_settings *self, const weft_config *config, weft_error *err) {
    const int64_t global = self->train.global_batch;
    const int64_t micro = self->train.micro_batch;
    const int64_t lower = global / micro * micro;
    const int64_t upper = lower + micro;
    int64_t below = 0, above = 0;
    char globals[64], micros[64];
    if (global % micro == 0) return WEFT_OK;
    nearest_divisors(global, micro, &below, &above);
    (void)snprintf(globals, sizeof globals, lower > 0 ? "%lld or %lld" : "%lld", (long long)(lower > 0 ? lower : upper),
                   (long long)upper);
    (void)snprintf(micros, sizeof micros, above > micro ? "%lld or %lld" : "%lld", (long long)below, (long long)above);
    return weft_config_reject(
        config, "train", "global_batch", err,
        "is not a multiple of micro_batch = %lld. Fix: set global_batch = %s, or micro_batch = %s", (long long)micro,
        globals, micros);
}

weft_status weft_interval_parse(weft_interval *out, const char *text, weft_error *err) {
    const size_t n = strlen(text);
    weft_interval interval = {0, 0};
    bool is_valid = strcmp(text, "none") == 0;
    char number[40];
    if (n > 1 && n < sizeof number && text[n - 1] == '%') {
        (void)snprintf(number, sizeof number, "%.*s", (int)n - 1, text);
        is_valid = weft_number_f64(&interval.percent, number) && interval.percent > 0 && interval.percent <= 100;
    } else if (!is_valid) {
        is_valid = weft_number_i64(&interval.steps, text) && interval.steps >= 1;
    }
    if (!is_valid)
        return weft_error_set(err, WEFT_E_USER,
                              "is not an interval. Allowed: a number of steps (50), a percentage of all steps above "
                              "0%% and up to 100%% (5%%), or none");
    *out = interval;
    return WEFT_OK;
}

int64_t weft_interval_resolve(const weft_interval *self, int64_t total_steps) {
    if (self->percent > 0) return (int64_t)ceil((double)total_steps * self->percent / 100);
    return self->steps;
}

int64_t weft_warmup_resolve(double warmup, int64_t total_steps) {
    return (int64_t)ceil(warmup < 1 ? warmup * (double)total_steps : warmup);
}

static weft_status parse_interval(weft_interval *out, const char *text, const char *section, const weft_config *config,
                                  weft_error *err) {
    weft_error local = WEFT_ERROR_INIT;
    if (weft_interval_parse(out, text, &local) == WEFT_OK) return WEFT_OK;
    return weft_config_reject(config, section, "every", err, "%s", local.text);
}

/* Checks the form KIND:ID=<64 hexadecimal digits>. */
static weft_status check_pins(const weft_plugins_settings *self, const weft_config *config, weft_error *err) {
    const char *rest = *self->pin == '\0' ? NULL : self->pin, *pin = NULL;
    size_t n = 0;
    while (weft_part_next(&rest, ',', &pin, &n)) {
        const size_t kind = strcspn(pin, ":"), name = strcspn(pin, "=");
        if (kind > 0 && kind + 1 < name && name + 65 == n && strspn(pin + name + 1, "0123456789abcdefABCDEF") == 64)
            continue;
        return weft_config_reject(config, "plugins", "pin", err,
                                  "has an element that is no pin: write kind:id=SHA-256 in 64 hexadecimal digits, as "
                                  "sha256sum prints it");
    }
    return WEFT_OK;
}

enum { FROM_BYTES = 4096 };

/* Returns whether an earlier element of the list has the same name as `part`. */
static bool is_named_twice(const char *list, const char *part, size_t length) {
    const char *rest = list, *other = NULL;
    size_t n = 0;
    while (weft_part_next(&rest, ',', &other, &n) && other != part)
        if (n > length && other[length] == ':' && memcmp(other, part, length) == 0) return true;
    return false;
}

/* Finds the directory of the adapter: `from`, or that of the name `use`. */
static weft_status choose_from(const weft_adapter_settings *self, char from[FROM_BYTES], const weft_config *config,
                               weft_error *err) {
    const char *rest = *self->named == '\0' ? NULL : self->named, *part = NULL;
    char names[300] = "";
    size_t n = 0;
    from[0] = '\0';
    if (*self->from != '\0' && *self->use != '\0')
        return weft_config_reject(config, "adapter", "use", err, "and from both name an adapter: take one of them out");
    if (strlen(self->from) >= FROM_BYTES)
        return weft_config_reject(config, "adapter", "from", err, "is longer than %d bytes", FROM_BYTES - 1);
    (void)snprintf(from, FROM_BYTES, "%s", self->from);
    while (weft_part_next(&rest, ',', &part, &n)) {
        const char *colon = memchr(part, ':', n);
        const size_t length = colon == NULL ? 0 : (size_t)(colon - part);
        if (length == 0 || length + 1 == n)
            return weft_config_reject(
                config, "adapter", "named", err,
                "has an element without a name: write NAME:DIRECTORY, with one comma between two");
        if (is_named_twice(self->named, part, length))
            return weft_config_reject(config, "adapter", "named", err,
                                      "has two directories with the name %.*s. Fix: use a different name for each",
                                      (int)length, part);
        weft_words_append(names, sizeof names, "%s%.*s", *names == '\0' ? "" : ", ", (int)length, part);
        if (strlen(self->use) == length && memcmp(part, self->use, length) == 0)
            (void)snprintf(from, FROM_BYTES, "%.*s", (int)(n - length - 1), colon + 1);
    }
    if (*self->use == '\0' || from[0] != '\0') return WEFT_OK;
    return weft_config_reject(config, "adapter", "use", err, "is no name of an adapter; [adapter] named has %s",
                              names[0] == '\0' ? "no names. Fix: set named = NAME:DIRECTORY" : names);
}

static weft_status check_rules(weft_settings *self, const weft_config *config, weft_error *err) {
    weft_status status = WEFT_OK;
    if (*self->model.path == '\0')
        return weft_config_reject(config, "model", "path", err,
                                  "names no directory. Fix: set the directory of the model, with its config.json");
    status = check_pins(&self->plugins, config, err);
    if (status == WEFT_OK) status = choose_from(&self->adapter, self->adapter_from, config, err);
    if (status == WEFT_OK) status = parse_interval(&self->eval_every, self->eval.every, "eval", config, err);
    if (status != WEFT_OK) return status;
    return parse_interval(&self->checkpoint_every, self->checkpoint.every, "checkpoint", config, err);
}

weft_status weft_settings_load_section(weft_settings *out, const char *section, weft_config *config, weft_error *err) {
    weft_settings_section table;
    weft_status status = WEFT_OK;
    for (size_t i = 0; weft_settings_table(&table, i); i++)
        if (strcmp(table.section, section) == 0) status = fill((char *)out + table.offset, config, table, err);
    if (status == WEFT_OK && strcmp(section, "plugins") == 0) status = check_pins(&out->plugins, config, err);
    if (status == WEFT_OK && strcmp(section, "adapter") == 0)
        status = choose_from(&out->adapter, out->adapter_from, config, err);
    return status;
}

void weft_settings_declare(weft_config *config) {
    weft_settings_section table;
    for (size_t i = 0; weft_settings_table(&table, i); i++)
        weft_config_declare(config, table.section, table.keys, table.n, (uint32_t)sizeof(weft_key));
}

weft_status weft_settings_load(weft_settings *out, weft_config *config, weft_error *err) {
    weft_settings settings;
    weft_settings_section table;
    weft_status status = WEFT_OK;
    memset(&settings, 0, sizeof settings);
    for (size_t i = 0; status == WEFT_OK && weft_settings_table(&table, i); i++)
        status = fill((char *)&settings + table.offset, config, table, err);
    if (status == WEFT_OK) status = check_rules(&settings, config, err);
    if (status == WEFT_OK) *out = settings;
    return status;
}

/* Rejects a key of the loss scale that is set but has no effect. */
static weft_status check_unscaled(const weft_train_settings *train, const weft_config *config, weft_error *err) {
    const weft_dtype dtype = (weft_dtype)weft_precision_dtype(train->precision);
    static const char *const keys[] = {"loss_scale", "scale_growth", "scale_backoff", "scale_every", "scale_floor"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!weft_config_at_default(config, "train", keys[i]))
            return weft_config_reject(config, "train", keys[i], err,
                                      "is not used: losses are only scaled with precision = fp16, and this run has %s; "
                                      "take it out",
                                      weft_dtype_name(dtype));
    return WEFT_OK;
}

static weft_status check_scale(const weft_settings *self, const weft_config *config, weft_error *err) {
    const weft_train_settings *train = &self->train;
    if (train->precision != WEFT_PRECISION_FP16 && self->strategy.reduce_dtype == WEFT_PRECISION_FP16)
        return weft_config_reject(config, "strategy", "reduce_dtype", err,
                                  "rounds gradients to a type in which they vanish or overflow unless losses are "
                                  "scaled: set [train] precision = fp16, too, or reduce_dtype = bf16");
    if (train->precision != WEFT_PRECISION_FP16) return check_unscaled(train, config, err);
    if (train->loss_scale >= train->scale_floor) return WEFT_OK;
    return weft_config_reject(config, "train", "loss_scale", err,
                              "is below scale_floor = %g, at which a run ends: set a larger loss_scale or a smaller "
                              "scale_floor",
                              train->scale_floor);
}

weft_status weft_settings_for_steps(const weft_settings *self, const weft_config *config, weft_error *err) {
    const weft_train_settings *train = &self->train;
    const bool scales = train->lr_scaling != WEFT_LR_AS_IT_IS, has_lr_batch = train->lr_batch != WEFT_NONE_I64;
    const bool has_steps = train->steps != WEFT_NONE_I64, has_epochs = train->epochs != WEFT_NONE_F64;
    weft_status status = check_batches(self, config, err);
    if (status != WEFT_OK) return status;
    if (train->warmup > 1 && train->warmup != floor(train->warmup))
        return weft_config_reject(
            config, "train", "warmup", err,
            "is neither steps nor a ratio. Allowed: a whole number of steps, or a ratio of all steps below 1");
    if (train->schedule == WEFT_SCHEDULE_STEP && train->step_every == WEFT_NONE_I64)
        return weft_config_reject(config, "train", "schedule", err,
                                  "needs step_every: the steps between two decays by gamma");
    if (has_steps && has_epochs)
        return weft_config_reject(config, "train", "epochs", err,
                                  "and steps = %lld are both set: a run has one length, so set one of them to none",
                                  (long long)train->steps);
    if (scales && !has_lr_batch)
        return weft_config_reject(config, "train", "lr_scaling", err,
                                  "needs lr_batch: the global_batch for which [optimizer] lr was tuned");
    if (!scales && has_lr_batch)
        return weft_config_reject(config, "train", "lr_batch", err,
                                  "is not used: set lr_scaling to linear or sqrt, or take it out");
    status = check_scale(self, config, err);
    if (status != WEFT_OK || has_steps || has_epochs) return status;
    return weft_config_reject(config, "train", "steps", err,
                              "leaves the run without a length. Fix: set [train] steps or epochs");
}

weft_status weft_settings_for_training(const weft_settings *self, const weft_config *config, weft_error *err) {
    const weft_status status = weft_settings_for_steps(self, config, err);
    if (status != WEFT_OK) return status;
    if (self->run.similarity != 0 && self->eval_every.steps == 0 && self->eval_every.percent <= 0)
        return weft_config_reject(
            config, "run", "similarity", err,
            "is measured by evaluations, and [eval] every = none disables them. Fix: set it to 100%% for "
            "one before and one after the run");
    if (*self->run.out == '\0')
        return weft_config_reject(config, "run", "out", err, "names no directory: training needs one for its results");
    return WEFT_OK;
}
