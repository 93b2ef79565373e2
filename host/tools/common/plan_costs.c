/* host/tools/common/plan_costs.c: see plan_costs.h. */
#include "tools/common/plan_costs.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"
#include "program/budget.h"
#include "program/exchange.h"
#include "program/job.h"
#include "tools/common/messages.h"

#include <stdlib.h>

/* ---- traffic ---- */

/* Adds bytes of one kind to each receiver of the link. */
static void count_link(weft_rank_costs *out, int32_t kind, weft_link link) {
    if (link.each == 0) return;
    out->sent[kind] += link.each * (link.peer >= 0 ? 1 : weft_scope_size(&link.cut, link.scope) - 1);
    for (int32_t i = 0; i < out->n_links; i++) {
        weft_link *known = &out->links[i];
        if (known->peer != link.peer || known->scope != link.scope || known->cut.group != link.cut.group) continue;
        known->each += link.each;
        return;
    }
    out->links = weft_realloc(out->links, out->n_links + 1, sizeof *out->links);
    out->links[out->n_links++] = link;
}

static void count_instruction(weft_rank_costs *out, const weft_plan *plan, const weft_instruction *instruction,
                              int32_t rank) {
    const weft_job_spec *job = &plan->train.job->spec;
    const weft_planned_exchange x = weft_exchange_plan(plan, job, instruction, rank);
    const int32_t kind = weft_traffic_of(instruction), world = job->view.world;
    if (x.way == WEFT_EXCHANGE_SEND)
        count_link(out, kind, (weft_link){{world, world, 1}, WEFT_SCOPE_RANK, x.peer, x.sent});
    else if (x.way != WEFT_EXCHANGE_NONE && x.way != WEFT_EXCHANGE_RECV)
        count_link(out, kind, (weft_link){x.cut, x.scope, -1, x.each});
}

bool weft_link_reaches(const weft_link *link, int32_t rank, int32_t other) {
    return link->peer >= 0 ? other == link->peer
                           : other != rank && weft_scope_together(&link->cut, link->scope, other, rank);
}

static void count_traffic(weft_rank_costs *out, const weft_all_rank_plan *all, const weft_plan *plan, int32_t rank) {
    const weft_program *program = all->programs[rank];
    for (int32_t i = 0; i < program->n_instructions && all->world > 1; i++) {
        weft_norm_exchange x = {0};
        if (program->instructions[i].kind != WEFT_INSTRUCTION_NORM)
            count_instruction(out, plan, &program->instructions[i], rank);
        else
            while (weft_norm_exchange_next(plan, &x))
                count_link(out, x.goes == WEFT_NORM_GOES_LOSSES ? WEFT_TRAFFIC_LOSSES : WEFT_TRAFFIC_NORM,
                           (weft_link){x.cut, WEFT_SCOPE_ALL, -1, weft_dtype_span(WEFT_F64, x.n)});
    }
    for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++) out->total_sent += out->sent[kind];
    for (int32_t i = 0; i < out->n_links && all->nodes > 1; i++)
        for (int32_t r = 0; r < all->world; r++)
            if (r / all->ranks_per_node != rank / all->ranks_per_node && weft_link_reaches(&out->links[i], rank, r))
                out->to_nodes += out->links[i].each;
}

/* Counts the elements that the rank stores and updates, and the padding of its parameter shards. */
static void count_elements(weft_rank_costs *out, const weft_plan *rank) {
    const weft_hold *parameters = rank->holds[WEFT_HOLD_PARAMETERS], *states = rank->holds[WEFT_HOLD_STATES];
    int64_t begin = 0, end = 0, at = 0;
    out->padding = parameters->bytes;
    for (int32_t i = 0; i < rank->declared->n_parameters; i++) {
        const weft_parameter *p = &rank->declared->parameters[i];
        if (weft_hold_find(parameters, p, 0, p->numel, &begin, &end, &at)) {
            out->kept += end - begin;
            out->padding -= weft_dtype_span(p->dtype, end - begin);
        }
        if (p->trainable && weft_hold_find(states, p, 0, p->numel, &begin, &end, &at)) out->updated += end - begin;
    }
}

static bool ranks_are_alike(const weft_all_rank_plan *all, const weft_rank_costs *costs, int32_t a, int32_t b) {
    const weft_rank_costs *x = &costs[a], *y = &costs[b];
    return memcmp(&all->bytes[a], &all->bytes[b], sizeof *all->bytes) == 0 && x->padding == y->padding &&
           x->kept == y->kept && x->updated == y->updated && memcmp(x->sent, y->sent, sizeof x->sent) == 0 &&
           x->to_nodes == y->to_nodes && memcmp(x->instructions, y->instructions, sizeof x->instructions) == 0;
}

weft_rank_costs *weft_rank_costs_make(const weft_plan *plan, const weft_all_rank_plan *all) {
    weft_rank_costs *costs = weft_alloc(all->world, sizeof *costs);
    for (int32_t r = 0; r < all->world; r++) {
        weft_rank_costs *out = &costs[r];
        weft_plan rank = weft_plan_as_rank(plan, r);
        weft_sums_hold(&rank, &plan->train.job->spec);
        count_elements(out, &rank);
        weft_plan_drop_rank(&rank);
        for (int32_t i = 0; i < all->programs[r]->n_instructions; i++)
            out->instructions[all->programs[r]->instructions[i].kind]++;
        count_traffic(out, all, plan, r);
        while (out->like < r && !ranks_are_alike(all, costs, out->like, r)) out->like++;
    }
    return costs;
}

void weft_rank_costs_free(weft_rank_costs *costs, int32_t world) {
    for (int32_t r = 0; costs != NULL && r < world; r++) free(costs[r].links);
    free(costs);
}

/* ---- elements and bytes ---- */

int64_t weft_norm_elements(const weft_plan *plan, int32_t rank) {
    int64_t n = 0;
    for (int32_t g = 0; g < plan->layout->n_trainable_groups; g++) {
        const weft_group *group = &plan->layout->groups[g];
        const weft_cut cut = weft_cut_of(&plan->train.job->spec, group->unit);
        const int32_t owner = weft_norm_owner(plan, g);
        if (owner >= 0 && owner != rank) continue;
        n += weft_norm_is_cut(plan, g) ? weft_hold_piece(plan->layout, group, cut.replicas) : group->numel;
    }
    return n;
}

int64_t weft_layout_padding(const weft_layout *layout) {
    int64_t bytes = layout->bytes;
    for (int32_t g = 0; g < layout->n_groups; g++)
        bytes -= weft_dtype_span(layout->groups[g].dtype, layout->groups[g].used);
    return bytes;
}

int64_t weft_copies_elements(const weft_plan *plan, bool in_update) {
    int64_t n = 0;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        if (p->trainable && weft_copies_has(plan, p) && weft_copies_in_update(plan, p) == in_update) n += p->numel;
    }
    return n;
}

/* ---- one configuration ---- */

static void add_number(json_t *numbers, const char *group, const char *name, int64_t value) {
    char text[128];
    (void)snprintf(text, sizeof text, "%s %s", group, name);
    (void)json_object_set_new(numbers, text, json_integer(value));
}

weft_status weft_plan_diff_facts(json_t **out, const weft_session *session, const weft_all_rank_plan *all_rank_plan,
                                 weft_error *err) {
    const weft_engine *engine = session->engine;
    const weft_plan_bytes *most = &all_rank_plan->bytes[0];
    weft_rank_costs *costs = weft_rank_costs_make(&engine->plan, all_rank_plan);
    int64_t sent[WEFT_N_TRAFFIC] = {0}, total = 0, to_nodes = 0, instructions[WEFT_INSTRUCTION_REFRESH + 1] = {0};
    json_t *facts = json_object(), *numbers = json_object(), *keys = json_object();
    json_t *rows = weft_config_array(session->run->config), *row = NULL;
    const bool is_text = rows != NULL;
    size_t i = 0;
    json_array_foreach(rows, i, row)(void)
        json_object_set(keys, json_string_value(json_object_get(row, "key")), json_object_get(row, "value"));
    (void)json_object_set_new(facts, "keys", keys);
    json_decref(rows);
    for (int32_t rank = 0; rank < all_rank_plan->world; rank++) {
        const weft_rank_costs *own = &costs[rank];
        if (all_rank_plan->bytes[rank].total > most->total) most = &all_rank_plan->bytes[rank];
        for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++) sent[kind] += own->sent[kind];
        for (int32_t kind = 0; kind <= WEFT_INSTRUCTION_REFRESH; kind++) instructions[kind] += own->instructions[kind];
        total += own->total_sent;
        to_nodes += own->to_nodes;
    }
    weft_rank_costs_free(costs, all_rank_plan->world);
    for (int32_t category = 0; category < WEFT_N_MEMORY_CATEGORIES; category++)
        add_number(numbers, "memory", weft_memory_category_name(category), most->category[category]);
    add_number(numbers, "memory", "gaps", most->spare);
    add_number(numbers, "memory", "total", most->total);
    for (int32_t kind = WEFT_TRAFFIC_OTHER + 1; kind < WEFT_N_TRAFFIC; kind++)
        add_number(numbers, "sent", weft_traffic_name(kind), sent[kind]);
    add_number(numbers, "sent", "total", total);
    add_number(numbers, "sent", "to other nodes", to_nodes);
    for (int32_t kind = WEFT_INSTRUCTION_COUNT; kind <= WEFT_INSTRUCTION_REFRESH; kind++)
        add_number(numbers, "instructions", weft_instruction_kind_name(kind), instructions[kind]);
    add_number(numbers, "model", "trained", weft_declared_numel(engine->plan.declared, true));
    add_number(numbers, "model", "units", engine->plan.layout->n_units);
    add_number(numbers, "run", "replicas", engine->plan.train.job->spec.view.replicas);
    add_number(numbers, "run", "steps", session->steps);
    add_number(numbers, "run", "covered by the contract", engine->plan.train.coverage.covered);
    (void)json_object_set_new(facts, "numbers", numbers);
    *out = facts;
    if (is_text) return WEFT_OK;
    json_decref(facts);
    *out = NULL;
    return weft_error_set(err, WEFT_E_USER, "the configuration cannot be compared: a path in it is not UTF-8");
}

/* ---- two configurations ---- */

static void add_row(json_t *rows, const char *name, json_t *a, json_t *b) {
    if (json_equal(a, b)) return;
    (void)json_array_append_new(rows, json_pack("{s:s, s:O?, s:O?}", "name", name, "a", a, "b", b));
}

static json_t *differing(const json_t *a, const json_t *b) {
    json_t *rows = json_array(), *value = NULL;
    const char *name = NULL;
    json_object_foreach((json_t *)(uintptr_t)a, name, value) add_row(rows, name, value, json_object_get(b, name));
    json_object_foreach((json_t *)(uintptr_t)b, name, value) if (json_object_get(a, name) == NULL)
        add_row(rows, name, NULL, value);
    return rows;
}

json_t *weft_plan_diff_make(const json_t *a, const json_t *b) {
    return json_pack("{s:o, s:o}", "keys", differing(json_object_get(a, "keys"), json_object_get(b, "keys")), "numbers",
                     differing(json_object_get(a, "numbers"), json_object_get(b, "numbers")));
}

enum { COLUMN = 24 };

/* Formats a value, with thousands separators for numbers of tables. Values other than strings fit into `own`. */
static const char *show_value(char own[64], const json_t *value, bool counts) {
    if (json_is_string(value)) return json_string_value(value);
    if (value == NULL || json_is_null(value)) (void)snprintf(own, 64, "-");
    else if (json_is_boolean(value)) (void)snprintf(own, 64, "%s", json_is_true(value) ? "yes" : "no");
    else if (json_is_integer(value) && counts) (void)weft_unit_count(own, json_integer_value(value));
    else (void)snprintf(own, 64, "%.10g", json_number_value(value));
    return own;
}

/* Prints a row; a path or a list that is wider than a column gets a separate line. */
static void print_row(const json_t *row, bool counts, const char *name_a, const char *name_b, FILE *to) {
    const json_t *a = json_object_get(row, "a"), *b = json_object_get(row, "b");
    char of_a[64], of_b[64];
    const char *left = show_value(of_a, a, counts), *right = show_value(of_b, b, counts);
    const char *name = json_string_value(json_object_get(row, "name"));
    if (strlen(left) > COLUMN || strlen(right) > COLUMN) {
        weft_words_print(to, "%s\n  %s  %s\n  %s  %s\n", name, name_a, left, name_b, right);
        return;
    }
    (void)fprintf(to, "%-34s %*s %*s", name, COLUMN, left, COLUMN, right);
    if (counts && json_integer_value(a) != 0)
        (void)fprintf(to, " %+9.1f %%", 100.0 * ((double)json_integer_value(b) / (double)json_integer_value(a) - 1.0));
    (void)fputc('\n', to);
}

void weft_plan_diff_print(const json_t *difference, const char *name_a, const char *name_b, FILE *to) {
    const json_t *keys = json_object_get(difference, "keys"), *numbers = json_object_get(difference, "numbers"), *row;
    size_t i = 0;
    (void)fprintf(to, "%-34s %*s %*s\n", "", COLUMN, name_a, COLUMN, name_b);
    json_array_foreach(keys, i, row) print_row(row, false, name_a, name_b, to);
    json_array_foreach(numbers, i, row) print_row(row, true, name_a, name_b, to);
    if (json_array_size(keys) + json_array_size(numbers) == 0) (void)fprintf(to, "no difference\n");
}
