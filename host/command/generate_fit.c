/* host/command/generate_fit.c: see generate_fit.h. A reported change was planned: fewer tokens, and GEMMs in bf16. */
#include "command/generate_fit.h"

#include "plugin/services.h"

#include <stdlib.h>

/* ---- requirement of a changed call ---- */

/* Records the planned memory without allocating it. */
static weft_status keep_need(void *context, const weft_engine *engine, weft_error *err) {
    const weft_required_memory need = {.bytes = engine->plan.bytes, .ranks = 1};
    *(weft_required_memory *)context = need;
    return weft_error_set(err, WEFT_E_STOPPED, "planned");
}

static bool plan_fits(weft_required_memory *need, const weft_generate_fit *self, const weft_run *run, int64_t tokens,
                      const weft_available_memory *room) {
    weft_generate_options options = *self->options;
    weft_generator *none = NULL;
    options.tokens = tokens;
    options.judge = keep_need;
    options.judge_context = need;
    return weft_generator_create(&none, run, self->n_prompt, &options, NULL) == WEFT_E_STOPPED &&
           weft_required_memory_fits(need, room);
}

static void add_change(weft_fit *fit, const weft_required_memory *need, const char *key) {
    weft_fit_change *change = &fit->changes.fitting[fit->changes.n++];
    change->need = *need;
    change->n_keys = 1;
    (void)snprintf(change->keys[0], sizeof change->keys[0], "%s", key);
}

static void find_fewer_tokens(weft_fit *fit, const weft_generate_fit *self) {
    weft_required_memory need;
    for (int64_t tokens = self->options->tokens / 2; tokens > 0; tokens /= 2) {
        char key[WEFT_TRIAL_KEY_SIZE];
        if (!plan_fits(&need, self, self->run, tokens, &fit->room)) continue;
        (void)snprintf(key, sizeof key, "--tokens %lld", (long long)tokens);
        add_change(fit, &need, key);
        return;
    }
}

static void find_precision(weft_fit *fit, const weft_generate_fit *self) {
    static const char key[] = "train.precision=bf16";
    size_t n = 0;
    const char *const *given = weft_args_overrides(self->args, &n);
    const char **overrides = calloc(n + 1, sizeof *overrides);
    weft_run *run = NULL;
    weft_required_memory need;
    if (overrides == NULL || self->run->settings.train.precision != WEFT_PRECISION_FP32) goto done;
    if (n > 0) memcpy(overrides, given, n * sizeof *overrides);
    overrides[n] = key;
    if (weft_run_open(&run, weft_args_config(self->args), overrides, n + 1, WEFT_NEEDS_TEXT, NULL) == WEFT_OK &&
        plan_fits(&need, self, run, self->options->tokens, &fit->room))
        add_change(fit, &need, key);
    weft_run_close(run);
done:
    free(overrides);
}

/* ---- check of this call ---- */

weft_status weft_generate_fit_judge(void *context, const weft_engine *engine, weft_error *err) {
    const weft_generate_fit *self = context;
    const weft_required_memory need = {.bytes = engine->plan.bytes, .ranks = 1};
    weft_fit fit = {.need = need};
    int32_t level = 0;
    if (weft_args_has(self->args, "no-fit")) return WEFT_OK;
    if (self->bytes > 0) weft_available_memory_describe(&fit.room, self->bytes);
    else weft_available_memory_find(&fit.room, &engine->device_info);
    fit.fits = weft_required_memory_fits(&fit.need, &fit.room);
    weft_fit_warn(&fit, self->run->host);
    if (fit.fits) return WEFT_OK;
    level = weft_services_log_level(WEFT_LOG_ERROR); /* suppresses repeated messages of the same configuration */
    find_fewer_tokens(&fit, self);
    find_precision(&fit, self);
    (void)weft_services_log_level(level);
    return weft_fit_refuse(&fit, err);
}
