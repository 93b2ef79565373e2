/* host/run/buffers.c: see buffers.h. */
#include "run/buffers.h"

#include "adapter/adapter_load.h"
#include "base/sizes.h"
#include "run/compute.h"
#include "run/fetch.h"
#include "run/norm_extents.h"
#include "model/weights.h"
#include "program/budget.h"
#include "program/sums.h"
#include "plugin/enter.h"

#include <stdlib.h>

static weft_status take_scalars(weft_engine *engine, weft_error *err) {
    int64_t sizes[WEFT_N_SCALAR_PARTS], at = 0;
    const int64_t total = weft_budget_scalars(&engine->plan, sizes);
    weft_scalars *s = &engine->scalars;
    weft_ref *refs[WEFT_N_SCALAR_PARTS] = {&s->nodes, &s->square_sums, &s->count,     &s->coefficient,
                                           &s->skip,  &s->hp,          &s->past,      &s->first,
                                           &s->norm,  &s->losses,      &s->all_losses};
    weft_status status = WEFT_OK;
    status = weft_account_cut(&engine->account, &s->buffer, total, WEFT_ACCOUNT_FIXED, err);
    for (int i = 0; i < WEFT_N_SCALAR_PARTS && status == WEFT_OK; i++) {
        *refs[i] = weft_ref_at(s->buffer.ref, at);
        at += sizes[i];
    }
    s->seed = weft_ref_at(s->count, weft_dtype_bytes(WEFT_F64));
    if (engine->ranks.world == 1) s->all_losses = s->losses;
    if (status != WEFT_OK) return status;
    WEFT_PLUGIN_CALL(status, engine->kernels, fill, err, engine->device, NULL, s->buffer.ref, 0, total / WEFT_WORD);
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "the numbers of a step: ");
}

/* name: of what is written, for a device that fails. */
static weft_status write_whole(const weft_engine *engine, const weft_slot_ref *to, const void *from, int64_t bytes,
                               const char *name, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, to->ref, from, bytes);
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "the table of %s: ", name);
}

/* Writes `rows` rows of one position table. */
static weft_status fill_table(weft_engine *engine, int32_t index, weft_error *err) {
    const weft_table *table = engine->plan.declared->tables[index];
    const int64_t rows = weft_budget_table_rows(&engine->plan), bytes = weft_budget_table(&engine->plan, index);
    float *values = malloc((size_t)bytes + 1);
    weft_status status = WEFT_OK;
    weft_doing before;
    if (values == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the table %s", table->name);
    before = weft_plugin_enter(engine->plan.declared->plugin, "position table");
    status = weft_plugin_leave(before, table->fill(engine->plan.declared->model, table->name, rows, values, err), err);
    if (status == WEFT_OK)
        status = weft_account_cut(&engine->account, &engine->tables[index], bytes, WEFT_ACCOUNT_FIXED, err);
    if (status == WEFT_OK) status = write_whole(engine, &engine->tables[index], values, bytes, table->name, err);
    free(values);
    return status;
}

static weft_status take_tables(weft_engine *engine, weft_error *err) {
    weft_status status = WEFT_OK;
    engine->tables = calloc((size_t)engine->plan.declared->n_tables + 1, sizeof *engine->tables);
    if (engine->tables == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of tables");
    for (int32_t i = 0; i < engine->plan.declared->n_tables && status == WEFT_OK; i++)
        status = fill_table(engine, i, err);
    return status;
}

/* decay = matrices exempts norm gains and biases. */
static bool decays(const weft_engine *engine, const weft_parameter *parameter) {
    return engine->plan.run->settings.optimizer.decay == WEFT_DECAY_ALL || weft_parameter_is_matrix(parameter);
}

/* A row per trained parameter that the rank updates, group after group; offsets count from what it keeps of the group.
 */
static weft_status take_ranges(weft_engine *engine, weft_error *err) {
    const weft_hold *hold = engine->plan.holds[WEFT_HOLD_STATES];
    const int32_t n = weft_budget_trained(&engine->plan);
    weft_range *rows = calloc((size_t)n + 1, sizeof *rows);
    int64_t at = 0;
    weft_status status = WEFT_OK;
    engine->group_ranges = calloc((size_t)engine->plan.layout->n_trainable_groups + 1, sizeof *engine->group_ranges);
    if (rows == NULL || engine->group_ranges == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the table of %d parameters", n);
    for (int32_t g = 0; status == WEFT_OK && g < engine->plan.layout->n_trainable_groups; g++) {
        const weft_group *group = &engine->plan.layout->groups[g];
        for (int32_t i = 0; i < group->n_members; i++) {
            const weft_parameter *p = &engine->plan.declared->parameters[group->members[i]];
            weft_range row = {(uint32_t)sizeof row,           p->dtype == WEFT_BF16 ? WEFT_RANGE_BF16 : 0, 0, 0, 1.0f,
                              decays(engine, p) ? 1.0f : 0.0f};
            int64_t begin = 0, end = 0, place = 0;
            if (!weft_hold_find(hold, p, 0, p->numel, &begin, &end, &place)) continue;
            row.offset = p->offset + begin - hold->spans[g].first;
            row.length = end - begin;
            rows[at++] = row;
        }
        engine->group_ranges[g + 1] = at;
    }
    if (status == WEFT_OK)
        status = weft_account_cut(&engine->account, &engine->ranges, weft_budget_ranges(&engine->plan),
                                  WEFT_ACCOUNT_FIXED, err);
    if (status == WEFT_OK)
        status = write_whole(engine, &engine->ranges, rows, weft_budget_ranges(&engine->plan),
                             "what the optimizer updates", err);
    free(rows);
    return status;
}

static weft_update_region region_of_group(const weft_engine *engine, int32_t group) {
    const weft_plan *plan = &engine->plan;
    const weft_span *states = &plan->holds[WEFT_HOLD_STATES]->spans[group];
    const weft_span *gradients = &plan->holds[WEFT_HOLD_GRADIENTS]->spans[group];
    const weft_span *parameters = &plan->holds[WEFT_HOLD_PARAMETERS]->spans[group];
    weft_update_region out = {.struct_size = (uint32_t)sizeof out, .n = states->n};
    out.weight = weft_ref_at(engine->parameters.ref, weft_span_at(parameters, states->first));
    out.weight_dtype = parameters->dtype;
    out.gradient = weft_ref_at(engine->gradients.ref, weft_span_at(gradients, states->first));
    for (int64_t i = 0; i < plan->n_states; i++) {
        out.states[i] = weft_ref_at(engine->state[i].ref, plan->holds[WEFT_HOLD_STATES + i]->spans[group].at);
        out.state_dtypes[i] = plan->states[i].dtype;
    }
    out.ranges = weft_ref_at(engine->ranges.ref, engine->group_ranges[group] * (int64_t)sizeof(weft_range));
    out.range_stride = (uint32_t)sizeof(weft_range);
    out.n_ranges = engine->group_ranges[group + 1] - engine->group_ranges[group];
    return out;
}

/* What the optimizer goes through in a step: it stays where it is. */
static weft_status list_regions(weft_engine *engine, weft_error *err) {
    const int32_t n_groups = engine->plan.layout->n_trainable_groups;
    engine->n_regions = 0;
    engine->regions = calloc((size_t)n_groups + 1, sizeof *engine->regions);
    if (engine->regions == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of %d groups", (int)n_groups);
    for (int32_t g = 0; g < n_groups; g++)
        if (engine->plan.holds[WEFT_HOLD_STATES]->spans[g].n > 0)
            engine->regions[engine->n_regions++] = region_of_group(engine, g);
    return WEFT_OK;
}

static weft_status take_parameters(weft_engine *engine, weft_error *err) {
    const weft_hold *hold = engine->plan.holds[WEFT_HOLD_PARAMETERS];
    weft_status status =
        weft_account_cut(&engine->account, &engine->parameters, hold->bytes, WEFT_ACCOUNT_PARAMETERS, err);
    engine->parameter_refs = calloc((size_t)engine->plan.declared->n_parameters + 1, sizeof *engine->parameter_refs);
    if (status == WEFT_OK && engine->parameter_refs == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of parameters");
    for (int32_t i = 0; status == WEFT_OK && i < engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        const weft_span *span = &hold->spans[p->group];
        if (span->first == 0 && span->n == engine->plan.layout->groups[p->group].numel)
            engine->parameter_refs[i] = weft_ref_at(engine->parameters.ref, weft_span_at(span, p->offset));
    }
    return status == WEFT_OK ? weft_compute_copy_take(engine, err) : status;
}

static weft_status take_training(weft_engine *engine, weft_error *err) {
    weft_status status = weft_account_cut(&engine->account, &engine->gradients,
                                          engine->plan.holds[WEFT_HOLD_GRADIENTS]->bytes, WEFT_ACCOUNT_GRADIENTS, err);
    if (status == WEFT_OK)
        status = weft_account_cut(&engine->account, &engine->partials, weft_sums_partials(&engine->plan),
                                  WEFT_ACCOUNT_GRADIENTS, err);
    for (int64_t i = 0; i < engine->plan.n_states && status == WEFT_OK; i++)
        status = weft_account_cut(&engine->account, &engine->state[i], engine->plan.holds[WEFT_HOLD_STATES + i]->bytes,
                                  WEFT_ACCOUNT_OPTIMIZER, err);
    if (status == WEFT_OK) status = take_ranges(engine, err);
    if (status == WEFT_OK) status = list_regions(engine, err);
    return status == WEFT_OK ? weft_norm_extents_take(engine, err) : status;
}

/* Where the regions lie, for whoever reads them. */
static void note_regions(weft_engine *engine) {
    const weft_fetcher parameters = {engine, WEFT_HOLD_PARAMETERS, engine->parameters.ref};
    engine->fetchers[0] = parameters;
    for (int i = 0; i < WEFT_MAX_STATES; i++) {
        const weft_fetcher state = {engine, WEFT_HOLD_STATES + i, engine->state[i].ref};
        engine->fetchers[1 + i] = state;
    }
}

weft_status weft_engine_meet(weft_engine *engine, weft_error *err) {
    const weft_job *job = engine->plan.train.job != NULL ? engine->plan.train.job : engine->plan.evaluate.job;
    weft_status status = weft_ranks_meet(&engine->ranks, err);
    for (int32_t u = 0; job != NULL && u < job->spec.view.n_units && status == WEFT_OK; u++) {
        const weft_cut cut = weft_cut_of(&job->spec, u);
        status = weft_ranks_group(&engine->ranks, &cut, err);
    }
    return status;
}

/* The snapshot is taken by who saves from it (snapshot.h): not all that plan it do. The post is there already: ranks
 * have told one another what they plan. So are the data. */
static weft_status take_lines(weft_engine *engine, weft_error *err) {
    int64_t bytes[WEFT_N_ACCOUNT_LINES];
    memcpy(bytes, engine->plan.bytes.line, sizeof bytes);
    bytes[WEFT_ACCOUNT_SNAPSHOT] = bytes[WEFT_ACCOUNT_CONTROL] = bytes[WEFT_ACCOUNT_DATA] = 0;
    weft_account_note(&engine->account, WEFT_ACCOUNT_DATA,
                      engine->plan.bytes.line[WEFT_ACCOUNT_DATA] - engine->account.taken[WEFT_ACCOUNT_DATA]);
    return weft_account_open(&engine->account, bytes, err);
}

weft_status weft_engine_take_memory(weft_engine *engine, weft_error *err) {
    weft_status status = take_lines(engine, err);
    if (status == WEFT_OK) status = take_parameters(engine, err);
    if (status == WEFT_OK && engine->plan.spec.training) status = take_training(engine, err);
    if (status == WEFT_OK) status = take_scalars(engine, err);
    if (status == WEFT_OK) status = take_tables(engine, err);
    if (status == WEFT_OK)
        status = weft_account_cut(&engine->account, &engine->key_values, weft_budget_key_values(&engine->plan),
                                  WEFT_ACCOUNT_FIXED, err);
    if (status == WEFT_OK)
        status = weft_account_cut(&engine->account, &engine->logits, weft_budget_logits(&engine->plan),
                                  WEFT_ACCOUNT_FIXED, err);
    if (status == WEFT_OK)
        status = weft_account_cut(&engine->account, &engine->arena, engine->plan.bytes.line[WEFT_ACCOUNT_ARENA],
                                  WEFT_ACCOUNT_ARENA, err);
    if (status == WEFT_OK) status = weft_account_judge(&engine->account, err);
    if (status == WEFT_OK) note_regions(engine);
    return status;
}

weft_status weft_engine_allocate(weft_engine *engine, weft_error *err) {
    const weft_status status = weft_engine_meet(engine, err);
    return status == WEFT_OK ? weft_engine_take_memory(engine, err) : status;
}

void weft_engine_release(weft_engine *engine) {
    if (engine->device == NULL) return;
    weft_account_close(&engine->account);
    free(engine->tables);
    free(engine->group_ranges);
    free(engine->regions);
    free(engine->parameter_refs);
    free(engine->compute_refs);
    free(engine->compute_dtypes);
    engine->tables = NULL; /* so that what has been refused may be allocated again */
    engine->group_ranges = NULL;
    engine->regions = NULL;
    engine->parameter_refs = NULL;
    engine->compute_refs = NULL;
    engine->compute_dtypes = NULL;
}

/* States begin at zero, and the count of updates with them; the loss scale as its keys say. */
static weft_status clear_states(weft_engine *engine, weft_error *err) {
    weft_status status = WEFT_OK;
    engine->updates = 0;
    weft_loss_scale_begin(&engine->scale, &engine->plan.run->settings.train);
    for (int64_t i = 0; engine->plan.spec.training && i < engine->plan.n_states && status == WEFT_OK; i++) {
        const int64_t bytes = engine->plan.holds[WEFT_HOLD_STATES + i]->bytes;
        if (bytes > 0)
            WEFT_PLUGIN_CALL(status, engine->kernels, fill, err, engine->device, NULL, engine->state[i].ref, 0,
                             bytes / WEFT_WORD);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "the state %s: ", engine->plan.states[i].name);
    }
    return status;
}

/* New adapters are drawn, or made of the model's files, and those that are continued read. */
static weft_status start_adapters(const weft_engine *engine, const weft_region *region, const weft_safetensors *files,
                                  weft_error *err) {
    const weft_settings *settings = &engine->plan.run->settings;
    weft_status status = WEFT_OK;
    if (engine->plan.declared->n_adapters == 0) return WEFT_OK;
    status = weft_weights_init(region, (uint64_t)settings->run.seed, true, files, err);
    if (status != WEFT_OK || settings->adapter_from[0] == '\0') return status;
    return weft_adapter_load(region, settings->adapter_from, WEFT_ADAPTER_SOME, err);
}

/* The states are cleared while the disk works, and the compute copy is made as the weights come. */
static weft_status load_files(weft_engine *engine, weft_error *err) {
    const char *directory = engine->plan.run->settings.model.path;
    weft_region region = weft_engine_parameters(engine);
    const bool followed = weft_compute_copy_follow(&region, engine);
    weft_safetensors *files = NULL;
    weft_status status = weft_weights_open(&files, engine->plan.declared, directory, err);
    if (status != WEFT_OK) return status;
    weft_safetensors_read_ahead(files);
    status = clear_states(engine, err);
    if (status == WEFT_OK) status = weft_weights_load_files(&region, files, directory, err);
    if (status == WEFT_OK) status = start_adapters(engine, &region, files, err);
    weft_safetensors_close(files);
    if (status == WEFT_OK && !followed) status = weft_compute_copy_refresh(engine, false, err);
    return status == WEFT_OK ? weft_weights_dtype(&engine->stored_dtype, NULL, directory, err) : status;
}

static weft_status make_fresh(weft_engine *engine, weft_error *err) {
    const weft_region region = weft_engine_parameters(engine);
    weft_status status = clear_states(engine, err);
    engine->stored_dtype = WEFT_F32;
    if (status == WEFT_OK)
        status = weft_weights_init(&region, (uint64_t)engine->plan.run->settings.run.seed, false, NULL, err);
    if (status == WEFT_OK && engine->plan.run->settings.adapter_from[0] != '\0')
        status = weft_adapter_load(&region, engine->plan.run->settings.adapter_from, WEFT_ADAPTER_SOME, err);
    return status == WEFT_OK ? weft_compute_copy_refresh(engine, false, err) : status;
}

weft_status weft_engine_load(weft_engine *engine, weft_error *err) {
    const bool fresh = engine->plan.run->settings.model.start == WEFT_START_FRESH;
    return fresh ? make_fresh(engine, err) : load_files(engine, err);
}
