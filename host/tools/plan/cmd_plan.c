/* host/tools/plan/cmd_plan.c: `weft plan`: memory, time and traffic of a run, before it runs. */
#include "cli/flags.h"

#include "base/alloc.h"
#include "base/units.h"
#include "launch/find.h"
#include "launch/world.h"
#include "program/budget.h"
#include "program/exchange.h"
#include "run/session.h"
#include "tools/common/plan_costs.h"
#include "tools/plan/forecast.h"
#include "tools/plan/print_program.h"
#include "train/rehearsal.h"
#include "train/summary.h"
#include "train/tables.h"

#include <jansson.h>
#include <stdlib.h>

static const weft_flag flags[] = {
    {"json", NULL, false, "Print an object instead of tables."},
    {"ranks", "N", false, "Plan for N ranks; only --time starts them."},
    {"nodes", "M", false, "Plan for M machines with equal numbers of ranks (default 1)."},
    {"diff", "OTHER.ini", false, "Show the differences to another configuration; overrides apply to both."},
    {"time", NULL, false, "Start the ranks, measure this machine for some seconds, and predict the time of a step."},
    {"rates", "FILE", false, "Predict the time from an earlier --time --json."},
    WEFT_FIT_FLAG,
    {"print-program", NULL, false,
     "Print every instruction of a program with its buffers, or mark the one that fails the check."},
    {"mode", "MODE", false, "Program to print: training, evaluation or generation (default training)."},
    {"print-wrapping", NULL, false, "Print every module with its unit."},
    {"print-links", NULL, false, "Print how many bytes each rank sends to each other rank in a step."},
    {"print-sharding", NULL, false, "Print how much of each parameter a rank keeps."},
    {"rank", "R", false, "Rank for --print-program and --print-sharding (default 0)."},
    {NULL, NULL, false, NULL},
};

enum { SCHEDULE_POINTS = 5, INDENT = 12 /* column of the values */ };

static void print_chosen(const weft_choices *choices, FILE *to) {
    int width = 0;
    if (choices->n == 0) return;
    for (int32_t i = 0; i < choices->n; i++)
        if ((int)strlen(choices->items[i].key) > width) width = (int)strlen(choices->items[i].key);
    (void)fprintf(to, "%-*s%d choices of the device, made by rank 0 for all\n", INDENT, "chosen", (int)choices->n);
    for (int32_t i = 0; i < choices->n; i++)
        (void)fprintf(to, "  %-*s  %s\n", width, choices->items[i].key, choices->items[i].note);
}

static json_t *chosen_array(const weft_choices *choices) {
    json_t *rows = json_array();
    for (int32_t i = 0; i < choices->n; i++)
        (void)json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "for", choices->items[i].key, "choice",
                                                    choices->items[i].note, "value", choices->items[i].value));
    return rows;
}

/* Returns why auto saves synchronously; NULL: it does not, or the setting is not auto. */
static const char *why_in_place(const weft_plan *plan) {
    if (plan->saves == WEFT_SAVES_SHARED) return "the device computes in the machine's memory";
    if (plan->saves == WEFT_SAVES_NO_ROOM) return "the ranks' copies would be more than half of this machine's memory";
    return NULL;
}

static void print_saving(const weft_plan *plan, FILE *to) {
    char bytes[WEFT_UNIT_SIZE];
    const char *why = why_in_place(plan);
    if (plan->saves == WEFT_SAVES_NONE) return;
    (void)weft_unit_bytes(bytes, weft_save_place_bytes(plan));
    (void)fprintf(to, "%-*s", INDENT, "saving");
    if (plan->saves == WEFT_SAVES_BESIDE)
        (void)fprintf(to, "asynchronous, from a copy of %s in the host's memory, %s\n", bytes,
                      plan->visible ? "included in workspace" : "not included above");
    else if (why != NULL)
        (void)fprintf(to, "synchronous, because %s; [checkpoint] async = yes needs %s for a copy\n", why, bytes);
    else (void)fprintf(to, "synchronous: training waits while a checkpoint is written\n");
}

/* Returns the parameters stored in a type, and their bytes. */
static int64_t elements_in(int64_t *bytes, const weft_declared *declared, int32_t dtype) {
    int64_t n = 0;
    *bytes = 0;
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        if (p->dtype != dtype) continue;
        n += p->numel;
        *bytes += weft_dtype_span(dtype, p->numel);
    }
    return n;
}

static void print_stored(const weft_declared *declared, FILE *to) {
    char count[WEFT_UNIT_SIZE], size[WEFT_UNIT_SIZE];
    const char *between = "";
    int64_t bytes = 0;
    (void)fprintf(to, "%-*s", INDENT, "storage");
    for (int32_t dtype = 1; dtype <= WEFT_DTYPE_LAST; dtype++) {
        const int64_t n = elements_in(&bytes, declared, dtype);
        if (n == 0) continue;
        (void)fprintf(to, "%s%s parameters in %s (%s bytes)", between, weft_unit_count(count, n),
                      weft_dtype_name(dtype), weft_unit_count(size, bytes));
        between = ", ";
    }
    (void)fputc('\n', to);
}

static json_t *stored_array(const weft_declared *declared) {
    json_t *types = json_array();
    int64_t bytes = 0;
    for (int32_t dtype = 1; dtype <= WEFT_DTYPE_LAST; dtype++) {
        const int64_t n = elements_in(&bytes, declared, dtype);
        if (n > 0)
            (void)json_array_append_new(types, json_pack("{s:s, s:I, s:I}", "type", weft_dtype_name(dtype),
                                                         "parameters", (json_int_t)n, "bytes", (json_int_t)bytes));
    }
    return types;
}

static void print_launches(const weft_launches *launches, FILE *to) {
    char all[WEFT_UNIT_SIZE], kernels[WEFT_UNIT_SIZE], products[WEFT_UNIT_SIZE], copies[WEFT_UNIT_SIZE];
    if (!launches->known) return;
    (void)fprintf(to, "%-*s%s a step: %s and %s of a library; copies: %s\n", INDENT, "launches",
                  weft_unit_count(all, launches->kernels + launches->products),
                  weft_unit_counted(kernels, launches->kernels, "kernel"),
                  weft_unit_counted(products, launches->products, "call"), weft_unit_count(copies, launches->copies));
}

/* Lists the steps at which the schedule is printed: first, quarter, half, three quarters, last, without duplicates. */
static int list_schedule_steps(int64_t steps[SCHEDULE_POINTS], const weft_session *session) {
    int n = 0;
    for (int i = 0; i < SCHEDULE_POINTS; i++) {
        const int64_t step = 1 + (session->steps - 1) * i / (SCHEDULE_POINTS - 1);
        if (n == 0 || steps[n - 1] != step) steps[n++] = step;
    }
    return n;
}

static void print_bytes(FILE *to, const char *name, int64_t bytes, const char *more) {
    char text[WEFT_UNIT_SIZE], whole[WEFT_UNIT_SIZE];
    (void)fprintf(to, "  %-14s %12s  %18s bytes%s\n", name, weft_unit_bytes(text, bytes), weft_unit_count(whole, bytes),
                  more);
}

static void print_memory(const weft_plan_bytes *b, FILE *to) {
    (void)fprintf(to, "memory at the highest moment\n");
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++)
        print_bytes(to, weft_memory_category_name(i), b->category[i], "");
    print_bytes(to, "gaps", b->spare, "");
    print_bytes(to, "total", b->total, "");
    if (b->preparation > b->total) print_bytes(to, "preparing data", b->preparation, ", before the model is loaded");
}

/* ---- all ranks; equal ranks share a row ---- */

enum { NAME = 28 };

/* Returns "0-6, 8": the ranks that equal this one; ranks that do not fit into the text are counted. */
static const char *name_ranks(char text[NAME + 16], const weft_rank_costs *costs, int32_t world, int32_t rank) {
    size_t n = 0;
    int32_t left = 0;
    for (int32_t r = rank; r < world; r++) {
        int32_t end = r;
        if (costs[r].like != rank) continue;
        while (end + 1 < world && costs[end + 1].like == rank) end++;
        if (n + 14 > NAME) left += end - r + 1;
        else if (end > r) n += (size_t)snprintf(text + n, NAME - n, "%s%d-%d", n > 0 ? "," : "", (int)r, (int)end);
        else n += (size_t)snprintf(text + n, NAME - n, "%s%d", n > 0 ? "," : "", (int)r);
        r = end;
    }
    if (left > 0) (void)snprintf(text + n, NAME + 16 - n, " +%d", (int)left);
    return text;
}

static void print_memory_row(const weft_plan_bytes *bytes, const weft_rank_costs *costs, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++)
        (void)fprintf(to, " %11s", weft_unit_bytes(text, bytes->category[i]));
    (void)fprintf(to, " %11s", weft_unit_bytes(text, bytes->spare));
    (void)fprintf(to, " %17s", weft_unit_count(text, bytes->total));
    (void)fprintf(to, " %11s", weft_unit_bytes(text, costs->padding));
    (void)fprintf(to, " %11s", costs->updated > 0 ? weft_unit_count(text, costs->updated) : "nothing");
}

static void print_rank_tables(const weft_all_rank_plan *all, const weft_rank_costs *costs, FILE *to) {
    char name[NAME + 16], text[WEFT_UNIT_SIZE];
    bool is_sent[WEFT_N_TRAFFIC] = {false}; /* by any rank */
    (void)fprintf(to, "memory of each rank at its highest moment\n  %-28s", "ranks");
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++) (void)fprintf(to, " %11s", weft_memory_category_name(i));
    (void)fprintf(to, " %11s %17s %11s %11s\n", "gaps", "total, bytes", "padding", "updates");
    for (int32_t rank = 0; rank < all->world; rank++) {
        for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++)
            is_sent[kind] = is_sent[kind] || costs[rank].sent[kind] > 0;
        if (costs[rank].like != rank) continue;
        (void)fprintf(to, "  %-28s", name_ranks(name, costs, all->world, rank));
        print_memory_row(&all->bytes[rank], &costs[rank], to);
        (void)fputc('\n', to);
    }
    (void)fprintf(to, "sent by each rank in a step, bytes\n  %-28s", "ranks");
    for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++)
        if (is_sent[kind]) (void)fprintf(to, " %15s", weft_traffic_name(kind));
    (void)fprintf(to, " %15s%s\n", "total", all->nodes > 1 ? "  to other nodes" : "");
    for (int32_t rank = 0; rank < all->world; rank++) {
        if (costs[rank].like != rank) continue;
        (void)fprintf(to, "  %-28s", name_ranks(name, costs, all->world, rank));
        for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++)
            if (is_sent[kind]) (void)fprintf(to, " %15s", weft_unit_count(text, costs[rank].sent[kind]));
        (void)fprintf(to, " %15s", weft_unit_count(text, costs[rank].total_sent));
        if (all->nodes > 1) (void)fprintf(to, " %15s", weft_unit_count(text, costs[rank].to_nodes));
        (void)fputc('\n', to);
    }
}

static json_t *links_array(const weft_rank_costs *costs, int32_t world) {
    int64_t *to = weft_alloc(world, sizeof *to);
    json_t *links = json_array();
    for (int32_t rank = 0; rank < world; rank++) {
        memset(to, 0, (size_t)world * sizeof *to);
        for (int32_t i = 0; i < costs[rank].n_links; i++)
            for (int32_t r = 0; r < world; r++)
                if (weft_link_reaches(&costs[rank].links[i], rank, r)) to[r] += costs[rank].links[i].each;
        for (int32_t first = 0, last = 0; first < world; first = last + 1) {
            for (last = first; last + 1 < world && to[last + 1] == to[first];) last++;
            if (to[first] > 0)
                (void)json_array_append_new(links, json_pack("{s:i, s:[i, i], s:I}", "from", (int)rank, "to",
                                                             (int)first, (int)last, "bytes", (json_int_t)to[first]));
        }
    }
    free(to);
    return links;
}

static void print_links(const weft_rank_costs *costs, int32_t world, FILE *to) {
    json_t *links = links_array(costs, world), *link = NULL;
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

static json_t *memory_object(const weft_plan_bytes *b) {
    json_t *memory = weft_bytes_object(b->category, 0, WEFT_N_MEMORY_CATEGORIES, weft_memory_category_name);
    (void)json_object_set_new(memory, "gaps", json_integer(b->spare));
    (void)json_object_set_new(memory, "total", json_integer(b->total));
    (void)json_object_set_new(memory, "preparation", json_integer(b->preparation));
    return memory;
}

static json_t *ranks_array(const weft_all_rank_plan *all, const weft_rank_costs *costs) {
    json_t *rows = json_array();
    for (int32_t rank = 0; rank < all->world; rank++) {
        const weft_rank_costs *own = &costs[rank];
        json_t *ranks = NULL, *instructions = NULL, *sent = NULL;
        if (costs[rank].like != rank) continue;
        ranks = json_array();
        instructions = json_object();
        sent = weft_bytes_object(own->sent, WEFT_TRAFFIC_OTHER + 1, WEFT_N_TRAFFIC, weft_traffic_name);
        for (int32_t r = rank; r < all->world; r++)
            if (costs[r].like == rank) (void)json_array_append_new(ranks, json_integer(r));
        (void)json_object_set_new(sent, "total", json_integer(own->total_sent));
        (void)json_object_set_new(sent, "to_other_nodes", json_integer(own->to_nodes));
        for (int32_t kind = WEFT_INSTRUCTION_COUNT; kind <= WEFT_INSTRUCTION_REFRESH; kind++)
            if (own->instructions[kind] > 0)
                (void)json_object_set_new(instructions, weft_instruction_kind_name(kind),
                                          json_integer(own->instructions[kind]));
        (void)json_array_append_new(
            rows, json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:o}", "ranks", ranks, "memory",
                            memory_object(&all->bytes[rank]), "lines",
                            weft_bytes_object(all->bytes[rank].line, 0, WEFT_N_ACCOUNT_LINES, weft_account_name),
                            "padding_bytes", (json_int_t)own->padding, "kept", (json_int_t)own->kept, "updated",
                            (json_int_t)own->updated, "sent", sent, "instructions", instructions));
    }
    return rows;
}

/* ---- the run ---- */

static void print_model(const weft_session *session, const weft_wrapped *wrapped, FILE *to) {
    const weft_engine *e = session->engine;
    const int64_t all = weft_declared_numel(e->plan.declared, false),
                  trained = weft_declared_numel(e->plan.declared, true);
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE];
    (void)fprintf(to, "model       %s parameters, %s trained (%.4g %%), %d segments\n", weft_unit_count(a, all),
                  weft_unit_count(b, trained), 100.0 * (double)trained / (double)all, e->plan.declared->n_segments);
    weft_wrapped_print_line(wrapped, weft_run_id(session->run, WEFT_PART_POLICY), 12, to);
    print_stored(e->plan.declared, to);
    (void)fprintf(to, "layout      grid %lld elements, padding %s bytes (%.2f %%)\n", (long long)e->plan.layout->grid,
                  weft_unit_count(c, weft_layout_padding(e->plan.layout)),
                  100.0 * (double)(e->plan.layout->numel - all) / (double)all);
    (void)fprintf(to, "batch       %s = %d %s of %s x %s\n",
                  weft_unit_counted(a, session->run->settings.train.global_batch, "row"), e->plan.spec.micro_batches,
                  e->plan.spec.micro_batches == 1 ? "micro-batch" : "micro-batches",
                  weft_unit_counted(b, e->plan.spec.rows, "row"),
                  weft_unit_counted(c, e->plan.spec.lengths[e->plan.spec.n_lengths - 1], "place"));
    weft_world_print(session, 12, to);
    weft_sums_print(session, 12, to);
    (void)fprintf(to, "program     %d instructions in a step, %d buffers\n", e->plan.train.program->n_instructions,
                  e->plan.train.program->n_slots);
}

static void print_schedule(const weft_session *session, FILE *to) {
    int64_t steps[SCHEDULE_POINTS];
    const int n = list_schedule_steps(steps, session);
    (void)fprintf(to, "schedule    %lld step%s, warm-up %lld\n", (long long)session->steps,
                  session->steps == 1 ? "" : "s", (long long)session->schedule.warmup);
    weft_lr_print(session, 12, to);
    for (int i = 0; i < n; i++)
        (void)fprintf(to, "  step %8lld  lr %.6g\n", (long long)steps[i], weft_session_lr(session, steps[i]));
    weft_schedule_warn(session);
}

static json_t *schedule_array(const weft_session *session) {
    json_t *points = json_array();
    int64_t steps[SCHEDULE_POINTS];
    const int n = list_schedule_steps(steps, session);
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(points, json_pack("{s:I, s:f}", "step", (json_int_t)steps[i], "lr",
                                                      weft_session_lr(session, steps[i])));
    return points;
}

/* offset: in the arena; null: the sum over micro-batches itself, which is outside of it. */
static void add_slot(void *slots, const char *name, const weft_slot *slot) {
    json_t *object = json_pack("{s:s, s:I}", "use", name, "bytes", (json_int_t)slot->bytes);
    (void)json_object_set_new(object, "offset", slot->offset >= 0 ? json_integer(slot->offset) : json_null());
    (void)json_array_append_new(slots, object);
}

enum { COLUMNS = 80, BYTES = 12 };

/* Prints a change's bytes, and its words on as many lines as necessary. */
static void print_change(const weft_fit_change *change, FILE *to) {
    char bytes[WEFT_UNIT_SIZE], words[WEFT_TRIAL_KEYS * WEFT_TRIAL_KEY_SIZE + 40] = "";
    const int begin = INDENT + BYTES + 2;
    weft_fit_change_append(words, sizeof words, change);
    (void)fprintf(to, "%*s  ", begin - 2, weft_unit_bytes(bytes, weft_required_memory_bytes(&change->need)));
    weft_print_wrapped(to, words, begin, begin, COLUMNS);
    (void)fputc('\n', to);
}

static void print_changes(const weft_fit *fit, FILE *to) {
    if (fit->fits) return;
    if (fit->unprepared) {
        (void)fprintf(to, "%*sno setting reduces the preparation of the data\n", INDENT, "");
    } else if (fit->n > 0) {
        (void)fprintf(to, "%*s%s would fit, behind the same command:\n", INDENT, "",
                      fit->n > 1 ? "each of these" : "this");
        for (int32_t i = 0; i < fit->n; i++) print_change(&fit->fitting[i], to);
    } else if (fit->least.need.ranks > 0) {
        (void)fprintf(to, "%*snothing that was tried would fit; the least of it is\n", INDENT, "");
        print_change(&fit->least, to);
    }
}

static json_t *change_object(const weft_fit_change *change) {
    json_t *set = json_array();
    for (int32_t i = 0; i < change->n_keys; i++) (void)json_array_append_new(set, json_string(change->keys[i]));
    return json_pack("{s:o, s:i, s:i, s:I}", "set", set, "ranks", (int)change->ranks, "nodes", (int)change->nodes,
                     "planned", (json_int_t)weft_required_memory_bytes(&change->need));
}

/* memory: null if unknown. ranks: that share it. */
static json_t *fit_object(const weft_fit *fit) {
    json_t *changes = json_array();
    int64_t largest = 0;
    for (int32_t i = 0; i < fit->n; i++) (void)json_array_append_new(changes, change_object(&fit->fitting[i]));
    return json_pack("{s:b, s:o, s:I, s:s, s:I, s:i, s:i, s:s, s:o}", "fits", (int)fit->fits, "memory",
                     fit->room.bytes > 0 ? json_integer(fit->room.bytes) : json_null(), "apart",
                     (json_int_t)fit->room.held, "of", weft_available_memory_owner(&fit->room), "planned",
                     (json_int_t)weft_required_memory_bytes(&fit->need), "ranks", (int)fit->need.ranks, "first",
                     (int)fit->need.first, "largest", weft_fit_largest(&largest, fit), "changes", changes);
}

static FILE *rejected_to; /* receives rejected programs */

/* State of one invocation. */
typedef struct planned {
    const weft_args *args;
    weft_session *session;
    weft_wrapped wrapped;
    weft_all_rank_plan *all_rank_plan;
    weft_rank_costs *costs; /* of its ranks */
    weft_stages stages;
    weft_plan shown;       /* as the rank of --print-sharding, with its shards */
    int32_t rank, mode;    /* of the printed programs */
    weft_program *program; /* of this rank and mode, if it is printed */
    weft_rates rates;
    weft_forecast forecast; /* world 0: not requested */
    int64_t room;           /* bytes of --fit; 0: unset */
    weft_fit fit;
    weft_launches launches;
} planned;

static const weft_mode_plan *mode_plan_to_print(const planned *self) {
    const weft_plan *plan = &self->session->engine->plan;
    const weft_mode_plan *const stages[] = {&plan->train, &plan->evaluate, &plan->generate};
    return stages[self->mode];
}

/* Compiles the program of the requested rank, which the session has checked. */
static weft_status make_program(planned *self, weft_error *err) {
    const weft_run *run = self->session->run;
    const weft_job_spec *job = &mode_plan_to_print(self)->job->spec;
    const weft_status status = weft_program_compile(&self->program, run->host,
                                                    weft_run_table(run, WEFT_PART_STRATEGY, strategy),
                                                    run->parts[WEFT_PART_STRATEGY].config, job, self->rank, err);
    return status == WEFT_OK ? weft_program_place(self->program, job, err) : status;
}

static void print_rejected(const weft_program *program, const weft_job_spec *job, int32_t instruction) {
    (void)fprintf(rejected_to, "program of rank %d in %s, with the rejected instruction highlighted\n",
                  (int)program->rank, weft_mode_name(program->mode));
    weft_program_print(program, job, instruction, rejected_to);
}

/* unit: null if the storage is tied to an earlier module, or if there are several units. */
static json_t *wrapping_object(const planned *self) {
    const weft_plan *plan = &self->session->engine->plan;
    const weft_wrapped *wrapped = &self->wrapped;
    json_t *object = json_pack("{s:i, s:i, s:f}", "modules", (int)plan->declared->n_modules, "wrapped",
                               (int)wrapped->n_wrapped, "percent", wrapped->percent);
    json_t *list = json_array();
    if (weft_args_has(self->args, "print-wrapping")) (void)json_object_set(object, "tree", list);
    for (int32_t m = 0; m < plan->declared->n_modules; m++) {
        const weft_module *module = plan->declared->modules[m];
        const char *unit = wrapped->unit[m] >= 0 ? plan->layout->units[wrapped->unit[m]].name : NULL;
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:s?}", "path", module->path, "class",
                                                    module->class_name, "wrapped", (int)wrapped->is_wrapped[m], "unit",
                                                    unit));
    }
    json_decref(list);
    return object;
}

static json_t *program_array(const planned *self) {
    const weft_mode_plan *mode_plan = mode_plan_to_print(self);
    const weft_program *program = self->program;
    json_t *instructions = json_array();
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        json_t *slots = json_array();
        char text[256];
        weft_instruction_describe(text, sizeof text, instruction, &mode_plan->job->spec);
        weft_instruction_slots_visit(program, &mode_plan->job->spec, i, add_slot, slots);
        (void)json_array_append_new(instructions, json_pack("{s:s, s:i, s:o}", "instruction", text, "queue",
                                                            (int)instruction->queue, "slots", slots));
    }
    return instructions;
}

/* Returns an object for each rank, if segments have owners. */
static json_t *stages_object(const weft_stages *stages) {
    json_t *ranks = json_array();
    for (int32_t r = 0; r < stages->n; r++)
        (void)json_array_append_new(ranks,
                                    json_pack("{s:i, s:s}", "rank", (int)r, "segments", stages->rows[r].segments));
    if (stages->layer[0] == '\0') return json_pack("{s:o, s:f}", "map", ranks, "imbalance_percent", stages->imbalance);
    return json_pack("{s:o, s:f, s:{s:s, s:i, s:i, s:f}}", "map", ranks, "imbalance_percent", stages->imbalance, "move",
                     "layer", stages->layer, "from", (int)stages->from, "to", (int)stages->to, "imbalance_percent",
                     stages->imbalance_then);
}

static json_t *share_object(const char *name, int64_t all, int64_t kept) {
    return json_pack("{s:s, s:I, s:I, s:f}", "name", name, "elements", (json_int_t)all, "kept", (json_int_t)kept,
                     "percent", all > 0 ? 100.0 * (double)kept / (double)all : 0.0);
}

static json_t *sharding_object(const weft_plan *plan) {
    json_t *units = json_array(), *parameters = json_array();
    int64_t kept = 0;
    for (int32_t u = 0; u < plan->layout->n_units; u++) {
        const int64_t all = weft_sharding_sum(&kept, plan, u);
        (void)json_array_append_new(units, share_object(plan->layout->units[u].name, all, kept));
    }
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        (void)json_array_append_new(parameters, share_object(p->name, p->numel, weft_sharding_kept(plan, p)));
    }
    return json_pack("{s:i, s:o, s:o}", "rank", (int)plan->rank, "units", units, "parameters", parameters);
}

/* batch: rows: of an optimizer step; a micro-batch is micro_batch_rows x places. */
static json_t *plan_object(const planned *self) {
    const weft_session *session = self->session;
    const weft_plan *plan = &session->engine->plan;
    const weft_plan_spec *spec = &plan->spec;
    json_t *layout = json_pack("{s:I, s:I, s:i, s:i, s:o}", "grid", (json_int_t)plan->layout->grid, "padding_bytes",
                               (json_int_t)weft_layout_padding(plan->layout), "segments",
                               (int)plan->declared->n_segments, "units", (int)plan->layout->n_units, "storage",
                               stored_array(plan->declared));
    json_t *batch = json_pack("{s:I, s:i, s:i, s:i}", "rows", (json_int_t)session->run->settings.train.global_batch,
                              "micro_batches", (int)spec->micro_batches, "micro_batch_rows", (int)spec->rows, "places",
                              (int)spec->lengths[spec->n_lengths - 1]);
    return json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:i, s:i, s:o, s:o, s:i, s:o}", "parameters",
                     (json_int_t)weft_declared_numel(plan->declared, false), "trained",
                     (json_int_t)weft_declared_numel(plan->declared, true), "steps", (json_int_t)session->steps,
                     "layout", layout, "wrapping", wrapping_object(self), "batch", batch, "instructions",
                     (int)plan->train.program->n_instructions, "buffers", (int)plan->train.program->n_slots, "memory",
                     memory_object(&plan->bytes), "schedule", schedule_array(session), "world",
                     (int)session->engine->ranks.world, "ranks", ranks_array(self->all_rank_plan, self->costs));
}

static void print_plan_json(const planned *self) {
    const weft_engine *e = self->session->engine;
    const weft_launches *launches = &self->launches;
    const bool copies = e->plan.saves == WEFT_SAVES_BESIDE;
    json_t *object = plan_object(self);
    FILE *to = weft_log_prefix_plain();
    (void)json_object_set_new(object, "fit", fit_object(&self->fit));
    if (e->choices.n > 0) (void)json_object_set_new(object, "chosen", chosen_array(&e->choices));
    if (e->plan.saves != WEFT_SAVES_NONE)
        (void)json_object_set_new(object, "saving",
                                  json_pack("{s:b, s:s?, s:I, s:b}", "beside", copies, "why", why_in_place(&e->plan),
                                            "bytes", (json_int_t)weft_save_place_bytes(&e->plan), "of_total",
                                            copies && e->plan.visible));
    if (launches->known)
        (void)json_object_set_new(object, "launches",
                                  json_pack("{s:I, s:I, s:I}", "kernels", (json_int_t)launches->kernels, "products",
                                            (json_int_t)launches->products, "copies", (json_int_t)launches->copies));
    if (weft_args_has(self->args, "print-program")) (void)json_object_set_new(object, "program", program_array(self));
    if (self->stages.n > 0) (void)json_object_set_new(object, "stages", stages_object(&self->stages));
    if (weft_args_has(self->args, "print-links"))
        (void)json_object_set_new(object, "links", links_array(self->costs, e->ranks.world));
    if (weft_args_has(self->args, "print-sharding"))
        (void)json_object_set_new(object, "sharding", sharding_object(&self->shown));
    if (self->forecast.world > 0) {
        (void)json_object_set_new(object, "time", weft_forecast_object(&self->forecast));
        (void)json_object_set_new(object, "rates", weft_rates_object(&self->rates));
    }
    (void)json_dumpf(object, to, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    (void)fputc('\n', to);
    json_decref(object);
}

static void print_text(const planned *self) {
    const weft_engine *e = self->session->engine;
    FILE *to = weft_log_prefix_plain();
    print_model(self->session, &self->wrapped, to);
    if (e->ranks.world == 1) print_memory(&e->plan.bytes, to);
    else print_rank_tables(self->all_rank_plan, self->costs, to);
    weft_fit_print(&self->fit, INDENT, to);
    print_changes(&self->fit, to);
    weft_fit_warn(&self->fit, self->session->run->host);
    print_saving(&e->plan, to);
    if (self->launches.known) weft_device_line_print(&e->device_info, INDENT, to);
    print_launches(&self->launches, to);
    print_chosen(&e->choices, to);
    weft_stages_print(&self->stages, to);
    if (weft_args_has(self->args, "print-links")) print_links(self->costs, e->ranks.world, to);
    if (self->forecast.world > 0) weft_forecast_print(&self->forecast, to);
    print_schedule(self->session, to);
    weft_world_log_single_rank(self->session);
    weft_world_log_precision(self->session);
    if (weft_args_has(self->args, "print-sharding")) weft_sharding_print(&self->shown, 0, to);
    if (weft_args_has(self->args, "print-wrapping")) weft_wrapped_print(&self->wrapped, to);
    if (weft_args_has(self->args, "print-program"))
        weft_program_print(self->program, &mode_plan_to_print(self)->job->spec, -1, to);
}

static weft_status open_plan(planned *self, const char *path, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(self->args, &n);
    const weft_plan *plan = NULL;
    weft_status status = weft_session_open(&self->session, path, overrides, n, WEFT_SESSION_PROFILE, NULL, err);
    if (status == WEFT_OK) status = weft_all_rank_plan_create(&self->all_rank_plan, &self->session->engine->plan, err);
    if (status != WEFT_OK) return status;
    plan = &self->session->engine->plan;
    self->wrapped = weft_wrapped_make(plan->declared, plan->layout);
    weft_stages_make(&self->stages, plan, self->all_rank_plan);
    self->costs = weft_rank_costs_make(plan, self->all_rank_plan);
    if (self->rank >= self->all_rank_plan->world)
        status = weft_error_set(err, WEFT_E_USER, "--rank %d does not exist. Allowed: 0 to %d", (int)self->rank,
                                (int)self->all_rank_plan->world - 1);
    if (status != WEFT_OK) return status;
    self->shown = weft_plan_as_rank(plan, self->rank);
    weft_sums_hold(&self->shown, &plan->train.job->spec);
    return weft_args_has(self->args, "print-program") ? make_program(self, err) : WEFT_OK;
}

/* Measures or reads the machine's rates, and computes the forecast. */
static weft_status forecast(planned *self, weft_error *err) {
    weft_engine *engine = self->session->engine;
    const char *path = weft_args_value(self->args, "rates");
    weft_status status = WEFT_OK;
    if (path == NULL && !weft_args_has(self->args, "time")) return WEFT_OK;
    if (path != NULL) status = weft_rates_read(&self->rates, path, engine, err);
    else status = weft_rates_measure(&self->rates, engine, err);
    if (status != WEFT_OK || engine->ranks.rank > 0) return status;
    return weft_forecast_make(&self->forecast, &self->rates, engine, self->all_rank_plan, self->costs, err);
}

static void close_plan(planned *self) {
    weft_forecast_free(&self->forecast);
    weft_rates_free(&self->rates);
    weft_plan_drop_rank(&self->shown);
    weft_program_destroy(self->program);
    weft_stages_free(&self->stages);
    if (self->costs != NULL) weft_rank_costs_free(self->costs, self->all_rank_plan->world);
    weft_all_rank_plan_destroy(self->all_rank_plan);
    weft_wrapped_free(&self->wrapped);
    weft_session_close(self->session);
}

/* Opens the two configurations one after the other. */
static weft_status facts_of(json_t **out, const weft_args *args, const char *path, weft_error *err) {
    planned self = {.args = args};
    weft_status status = open_plan(&self, path, err);
    if (status == WEFT_OK) status = weft_plan_diff_facts(out, self.session, self.all_rank_plan, err);
    close_plan(&self);
    /* an error without a file name gets the name of its configuration */
    if (status != WEFT_OK && strncmp(err->text, path, strlen(path)) != 0) (void)weft_error_prefix(err, "%s: ", path);
    return status;
}

static weft_status print_difference(const weft_args *args, weft_error *err) {
    const char *other = weft_args_value(args, "diff");
    json_t *a = NULL, *b = NULL, *difference = NULL;
    weft_status status = WEFT_OK;
    if (weft_args_config(args) == NULL)
        return weft_error_set(
            err, WEFT_E_USER,
            "--diff compares two configurations, and a model's directory has none. Fix: use an INI file");
    status = facts_of(&a, args, weft_args_config(args), err);
    if (status == WEFT_OK) status = facts_of(&b, args, other, err);
    if (status == WEFT_OK) difference = weft_plan_diff_make(a, b);
    if (status == WEFT_OK && weft_args_has(args, "json")) {
        (void)json_dumpf(difference, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        (void)putchar('\n');
    } else if (status == WEFT_OK) weft_plan_diff_print(difference, weft_args_config(args), other, stdout);
    json_decref(a);
    json_decref(b);
    json_decref(difference);
    return status;
}

/* Prints the plan on rank 0, for all ranks. */
static weft_status print_plan(planned *self, weft_error *err) {
    weft_status status = open_plan(self, weft_args_config(self->args), err);
    const bool prints = status == WEFT_OK && self->session->engine->ranks.rank == 0;
    if (status == WEFT_OK) status = forecast(self, err);
    if (status == WEFT_OK && prints) status = weft_launches_count(&self->launches, self->session->engine, err);
    if (status == WEFT_OK && prints) {
        const weft_fit_question question = weft_command_question(self->args, self->session, self->room);
        weft_fit_check(&self->fit, &question, self->all_rank_plan);
        if (weft_args_has(self->args, "json")) print_plan_json(self);
        else print_text(self);
    }
    close_plan(self);
    return status;
}

/* Checks flag combinations. --time needs running ranks and one configuration. */
static weft_status check_flags(const weft_args *args, int64_t asked, int64_t nodes, weft_error *err) {
    const bool time = weft_args_has(args, "time"), rates = weft_args_has(args, "rates");
    if (nodes > 1 && time)
        return weft_error_set(
            err, WEFT_E_USER,
            "--time measures running ranks, and --nodes plans for other machines. Fix: replace --time "
            "by --rates FILE with the output of an earlier --time --json");
    if (nodes > 1 && asked == 0)
        return weft_error_set(err, WEFT_E_USER, "--nodes requires --ranks N, which it distributes over machines");
    if (time && rates)
        return weft_error_set(err, WEFT_E_USER, "--time measures rates and --rates reads them: use one of them");
    if ((time || rates) && weft_args_has(args, "diff"))
        return weft_error_set(
            err, WEFT_E_USER,
            "--diff compares without measuring: leave --%s out, or plan each configuration separately",
            time ? "time" : "rates");
    return WEFT_OK;
}

/* Parses --mode, in the order of weft_mode. */
static weft_status find_mode(int32_t *out, const weft_args *args, weft_error *err) {
    const char *asked = weft_args_value(args, "mode");
    for (*out = WEFT_MODE_TRAIN; *out <= WEFT_MODE_GENERATE; ++*out)
        if (asked == NULL || strcmp(asked, weft_mode_name(*out)) == 0) break;
    if (*out > WEFT_MODE_GENERATE)
        return weft_error_set(err, WEFT_E_USER, "--mode %s does not exist. Allowed: training, evaluation, generation",
                              asked);
    if (asked != NULL && !weft_args_has(args, "print-program"))
        return weft_error_set(err, WEFT_E_USER, "--mode requires --print-program, for which it selects the program");
    return WEFT_OK;
}

static weft_exit run_plan(const weft_args *args, weft_error *err) {
    planned self = {.args = args};
    int64_t asked = 0, nodes = 1, rank = 0;
    weft_exit launched = WEFT_EXIT_DONE;
    weft_status status = WEFT_OK;
    if (!weft_args_i64(args, &asked, "ranks", "[1,65536]", 0, err) ||
        !weft_args_i64(args, &nodes, "nodes", "[1,65536]", 1, err) ||
        !weft_args_i64(args, &rank, "rank", "[0,65535]", 0, err) || check_flags(args, asked, nodes, err) != WEFT_OK ||
        find_mode(&self.mode, args, err) != WEFT_OK || !weft_command_room(args, &self.room, err))
        return WEFT_EXIT_USAGE;
    weft_world_planned_nodes = (int32_t)nodes;
    self.rank = (int32_t)rank;
    if (weft_args_has(args, "print-program")) {
        rejected_to = weft_args_has(args, "json") ? stderr : weft_log_prefix_plain();
        weft_plan_printing = (struct weft_plan_printing){self.mode, print_rejected};
    }
    if (!weft_args_has(args, "time")) weft_launch_want(WEFT_RANKS_PLANNED, (int32_t)asked);
    else if (!weft_command_is_rank(&launched, args, NULL, (int32_t)asked, WEFT_RANKS_RUN_ONE, err)) return launched;
    if (weft_args_has(args, "diff")) status = print_difference(args, err);
    else status = print_plan(&self, err);
    return weft_exit_from(status);
}

static const weft_command weft_command_plan = {
    .name = "plan",
    .usage = "run.ini|DIR [section.key=value ...]",
    .takes = WEFT_TAKES_DIRECTORY,
    .flags = flags,
    .more = "DIR is the directory of a model, which needs data.path=FILE and is planned for one epoch by default, or "
            "of a run ([run] out): its configuration with its model/.",
    .examples = "  weft plan run.ini --ranks 4\n"
                "  weft plan run.ini --print-program --mode evaluation\n",
    .run = run_plan,
};

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_plan, NULL};
    return weft_cli_main(argc, argv, commands);
}
