/* host/engine/buffers.c: see buffers.h. */
#include "engine/buffers.h"

#include "engine/compute.h"
#include "engine/sums.h"
#include "model/weights.h"
#include "plugin/enter.h"
#include "step/norm.h"

#include <stdlib.h>

/* Scalars begin on cache lines of their own, so that the parts never share one. */
static int64_t padded(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static int32_t trained_parameters(const weft_declared *declared) {
    int32_t n = 0;
    for (int32_t i = 0; i < declared->n_parameters; i++)
        if (declared->parameters[i].trainable) n++;
    return n;
}

static int64_t hp_bytes(const weft_engine *engine) {
    return engine->optimizer != NULL ? engine->optimizer_plugin->hp_size(engine->optimizer) : 0;
}

/* Sizes of the parts of the scalar buffer, in order. */
enum {
    PART_LOSSES,
    PART_ALL_LOSSES,
    PART_NODES,
    PART_SQUARES,
    PART_COUNT,
    PART_NORM,
    PART_COEFFICIENT,
    PART_SKIP,
    PART_HP,
    N_SCALAR_PARTS
};

static int64_t most_losses(const weft_engine *engine) {
    const int32_t train = engine->train.most_losses, evaluate = engine->evaluate.most_losses;
    return train > evaluate ? train : evaluate > 0 ? evaluate : 1;
}

static void scalar_sizes(const weft_engine *engine, int64_t sizes[N_SCALAR_PARTS]) {
    sizes[PART_LOSSES] = padded(8 * most_losses(engine));
    sizes[PART_ALL_LOSSES] = engine->ranks.world > 1 ? padded(8 * most_losses(engine) * engine->ranks.world) : 0;
    sizes[PART_NODES] = padded(8 * weft_norm_nodes(engine));
    sizes[PART_SQUARES] = padded(8 * (int64_t)trained_parameters(engine->declared));
    sizes[PART_COUNT] = sizes[PART_NORM] = sizes[PART_COEFFICIENT] = sizes[PART_SKIP] = 64;
    sizes[PART_HP] = padded(hp_bytes(engine));
}

static int64_t ranges_bytes(const weft_engine *engine) {
    return engine->spec.training ? (int64_t)sizeof(weft_range) * trained_parameters(engine->declared) : 0;
}

static int64_t table_bytes(const weft_engine *engine, int32_t table) {
    return weft_engine_table_rows(&engine->spec) * engine->declared->tables[table]->width * 4;
}

static int64_t key_value_bytes(const weft_engine *engine) {
    int64_t bytes = 0;
    const weft_graph_set *set = engine->generate.graphs;
    for (int32_t s = 0; set != NULL && s < set->n_segments; s++)
        bytes += padded(weft_graph_size(set->graphs[s])->state);
    return bytes;
}

static int64_t logits_bytes(const weft_engine *engine) {
    return engine->spec.cache_rows > 0 ? 4 * engine->declared->info.vocab_size : 0;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The stage whose arena is the largest decides the highest moment. */
static const weft_stage *highest_stage(const weft_engine *engine) {
    const weft_stage *stages[] = {&engine->train, &engine->evaluate, &engine->generate};
    const weft_stage *best = stages[0];
    for (int i = 1; i < 3; i++)
        if (stages[i]->price.arena > best->price.arena) best = stages[i];
    return best;
}

void weft_engine_plan_bytes(weft_engine *engine) {
    weft_engine_bytes *b = &engine->bytes;
    int64_t sizes[N_SCALAR_PARTS];
    const weft_stage *stage = highest_stage(engine);
    memset(b, 0, sizeof *b);
    b->line[WEFT_ACCOUNT_PARAMETERS] = 4 * engine->holds[WEFT_HOLD_PARAMETERS]->numel + weft_compute_copy_bytes(engine);
    if (engine->spec.training) {
        b->line[WEFT_ACCOUNT_GRADIENTS] = 4 * engine->holds[WEFT_HOLD_GRADIENTS]->numel + weft_sums_partials(engine);
        b->line[WEFT_ACCOUNT_OPTIMIZER] = 4 * engine->holds[WEFT_HOLD_STATES]->numel * engine->n_states;
    }
    scalar_sizes(engine, sizes);
    for (int i = 0; i < N_SCALAR_PARTS; i++) b->line[WEFT_ACCOUNT_FIXED] += sizes[i];
    b->line[WEFT_ACCOUNT_FIXED] += ranges_bytes(engine) + key_value_bytes(engine) + logits_bytes(engine);
    for (int32_t i = 0; i < engine->declared->n_tables; i++) b->line[WEFT_ACCOUNT_FIXED] += table_bytes(engine, i);
    b->line[WEFT_ACCOUNT_ARENA] =
        larger(engine->train.price.arena, larger(engine->evaluate.price.arena, engine->generate.price.arena));
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++) b->total += b->line[i];
    memcpy(b->category, stage->price.category, sizeof b->category);
    b->spare = stage->price.arena - stage->price.peak;
    b->category[WEFT_MEMORY_PARAMETERS] += b->line[WEFT_ACCOUNT_PARAMETERS];
    b->category[WEFT_MEMORY_GRADIENTS] += b->line[WEFT_ACCOUNT_GRADIENTS];
    b->category[WEFT_MEMORY_OPTIMIZER] += b->line[WEFT_ACCOUNT_OPTIMIZER];
    b->category[WEFT_MEMORY_WORKSPACE] += b->line[WEFT_ACCOUNT_FIXED];
}

static weft_status take_scalars(weft_engine *engine, weft_error *err) {
    int64_t sizes[N_SCALAR_PARTS], total = 0, at = 0;
    weft_scalars *s = &engine->scalars;
    weft_ref *refs[N_SCALAR_PARTS] = {&s->losses, &s->all_losses,  &s->nodes, &s->square_sums, &s->count,
                                      &s->norm,   &s->coefficient, &s->skip,  &s->hp};
    weft_status status = WEFT_OK;
    scalar_sizes(engine, sizes);
    for (int i = 0; i < N_SCALAR_PARTS; i++) total += sizes[i];
    status = weft_account_take(&engine->account, &s->buffer, total, WEFT_ACCOUNT_FIXED, err);
    for (int i = 0; i < N_SCALAR_PARTS && status == WEFT_OK; i++) {
        *refs[i] = weft_ref_at(s->buffer.ref, at);
        at += sizes[i];
    }
    if (engine->ranks.world == 1) s->all_losses = s->losses;
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, engine->kernels, fill, err, engine->device, NULL, s->buffer.ref, 0, total / 4);
    return status;
}

/* Writes `rows` rows of one position table. */
static weft_status fill_table(weft_engine *engine, int32_t index, weft_error *err) {
    const weft_table *table = engine->declared->tables[index];
    const int64_t rows = weft_engine_table_rows(&engine->spec), bytes = table_bytes(engine, index);
    float *values = malloc((size_t)bytes + 1);
    weft_status status = WEFT_OK;
    weft_doing before;
    if (values == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the table %s", table->name);
    before = weft_plugin_enter(engine->declared->plugin, "position table");
    status = weft_plugin_leave(before, table->fill(engine->declared->model, table->name, rows, values, err), err);
    if (status == WEFT_OK)
        status = weft_account_take(&engine->account, &engine->tables[index], bytes, WEFT_ACCOUNT_FIXED, err);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, engine->tables[index].ref, values,
                         bytes);
    free(values);
    return status;
}

static weft_status take_tables(weft_engine *engine, weft_error *err) {
    weft_status status = WEFT_OK;
    engine->tables = calloc((size_t)engine->declared->n_tables + 1, sizeof *engine->tables);
    if (engine->tables == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of tables");
    for (int32_t i = 0; i < engine->declared->n_tables && status == WEFT_OK; i++) status = fill_table(engine, i, err);
    return status;
}

/* decay = matrices exempts norm gains and biases; an optimizer without that key decays all that it decays. */
static bool decays(const weft_engine *engine, const weft_parameter *parameter) {
    const weft_part *part = &engine->run->parts[WEFT_PART_OPTIMIZER];
    const char *choice = weft_part_choice(part, "decay");
    if (choice == NULL || strcmp(choice, "matrices") != 0) return true;
    return weft_parameter_is_matrix(parameter);
}

/* A row per trained parameter that the rank updates, group after group; offsets count from what it keeps of the group.
 */
static weft_status take_ranges(weft_engine *engine, weft_error *err) {
    const weft_hold *hold = engine->holds[WEFT_HOLD_STATES];
    const int32_t n = trained_parameters(engine->declared);
    weft_range *rows = calloc((size_t)n + 1, sizeof *rows);
    int64_t at = 0;
    weft_status status = WEFT_OK;
    engine->group_ranges = calloc((size_t)engine->layout->n_trainable_groups + 1, sizeof *engine->group_ranges);
    if (rows == NULL || engine->group_ranges == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the table of %d parameters", n);
    for (int32_t g = 0; status == WEFT_OK && g < engine->layout->n_trainable_groups; g++) {
        const weft_group *group = &engine->layout->groups[g];
        for (int32_t i = 0; i < group->n_members; i++) {
            const weft_parameter *p = &engine->declared->parameters[group->members[i]];
            weft_range row = {(uint32_t)sizeof row, 0, 0, 0, 1.0f, decays(engine, p) ? 1.0f : 0.0f};
            int64_t begin = 0, end = 0, place = 0;
            if (!weft_hold_find(hold, p, 0, p->numel, &begin, &end, &place)) continue;
            row.offset = place - hold->spans[g].at;
            row.length = end - begin;
            rows[at++] = row;
        }
        engine->group_ranges[g + 1] = at;
    }
    if (status == WEFT_OK)
        status = weft_account_take(&engine->account, &engine->ranges, ranges_bytes(engine), WEFT_ACCOUNT_FIXED, err);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, engine->ranges.ref, rows,
                         ranges_bytes(engine));
    free(rows);
    return status;
}

static weft_status take_parameters(weft_engine *engine, weft_error *err) {
    const weft_hold *hold = engine->holds[WEFT_HOLD_PARAMETERS];
    weft_status status =
        weft_account_take(&engine->account, &engine->parameters, 4 * hold->numel, WEFT_ACCOUNT_PARAMETERS, err);
    engine->parameter_refs = calloc((size_t)engine->declared->n_parameters + 1, sizeof *engine->parameter_refs);
    if (status == WEFT_OK && engine->parameter_refs == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of parameters");
    for (int32_t i = 0; status == WEFT_OK && i < engine->declared->n_parameters; i++) {
        const weft_parameter *p = &engine->declared->parameters[i];
        const weft_span *span = &hold->spans[p->group];
        if (span->first == 0 && span->n == engine->layout->groups[p->group].numel)
            engine->parameter_refs[i] = weft_ref_at(engine->parameters.ref, 4 * (span->at + p->offset));
    }
    return status == WEFT_OK ? weft_compute_copy_take(engine, err) : status;
}

static weft_status take_training(weft_engine *engine, weft_error *err) {
    const int64_t bytes = 4 * engine->holds[WEFT_HOLD_STATES]->numel;
    weft_status status = weft_account_take(&engine->account, &engine->gradients,
                                           4 * engine->holds[WEFT_HOLD_GRADIENTS]->numel, WEFT_ACCOUNT_GRADIENTS, err);
    if (status == WEFT_OK)
        status = weft_account_take(&engine->account, &engine->partials, weft_sums_partials(engine),
                                   WEFT_ACCOUNT_GRADIENTS, err);
    for (int64_t i = 0; i < engine->n_states && status == WEFT_OK; i++)
        status = weft_account_take(&engine->account, &engine->state[i], bytes, WEFT_ACCOUNT_OPTIMIZER, err);
    if (status == WEFT_OK) status = take_ranges(engine, err);
    return status;
}

/* Where the regions lie, for whoever reads them. */
static void note_regions(weft_engine *engine) {
    const weft_fetcher parameters = {engine, WEFT_HOLD_PARAMETERS, engine->parameters.ref};
    engine->fetchers[0] = parameters;
    for (int i = 0; i < WEFT_MAX_STATES; i++) {
        const weft_fetcher state = {engine, WEFT_HOLD_STATES, engine->state[i].ref};
        engine->fetchers[1 + i] = state;
    }
}

/* The groups of all cuts, in the order of the units. [collective] */
static weft_status take_groups(weft_engine *engine, weft_error *err) {
    const weft_job *job = engine->train.job != NULL ? engine->train.job : engine->evaluate.job;
    weft_status status = weft_ranks_meet(&engine->ranks, err);
    for (int32_t u = 0; job != NULL && u < job->spec.view.n_units && status == WEFT_OK; u++) {
        const weft_cut cut = weft_cut_of(&job->spec, u);
        status = weft_ranks_group(&engine->ranks, &cut, err);
    }
    return status;
}

weft_status weft_engine_allocate(weft_engine *engine, weft_error *err) {
    weft_status status = take_groups(engine, err);
    if (status == WEFT_OK) status = take_parameters(engine, err);
    if (status == WEFT_OK && engine->spec.training) status = take_training(engine, err);
    if (status == WEFT_OK) status = take_scalars(engine, err);
    if (status == WEFT_OK) status = take_tables(engine, err);
    if (status == WEFT_OK)
        status =
            weft_account_take(&engine->account, &engine->key_values, key_value_bytes(engine), WEFT_ACCOUNT_FIXED, err);
    if (status == WEFT_OK)
        status = weft_account_take(&engine->account, &engine->logits, logits_bytes(engine), WEFT_ACCOUNT_FIXED, err);
    if (status == WEFT_OK)
        status = weft_account_take(&engine->account, &engine->arena, engine->bytes.line[WEFT_ACCOUNT_ARENA],
                                   WEFT_ACCOUNT_ARENA, err);
    if (status == WEFT_OK) note_regions(engine);
    return status;
}

void weft_engine_release(weft_engine *engine) {
    weft_account *account = &engine->account;
    if (engine->device == NULL) return;
    weft_account_give(account, &engine->parameters, WEFT_ACCOUNT_PARAMETERS);
    weft_account_give(account, &engine->compute, WEFT_ACCOUNT_PARAMETERS);
    weft_account_give(account, &engine->gradients, WEFT_ACCOUNT_GRADIENTS);
    weft_account_give(account, &engine->partials, WEFT_ACCOUNT_GRADIENTS);
    for (int i = 0; i < WEFT_MAX_STATES; i++) weft_account_give(account, &engine->state[i], WEFT_ACCOUNT_OPTIMIZER);
    for (int32_t i = 0; engine->tables != NULL && i < engine->declared->n_tables; i++)
        weft_account_give(account, &engine->tables[i], WEFT_ACCOUNT_FIXED);
    weft_account_give(account, &engine->ranges, WEFT_ACCOUNT_FIXED);
    weft_account_give(account, &engine->key_values, WEFT_ACCOUNT_FIXED);
    weft_account_give(account, &engine->logits, WEFT_ACCOUNT_FIXED);
    weft_account_give(account, &engine->scalars.buffer, WEFT_ACCOUNT_FIXED);
    weft_account_give(account, &engine->arena, WEFT_ACCOUNT_ARENA);
    free(engine->tables);
    free(engine->group_ranges);
    free(engine->parameter_refs);
    free(engine->compute_refs);
    free(engine->compute_dtypes);
    free(engine->in_products);
}

/* States begin at zero, and the count of updates with them. */
static weft_status clear_states(weft_engine *engine, weft_error *err) {
    const int64_t words = engine->spec.training ? engine->holds[WEFT_HOLD_STATES]->numel : 0;
    weft_status status = WEFT_OK;
    engine->updates = 0;
    for (int64_t i = 0; i < engine->n_states && words > 0 && status == WEFT_OK; i++)
        WEFT_PLUGIN_CALL(status, engine->kernels, fill, err, engine->device, NULL, engine->state[i].ref, 0, words);
    return status;
}

/* The states are cleared while the disk works, and the compute copy is made as the weights come. */
static weft_status load_files(weft_engine *engine, weft_error *err) {
    const char *directory = engine->run->settings.model.path;
    weft_region region = weft_engine_parameters(engine);
    const bool followed = weft_compute_copy_follow(&region, engine);
    weft_safetensors *files = NULL;
    weft_status status = weft_safetensors_open_directory(&files, directory, err);
    if (status != WEFT_OK) return status;
    weft_safetensors_read_ahead(files);
    status = clear_states(engine, err);
    if (status == WEFT_OK) status = weft_weights_load_files(&region, files, directory, err);
    weft_safetensors_close(files);
    if (status == WEFT_OK && !followed) status = weft_compute_copy_refresh(engine, false, err);
    return status == WEFT_OK ? weft_weights_dtype(&engine->stored_dtype, directory, err) : status;
}

static weft_status make_fresh(weft_engine *engine, weft_error *err) {
    const weft_region region = weft_engine_parameters(engine);
    weft_status status = clear_states(engine, err);
    engine->stored_dtype = WEFT_F32;
    if (status == WEFT_OK) status = weft_weights_init(&region, (uint64_t)engine->run->settings.run.seed, err);
    return status == WEFT_OK ? weft_compute_copy_refresh(engine, false, err) : status;
}

weft_status weft_engine_load(weft_engine *engine, weft_error *err) {
    const bool fresh = engine->run->settings.model.start == WEFT_START_FRESH;
    return fresh ? make_fresh(engine, err) : load_files(engine, err);
}
