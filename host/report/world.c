/* host/report/world.c: see world.h. */
#include "report/world.h"

#include <stdlib.h>

enum { SHOWN_RANKS = 16, SHOWN_LEAVES = 8 };

static const weft_plugin *strategy_of(const weft_run *run) {
    return run->parts[WEFT_PART_STRATEGY].loaded->plugin;
}

static const weft_key *key_at(const weft_plugin *plugin, uint64_t i) {
    return (const weft_key *)((const char *)plugin->keys + i * plugin->key_stride);
}

static void print_settings(const weft_run *run, FILE *to) {
    const weft_plugin *plugin = strategy_of(run);
    const char *separator = ": ";
    for (uint64_t i = 0; i < plugin->n_keys; i++) {
        const weft_key *key = key_at(plugin, i);
        const char *value = weft_config_shown(run->config, "strategy", key->name);
        if ((key->flags & (WEFT_IDLE | WEFT_REMOVED)) != 0 || value == NULL) continue;
        (void)fprintf(to, "%s%s %s", separator, key->name, value);
        separator = ", ";
    }
}

void weft_world_print(const weft_session *session, int width, FILE *to) {
    const weft_engine *engine = session->engine;
    const weft_strategy_job *job = &engine->train.job->spec.view;
    (void)fprintf(to, "%-*s%d rank%s", width, "world", (int)job->world, job->world == 1 ? "" : "s");
    if (job->world > 1) (void)fprintf(to, " on %d node%s", (int)job->nodes, job->nodes == 1 ? "" : "s");
    (void)fprintf(to, ", %d replica%s of %d %s; strategy %s", (int)job->replicas, job->replicas == 1 ? "" : "s",
                  (int)job->leaves, job->leaves == 1 ? "leaf" : "leaves", strategy_of(session->run)->id);
    print_settings(session->run, to);
    (void)fputc('\n', to);
}

void weft_sums_print(const weft_session *session, int width, FILE *to) {
    static const char *const names[] = {"ordered", "tree", "fast"};
    const weft_stage *stage = &session->engine->train;
    const weft_strategy_job *job = &stage->job->spec.view;
    (void)fprintf(to, "%-*sof leaf gradients: %s, %s; ", width, "sums", names[job->reduce],
                  job->reduce_dtype == WEFT_BF16 ? "each leaf rounded to bf16" : "fp32");
    if (stage->coverage.covered) (void)fprintf(to, "covered by the contract of equal bits\n");
    else (void)fprintf(to, "not covered by the contract of equal bits: %s\n", stage->coverage.why);
}

/* A leaf's rows follow one another. */
static void print_rows(const weft_engine *engine, int32_t rank, FILE *to) {
    const int32_t rows = engine->spec.rows;
    const char *separator = "";
    int32_t shown = 0;
    for (int32_t leaf = 0; leaf < engine->train.program->leaves; leaf++) {
        if (engine->train.losses[leaf].rank != rank) continue;
        if (shown++ == SHOWN_LEAVES) {
            (void)fprintf(to, ", ...");
            break;
        }
        if (rows == 1) (void)fprintf(to, "%s%d", separator, (int)leaf);
        else (void)fprintf(to, "%s%d-%d", separator, (int)(leaf * rows), (int)((leaf + 1) * rows - 1));
        separator = ", ";
    }
}

void weft_batches_print(const weft_session *session, FILE *to) {
    const weft_engine *engine = session->engine;
    const weft_strategy_job *job = &engine->train.job->spec.view;
    const int32_t ranks = job->world < SHOWN_RANKS ? job->world : SHOWN_RANKS;
    if (job->replicas == 1) return;
    for (int32_t rank = 0; rank < ranks; rank++) {
        (void)fprintf(to, "  rank %-4d %d of the %d rows of a step: ", (int)rank,
                      (int)(job->leaves * engine->spec.rows), (int)(job->leaves * engine->spec.rows * job->replicas));
        print_rows(engine, rank, to);
        (void)fputc('\n', to);
    }
    if (ranks < job->world) (void)fprintf(to, "  and so on for %d more\n", (int)(job->world - ranks));
}

void weft_idle_keys_say(const weft_run *run) {
    const weft_plugin *plugin = strategy_of(run);
    char names[400] = "";
    size_t n = 0;
    int count = 0;
    for (uint64_t i = 0; i < plugin->n_keys; i++) {
        const weft_key *key = key_at(plugin, i);
        if ((key->flags & WEFT_IDLE) == 0 || !weft_config_has_key(run->config, "strategy", key->name)) continue;
        if (n + strlen(key->name) + 3 > sizeof names) break;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", count++ > 0 ? ", " : "", key->name);
    }
    if (count > 0)
        weft_log(run->host, WEFT_LOG_INFO, "[strategy] %s: without effect under strategy %s, whose %s not", names,
                 plugin->id, count == 1 ? "key it is" : "keys they are");
}
