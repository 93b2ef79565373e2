/* host/report/world_line.c: see world_line.h. */
#include "report/world_line.h"

static const weft_plugin *strategy_of(const weft_run *run) {
    return run->parts[WEFT_PART_STRATEGY].loaded->plugin;
}

static const weft_key *key_at(const weft_plugin *plugin, uint64_t i) {
    return (const weft_key *)((const char *)plugin->keys + i * plugin->key_stride);
}

/* Keys of another strategy, which it takes, say nothing. */
static bool is_told(const weft_key *key, const char *value) {
    return (key->flags & (WEFT_IDLE | WEFT_REMOVED)) == 0 && value != NULL;
}

static void print_settings(const weft_run *run, FILE *to) {
    const weft_plugin *plugin = strategy_of(run);
    const char *separator = ": ";
    for (uint64_t i = 0; i < plugin->n_keys; i++) {
        const weft_key *key = key_at(plugin, i);
        const char *value = weft_config_shown(run->config, "strategy", key->name);
        if (!is_told(key, value)) continue;
        (void)fprintf(to, "%s%s %s", separator, key->name, value);
        separator = ", ";
    }
}

/* ---- the run ---- */

static bool lr_of(const weft_session *session, double *out) {
    return weft_part_f64(&session->run->parts[WEFT_PART_OPTIMIZER], "lr", out);
}

static const char *precision_of(const weft_session *session) {
    return session->run->settings.train.precision == WEFT_PRECISION_BF16 ? "bf16" : "fp32";
}

void weft_run_print(const weft_session *session, const weft_run_result *result, int width, FILE *to) {
    double lr = 0.0;
    (void)fprintf(to, "%-*sprecision %s", width, "run", precision_of(session));
    for (int32_t part = 0; part < WEFT_N_PARTS; part++) {
        const char *id = weft_run_id(session->run, part);
        if (id != NULL) (void)fprintf(to, ", %s %s", weft_part_name(part), id);
        if (part == WEFT_PART_OPTIMIZER && lr_of(session, &lr)) (void)fprintf(to, " lr %g", lr);
    }
    if (result != NULL && result->steps > 0)
        (void)fprintf(to, "; %lld step%s, loss %.4f -> %.4f in training, lr %.3g in the last", (long long)result->steps,
                      result->steps == 1 ? "" : "s", result->first_loss, result->last_loss, result->last_lr);
    (void)fputc('\n', to);
}

static json_t *settings_object(const weft_run *run) {
    const weft_plugin *plugin = strategy_of(run);
    json_t *object = json_object();
    for (uint64_t i = 0; i < plugin->n_keys; i++) {
        const weft_key *key = key_at(plugin, i);
        const char *value = weft_config_shown(run->config, "strategy", key->name);
        if (is_told(key, value)) (void)json_object_set_new(object, key->name, json_string(value));
    }
    return object;
}

json_t *weft_run_object(const weft_session *session, const weft_run_result *result) {
    const weft_strategy_job *job = &session->engine->plan.train.job->spec.view;
    json_t *plugins = json_object();
    double lr = 0.0;
    for (int32_t part = 0; part < WEFT_N_PARTS; part++)
        (void)json_object_set_new(plugins, weft_part_name(part), json_string(weft_run_id(session->run, part)));
    return json_pack("{s:i, s:i, s:i, s:i, s:s, s:o, s:o, s:o, s:I, s:f, s:f, s:f}", "world", (int)job->world, "nodes",
                     (int)job->nodes, "replicas", (int)job->replicas, "leaves", (int)job->leaves, "precision",
                     precision_of(session), "plugins", plugins, "strategy", settings_object(session->run), "lr",
                     lr_of(session, &lr) ? json_real(lr) : json_null(), "steps", (json_int_t)result->steps,
                     "first_loss", result->first_loss, "last_loss", result->last_loss, "last_lr", result->last_lr);
}

/* ---- the world ---- */

void weft_world_print(const weft_session *session, int width, FILE *to) {
    const weft_engine *engine = session->engine;
    const weft_strategy_job *job = &engine->plan.train.job->spec.view;
    (void)fprintf(to, "%-*s%d rank%s", width, "world", (int)job->world, job->world == 1 ? "" : "s");
    if (job->world > 1) (void)fprintf(to, " on %d node%s", (int)job->nodes, job->nodes == 1 ? "" : "s");
    (void)fprintf(to, ", %d replica%s of %d %s; strategy %s", (int)job->replicas, job->replicas == 1 ? "" : "s",
                  (int)job->leaves, job->leaves == 1 ? "leaf" : "leaves", strategy_of(session->run)->id);
    print_settings(session->run, to);
    (void)fputc('\n', to);
}

void weft_sums_print(const weft_session *session, int width, FILE *to) {
    static const char *const names[] = {"ordered", "tree", "fast"};
    const weft_stage *stage = &session->engine->plan.train;
    const weft_strategy_job *job = &stage->job->spec.view;
    (void)fprintf(to, "%-*sof leaf gradients: %s, %s; ", width, "sums", names[job->reduce],
                  job->reduce_dtype == WEFT_BF16 ? "each leaf rounded to bf16" : "fp32");
    if (stage->coverage.covered) (void)fprintf(to, "covered by the contract of equal bits\n");
    else (void)fprintf(to, "not covered by the contract of equal bits: %s\n", stage->coverage.why);
}

/* ---- keys ---- */

static void say_idle(const weft_run *run, int32_t part) {
    const weft_plugin *plugin = run->parts[part].loaded->plugin;
    const char *kind = weft_part_name(part);
    char names[400] = "";
    size_t n = 0;
    int count = 0;
    for (uint64_t i = 0; i < plugin->n_keys; i++) {
        const weft_key *key = key_at(plugin, i);
        if ((key->flags & WEFT_IDLE) == 0 || !weft_config_has_key(run->config, kind, key->name)) continue;
        if (n + strlen(key->name) + 3 > sizeof names) break;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", count++ > 0 ? ", " : "", key->name);
    }
    if (count > 0)
        weft_log(run->host, WEFT_LOG_INFO, "[%s] %s: without effect under %s %s, whose %s not", kind, names, kind,
                 plugin->id, count == 1 ? "key it is" : "keys they are");
}

void weft_idle_keys_say(const weft_run *run) {
    say_idle(run, WEFT_PART_POLICY);
    say_idle(run, WEFT_PART_STRATEGY);
}
