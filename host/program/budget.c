/* host/program/budget.c: see budget.h. */
#include "program/budget.h"

#include "base/machine.h"
#include "base/units.h"
#include "model/process_group.h"
#include "plugin/enter.h"
#include "program/exchange.h"

/* True if the unit is gathered; the placement is the same in all modes. */
static bool is_gathered(const weft_plan *plan, int32_t unit) {
    const weft_job *job = plan->train.job != NULL ? plan->train.job : plan->evaluate.job;
    if (job == NULL) job = plan->generate.job;
    return weft_gathered_is_due(&job->spec, unit);
}

/* True if kernels read the parameter in another type: a rounded matrix, or a gain or bias widened from bf16. */
static bool is_converted(const weft_plan *plan, const weft_parameter *parameter) {
    if (!weft_parameter_is_matrix(parameter)) return parameter->dtype != WEFT_F32;
    return plan->dtype != WEFT_F32 && parameter->dtype == WEFT_F32 &&
           plan->in_products[parameter - plan->declared->parameters];
}

int32_t weft_copies_dtype(const weft_plan *plan, const weft_parameter *parameter) {
    return weft_parameter_is_matrix(parameter) ? plan->dtype : WEFT_F32;
}

/* A gathered parameter has no copy, because the gather rounds it. A parameter of another rank or of lookups only has no
 * copy either. */
bool weft_copies_has(const weft_plan *plan, const weft_parameter *parameter) {
    const weft_span *span = &plan->holds[WEFT_HOLD_PARAMETERS]->spans[parameter->group];
    return is_converted(plan, parameter) && span->n == plan->layout->groups[parameter->group].numel &&
           !is_gathered(plan, parameter->unit);
}

int64_t weft_copies_bytes_of(const weft_plan *plan, const weft_parameter *parameter) {
    return weft_dtype_span(weft_copies_dtype(plan, parameter), weft_round_up(parameter->numel, plan->layout->grid));
}

int64_t weft_copies_bytes(const weft_plan *plan) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        if (weft_copies_has(plan, p)) bytes += weft_copies_bytes_of(plan, p);
    }
    return bytes;
}

bool weft_copies_in_update(const weft_plan *plan, const weft_parameter *parameter) {
    return parameter->trainable && weft_copies_has(plan, parameter) &&
           plan->holds[WEFT_HOLD_STATES]->spans[parameter->group].n == plan->layout->groups[parameter->group].numel;
}

const char *weft_account_name(int32_t line) {
    static const char *const names[WEFT_N_ACCOUNT_LINES] = {"parameters", "gradients", "optimizer", "fixed",
                                                            "arena",      "snapshot",  "control",   "data"};
    return names[line];
}

int32_t weft_budget_trained(const weft_plan *plan) {
    int32_t n = 0;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++)
        if (plan->declared->parameters[i].trainable) n++;
    return n;
}

/* Returns the maximum number of losses that one rank computes in a training or evaluation pass. */
static int64_t most_losses(const weft_plan *plan) {
    const int32_t train = plan->train.most_losses, evaluate = plan->evaluate.most_losses;
    return train > evaluate ? train : evaluate > 0 ? evaluate : 1;
}

int64_t weft_budget_first_rows(const weft_plan *plan) {
    return plan->draws ? weft_dtype_bytes(WEFT_I64) * plan->spec.micro_batches : 0;
}

int64_t weft_budget_prefix_rows(const weft_plan *plan) {
    return plan->table_rows - weft_plan_table_rows(&plan->spec);
}

int64_t weft_budget_scalars(const weft_plan *plan, int64_t sizes[WEFT_N_SCALAR_PARTS]) {
    const int64_t f64 = weft_dtype_bytes(WEFT_F64), losses = f64 * most_losses(plan);
    int64_t total = 0;
    sizes[WEFT_SCALAR_LOSSES] = weft_cache_lines(losses);
    sizes[WEFT_SCALAR_ALL_LOSSES] = plan->world > 1 ? weft_cache_lines(losses * plan->world) : 0;
    sizes[WEFT_SCALAR_NODES] = weft_cache_lines(f64 * weft_norm_nodes(plan));
    sizes[WEFT_SCALAR_SQUARES] = weft_cache_lines(f64 * weft_budget_trained(plan));
    sizes[WEFT_SCALAR_COUNT] = weft_cache_lines(f64 + weft_dtype_bytes(WEFT_F32)); /* and the seed */
    sizes[WEFT_SCALAR_NORM] = weft_cache_lines(f64);
    sizes[WEFT_SCALAR_COEFFICIENT] = weft_cache_lines(weft_dtype_bytes(WEFT_F32));
    sizes[WEFT_SCALAR_SKIP] = weft_cache_lines(weft_dtype_bytes(WEFT_I32));
    sizes[WEFT_SCALAR_PAST] = plan->spec.cache_rows > 0 ? weft_cache_lines(weft_dtype_bytes(WEFT_I64)) : 0;
    sizes[WEFT_SCALAR_FIRST] = weft_cache_lines(weft_budget_first_rows(plan));
    sizes[WEFT_SCALAR_HP] = weft_cache_lines(plan->hp_bytes);
    for (int i = 0; i < WEFT_N_SCALAR_PARTS; i++) total += sizes[i];
    return total;
}

int64_t weft_budget_ranges(const weft_plan *plan) {
    return plan->spec.training ? (int64_t)sizeof(weft_range) * weft_budget_trained(plan) : 0;
}

/* A tensor is in at most two tables. */
int64_t weft_budget_extents(const weft_plan *plan) {
    return plan->spec.training ? 2 * (int64_t)sizeof(weft_extent) * weft_budget_trained(plan) : 0;
}

int64_t weft_budget_table(const weft_plan *plan, int32_t table) {
    return plan->table_rows * plan->declared->tables[table]->width * weft_dtype_bytes(WEFT_F32);
}

int64_t weft_budget_key_values(const weft_plan *plan) {
    int64_t bytes = 0;
    const weft_graph_set *set = plan->generate.graphs;
    for (int32_t s = 0; set != NULL && s < set->n_segments; s++)
        bytes += weft_cache_lines(weft_graph_size(set->graphs[s])->state);
    return bytes;
}

int64_t weft_budget_logits(const weft_plan *plan) {
    return plan->spec.cache_rows > 0 ? weft_dtype_bytes(WEFT_F32) * plan->declared->info.vocab_size : 0;
}

/* ---- asynchronous checkpoints ---- */

int64_t weft_save_place_parameters(const weft_plan *plan) {
    const weft_hold *hold = plan->holds[WEFT_HOLD_PARAMETERS];
    const int32_t trained = plan->layout->n_trainable_groups; /* they are the first groups */
    return plan->visible && trained < hold->n_groups ? hold->spans[trained].at : hold->bytes;
}

int64_t weft_save_place_bytes(const weft_plan *plan) {
    int64_t bytes = weft_buffer_part(weft_save_place_parameters(plan));
    for (int64_t i = 0; i < plan->n_states; i++) bytes += weft_buffer_part(plan->holds[WEFT_HOLD_STATES + i]->bytes);
    return bytes;
}

/* Assumes that all ranks of a machine need as much memory as this one. */
static bool has_memory(const weft_plan *plan) {
    const int64_t ranks = plan->nodes > 0 ? (plan->world + plan->nodes - 1) / plan->nodes : plan->world;
    weft_machine_memory machine;
    weft_machine_memory_read(&machine, "");
    return machine.total == 0 || weft_save_place_bytes(plan) <= machine.total / 2 / weft_larger(ranks, 1);
}

void weft_save_place_decide(weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device) {
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    const int64_t asked = plan->run->settings.checkpoint.async;
    plan->visible = kernels->host_view != NULL;
    plan->saves = WEFT_SAVES_NONE;
    if (!plan->spec.saves) return;
    WEFT_PLUGIN_NOTIFY(kernels, info, device, &info);
    if (asked == WEFT_CHOICE_NO) plan->saves = WEFT_SAVES_IN_PLACE;
    else if (asked == WEFT_CHOICE_YES) plan->saves = WEFT_SAVES_BESIDE;
    else if ((info.flags & WEFT_DEVICE_SHARES_MACHINE) != 0) plan->saves = WEFT_SAVES_SHARED;
    else plan->saves = has_memory(plan) ? WEFT_SAVES_BESIDE : WEFT_SAVES_NO_ROOM;
}

/* ---- all lines ---- */

/* Returns the program with the largest arena, which determines the peak. */
static const weft_program *highest_program(const weft_plan *plan) {
    const weft_program *modes[] = {plan->train.program, plan->evaluate.program, plan->generate.program};
    const weft_program *best = NULL;
    for (int i = 0; i < 3; i++)
        if (modes[i] != NULL && (best == NULL || modes[i]->arena > best->arena)) best = modes[i];
    return best;
}

static int64_t fixed_bytes(const weft_plan *plan) {
    int64_t sizes[WEFT_N_SCALAR_PARTS];
    int64_t bytes = weft_buffer_part(weft_budget_scalars(plan, sizes));
    bytes += weft_buffer_part(weft_budget_ranges(plan)) + weft_buffer_part(weft_budget_extents(plan)) +
             weft_buffer_part(weft_budget_key_values(plan)) + weft_buffer_part(weft_budget_logits(plan));
    for (int32_t i = 0; i < plan->declared->n_tables; i++) bytes += weft_buffer_part(weft_budget_table(plan, i));
    return bytes;
}

/* True for the first rank of a machine, which accounts for the shared memory of its ranks. */
static bool first_of_machine(const weft_plan *plan) {
    const int32_t per_machine = plan->world / (plan->nodes > 0 && plan->world % plan->nodes == 0 ? plan->nodes : 1);
    return plan->rank % per_machine == 0;
}

void weft_plan_budget(weft_plan *plan) {
    weft_plan_bytes *b = &plan->bytes;
    const weft_program *program = highest_program(plan);
    memset(b, 0, sizeof *b);
    b->line[WEFT_ACCOUNT_PARAMETERS] = weft_buffer_part(plan->holds[WEFT_HOLD_PARAMETERS]->bytes) +
                                       weft_buffer_part(weft_copies_bytes(plan));
    if (plan->spec.training) {
        b->line[WEFT_ACCOUNT_GRADIENTS] = weft_buffer_part(plan->holds[WEFT_HOLD_GRADIENTS]->bytes) +
                                          weft_buffer_part(weft_f32_bytes(plan->train.partials));
        for (int64_t i = 0; i < plan->n_states; i++)
            b->line[WEFT_ACCOUNT_OPTIMIZER] += weft_buffer_part(plan->holds[WEFT_HOLD_STATES + i]->bytes);
    }
    b->line[WEFT_ACCOUNT_FIXED] = fixed_bytes(plan);
    b->line[WEFT_ACCOUNT_ARENA] = weft_buffer_part(program->arena);
    b->snapshot = plan->saves == WEFT_SAVES_BESIDE ? weft_save_place_bytes(plan) : 0;
    if (plan->visible) b->line[WEFT_ACCOUNT_SNAPSHOT] = b->snapshot;
    b->data = plan->spec.data_bytes + (first_of_machine(plan) ? plan->spec.data_shared : 0);
    if (plan->visible) b->line[WEFT_ACCOUNT_DATA] = b->data;
    if (plan->visible && (plan->spec.data_shared == 0 || first_of_machine(plan))) b->preparation = plan->spec.data_peak;
    b->line[WEFT_ACCOUNT_CONTROL] = weft_process_group_scratch(plan->world);
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++) b->total += b->line[i];
    memcpy(b->category, program->category, sizeof b->category);
    b->spare = b->line[WEFT_ACCOUNT_ARENA] - program->peak;
    b->category[WEFT_MEMORY_PARAMETERS] += b->line[WEFT_ACCOUNT_PARAMETERS];
    b->category[WEFT_MEMORY_GRADIENTS] += b->line[WEFT_ACCOUNT_GRADIENTS];
    b->category[WEFT_MEMORY_OPTIMIZER] += b->line[WEFT_ACCOUNT_OPTIMIZER];
    b->category[WEFT_MEMORY_WORKSPACE] += b->line[WEFT_ACCOUNT_FIXED] + b->line[WEFT_ACCOUNT_SNAPSHOT] +
                                          b->line[WEFT_ACCOUNT_CONTROL];
    b->category[WEFT_MEMORY_DATA] += b->line[WEFT_ACCOUNT_DATA];
}
