/* host/report/all_rank_plan.c: see all_rank_plan.h. */
#include "report/all_rank_plan.h"

#include "base/alloc.h"
#include "base/units.h"
#include "program/budget.h"
#include "program/exchange.h"
#include "program/job.h"
#include "program/sums.h"

#include <stdlib.h>

/* ---- traffic ---- */

/* Adds bytes of one kind to each receiver of the link. */
static void count_link(weft_rank_plan *out, int32_t kind, weft_link link) {
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

static void count_instruction(weft_rank_plan *out, const weft_plan *plan, const weft_instruction *instruction,
                              int32_t rank) {
    const weft_job_spec *job = &plan->train.job->spec;
    const weft_planned_exchange x = weft_exchange_plan(plan, job, instruction, rank);
    const int32_t kind = weft_traffic_of(instruction), world = job->view.world;
    if (x.way == WEFT_EXCHANGE_SEND)
        count_link(out, kind, (weft_link){{world, world, 1}, WEFT_SCOPE_RANK, x.peer, x.sent});
    else if (x.way != WEFT_EXCHANGE_NONE && x.way != WEFT_EXCHANGE_RECV)
        count_link(out, kind, (weft_link){x.cut, x.scope, -1, x.each});
}

static bool link_reaches(const weft_link *link, int32_t rank, int32_t other) {
    return link->peer >= 0 ? other == link->peer
                           : other != rank && weft_scope_together(&link->cut, link->scope, other, rank);
}

/* Sets the traffic of the rank's plan. */
static void plan_traffic(weft_rank_plan *out, const weft_all_rank_plan *all, const weft_plan *plan, int32_t rank) {
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
            if (r / all->ranks_per_node != rank / all->ranks_per_node && link_reaches(&out->links[i], rank, r))
                out->to_nodes += out->links[i].each;
}

enum { TRAIN, EVALUATE, N_STAGES };

/* A placed program. */
typedef struct placed {
    weft_program *program; /* without placement; the first of each stage is the plan's own */
    int64_t partials;      /* elements; known where `shared` */
    bool shared;           /* all sums include all ranks, so ranks with equal programs have equal sums */
} placed;

typedef struct planner {
    const weft_plan *plan;
    weft_all_rank_plan *all_rank_plan;
    const weft_program **reduces; /* [world] the programs with only their REDUCEs: all that the other ranks' sums
                                   * depend on */
    placed *kinds[N_STAGES];      /* [n_kinds] distinct programs */
    int32_t n_kinds[N_STAGES];
    int32_t *micro_batches, *others; /* [micro-batches] of a step: mapping between the micro-batches of two programs */
} planner;

static const weft_mode_plan *mode_plan_of(const weft_plan *plan, int mode_plan) {
    return mode_plan == TRAIN ? &plan->train : &plan->evaluate;
}

/* ---- equality of programs ---- */

static bool same_micro_batch(planner *self, int32_t a, int32_t b) {
    if (a < 0 || b < 0) return a == b;
    if (self->micro_batches[a] == -1 && self->others[b] == -1) {
        self->micro_batches[a] = b;
        self->others[b] = a;
    }
    return self->micro_batches[a] == b && self->others[b] == a;
}

static bool same_instruction(planner *self, const weft_instruction *a, const weft_instruction *b) {
    return a->kind == b->kind && a->unit == b->unit && a->segment == b->segment && a->queue == b->queue &&
           a->waits == b->waits && a->what == b->what && a->scope == b->scope &&
           same_micro_batch(self, a->micro_batch, b->micro_batch);
}

/* Returns true if the programs differ only in the numbers of micro-batches and peers. */
static bool programs_alike(planner *self, const weft_program *a, const weft_program *b) {
    bool same = a->n_instructions == b->n_instructions;
    memset(self->micro_batches, 0xFF, (size_t)a->micro_batches * sizeof *self->micro_batches);
    memset(self->others, 0xFF, (size_t)a->micro_batches * sizeof *self->others);
    for (int32_t i = 0; i < a->n_instructions && same; i++)
        same = same_instruction(self, &a->instructions[i], &b->instructions[i]);
    return same;
}

/* ---- one rank ---- */

static weft_status compile_program(const planner *self, weft_program **out, int mode_plan, int32_t rank,
                                   weft_error *err) {
    const weft_part *part = &self->plan->run->parts[WEFT_PART_STRATEGY];
    return weft_program_compile(out, self->plan->run->host, weft_loaded_table(part->loaded, strategy), part->config,
                                &mode_plan_of(self->plan, mode_plan)->job->spec, rank, err);
}

/* Adds a placed program. */
static placed *add_kind(planner *self, int mode_plan, weft_program *program) {
    const int32_t n = ++self->n_kinds[mode_plan];
    placed *kind = NULL;
    self->kinds[mode_plan] = weft_realloc(self->kinds[mode_plan], n, sizeof *self->kinds[mode_plan]);
    kind = &self->kinds[mode_plan][n - 1];
    *kind = (placed){.program = program, .partials = -1, .shared = true};
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_REDUCE &&
            program->instructions[i].scope != WEFT_SCOPE_ALL)
            kind->shared = false;
    return kind;
}

/* Takes ownership of the program: keeps it as the first of its kind, or frees it. Reuses a placement of the plan. */
static weft_status find_kind(planner *self, placed **out, int mode_plan, weft_program *program, weft_error *err) {
    const weft_mode_plan *of = mode_plan_of(self->plan, mode_plan);
    weft_status status = WEFT_OK;
    if (self->n_kinds[mode_plan] == 0) (void)add_kind(self, mode_plan, of->program);
    for (int32_t i = 0; i < self->n_kinds[mode_plan]; i++) {
        if (!programs_alike(self, self->kinds[mode_plan][i].program, program)) continue;
        weft_program_destroy(program);
        *out = &self->kinds[mode_plan][i];
        return WEFT_OK;
    }
    status = weft_program_place(program, &of->job->spec, err);
    if (status == WEFT_OK) *out = add_kind(self, mode_plan, program);
    else weft_program_destroy(program);
    return status;
}

/* Plans the partial sums stored on the rank: equal for ranks with equal programs, if all ranks take part in each sum.
 */
static void plan_partials(const planner *self, weft_plan *rank, placed *kind) {
    const int32_t r = rank->rank;
    const weft_program *own = self->reduces[r];
    rank->train.partials = kind->partials;
    if (kind->shared && kind->partials >= 0) return;
    self->reduces[r] = self->all_rank_plan->programs[r];
    weft_sums_plan(rank, &rank->train, self->reduces);
    self->reduces[r] = own;
    kind->partials = rank->train.partials;
    weft_terms_destroy(rank->train.terms);
    free(rank->train.sums);
    rank->train.terms = NULL;
    rank->train.sums = NULL;
}

/* Counts the elements that the rank stores and updates, and the padding of its parameter shards. */
static void count_elements(weft_rank_plan *out, const weft_plan *rank) {
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

static weft_status plan_bytes(planner *self, weft_plan *rank, weft_error *err) {
    const weft_plan *plan = self->plan;
    const int32_t r = rank->rank;
    placed *kind = NULL;
    weft_program *program = NULL;
    weft_status status = WEFT_OK;
    weft_sums_hold(rank, &plan->train.job->spec);
    status = find_kind(self, &kind, TRAIN, weft_program_copy(self->all_rank_plan->programs[r]), err);
    if (status != WEFT_OK) return status;
    rank->train.program = kind->program;
    plan_partials(self, rank, kind);
    if (plan->evaluate.program != NULL) {
        status = compile_program(self, &program, EVALUATE, r, err);
        if (status != WEFT_OK) weft_program_destroy(program);
        if (status == WEFT_OK) status = find_kind(self, &kind, EVALUATE, program, err);
        if (status == WEFT_OK) rank->evaluate.program = kind->program;
    }
    if (status == WEFT_OK) weft_plan_budget(rank);
    return status;
}

static bool ranks_plan_alike(const weft_rank_plan *a, const weft_rank_plan *b) {
    return memcmp(&a->bytes, &b->bytes, sizeof a->bytes) == 0 && a->padding == b->padding && a->kept == b->kept &&
           a->updated == b->updated && memcmp(a->sent, b->sent, sizeof a->sent) == 0 && a->to_nodes == b->to_nodes &&
           memcmp(a->instructions, b->instructions, sizeof a->instructions) == 0;
}

static weft_status plan_rank(planner *self, int32_t r, weft_error *err) {
    weft_all_rank_plan *all = self->all_rank_plan;
    weft_rank_plan *plan = &all->ranks[r];
    weft_plan rank = weft_plan_as_rank(self->plan, r);
    weft_status status = plan_bytes(self, &rank, err);
    if (status == WEFT_OK) {
        plan->bytes = rank.bytes;
        count_elements(plan, &rank);
        for (int32_t i = 0; i < all->programs[r]->n_instructions; i++)
            plan->instructions[all->programs[r]->instructions[i].kind]++;
        plan_traffic(plan, all, self->plan, r);
        while (plan->like < r && !ranks_plan_alike(&all->ranks[plan->like], plan)) plan->like++;
    }
    weft_plan_drop_rank(&rank);
    return status;
}

/* ---- all ranks ---- */

/* Compiles a rank's program, and one of its REDUCEs only. */
static weft_status compile_rank(planner *self, int32_t rank, weft_error *err) {
    weft_program *program = NULL, *reduces = NULL;
    weft_status status = compile_program(self, &program, TRAIN, rank, err);
    self->all_rank_plan->programs[rank] = program;
    if (status != WEFT_OK) return status;
    self->reduces[rank] = reduces = weft_program_copy(program);
    reduces->n_instructions = 0;
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_REDUCE)
            reduces->instructions[reduces->n_instructions++] = program->instructions[i];
    return WEFT_OK;
}

weft_status weft_all_rank_plan_create(weft_all_rank_plan **out, const weft_plan *plan, weft_error *err) {
    const weft_job_spec *spec = &plan->train.job->spec;
    const int32_t world = spec->view.world;
    const int64_t micro_batches = weft_job_spec_micro_batches(spec) + world;
    weft_all_rank_plan *all = weft_alloc(1, sizeof *all);
    planner self = {.plan = plan,
                    .all_rank_plan = all,
                    .reduces = weft_alloc(world, sizeof *self.reduces),
                    .micro_batches = weft_alloc(micro_batches, sizeof *self.micro_batches),
                    .others = weft_alloc(micro_batches, sizeof *self.others)};
    weft_status status = WEFT_OK;
    all->ranks = weft_alloc(world, sizeof *all->ranks);
    all->programs = weft_alloc(world, sizeof *all->programs);
    all->world = world;
    all->nodes = spec->view.nodes;
    all->ranks_per_node = spec->view.ranks_per_node;
    for (int32_t rank = 0; rank < world && status == WEFT_OK; rank++) status = compile_rank(&self, rank, err);
    for (int32_t rank = 0; rank < world && status == WEFT_OK; rank++) status = plan_rank(&self, rank, err);
    for (int mode_plan = 0; mode_plan < N_STAGES; mode_plan++) {
        for (int32_t i = 1; i < self.n_kinds[mode_plan]; i++) weft_program_destroy(self.kinds[mode_plan][i].program);
        free(self.kinds[mode_plan]);
    }
    for (int32_t rank = 0; rank < world; rank++) weft_program_destroy((weft_program *)self.reduces[rank]);
    free(self.reduces);
    free(self.micro_batches);
    free(self.others);
    if (status == WEFT_OK) *out = all;
    else weft_all_rank_plan_destroy(all);
    return status;
}

void weft_all_rank_plan_destroy(weft_all_rank_plan *all_rank_plan) {
    if (all_rank_plan == NULL) return;
    for (int32_t rank = 0; rank < all_rank_plan->world; rank++) {
        weft_program_destroy((weft_program *)all_rank_plan->programs[rank]);
        free(all_rank_plan->ranks[rank].links);
    }
    free(all_rank_plan->programs);
    free(all_rank_plan->ranks);
    free(all_rank_plan);
}

weft_hold *weft_all_rank_plan_hold(const weft_plan *plan, int32_t rank) {
    weft_plan other = weft_plan_as_rank(plan, rank);
    weft_hold *hold = NULL;
    weft_sums_hold(&other, &plan->train.job->spec);
    hold = other.holds[WEFT_HOLD_PARAMETERS];
    other.holds[WEFT_HOLD_PARAMETERS] = NULL;
    weft_plan_drop_rank(&other);
    return hold;
}

enum { NAME = 28 };

/* Writes "0-6, 8": the ranks that equal this one; ranks that do not fit into the text are counted. */
static void name_ranks(const weft_all_rank_plan *self, char *text, int32_t rank) {
    size_t n = 0;
    int32_t left = 0;
    for (int32_t r = rank; r < self->world; r++) {
        int32_t end = r;
        if (self->ranks[r].like != rank) continue;
        while (end + 1 < self->world && self->ranks[end + 1].like == rank) end++;
        if (n + 14 > NAME) left += end - r + 1;
        else if (end > r) n += (size_t)snprintf(text + n, NAME - n, "%s%d-%d", n > 0 ? "," : "", (int)r, (int)end);
        else n += (size_t)snprintf(text + n, NAME - n, "%s%d", n > 0 ? "," : "", (int)r);
        r = end;
    }
    if (left > 0) (void)snprintf(text + n, NAME + 16 - n, " +%d", (int)left);
}

/* ---- tables ---- */

static void print_memory_row(const weft_rank_plan *plan, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++)
        (void)fprintf(to, " %11s", weft_unit_bytes(text, plan->bytes.category[i]));
    (void)fprintf(to, " %11s", weft_unit_bytes(text, plan->bytes.spare));
    (void)fprintf(to, " %17s", weft_unit_count(text, plan->bytes.total));
    (void)fprintf(to, " %11s", weft_unit_bytes(text, plan->padding));
    (void)fprintf(to, " %11s", plan->updated > 0 ? weft_unit_count(text, plan->updated) : "nothing");
}

/* Returns true if any rank sends bytes of this kind. */
static bool is_sent(const weft_all_rank_plan *self, int32_t kind) {
    for (int32_t rank = 0; rank < self->world; rank++)
        if (self->ranks[rank].sent[kind] > 0) return true;
    return false;
}

static void print_sent_row(const weft_all_rank_plan *self, const weft_rank_plan *plan, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++)
        if (is_sent(self, kind)) (void)fprintf(to, " %15s", weft_unit_count(text, plan->sent[kind]));
    (void)fprintf(to, " %15s", weft_unit_count(text, plan->total_sent));
    if (self->nodes > 1) (void)fprintf(to, " %15s", weft_unit_count(text, plan->to_nodes));
}

/* Prints a line for each kind of rank: its ranks, and their memory or the sent bytes. */
static void print_rank_rows(const weft_all_rank_plan *self, bool memory, FILE *to) {
    for (int32_t rank = 0; rank < self->world; rank++) {
        char name[NAME + 16];
        if (self->ranks[rank].like != rank) continue;
        name_ranks(self, name, rank);
        (void)fprintf(to, "  %-28s", name);
        if (memory) print_memory_row(&self->ranks[rank], to);
        else print_sent_row(self, &self->ranks[rank], to);
        (void)fputc('\n', to);
    }
}

void weft_all_rank_plan_print(const weft_all_rank_plan *self, FILE *to) {
    (void)fprintf(to, "memory of each rank at its highest moment\n  %-28s", "ranks");
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++) (void)fprintf(to, " %11s", weft_memory_category_name(i));
    (void)fprintf(to, " %11s %17s %11s %11s\n", "gaps", "total, bytes", "padding", "updates");
    print_rank_rows(self, true, to);
    (void)fprintf(to, "sent by each rank in a step, bytes\n  %-28s", "ranks");
    for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++)
        if (is_sent(self, kind)) (void)fprintf(to, " %15s", weft_traffic_name(kind));
    (void)fprintf(to, " %15s%s\n", "total", self->nodes > 1 ? "  to other nodes" : "");
    print_rank_rows(self, false, to);
}

/* ---- links ---- */

json_t *weft_all_rank_plan_links_array(const weft_all_rank_plan *self) {
    int64_t *to = weft_alloc(self->world, sizeof *to);
    json_t *links = json_array();
    for (int32_t rank = 0; rank < self->world; rank++) {
        const weft_rank_plan *plan = &self->ranks[rank];
        memset(to, 0, (size_t)self->world * sizeof *to);
        for (int32_t i = 0; i < plan->n_links; i++)
            for (int32_t r = 0; r < self->world; r++)
                if (link_reaches(&plan->links[i], rank, r)) to[r] += plan->links[i].each;
        for (int32_t first = 0, last = 0; first < self->world; first = last + 1) {
            for (last = first; last + 1 < self->world && to[last + 1] == to[first];) last++;
            if (to[first] > 0)
                (void)json_array_append_new(links, json_pack("{s:i, s:[i, i], s:I}", "from", (int)rank, "to",
                                                             (int)first, (int)last, "bytes", (json_int_t)to[first]));
        }
    }
    free(to);
    return links;
}

void weft_all_rank_plan_print_links(const weft_all_rank_plan *self, FILE *to) {
    json_t *links = weft_all_rank_plan_links_array(self), *link = NULL;
    size_t i = 0;
    (void)fprintf(to, "bytes on each link in a step\n");
    json_array_foreach(links, i, link) {
        int from = 0, first = 0, last = 0;
        json_int_t bytes = 0;
        char text[WEFT_UNIT_SIZE], name[32];
        (void)json_unpack(link, "{s:i, s:[i, i], s:I}", "from", &from, "to", &first, &last, "bytes", &bytes);
        if (first == last) (void)snprintf(name, sizeof name, "%d", first);
        else (void)snprintf(name, sizeof name, "each of %d-%d", first, last);
        (void)fprintf(to, "  %6d -> %-28s %18s\n", from, name, weft_unit_count(text, bytes));
    }
    json_decref(links);
}

/* ---- objects ---- */

json_t *weft_bytes_object(const int64_t *bytes, int first, int n, const char *(*name)(int32_t index)) {
    json_t *object = json_object();
    for (int i = first; i < n; i++) (void)json_object_set_new(object, name(i), json_integer(bytes[i]));
    return object;
}

json_t *weft_memory_object(const weft_plan_bytes *b) {
    json_t *memory = weft_bytes_object(b->category, 0, WEFT_N_MEMORY_CATEGORIES, weft_memory_category_name);
    (void)json_object_set_new(memory, "gaps", json_integer(b->spare));
    (void)json_object_set_new(memory, "total", json_integer(b->total));
    (void)json_object_set_new(memory, "preparation", json_integer(b->preparation));
    return memory;
}

json_t *weft_all_rank_plan_array(const weft_all_rank_plan *self) {
    json_t *rows = json_array();
    for (int32_t rank = 0; rank < self->world; rank++) {
        const weft_rank_plan *plan = &self->ranks[rank];
        json_t *ranks = NULL, *instructions = NULL, *sent = NULL;
        if (self->ranks[rank].like != rank) continue;
        ranks = json_array();
        instructions = json_object();
        sent = weft_bytes_object(plan->sent, WEFT_TRAFFIC_OTHER + 1, WEFT_N_TRAFFIC, weft_traffic_name);
        for (int32_t r = rank; r < self->world; r++)
            if (self->ranks[r].like == rank) (void)json_array_append_new(ranks, json_integer(r));
        (void)json_object_set_new(sent, "total", json_integer(plan->total_sent));
        (void)json_object_set_new(sent, "to_other_nodes", json_integer(plan->to_nodes));
        for (int32_t kind = WEFT_INSTRUCTION_COUNT; kind <= WEFT_INSTRUCTION_REFRESH; kind++)
            if (plan->instructions[kind] > 0)
                (void)json_object_set_new(instructions, weft_instruction_kind_name(kind),
                                          json_integer(plan->instructions[kind]));
        (void)json_array_append_new(
            rows, json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:o}", "ranks", ranks, "memory",
                            weft_memory_object(&plan->bytes), "lines",
                            weft_bytes_object(plan->bytes.line, 0, WEFT_N_ACCOUNT_LINES, weft_account_name),
                            "padding_bytes", (json_int_t)plan->padding, "kept", (json_int_t)plan->kept, "updated",
                            (json_int_t)plan->updated, "sent", sent, "instructions", instructions));
    }
    return rows;
}
