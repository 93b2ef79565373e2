/* host/engine/engine.c: see engine.h. Opening and planning; memory is in buffers.c. */
#include "engine/engine.h"

#include "engine/buffers.h"
#include "engine/split.h"
#include "engine/sums.h"
#include "plugin/call.h"
#include "plugin/enter.h"
#include "program/job.h"
#include "ranks/guard.h"
#include "session/coherence.h"
#include "step/norm.h"

#include <stdlib.h>

static weft_status open_optimizer(weft_engine *engine, weft_error *err) {
    const weft_part *part = &engine->run->parts[WEFT_PART_OPTIMIZER];
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    if (part->loaded == NULL) return WEFT_OK;
    engine->optimizer_plugin = weft_loaded_table(part->loaded, optimizer);
    weft_plugin_call_begin(&call, part->loaded, "create");
    status = engine->optimizer_plugin->create(&engine->optimizer, engine->run->host, part->config, err);
    status = weft_run_located(engine->run, WEFT_PART_OPTIMIZER, weft_plugin_call_end(&call, status, err), err);
    if (status == WEFT_OK) engine->states = engine->optimizer_plugin->states(engine->optimizer, &engine->n_states);
    if (status == WEFT_OK && (engine->n_states < 0 || engine->n_states > WEFT_MAX_STATES))
        status = weft_error_set(err, WEFT_E_PLUGIN, "optimizer %s declares %lld states; at most %d are possible",
                                part->loaded->plugin->id, (long long)engine->n_states, WEFT_MAX_STATES);
    for (int64_t i = 0; status == WEFT_OK && i < engine->n_states; i++)
        if (engine->states[i].dtype != WEFT_F32)
            status = weft_error_set(err, WEFT_E_UNSUPPORTED,
                                    "optimizer %s declares its state %s as %s; this host keeps "
                                    "states in fp32 only",
                                    part->loaded->plugin->id, engine->states[i].name,
                                    weft_dtype_name(engine->states[i].dtype));
    return status;
}

/* What failed is what a key asks for. */
static weft_status blame_key(const weft_run *run, const char *section, const char *key, weft_status status,
                             const weft_error *why, const char *advice, weft_error *err) {
    (void)weft_config_reject(run->config, section, key, err, "cannot be used: %s%s", why->text, advice);
    if (err != NULL) err->code = (int32_t)status;
    return status;
}

static weft_status select_trained(weft_engine *engine, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    const weft_run *run = engine->run;
    const weft_status status = weft_declared_select(engine->declared, run->settings.train.trainable, &why);
    return status == WEFT_OK ? WEFT_OK : blame_key(run, "train", "trainable", status, &why, "", err);
}

static weft_status lay_out(weft_engine *engine, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    const weft_run *run = engine->run;
    const weft_status status = weft_layout_create(&engine->layout, engine->declared, run->host,
                                                  weft_run_table(run, WEFT_PART_POLICY, policy),
                                                  run->parts[WEFT_PART_POLICY].config, &why);
    if (status == WEFT_OK) return WEFT_OK;
    if (status == WEFT_E_PLUGIN)
        return blame_key(run, "policy", "plugin", status, &why,
                         ". Have the policy corrected, or choose another one: weft plugins list has them", err);
    return weft_run_located(run, WEFT_PART_POLICY, weft_error_set(err, status, "%s", why.text), err);
}

static weft_status open_model(weft_engine *engine, weft_error *err) {
    const weft_run *run = engine->run;
    const weft_part *part = &run->parts[WEFT_PART_MODEL];
    weft_plugin_call call;
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/config.json", run->settings.model.path);
    weft_status status = WEFT_OK;
    if (n < 0 || (size_t)n >= sizeof path)
        return weft_config_reject(run->config, "model", "path", err, "is longer than %zu bytes", sizeof path - 16);
    weft_plugin_call_begin(&call, part->loaded, "create");
    status = weft_declared_create(&engine->declared, run->host, weft_loaded_table(part->loaded, model), part->config,
                                  path, err);
    status = weft_run_located(run, WEFT_PART_MODEL, weft_plugin_call_end(&call, status, err), err);
    if (status == WEFT_OK) status = select_trained(engine, err);
    return status == WEFT_OK ? lay_out(engine, err) : status;
}

static void take_seat(weft_engine *engine, const weft_seat *seat) {
    engine->kernels = seat->platform->kernels;
    engine->device = seat->platform->device;
    engine->device_info = seat->platform->device_info;
    engine->account.kernels = engine->kernels;
    engine->account.device = engine->device;
    weft_ranks_take(&engine->ranks, seat);
}

weft_status weft_engine_open_at(weft_engine **out, const weft_run *run, const weft_seat *seat, weft_error *err) {
    weft_seat whole = {0};
    weft_status status = WEFT_OK;
    weft_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the engine");
    engine->run = run;
    engine->dtype = run->settings.train.precision == WEFT_PRECISION_BF16 ? WEFT_BF16 : WEFT_F32;
    status = open_model(engine, err);
    if (status == WEFT_OK && seat == NULL) {
        status = weft_platform_open(&engine->own_platform, run, err);
        if (status == WEFT_OK) whole = weft_platform_seat(engine->own_platform);
        seat = &whole;
    }
    if (status == WEFT_OK) take_seat(engine, seat);
    if (status == WEFT_OK)
        status = weft_post_open(&engine->post, &engine->peers, &engine->ranks, engine->kernels, engine->device, err);
    if (status == WEFT_OK && engine->own_platform != NULL && engine->ranks.comm != NULL)
        status = weft_guard_arrange(&engine->peers, &engine->ranks.info, err);
    if (status != WEFT_OK) engine->failed = true;
    if (status == WEFT_OK)
        status = weft_coherence_run(weft_coherence_peers(engine), run, &engine->device_info,
                                    open_optimizer(engine, err), err);
    if (status == WEFT_OK) *out = engine;
    else weft_engine_close(engine);
    return status;
}

weft_status weft_engine_open(weft_engine **out, const weft_run *run, weft_error *err) {
    return weft_engine_open_at(out, run, NULL, err);
}

/* The strategy's part of the job that only the host knows. */
static void describe_world(const weft_engine *engine, weft_job *job) {
    const weft_part *strategy = &engine->run->parts[WEFT_PART_STRATEGY];
    weft_strategy_job *view = &job->spec.view;
    int64_t prefetch = 0;
    const char *reduce = weft_part_choice(strategy, "reduce");
    view->world = engine->ranks.world;
    view->nodes = engine->ranks.world > 1 ? engine->ranks.info.nodes : 1;
    view->ranks_per_node = view->world / (view->nodes > 0 && view->world % view->nodes == 0 ? view->nodes : 1);
    if (reduce != NULL && strcmp(reduce, "tree") == 0) view->reduce = WEFT_REDUCE_TREE;
    if (reduce != NULL && strcmp(reduce, "fast") == 0) view->reduce = WEFT_REDUCE_FAST;
    reduce = weft_part_choice(strategy, "reduce_dtype");
    view->reduce_dtype = reduce != NULL && strcmp(reduce, "bf16") == 0 ? WEFT_BF16 : WEFT_F32;
    if (weft_part_i64(strategy, "prefetch", &prefetch)) job->spec.prefetch = (int32_t)prefetch;
}

/* "1, 2, 3, 4, 6 or 12": the numbers that divide n, of many the first and n itself. */
static void list_divisors(char text[160], int32_t n) {
    enum { SHOWN = 12 };
    int32_t shown = 0;
    size_t at = 0;
    text[0] = '\0';
    for (int32_t d = 1; d < n && shown < SHOWN; d++)
        if (n % d == 0) at += (size_t)snprintf(text + at, 160 - at, "%s%d", shown++ == 0 ? "" : ", ", (int)d);
    (void)snprintf(text + at, 160 - at, "%s%d", shown == 0 ? "" : shown == SHOWN ? " ... or " : " or ", (int)n);
}

/* A of R replicas: every replica takes as many leaves as the next. */
static weft_status share_leaves(const weft_engine *engine, weft_job *job, int32_t leaves, weft_error *err) {
    weft_strategy_job *view = &job->spec.view;
    const weft_train_settings *train = &engine->run->settings.train;
    char fitting[160];
    view->leaves = view->mode == WEFT_MODE_TRAIN ? leaves / view->replicas : 1;
    if (view->mode != WEFT_MODE_TRAIN || leaves % view->replicas == 0) return WEFT_OK;
    list_divisors(fitting, leaves);
    return weft_error_set(err, WEFT_E_USER,
                          "[train] global_batch = %lld in micro-batches of %lld %s %d %s, which %d replicas cannot "
                          "share evenly: start %s rank%s, or choose a global_batch that is a multiple of %lld",
                          (long long)train->global_batch, (long long)train->micro_batch, leaves == 1 ? "is" : "are",
                          (int)leaves, leaves == 1 ? "leaf" : "leaves", (int)view->replicas, fitting,
                          leaves == 1 ? "" : "s", (long long)train->micro_batch * view->replicas);
}

static weft_status make_job(weft_engine *engine, weft_stage *stage, int32_t leaves, weft_error *err) {
    const bool training = stage->graphs->mode == WEFT_MODE_TRAIN;
    weft_status status = WEFT_OK;
    weft_job_destroy(stage->job);
    stage->job = NULL;
    status = weft_job_create(&stage->job, stage->graphs, engine->declared, engine->layout, leaves, 4 * engine->n_states,
                             training && engine->run->settings.train.activation_checkpointing, err);
    if (status == WEFT_OK && training) stage->job->spec.step_work = weft_engine_norm_work(engine);
    return status;
}

/* What lies where is decided once: in a run that trains, by the training job. */
static weft_status ask_places(weft_engine *engine, weft_stage *stage, weft_error *err) {
    const weft_run *run = engine->run;
    const weft_part *part = &run->parts[WEFT_PART_STRATEGY];
    const weft_job *first = engine->train.job;
    if (first == NULL || first == stage->job)
        return weft_job_place(&stage->job->spec, run->host, weft_loaded_table(part->loaded, strategy), part->config,
                              err);
    for (int32_t u = 0; u < first->spec.view.n_units; u++)
        stage->job->unit_views[u].placement = first->unit_views[u].placement;
    for (int32_t s = 0; s < first->spec.view.n_segments; s++)
        stage->job->segment_views[s].owner = first->segment_views[s].owner;
    return WEFT_OK;
}

static weft_status ask_strategy(weft_engine *engine, weft_stage *stage, int32_t leaves, weft_error *err) {
    const weft_run *run = engine->run;
    const weft_part *part = &run->parts[WEFT_PART_STRATEGY];
    weft_status status = make_job(engine, stage, leaves, err);
    if (status != WEFT_OK) return status;
    describe_world(engine, stage->job);
    status =
        weft_job_replicas(&stage->job->spec, run->host, weft_loaded_table(part->loaded, strategy), part->config, err);
    if (status == WEFT_OK) status = share_leaves(engine, stage->job, leaves, err);
    if (status == WEFT_OK) status = ask_places(engine, stage, err);
    return weft_run_located(run, WEFT_PART_STRATEGY, status, err);
}

/* Where segments of several ranks read a unit, it is cut, and the strategy is asked again. */
static weft_status place_job(weft_engine *engine, weft_stage *stage, int32_t leaves, weft_error *err) {
    bool split = false;
    int32_t *owners = NULL;
    weft_job_spec *spec = NULL;
    weft_status status = ask_strategy(engine, stage, leaves, err);
    if (status == WEFT_OK) status = weft_split_owners(&owners, stage->job, err);
    if (status == WEFT_OK) status = weft_split_units(&split, engine, stage, err);
    if (status == WEFT_OK && split) status = ask_strategy(engine, stage, leaves, err);
    if (status == WEFT_OK && split) status = weft_split_check(stage->job, owners, err);
    free(owners);
    if (status != WEFT_OK) return status;
    spec = &stage->job->spec;
    weft_sums_size_units(engine, stage->job);
    status = weft_job_spec_check(spec, err);
    return status == WEFT_OK ? weft_sums_hold(engine, spec, err) : status;
}

/* The programs of all ranks, which only together can be proved; this rank keeps its own. */
static weft_status compile_programs(weft_engine *engine, weft_stage *stage, weft_error *err) {
    const weft_run *run = engine->run;
    const int32_t world = engine->ranks.world;
    const weft_job_spec *spec = &stage->job->spec;
    weft_status status = WEFT_OK;
    weft_program **all = calloc((size_t)world, sizeof *all);
    if (all == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the programs of %d ranks", (int)world);
    for (int32_t rank = 0; rank < world && status == WEFT_OK; rank++)
        status = weft_program_compile(&all[rank], run->host, weft_run_table(run, WEFT_PART_STRATEGY, strategy),
                                      run->parts[WEFT_PART_STRATEGY].config, spec, rank, err);
    if (status == WEFT_OK) status = weft_programs_check(&stage->coverage, (const weft_program *const *)all, spec, err);
    if (status == WEFT_OK) stage->identity = weft_programs_identity((const weft_program *const *)all, spec);
    stage->program = all[engine->ranks.rank];
    if (status == WEFT_OK && spec->view.mode == WEFT_MODE_TRAIN)
        status = weft_sums_plan(engine, stage, (const weft_program *const *)all, err);
    if (status == WEFT_OK) status = weft_sums_losses(stage, (const weft_program *const *)all, world, err);
    for (int32_t rank = 0; rank < world; rank++)
        if (rank != engine->ranks.rank) weft_program_destroy(all[rank]);
    free(all);
    return status;
}

static weft_status compile_stage(weft_engine *engine, weft_stage *stage, const weft_graph_set_spec *set_spec,
                                 int32_t leaves, weft_error *err) {
    weft_status status =
        weft_graph_set_create(&stage->graphs, engine->declared, engine->kernels, engine->device, set_spec, err);
    if (status == WEFT_OK) status = place_job(engine, stage, leaves, err);
    if (status == WEFT_OK) status = compile_programs(engine, stage, err);
    if (status == WEFT_OK) status = weft_program_place(stage->program, &stage->job->spec, err);
    if (status == WEFT_OK) weft_program_price(&stage->price, stage->program);
    return status;
}

static weft_graph_set_spec set_spec(const weft_engine *engine, int32_t mode, int32_t rows) {
    weft_graph_set_spec out = {.mode = mode, .dtype = engine->dtype, .rows = rows, .n_lengths = engine->spec.n_lengths};
    memcpy(out.lengths, engine->spec.lengths, sizeof out.lengths);
    return out;
}

static void note_products(weft_engine *engine, const weft_graph_set *set) {
    for (int32_t g = 0; set != NULL && g < set->n_lengths * set->n_segments; g++) {
        int32_t n = 0;
        const weft_graph_read *reads = weft_graph_reads(set->graphs[g], &n);
        for (int32_t i = 0; i < n; i++) engine->in_products[reads[i].parameter] |= reads[i].in_products;
    }
}

/* What is looked up and nothing else needs no copy in the type of products (compute.h). */
static weft_status note_all_products(weft_engine *engine, weft_error *err) {
    engine->in_products = calloc((size_t)engine->declared->n_parameters + 1, sizeof *engine->in_products);
    if (engine->in_products == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of parameters");
    note_products(engine, engine->train.graphs);
    note_products(engine, engine->evaluate.graphs);
    note_products(engine, engine->generate.graphs);
    return WEFT_OK;
}

weft_status weft_engine_prepare(weft_engine *engine, const weft_engine_spec *spec, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_graph_set_spec set = {0};
    engine->spec = *spec;
    if (spec->training) {
        set = set_spec(engine, WEFT_MODE_TRAIN, spec->rows);
        status = compile_stage(engine, &engine->train, &set, spec->leaves, err);
    }
    if (status == WEFT_OK && spec->evaluate_rows > 0) {
        set = set_spec(engine, WEFT_MODE_EVALUATE, spec->evaluate_rows);
        status = compile_stage(engine, &engine->evaluate, &set, 1, err);
    }
    if (status == WEFT_OK && spec->cache_rows > 0) {
        const weft_graph_set_spec one = {.mode = WEFT_MODE_GENERATE,
                                         .dtype = engine->dtype,
                                         .rows = 1,
                                         .cache_rows = spec->cache_rows,
                                         .n_lengths = 1,
                                         .lengths = {spec->prompt_rows}};
        status = compile_stage(engine, &engine->generate, &one, 1, err);
    }
    if (status == WEFT_OK) status = note_all_products(engine, err);
    status = weft_coherence_programs(weft_coherence_peers(engine), engine, status, err);
    if (status == WEFT_OK) weft_engine_plan_bytes(engine);
    return status;
}

static void close_stage(weft_stage *stage) {
    weft_program_destroy(stage->program);
    weft_terms_destroy(stage->terms);
    free(stage->sums);
    free(stage->losses);
    weft_job_destroy(stage->job);
    weft_graph_set_destroy(stage->graphs);
}

void weft_engine_close(weft_engine *engine) {
    if (engine == NULL) return;
    weft_engine_release(engine);
    close_stage(&engine->train);
    close_stage(&engine->evaluate);
    close_stage(&engine->generate);
    if (engine->optimizer != NULL) WEFT_PLUGIN_TELL(engine->optimizer_plugin, destroy, engine->optimizer);
    weft_post_close(&engine->post, &engine->peers);
    weft_ranks_leave(&engine->ranks);
    weft_platform_close(engine->own_platform, engine->failed || engine->post.broken);
    for (int32_t what = 0; what < WEFT_N_HOLDS; what++) {
        weft_hold_destroy(engine->holds[what]);
        free(engine->apart[what]);
    }
    weft_layout_destroy(engine->layout);
    weft_declared_destroy(engine->declared);
    free(engine);
}

int64_t weft_engine_table_rows(const weft_engine_spec *spec) {
    int64_t rows = spec->cache_rows;
    for (int32_t i = 0; i < spec->n_lengths; i++)
        if (spec->lengths[i] > rows) rows = spec->lengths[i];
    return rows;
}

weft_ref weft_ref_at(weft_ref ref, int64_t offset) {
    ref.offset += offset;
    return ref;
}

weft_slot_ref weft_engine_slot(const weft_engine *engine, const weft_program *program, int32_t slot) {
    weft_slot_ref out = {0};
    if (slot < 0 || program->slots[slot].offset < 0) return out;
    out.ref = weft_ref_at(engine->arena.ref, program->slots[slot].offset);
    out.bytes = program->slots[slot].bytes;
    return out;
}
