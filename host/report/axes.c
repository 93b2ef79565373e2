/* host/report/axes.c: see axes.h. */
#include "report/axes.h"

#include <stdlib.h>

/* Returns the next level. Beyond the limit it overwrites the last one, the one with the smallest memory. */
static weft_fit_level *next_level(weft_fit_levels *axis) {
    weft_fit_level *level = &axis->at[axis->n < WEFT_FIT_LEVELS ? axis->n++ : WEFT_FIT_LEVELS - 1];
    memset(level, 0, sizeof *level);
    return level;
}

static void add_key(weft_fit_levels *axis, const char *key) {
    (void)snprintf(next_level(axis)->key, WEFT_TRIAL_KEY_SIZE, "%s", key);
}

/* Adds a level like "train.micro_batch=2". */
static void add_number(weft_fit_levels *axis, const char *key, int64_t number) {
    (void)snprintf(next_level(axis)->key, WEFT_TRIAL_KEY_SIZE, "%s%lld", key, (long long)number);
}

/* Halves the micro-batch of an evaluation; any size is valid. */
static void list_halves(weft_fit_levels *axis, const weft_train_settings *keys) {
    for (int64_t rows = keys->micro_batch / 2; rows > 0; rows /= 2) add_number(axis, "train.micro_batch=", rows);
}

/* Lists smaller micro-batches of the same batch, but not so many that planning becomes slow. */
static void list_micro_batches(weft_fit_levels *axis, const weft_session *session) {
    const weft_train_settings *keys = &session->run->settings.train;
    const weft_plan *plan = &session->engine->plan;
    for (int64_t rows = keys->micro_batch - 1; rows > 0; rows--) {
        if (keys->global_batch % rows != 0) continue;
        if (keys->global_batch / rows * plan->declared->n_segments / plan->world > WEFT_FIT_WORK) return;
        add_number(axis, "train.micro_batch=", rows);
    }
}

static bool is_strategy(const weft_session *session, const char *id) {
    return strcmp(weft_run_id(session->run, WEFT_PART_STRATEGY), id) == 0;
}

static void list_sharding(weft_fit_levels *axis, const weft_session *session) {
    const char *shard = weft_config_shown(session->run->config, "strategy", "shard");
    if (session->engine->plan.world == 1) return;
    if (!is_strategy(session, "fsdp")) add_key(axis, "strategy.plugin=fsdp");
    else if (shard != NULL && strcmp(shard, "full") != 0) add_key(axis, "strategy.shard=full");
}

/* Lists fewer ranks, equally many on each machine, as before. */
static void list_fewer_ranks(weft_fit_levels *axis, const weft_plan *plan) {
    for (int32_t ranks = plan->world - 1; ranks >= plan->nodes; ranks--) {
        if (plan->world % ranks != 0 || ranks % plan->nodes != 0) continue;
        next_level(axis)->ranks = ranks;
        axis->at[axis->n - 1].nodes = plan->nodes;
    }
}

/* Lists more ranks. On a machine with shared memory more ranks need more memory: then more machines with one rank each.
 */
static void list_more_ranks(weft_fit_levels *axis, const weft_session *session, bool shared) {
    const weft_plan *plan = &session->engine->plan;
    for (int32_t ranks = 2 * (shared ? plan->nodes : plan->world); ranks <= WEFT_FIT_MOST_RANKS; ranks *= 2) {
        weft_fit_level *level = next_level(axis);
        level->ranks = ranks;
        level->nodes = shared ? ranks : plan->nodes;
        if (!is_strategy(session, "fsdp")) (void)snprintf(level->key, sizeof level->key, "strategy.plugin=fsdp");
    }
}

/* Lists the last half of the trained layers, half of that, and so on. Skipped if the user has selected parameters by
 * name. */
static void list_trainable(weft_fit_levels *axis, const weft_session *session) {
    const char *trained = session->run->settings.train.trainable;
    int64_t layers = session->engine->plan.declared->info.n_layers;
    if (strncmp(trained, "last:", 5) == 0 && strchr(trained, ',') == NULL) layers = strtoll(trained + 5, NULL, 10);
    else if (strcmp(trained, "all") != 0) return;
    for (layers /= 2; layers > 0; layers /= 2) add_number(axis, "train.trainable=last:", layers);
}

static void list_all(weft_fit_levels axes[WEFT_N_FIT_AXES], const weft_fit_question *question) {
    const weft_session *session = question->session;
    const weft_train_settings *keys = &session->run->settings.train;
    const weft_plan *plan = &session->engine->plan;
    if (keys->precision == WEFT_PRECISION_FP32) add_key(&axes[WEFT_FIT_PRECISION], "train.precision=bf16");
    if (session->kind == WEFT_SESSION_EVALUATE) list_halves(&axes[WEFT_FIT_MICRO], keys);
    if (session->kind == WEFT_SESSION_EVALUATE) return;
    if (plan->bytes.line[WEFT_ACCOUNT_SNAPSHOT] > 0) add_key(&axes[WEFT_FIT_SAVING], "checkpoint.async=no");
    list_micro_batches(&axes[WEFT_FIT_MICRO], session);
    if (!keys->activation_checkpointing) add_key(&axes[WEFT_FIT_CHECKPOINTING], "train.activation_checkpointing=yes");
    list_sharding(&axes[WEFT_FIT_SHARDING], session);
    if (question->room.shared) list_fewer_ranks(&axes[WEFT_FIT_FEWER], plan);
    list_more_ranks(&axes[WEFT_FIT_MORE], session, question->room.shared);
    list_trainable(&axes[WEFT_FIT_TRAINABLE], session);
}

void weft_fit_axes(weft_fit_levels axes[WEFT_N_FIT_AXES], const weft_fit_question *question) {
    memset(axes, 0, WEFT_N_FIT_AXES * sizeof *axes);
    list_all(axes, question);
    for (int axis = 0; axis < WEFT_N_FIT_AXES; axis++)
        if ((question->stays >> axis & 1u) != 0) axes[axis].n = 0;
}
