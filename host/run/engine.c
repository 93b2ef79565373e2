/* host/run/engine.c: opens, plans, allocates, fills and closes an engine. */
#include "run/engine.h"

#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/units.h"
#include "model/convert.h"
#include "model/weights.h"
#include "plugin/enter.h"
#include "program/budget.h"
#include "program/job.h"
#include "program/plan.h"
#include "program/exchange.h"
#include "run/coherence.h"
#include "run/validate.h"

#include <stdlib.h>

static weft_status find_table(const weft_device_choices **out, const weft_engine *engine, weft_error *err) {
    const weft_device_choices *table = weft_device_find(engine->kernels, engine->device, WEFT_DEVICE_CHOICES);
    *out = table;
    if (table == NULL || (WEFT_WHOLE(table, weft_device_choices) && table->count != NULL && table->get != NULL &&
                          table->choose != NULL && table->take != NULL))
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "the device's extension " WEFT_DEVICE_CHOICES " lacks slots");
}

static const weft_device_choice *find_key(const weft_choices *self, const char *key) {
    for (int32_t i = 0; i < self->n; i++)
        if (strcmp(self->items[i].key, key) == 0) return &self->items[i];
    return NULL;
}

void weft_choices_add(weft_choices *self, const weft_device_choice *choice) {
    self->items = weft_realloc(self->items, self->n + 1, sizeof *self->items);
    self->items[self->n++] = *choice;
}

void weft_choices_clear(weft_choices *self) {
    free(self->items);
    memset(self, 0, sizeof *self);
}

/* Collects the choices of all ranks' devices: rank 0's in order, then those of others that no rank before has. Texts of
 * a plugin are cut if they are too long. */
static weft_status collect(weft_choices *all, const weft_device_choices *table, const weft_engine *engine,
                           weft_error *err) {
    const weft_process_group *peers = &engine->peers;
    const bool single = weft_process_group_is_single(peers);
    weft_choices own = {0};
    weft_status status = WEFT_OK;
    for (int64_t i = 0; table != NULL && i < table->count(engine->device); i++) {
        weft_device_choice choice = {.struct_size = (uint32_t)sizeof choice};
        table->get(engine->device, i, &choice);
        choice.struct_size = (uint32_t)sizeof choice;
        choice.key[sizeof choice.key - 1] = choice.value[sizeof choice.value - 1] = 0;
        choice.note[sizeof choice.note - 1] = 0;
        weft_choices_add(single ? all : &own, &choice);
    }
    for (int32_t rank = 0; !single && rank < peers->world && status == WEFT_OK; rank++) {
        int64_t n = own.n;
        void *shared = NULL;
        const weft_device_choice *rows = NULL;
        status = weft_share_array(peers, &shared, &n, own.items, sizeof *rows, rank, err);
        rows = shared;
        for (int64_t i = 0; i < n && status == WEFT_OK; i++)
            if (find_key(all, rows[i].key) == NULL) weft_choices_add(all, &rows[i]);
        free(shared);
    }
    weft_choices_clear(&own);
    return status;
}

/* Rank 0's device chooses; all ranks' devices take its values. */
static weft_status decide(weft_choices *all, const weft_device_choices *table, const weft_engine *engine,
                          weft_error *err) {
    const int32_t n = table == NULL ? 0 : all->n;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; weft_process_group_is_rank_0(&engine->peers) && i < n && status == WEFT_OK; i++)
        WEFT_PLUGIN_CALL_OF(status, engine->kernels, table, choose, err, engine->device, &all->items[i]);
    status = weft_process_group_agree(&engine->peers, status, err);
    if (status == WEFT_OK && all->n > 0)
        status = weft_process_group_broadcast(&engine->peers, all->items, all->n * (int64_t)sizeof *all->items, err);
    if (status != WEFT_OK) return status;
    for (int32_t i = 0; i < n && status == WEFT_OK; i++) {
        WEFT_PLUGIN_CALL_OF(status, engine->kernels, table, take, err, engine->device, &all->items[i]);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "%s, as rank 0 has chosen it: ", all->items[i].key);
    }
    return weft_process_group_agree(&engine->peers, status, err);
}

/* Selects a value for each choice of any rank's device so far, the same on all ranks. [collective] */
static weft_status settle_choices(weft_engine *engine, weft_error *err) {
    const weft_device_choices *table = NULL;
    weft_choices all = {0};
    weft_status status = weft_process_group_agree(&engine->peers, find_table(&table, engine, err), err);
    if (status == WEFT_OK) status = collect(&all, table, engine, err);
    if (status == WEFT_OK) status = decide(&all, table, engine, err);
    weft_choices_clear(status == WEFT_OK ? &engine->choices : &all);
    if (status == WEFT_OK) engine->choices = all;
    return status;
}

weft_status weft_engine_take_choices(weft_engine *engine, const weft_choices *kept, weft_error *err) {
    weft_choices *own = &engine->choices;
    const weft_device_choices *table = NULL;
    weft_status status = find_table(&table, engine, err);
    for (int32_t i = 0; table != NULL && i < own->n && status == WEFT_OK; i++) {
        const weft_device_choice *known = find_key(kept, own->items[i].key);
        if (known == NULL) continue;
        WEFT_PLUGIN_CALL_OF(status, engine->kernels, table, take, err, engine->device, known);
        if (status == WEFT_OK) own->items[i] = *known;
    }
    return status;
}

/* ---- regions ---- */

/* Returns the rank that sends element `first` of a parameter, and in *end the end of its elements. Elements that all
 * ranks have are distributed as if they were sharded. */
static int32_t find_writer(void *context, int32_t parameter, int64_t first, int64_t *end) {
    const weft_fetcher *self = context;
    const weft_plan *plan = &self->engine->plan;
    const weft_job_spec *job = &(plan->train.job != NULL ? &plan->train : &plan->evaluate)->job->spec;
    const weft_parameter *p = &plan->declared->parameters[parameter];
    const weft_group *group = &plan->layout->groups[p->group];
    const weft_placement *placement = &job->view.placements[group->unit];
    const int32_t holding = self->what == WEFT_HOLD_PARAMETERS ? placement->parameters : placement->optimizer;
    const weft_cut cut = weft_cut_of(job, group->unit);
    const int64_t shard = weft_hold_piece(plan->layout, group, cut.replicas), index = (p->offset + first) / shard;
    *end = p->numel;
    if (holding == WEFT_OWNED) return placement->owner;
    *end = weft_smaller(p->numel, (index + 1) * shard - p->offset);
    return weft_cut_rank(&cut, (int32_t)index);
}

weft_region weft_engine_region(const weft_engine *engine, int what) {
    const int state = what - WEFT_HOLD_STATES;
    return (weft_region){.declared = engine->plan.declared,
                         .layout = engine->plan.layout,
                         .kernels = engine->kernels,
                         .device = engine->device,
                         .ref = state < 0 ? engine->parameters.ref : engine->state[state].ref,
                         .dtype = state < 0 ? 0 : engine->plan.states[state].dtype,
                         .hold = engine->plan.holds[what],
                         .apart = engine->plan.apart[what],
                         .writer = find_writer,
                         .context = (void *)(uintptr_t)&engine->fetchers[what],
                         .peers = &engine->peers};
}

weft_slot_ref weft_engine_slot(const weft_engine *engine, const weft_program *program, int32_t slot) {
    weft_slot_ref out = {0};
    if (slot < 0 || program->slots[slot].offset < 0) return out;
    out.ref = weft_ref_at(engine->arena.ref, program->slots[slot].offset);
    out.bytes = program->slots[slot].bytes;
    return out;
}

weft_status weft_engine_read(const weft_engine *engine, void *to, weft_ref from, int64_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, to, from, bytes);
    return status;
}

weft_status weft_engine_gather(const weft_engine *engine, void **out, const void *own, size_t bytes, weft_error *err) {
    char *all = weft_alloc(engine->ranks.world, bytes);
    *out = all;
    memcpy(all + (size_t)engine->ranks.rank * bytes, own, bytes);
    return engine->ranks.world == 1 ? WEFT_OK : weft_process_group_gather(&engine->peers, all, (int64_t)bytes, err);
}

/* ---- the extents of NORM ---- */

typedef struct tables {
    weft_engine *engine;
    weft_extent *rows; /* of all tables, in order */
    int64_t n;
    weft_norm_table *now; /* gets the next row */
} tables;

static void add_row(tables *self, int64_t offset, int64_t length, int64_t out) {
    const weft_extent row = {(uint32_t)sizeof row, 0, offset, length, out};
    self->rows[self->n++] = row;
    self->now->n++;
    self->now->elements += length;
}

/* An element of a group's gradient, counted from the first one that this rank keeps. */
static int64_t element_at(const weft_span *span, int64_t element) {
    return weft_span_at(span, element) / weft_f32_bytes(1);
}

/* Of a sharded group the part of each tensor in this rank's shard; a sum per cell, into the group's nodes. */
static void add_cells_of(tables *self, const weft_norm_exchange *x) {
    const weft_plan *plan = &self->engine->plan;
    const int64_t grid = plan->layout->grid, shard = x->n * grid;
    const weft_group *group = &plan->layout->groups[x->group];
    const weft_span *span = &plan->holds[WEFT_HOLD_GRADIENTS]->spans[x->group];
    const int64_t from = weft_scope_place(&x->cut, WEFT_SCOPE_ALL, plan->rank) * shard;
    for (int32_t i = 0; i < group->n_members; i++) {
        const weft_parameter *p = &plan->declared->parameters[group->members[i]];
        const int64_t begin = weft_larger(from, p->offset), end = weft_smaller(from + shard, p->offset + p->numel);
        if (begin < end) add_row(self, element_at(span, begin), end - begin, x->first + begin / grid);
    }
}

/* The complete gradient of a tensor, as an element of this rank's. */
static int64_t gradient_position(const weft_engine *engine, const weft_parameter *p) {
    return element_at(&engine->plan.holds[WEFT_HOLD_GRADIENTS]->spans[p->group], p->offset);
}

static void fill_tables(tables *self) {
    const weft_plan *plan = &self->engine->plan;
    const weft_norm_exchange owned = weft_norm_owned(plan);
    int64_t *taken = weft_alloc(plan->world, sizeof *taken);
    weft_norm_exchange walk = {0};
    self->now = self->engine->norm_tables; /* of WEFT_NORM_OWN_CELLS */
    *self->now = (weft_norm_table){.first = 0};
    while (weft_norm_exchange_next(plan, &walk))
        if (walk.goes == WEFT_NORM_GOES_CELLS) add_cells_of(self, &walk);
    for (int table = WEFT_NORM_OWNED; table < WEFT_N_NORM_TABLES; table++) {
        int64_t out = 0;
        self->now = &self->engine->norm_tables[table];
        *self->now = (weft_norm_table){.first = self->n};
        for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
            const weft_parameter *p = &plan->declared->parameters[i];
            const int32_t owner = p->trainable ? weft_norm_owner(plan, p->group) : -1;
            if (!p->trainable) continue;
            if (table == WEFT_NORM_OWNED && owner == plan->rank)
                add_row(self, gradient_position(self->engine, p), p->numel,
                        owned.first + plan->rank * owned.n + self->now->n);
            /* a tree over the cells of a sharded tensor, or the owner's sum */
            if (table == WEFT_NORM_NODES && weft_norm_is_cut(plan, p->group)) {
                walk = (weft_norm_exchange){0};
                while (weft_norm_exchange_next(plan, &walk) &&
                       (walk.goes != WEFT_NORM_GOES_CELLS || walk.group != p->group))
                    continue;
                add_row(self, walk.first + p->offset / plan->layout->grid, weft_norm_cells(plan, p->numel), out);
            } else if (table == WEFT_NORM_NODES && owner >= 0)
                add_row(self, owned.first + owner * owned.n + taken[owner]++, 1, out);
            if (table == WEFT_NORM_WHOLE && owner < 0 && !weft_norm_is_cut(plan, p->group))
                add_row(self, gradient_position(self->engine, p), p->numel, out);
            out++;
        }
    }
    free(taken);
}

/* ---- memory ---- */

int64_t weft_account_total(const weft_account *account) {
    int64_t total = 0;
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++) total += account->taken[i];
    return total;
}

/* Adds bytes of a line that the caller has allocated. */
static void add_bytes(weft_account *account, weft_account_line line, int64_t bytes) {
    account->taken[line] += bytes;
    if (weft_account_total(account) > account->most) account->most = weft_account_total(account);
}

weft_status weft_account_alloc(weft_account *account, weft_slot_ref *out, int64_t bytes, weft_account_line line,
                               weft_error *err) {
    weft_slot_ref slot = {.bytes = bytes};
    weft_status status = WEFT_OK;
    if (bytes > 0) WEFT_PLUGIN_CALL(status, account->kernels, alloc, err, account->device, &slot.ref.buffer, bytes);
    if (status != WEFT_OK) return status;
    add_bytes(account, line, bytes);
    *out = slot;
    return WEFT_OK;
}

void weft_account_free(weft_account *account, weft_slot_ref *slot, weft_account_line line) {
    if (slot->ref.buffer != NULL) {
        WEFT_PLUGIN_NOTIFY(account->kernels, release, account->device, slot->ref.buffer);
        account->taken[line] -= slot->bytes;
    }
    *slot = (weft_slot_ref){0};
}

/* Allocates one buffer for each line: bytes[WEFT_N_ACCOUNT_LINES]. */
static weft_status open_account(weft_account *account, const int64_t *bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES && status == WEFT_OK; i++) {
        status = weft_account_alloc(account, &account->lines[i].whole, bytes[i], (weft_account_line)i, err);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "memory for %s: ", weft_account_name(i));
        account->lines[i].cut = 0;
    }
    return status;
}

/* Returns the next aligned part of a line's buffer; bytes 0: an empty ref. */
static weft_status cut_account(weft_account *account, weft_slot_ref *out, int64_t bytes, weft_account_line line,
                               weft_error *err) {
    const weft_slot_ref *whole = &account->lines[line].whole;
    int64_t *cut = &account->lines[line].cut;
    *out = (weft_slot_ref){0};
    if (bytes == 0) return WEFT_OK;
    if (weft_buffer_part(bytes) > whole->bytes - *cut)
        return weft_error_set(err, WEFT_E_HOST,
                              "the plan has %lld bytes of %s, and a part of %lld needs more than the %lld that are "
                              "left",
                              (long long)whole->bytes, weft_account_name(line), (long long)bytes,
                              (long long)(whole->bytes - *cut));
    out->ref = whole->ref;
    out->ref.offset += *cut;
    out->bytes = bytes;
    *cut += weft_buffer_part(bytes);
    return WEFT_OK;
}

/* Fails if a line has more bytes than its parts: the plan has counted some of them more than once. */
static weft_status check_account(const weft_account *account, weft_error *err) {
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++)
        if (account->lines[i].cut != account->lines[i].whole.bytes)
            return weft_error_set(err, WEFT_E_HOST, "the plan has %lld bytes of %s, of which %lld have a use",
                                  (long long)account->lines[i].whole.bytes, weft_account_name(i),
                                  (long long)account->lines[i].cut);
    return WEFT_OK;
}

int64_t weft_account_held(const weft_account *account) {
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    WEFT_PLUGIN_NOTIFY(account->kernels, info, account->device, &info);
    return info.held;
}

/* Cuts a table of `bytes` bytes and writes it. name: for a device that fails. */
static weft_status take_table(weft_engine *engine, weft_slot_ref *out, const void *from, int64_t bytes,
                              const char *name, weft_error *err) {
    weft_status status = cut_account(&engine->account, out, bytes, WEFT_ACCOUNT_FIXED, err);
    if (status != WEFT_OK || bytes == 0) return status;
    WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, out->ref, from, bytes);
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "the table of %s: ", name);
}

static weft_status take_scalars(weft_engine *engine, weft_error *err) {
    int64_t sizes[WEFT_N_SCALAR_PARTS], at = 0;
    const int64_t total = weft_budget_scalars(&engine->plan, sizes);
    weft_scalars *s = &engine->scalars;
    weft_ref *refs[WEFT_N_SCALAR_PARTS] = {&s->nodes, &s->square_sums, &s->count,     &s->coefficient,
                                           &s->skip,  &s->hp,          &s->past,      &s->first,
                                           &s->norm,  &s->losses,      &s->all_losses};
    weft_status status = cut_account(&engine->account, &s->buffer, total, WEFT_ACCOUNT_FIXED, err);
    if (status != WEFT_OK) return status;
    for (int i = 0; i < WEFT_N_SCALAR_PARTS; i++) {
        *refs[i] = weft_ref_at(s->buffer.ref, at);
        at += sizes[i];
    }
    s->seed = weft_ref_at(s->count, weft_dtype_bytes(WEFT_F64));
    if (engine->ranks.world == 1) s->all_losses = s->losses;
    WEFT_PLUGIN_CALL(status, engine->kernels, fill, err, engine->device, NULL, s->buffer.ref, 0, total / WEFT_WORD);
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "the numbers of a step: ");
}

static weft_status take_position_table(weft_engine *engine, int32_t index, weft_error *err) {
    const weft_declared *declared = engine->plan.declared;
    const weft_table *table = declared->tables[index];
    const int64_t rows = engine->plan.table_rows, bytes = weft_budget_table(&engine->plan, index);
    float *values = malloc((size_t)bytes + 1);
    weft_status status = WEFT_OK;
    weft_call_record before;
    if (values == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the table %s", table->name);
    before = weft_plugin_enter(declared->plugin, "position table");
    status = weft_plugin_leave(before, table->fill(declared->model, table->name, rows, values, err), err);
    if (status == WEFT_OK) status = take_table(engine, &engine->tables[index], values, bytes, table->name, err);
    free(values);
    return status;
}

/* Returns a region without ranges that begins in a trained parameter, at an element of its group. */
static weft_update_region region_from(const weft_engine *engine, const weft_parameter *p, int64_t element) {
    const weft_plan *plan = &engine->plan;
    const weft_span *parameters = &plan->holds[WEFT_HOLD_PARAMETERS]->spans[p->group];
    const weft_span *gradients = &plan->holds[WEFT_HOLD_GRADIENTS]->spans[p->group];
    weft_update_region out = {.struct_size = (uint32_t)sizeof out, .range_stride = (uint32_t)sizeof(weft_range)};
    out.weight = weft_ref_at(engine->parameters.ref, weft_span_at(parameters, element));
    out.weight_dtype = parameters->dtype;
    out.gradient = weft_ref_at(engine->gradients.ref, weft_span_at(gradients, element));
    for (int64_t i = 0; i < plan->n_states; i++) {
        const weft_span *state = &plan->holds[WEFT_HOLD_STATES + i]->spans[p->group];
        out.states[i] = weft_ref_at(engine->state[i].ref, weft_span_at(state, element));
        out.state_dtypes[i] = plan->states[i].dtype;
    }
    if (weft_copies_in_update(plan, p)) out.copy = engine->compute_refs[p - plan->declared->parameters];
    return out;
}

/* Writes a row per trained parameter that the rank updates, and lists the regions of these rows: groups, divided where
 * copies begin or end or are not as far apart as the weights. Offsets count from the region. */
static weft_status take_updates(weft_engine *engine, weft_error *err) {
    const weft_plan *plan = &engine->plan;
    const bool decays_all = plan->run->settings.optimizer.decay == WEFT_DECAY_ALL; /* else matrices only */
    weft_range *rows = weft_alloc(weft_budget_trained(plan), sizeof *rows);
    int64_t at = 0, first = 0, element = 0, begin = 0, end = 0, place = 0; /* first: where the last region begins */
    int32_t copy_dtype = 0;
    weft_status status = WEFT_OK;
    engine->n_regions = 0;
    for (int32_t g = 0; g < plan->layout->n_trainable_groups; g++) {
        const weft_group *group = &plan->layout->groups[g];
        weft_update_region *last = NULL;
        for (int32_t i = 0; i < group->n_members; i++) {
            const weft_parameter *p = &plan->declared->parameters[group->members[i]];
            const float decay = decays_all || weft_parameter_is_matrix(p) ? 1.0f : 0.0f;
            const uint32_t flags = p->dtype == WEFT_BF16 ? WEFT_RANGE_BF16 : 0;
            weft_update_region next;
            if (!weft_hold_find(plan->holds[WEFT_HOLD_STATES], p, 0, p->numel, &begin, &end, &place)) continue;
            element = p->offset + begin;
            next = region_from(engine, p, element);
            if (next.copy.buffer != NULL) copy_dtype = engine->compute_dtypes[group->members[i]];
            if (last == NULL || last->copy.buffer != next.copy.buffer ||
                (next.copy.buffer != NULL &&
                 next.copy.offset - last->copy.offset != weft_dtype_span(copy_dtype, element - first))) {
                last = &engine->regions[engine->n_regions++];
                *last = next;
                last->ranges.offset = at * (int64_t)sizeof *rows;
                first = element;
            }
            last->n = weft_round_up(element - first + end - begin, plan->layout->grid);
            last->n_ranges++;
            rows[at++] = (weft_range){(uint32_t)sizeof *rows, flags, element - first, end - begin, 1.0f, decay};
        }
    }
    status = take_table(engine, &engine->ranges, rows, weft_budget_ranges(plan), "the optimizer's ranges", err);
    for (int32_t i = 0; i < engine->n_regions; i++) {
        engine->regions[i].ranges = weft_ref_at(engine->ranges.ref, engine->regions[i].ranges.offset);
        engine->regions[i].copy_dtype = copy_dtype;
    }
    free(rows);
    return status;
}

static void bind_parameters(weft_engine *engine) {
    const weft_declared *declared = engine->plan.declared;
    int64_t at = 0;
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        const weft_span *span = &engine->plan.holds[WEFT_HOLD_PARAMETERS]->spans[p->group];
        const bool complete = span->first == 0 && span->n == engine->plan.layout->groups[p->group].numel;
        engine->parameter_refs[i] = (weft_ref){NULL, 0};
        if (complete) engine->parameter_refs[i] = weft_ref_at(engine->parameters.ref, weft_span_at(span, p->offset));
        engine->compute_refs[i] = engine->parameter_refs[i];
        engine->compute_dtypes[i] = p->dtype;
        if (!weft_copies_has(&engine->plan, p)) continue;
        engine->compute_dtypes[i] = weft_copies_dtype(&engine->plan, p);
        engine->compute_refs[i] = weft_ref_at(engine->compute.ref, at);
        at += weft_copies_bytes_of(&engine->plan, p);
    }
}

/* Writes the tables of the optimizer and of NORM. */
static weft_status take_training(weft_engine *engine, weft_error *err) {
    const int64_t bytes = weft_budget_extents(&engine->plan);
    tables extents = {.engine = engine, .rows = weft_alloc(bytes, 1)};
    weft_status status = take_updates(engine, err);
    fill_tables(&extents);
    if (status == WEFT_OK)
        status = take_table(engine, &engine->extents, extents.rows, bytes, "the gradient's norm", err);
    free(extents.rows);
    return status;
}

weft_status weft_engine_take_memory(weft_engine *engine, weft_error *err) {
    const weft_plan *plan = &engine->plan;
    const bool training = plan->spec.training;
    weft_account *account = &engine->account;
    int64_t bytes[WEFT_N_ACCOUNT_LINES];
    const struct {
        weft_slot_ref *out;
        int64_t bytes;
        weft_account_line line;
    } parts[] = {{&engine->parameters, plan->holds[WEFT_HOLD_PARAMETERS]->bytes, WEFT_ACCOUNT_PARAMETERS},
                 {&engine->compute, weft_copies_bytes(plan), WEFT_ACCOUNT_PARAMETERS},
                 {&engine->gradients, training ? plan->holds[WEFT_HOLD_GRADIENTS]->bytes : 0, WEFT_ACCOUNT_GRADIENTS},
                 {&engine->partials, training ? weft_f32_bytes(plan->train.partials) : 0, WEFT_ACCOUNT_GRADIENTS},
                 {&engine->key_values, weft_budget_key_values(plan), WEFT_ACCOUNT_FIXED},
                 {&engine->logits, weft_budget_logits(plan), WEFT_ACCOUNT_FIXED},
                 {&engine->arena, plan->bytes.line[WEFT_ACCOUNT_ARENA], WEFT_ACCOUNT_ARENA}};
    weft_status status = WEFT_OK;
    memcpy(bytes, plan->bytes.line, sizeof bytes);
    add_bytes(account, WEFT_ACCOUNT_DATA, bytes[WEFT_ACCOUNT_DATA] - account->taken[WEFT_ACCOUNT_DATA]);
    /* the trainer takes the snapshot; control channel and data exist already */
    bytes[WEFT_ACCOUNT_SNAPSHOT] = bytes[WEFT_ACCOUNT_CONTROL] = bytes[WEFT_ACCOUNT_DATA] = 0;
    engine->tables = weft_alloc(plan->declared->n_tables, sizeof *engine->tables);
    engine->regions = weft_alloc(weft_budget_trained(plan), sizeof *engine->regions);
    engine->parameter_refs = weft_alloc(plan->declared->n_parameters, sizeof *engine->parameter_refs);
    engine->compute_refs = weft_alloc(plan->declared->n_parameters, sizeof *engine->compute_refs);
    engine->compute_dtypes = weft_alloc(plan->declared->n_parameters, sizeof *engine->compute_dtypes);
    status = open_account(account, bytes, err);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == WEFT_OK; i++)
        status = cut_account(account, parts[i].out, parts[i].bytes, parts[i].line, err);
    for (int64_t i = 0; training && i < plan->n_states && status == WEFT_OK; i++)
        status = cut_account(account, &engine->state[i], plan->holds[WEFT_HOLD_STATES + i]->bytes,
                             WEFT_ACCOUNT_OPTIMIZER, err);
    if (status == WEFT_OK) bind_parameters(engine);
    if (status == WEFT_OK && training) status = take_training(engine, err);
    if (status == WEFT_OK) status = take_scalars(engine, err);
    for (int32_t i = 0; i < plan->declared->n_tables && status == WEFT_OK; i++)
        status = take_position_table(engine, i, err);
    if (status == WEFT_OK) status = check_account(account, err);
    for (int what = 0; what < WEFT_N_HOLDS; what++) engine->fetchers[what] = (weft_fetcher){engine, what};
    return status;
}

/* Creates the groups of all shardings, in the order of the units, unless they exist. */
static weft_status create_groups(weft_engine *engine, weft_error *err) {
    const weft_job *job = engine->plan.train.job != NULL ? engine->plan.train.job : engine->plan.evaluate.job;
    weft_status status = weft_ranks_create_group(&engine->ranks, err);
    for (int32_t u = 0; job != NULL && u < job->spec.view.n_units && status == WEFT_OK; u++) {
        const weft_cut cut = weft_cut_of(&job->spec, u);
        status = weft_ranks_group(&engine->ranks, &cut, err);
    }
    return status;
}

weft_status weft_engine_allocate(weft_engine *engine, weft_error *err) {
    weft_status status = create_groups(engine, err);
    if (status == WEFT_OK) status = weft_engine_take_memory(engine, err);
    return status == WEFT_OK && engine->own_process_context == NULL ? settle_choices(engine, err) : status;
}

void weft_engine_release(weft_engine *engine) {
    if (engine->device == NULL) return;
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++) {
        weft_account_free(&engine->account, &engine->account.lines[i].whole, (weft_account_line)i);
        engine->account.lines[i].cut = 0;
    }
    free(engine->tables);
    free(engine->regions);
    free(engine->parameter_refs);
    free(engine->compute_refs);
    free(engine->compute_dtypes);
    engine->tables = NULL; /* a failed allocate may be repeated */
    engine->regions = NULL;
    engine->parameter_refs = engine->compute_refs = NULL;
    engine->compute_dtypes = NULL;
}

/* ---- weights ---- */

weft_status weft_engine_refresh_copy(const weft_engine *engine, bool after_step, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < engine->plan.declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        if (!weft_copies_has(&engine->plan, p)) continue;
        if (after_step && (!p->trainable || weft_copies_in_update(&engine->plan, p))) continue;
        WEFT_PLUGIN_CALL(status, engine->kernels, convert, err, engine->device, NULL, engine->compute_refs[i],
                         engine->compute_dtypes[i], engine->parameter_refs[i], p->dtype, p->numel);
    }
    return status;
}

/* Converts masters while they are read. */
static void convert_filled(void *context, int32_t parameter, int64_t first, int64_t n, const void *values) {
    const weft_fetcher *fetcher = context;
    const weft_engine *engine = fetcher->engine;
    const weft_parameter *p = &engine->plan.declared->parameters[parameter];
    const int32_t dtype = engine->compute_dtypes[parameter];
    const weft_ref to = weft_ref_at(engine->compute_refs[parameter], first * weft_dtype_bytes(dtype));
    if (!weft_copies_has(&engine->plan, p)) return;
    (void)weft_convert(weft_device_view(engine->kernels, engine->device, to), dtype, values, p->dtype, n);
}

/* Adapters follow the weights: new ones randomly or from the model's files, continued ones from theirs. The states are
 * cleared while the disk reads, and the compute copy is made as weights arrive, if the host sees device memory. */
weft_status weft_engine_load(weft_engine *engine, weft_error *err) {
    const weft_settings *settings = &engine->plan.run->settings;
    const char *directory = settings->model.path;
    const uint64_t seed = (uint64_t)settings->run.seed;
    const bool fresh = settings->model.start == WEFT_START_FRESH;
    const bool converts = !fresh && engine->compute.bytes > 0 &&
                          weft_device_view(engine->kernels, engine->device, engine->compute.ref) != NULL;
    weft_region region = weft_engine_region(engine, WEFT_HOLD_PARAMETERS);
    weft_safetensors *files = NULL;
    weft_status status = fresh ? WEFT_OK : weft_weights_open(&files, engine->plan.declared, directory, err);
    if (status != WEFT_OK) return status;
    if (converts) region.filled = convert_filled;
    if (!fresh) weft_safetensors_read_ahead(files);
    engine->stored_dtype = WEFT_F32;
    engine->updates = 0;
    engine->scale = (weft_loss_scale){.scale = (float)settings->train.loss_scale};
    for (int64_t i = 0; engine->plan.spec.training && i < engine->plan.n_states && status == WEFT_OK; i++) {
        const int64_t bytes = engine->plan.holds[WEFT_HOLD_STATES + i]->bytes;
        if (bytes > 0)
            WEFT_PLUGIN_CALL(status, engine->kernels, fill, err, engine->device, NULL, engine->state[i].ref, 0,
                             bytes / WEFT_WORD);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "the state %s: ", engine->plan.states[i].name);
    }
    if (status == WEFT_OK && fresh) status = weft_weights_init(&region, seed, false, NULL, err);
    if (status == WEFT_OK && !fresh) status = weft_weights_load_files(&region, files, directory, err);
    if (status == WEFT_OK && !fresh && engine->plan.declared->n_adapters > 0)
        status = weft_weights_init(&region, seed, true, files, err);
    if (status == WEFT_OK && settings->adapter_from[0] != '\0' && (fresh || engine->plan.declared->n_adapters > 0))
        status = weft_adapter_load(&region, settings->adapter_from, WEFT_ADAPTER_SOME, err);
    weft_safetensors_close(files);
    if (status == WEFT_OK && !converts) status = weft_engine_refresh_copy(engine, false, err);
    return status == WEFT_OK && !fresh ? weft_weights_dtype(&engine->stored_dtype, NULL, directory, err) : status;
}

/* ---- opening and closing ---- */

static weft_status open_optimizer(weft_engine *engine, weft_error *err) {
    const weft_part *part = &engine->plan.run->parts[WEFT_PART_OPTIMIZER];
    weft_plugin_call call;
    weft_optimizer_facts facts;
    weft_status status = WEFT_OK;
    if (part->loaded == NULL) return WEFT_OK;
    engine->optimizer_plugin = weft_loaded_table(part->loaded, optimizer);
    weft_plugin_call_begin(&call, part->loaded, "create");
    status = engine->optimizer_plugin->create(&engine->optimizer, engine->plan.run->host, part->config, err);
    status = weft_run_located(engine->plan.run, WEFT_PART_OPTIMIZER,
                              weft_plugin_call_made(&call, status, engine->optimizer, err), err);
    if (status == WEFT_OK)
        status = weft_plugin_blame(engine->optimizer_plugin,
                                   weft_optimizer_validate(&facts, engine->optimizer_plugin, engine->optimizer,
                                                           part->loaded->plugin->id, err),
                                   err);
    if (status != WEFT_OK) return status;
    memcpy(engine->plan.states, facts.states, sizeof facts.states);
    engine->plan.n_states = facts.n_states;
    weft_states_choose(engine->plan.states, facts.n_states, (weft_states)engine->plan.run->settings.optimizer.states);
    engine->plan.hp_bytes = facts.hp_bytes;
    return status;
}

bool weft_engine_lr(const weft_engine *engine, double *out) {
    const weft_optimizer_plugin *plugin = engine->optimizer_plugin;
    if (plugin == NULL || !WEFT_HAS(plugin, lr) || plugin->lr == NULL) return false;
    WEFT_PLUGIN_QUERY(*out, plugin, lr, engine->optimizer);
    return true;
}

/* Sets device and ranks, opens the control channel, and starts the watchdogs of an own process context. */
static weft_status open_ranks(weft_engine *engine, const weft_rank_span *rank_span, weft_error *err) {
    weft_rank_span span = {0};
    weft_status status = WEFT_OK;
    if (rank_span == NULL) {
        status = weft_process_context_open(&engine->own_process_context, engine->plan.run, err);
        if (status != WEFT_OK) return status;
        span = weft_process_context_rank_span(engine->own_process_context);
    } else span = *rank_span;
    engine->kernels = engine->account.kernels = span.process_context->kernels;
    engine->device = engine->account.device = span.process_context->device;
    engine->device_info = span.process_context->device_info;
    weft_ranks_set(&engine->ranks, &span);
    engine->plan.rank = engine->ranks.rank;
    engine->plan.world = engine->ranks.world;
    engine->plan.nodes = engine->ranks.info.nodes;
    engine->plan.in_order = (engine->ranks.info.flags & WEFT_COMM_IN_ORDER) != 0;
    status = weft_control_channel_open(&engine->channel, &engine->peers, &engine->ranks, err);
    add_bytes(&engine->account, WEFT_ACCOUNT_CONTROL, engine->channel.bytes);
    if (status == WEFT_OK && engine->own_process_context != NULL && engine->ranks.comm != NULL)
        status = weft_watchdogs_start(&engine->peers, &engine->ranks.info, err);
    return status;
}

const weft_process_group *weft_engine_peers(const weft_engine *engine) {
    return engine->own_process_context == NULL ? NULL : &engine->peers;
}

weft_status weft_engine_open(weft_engine **out, const weft_run *run, const weft_rank_span *rank_span, weft_error *err) {
    const weft_process_group *peers = NULL;
    weft_engine *engine = weft_alloc(1, sizeof *engine);
    weft_status status = weft_plan_open(&engine->plan, run, err);
    if (status == WEFT_OK) status = open_ranks(engine, rank_span, err);
    if (status != WEFT_OK) engine->failed = true;
    else {
        peers = weft_engine_peers(engine);
        status = weft_coherence_run(peers, run, &engine->device_info, open_optimizer(engine, err), err);
        if (status == WEFT_OK) status = weft_coherence_answers(peers, &engine->plan, status, err);
    }
    if (status == WEFT_OK) *out = engine;
    else weft_engine_close(engine);
    return status;
}

/* The communicator opens everything before the device's available memory is measured. */
weft_status weft_engine_prepare(weft_engine *engine, const weft_plan_spec *spec, weft_error *err) {
    weft_status status = weft_plan_make(&engine->plan, engine->kernels, engine->device, spec, err);
    status = weft_coherence_answers(weft_engine_peers(engine), &engine->plan, status, err);
    if (status != WEFT_OK || engine->own_process_context == NULL) return status;
    if (engine->ranks.comm != NULL && engine->ranks.world > 1) {
        status = create_groups(engine, err);
        if (status == WEFT_OK) status = weft_engine_connect(engine, err);
        if (status == WEFT_OK) status = weft_control_channel_connect(&engine->channel, err);
        if (status == WEFT_OK) status = weft_device_measure(&engine->device_info, engine->kernels, engine->device, err);
    }
    return status == WEFT_OK ? settle_choices(engine, err) : status;
}

void weft_engine_abandon(weft_engine *engine) {
    weft_process_context *process_context = engine == NULL ? NULL : engine->ranks.process_context;
    if (process_context != NULL && (engine->failed || engine->channel.broken || process_context->broken))
        weft_process_context_abandon(process_context);
}

void weft_engine_close(weft_engine *engine) {
    if (engine == NULL) return;
    weft_engine_abandon(engine);
    weft_engine_release(engine);
    if (engine->optimizer != NULL) WEFT_PLUGIN_NOTIFY(engine->optimizer_plugin, destroy, engine->optimizer);
    weft_control_channel_close(&engine->channel, &engine->peers);
    weft_ranks_clear(&engine->ranks);
    weft_process_context_close(engine->own_process_context, engine->failed || engine->channel.broken);
    weft_choices_clear(&engine->choices);
    weft_plan_close(&engine->plan);
    free(engine);
}
