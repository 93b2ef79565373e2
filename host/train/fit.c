/* host/train/fit.c: searches for settings with which a plan fits into the available memory.
 *
 * The search follows axes, each a setting with values that need less and less memory. If no single change is enough,
 * the changes that keep the result are combined with one of the others, and then unnecessary ones are reverted. Each
 * reported change was planned with exactly these settings: the configuration is read again with additional overrides
 * and validated as usual; text, data, device and optimizer are those of the session. No process is started, no message
 * is printed, and no device memory is allocated. */
#include "train/fit.h"

#include "base/alloc.h"
#include "base/machine.h"
#include "base/message.h"
#include "base/text.h"
#include "base/units.h"
#include "plugin/services.h"
#include "program/budget.h"
#include "program/job.h"
#include "program/exchange.h"

#include <stdlib.h>

enum { TRAIN, EVALUATE, N_MODES };

/* A placed program. */
typedef struct placed {
    const weft_program *program; /* the first of each mode is the plan's own */
    int64_t partials;            /* elements; -1: unknown */
    bool shared;                 /* all sums include all ranks, so ranks with equal programs have equal sums */
} placed;

typedef struct planner {
    const weft_plan *plan;
    const weft_mode_plan *modes[N_MODES];
    weft_all_rank_plan *all;
    const weft_program **reduces; /* [world] copies of the training programs with their REDUCEs only: all that the
                                   * other ranks' sums depend on */
    placed *kinds[N_MODES];       /* [n_kinds] distinct programs */
    int32_t n_kinds[N_MODES];
    int32_t *micro_batches, *others; /* [micro-batches] of a step: mapping between the micro-batches of two programs */
} planner;

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

static weft_status compile_program(const planner *self, weft_program **out, int mode, int32_t rank, weft_error *err) {
    const weft_part *part = &self->plan->run->parts[WEFT_PART_STRATEGY];
    return weft_program_compile(out, self->plan->run->host, weft_loaded_table(part->loaded, strategy), part->config,
                                &self->modes[mode]->job->spec, rank, err);
}

/* Adds a placed program. */
static placed *add_kind(planner *self, int mode, const weft_program *program) {
    const int32_t n = ++self->n_kinds[mode];
    placed *kind = NULL;
    self->kinds[mode] = weft_realloc(self->kinds[mode], n, sizeof *self->kinds[mode]);
    kind = &self->kinds[mode][n - 1];
    *kind = (placed){.program = program, .partials = -1, .shared = true};
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_REDUCE &&
            program->instructions[i].scope != WEFT_SCOPE_ALL)
            kind->shared = false;
    return kind;
}

/* Finds the program's kind. Places the program if it is the first of its kind; the caller keeps it then. */
static weft_status find_kind(planner *self, placed **out, int mode, weft_program *program, weft_error *err) {
    weft_status status = WEFT_OK;
    if (self->n_kinds[mode] == 0) (void)add_kind(self, mode, self->modes[mode]->program);
    for (int32_t i = 0; i < self->n_kinds[mode]; i++) {
        *out = &self->kinds[mode][i];
        if (programs_alike(self, (*out)->program, program)) return WEFT_OK;
    }
    status = weft_program_place(program, &self->modes[mode]->job->spec, err);
    if (status == WEFT_OK) *out = add_kind(self, mode, program);
    return status;
}

static weft_status plan_rank(planner *self, weft_plan *rank, weft_error *err) {
    placed *kind = NULL;
    weft_program *program = (weft_program *)self->all->programs[rank->rank];
    weft_status status = find_kind(self, &kind, TRAIN, program, err);
    if (status != WEFT_OK) return status;
    weft_sums_hold(rank, &self->modes[TRAIN]->job->spec);
    rank->train.program = (weft_program *)kind->program;
    /* the stored partial sums are equal for ranks with equal programs, if all ranks take part in each sum */
    if (!kind->shared || kind->partials < 0) {
        const weft_program *reduces = self->reduces[rank->rank];
        self->reduces[rank->rank] = program;
        weft_sums_plan(rank, &rank->train, self->reduces);
        self->reduces[rank->rank] = reduces;
        kind->partials = rank->train.partials;
    }
    rank->train.partials = kind->partials;
    if (self->modes[EVALUATE]->program != NULL) {
        program = NULL;
        status = compile_program(self, &program, EVALUATE, rank->rank, err);
        if (status == WEFT_OK) status = find_kind(self, &kind, EVALUATE, program, err);
        if (status != WEFT_OK || kind->program != program) weft_program_destroy(program);
        if (status == WEFT_OK) rank->evaluate.program = (weft_program *)kind->program;
    }
    if (status == WEFT_OK) weft_plan_budget(rank);
    self->all->bytes[rank->rank] = rank->bytes;
    return status;
}

/* Returns a copy of the program with its REDUCEs only. */
static const weft_program *copy_reduces(const weft_program *program) {
    weft_program *out = weft_alloc(1, sizeof *out);
    *out = (weft_program){.rank = program->rank, .micro_batches = program->micro_batches};
    out->instructions = weft_alloc(program->n_instructions, sizeof *out->instructions);
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_REDUCE)
            out->instructions[out->n_instructions++] = program->instructions[i];
    return out;
}

weft_status weft_all_rank_plan_create(weft_all_rank_plan **out, const weft_plan *plan, weft_error *err) {
    const weft_job_spec *spec = &plan->train.job->spec;
    const int32_t world = spec->view.world;
    const int64_t micro_batches = weft_job_spec_micro_batches(spec) + world;
    weft_all_rank_plan *all = weft_alloc(1, sizeof *all);
    planner self = {.plan = plan,
                    .modes = {&plan->train, &plan->evaluate},
                    .all = all,
                    .reduces = weft_alloc(world, sizeof *self.reduces),
                    .micro_batches = weft_alloc(micro_batches, sizeof *self.micro_batches),
                    .others = weft_alloc(micro_batches, sizeof *self.others)};
    weft_status status = WEFT_OK;
    all->bytes = weft_alloc(world, sizeof *all->bytes);
    all->programs = weft_alloc(world, sizeof *all->programs);
    all->world = world;
    all->nodes = spec->view.nodes;
    all->ranks_per_node = spec->view.ranks_per_node;
    for (int32_t r = 0; r < world && status == WEFT_OK; r++) {
        status = compile_program(&self, (weft_program **)&all->programs[r], TRAIN, r, err);
        if (status == WEFT_OK) self.reduces[r] = copy_reduces(all->programs[r]);
    }
    for (int32_t r = 0; r < world && status == WEFT_OK; r++) {
        weft_plan rank = weft_plan_as_rank(plan, r);
        status = plan_rank(&self, &rank, err);
        weft_plan_drop_rank(&rank);
    }
    for (int32_t i = 1; i < self.n_kinds[EVALUATE]; i++)
        weft_program_destroy((weft_program *)self.kinds[EVALUATE][i].program);
    for (int32_t r = 0; r < world; r++) weft_program_destroy((weft_program *)self.reduces[r]);
    free(self.reduces);
    free(self.kinds[TRAIN]);
    free(self.kinds[EVALUATE]);
    free(self.micro_batches);
    free(self.others);
    if (status == WEFT_OK) *out = all;
    else weft_all_rank_plan_destroy(all);
    return status;
}

void weft_all_rank_plan_destroy(weft_all_rank_plan *all_rank_plan) {
    if (all_rank_plan == NULL) return;
    for (int32_t rank = 0; rank < all_rank_plan->world; rank++)
        weft_program_destroy((weft_program *)all_rank_plan->programs[rank]);
    free(all_rank_plan->programs);
    free(all_rank_plan->bytes);
    free(all_rank_plan);
}

/* ---- available and required memory ---- */

weft_available_memory weft_available_memory_find(int64_t set, const weft_device_info *info) {
    weft_available_memory out = {.bytes = set, .free = -1};
    weft_machine_memory machine;
    if (set > 0) return out;
    out.held = info->held;
    if (info->memory > 0) out.bytes = info->memory > info->held ? info->memory - info->held : 1;
    if ((info->flags & WEFT_DEVICE_SHARES_MACHINE) == 0) return out;
    out.shared = true;
    weft_machine_memory_read(&machine, "");
    if (machine.total == 0) return out;
    out.bytes = machine.total;
    out.free = machine.free;
    out.limited = machine.limited;
    return out;
}

const char *weft_available_memory_owner(const weft_available_memory *room) {
    if (room->limited) return "this control group";
    return room->shared ? "this machine" : "a device";
}

/* Adds one rank. */
static void add_rank(weft_required_memory *need, const weft_plan_bytes *one) {
    weft_plan_bytes *sum = &need->bytes;
    need->ranks++;
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++) sum->line[i] += one->line[i];
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++) sum->category[i] += one->category[i];
    sum->total += one->total;
    sum->spare += one->spare;
    sum->preparation += one->preparation;
    if (one->preparation > need->preparation) need->preparation = one->preparation;
}

int64_t weft_required_memory_bytes(const weft_required_memory *need) {
    return need->bytes.preparation > need->bytes.total ? need->bytes.preparation : need->bytes.total;
}

/* A rank's plan, and its available memory. */
typedef struct rank_need {
    weft_plan_bytes bytes;
    weft_available_memory room;
    int32_t node;
} rank_need;

/* Returns the required fraction of the available memory; tiny if that is unknown. */
static double part_of_room(const weft_required_memory *need, const weft_available_memory *room) {
    return (double)weft_required_memory_bytes(need) / (double)(room->bytes > 0 ? room->bytes : INT64_MAX);
}

/* Finds the fullest memory; the first of the ranks that share one represents all. */
static void find_fullest(weft_required_memory *need, weft_available_memory *room, const rank_need *all, int32_t world) {
    for (int32_t rank = 0; rank < world; rank++) {
        weft_required_memory one = {.first = rank};
        for (int32_t r = rank; r < world; r++)
            if (r == rank || (all[rank].room.shared && all[rank].node == all[r].node)) add_rank(&one, &all[r].bytes);
        if (rank > 0 && part_of_room(&one, &all[rank].room) <= part_of_room(need, room)) continue;
        *need = one;
        *room = all[rank].room;
    }
}

/* Returns the ranks' plans, with the same available memory for each; the caller frees them. all_rank_plan: of the plan,
 * which has several ranks; NULL: it has one. */
static rank_need *list_needs(const weft_plan *plan, const weft_all_rank_plan *all_rank_plan,
                             const weft_available_memory *room) {
    rank_need *all = weft_alloc(all_rank_plan == NULL ? 1 : all_rank_plan->world, sizeof *all);
    all[0] = (rank_need){plan->bytes, *room, 0};
    for (int32_t r = 0; all_rank_plan != NULL && r < all_rank_plan->world; r++)
        all[r] = (rank_need){all_rank_plan->bytes[r], *room, r / all_rank_plan->ranks_per_node};
    return all;
}

weft_status weft_required_memory_plan(weft_required_memory *out, const weft_plan *plan,
                                      const weft_available_memory *room, weft_error *err) {
    rank_need *all = NULL;
    weft_available_memory same;
    weft_all_rank_plan *all_rank_plan = NULL;
    const weft_status status = plan->world > 1 ? weft_all_rank_plan_create(&all_rank_plan, plan, err) : WEFT_OK;
    if (status != WEFT_OK) return status;
    all = list_needs(plan, all_rank_plan, room);
    find_fullest(out, &same, all, plan->world);
    weft_all_rank_plan_destroy(all_rank_plan);
    free(all);
    return WEFT_OK;
}

bool weft_required_memory_fits(const weft_required_memory *need, const weft_available_memory *room) {
    return room->bytes == 0 || weft_required_memory_bytes(need) <= room->bytes;
}

/* MOST_WORK: limit of a plan, in segments that a rank executes in a step; twice as many take four times as long. */
enum { MOST_LEVELS = 32, MOST_RANKS = 64, MOST_WORK = 1 << 15, MOST_PLANS = 100 };

/* The change at one level of one axis. */
typedef struct axis_level {
    char key[WEFT_TRIAL_KEY_SIZE]; /* "": unchanged */
    int32_t ranks, nodes;          /* 0: unchanged */
} axis_level;

typedef struct axis_levels {
    axis_level at[MOST_LEVELS];
    int32_t n;
} axis_levels;

/* Excludes the parts that the session has opened, unless the file names them. */
#define NEEDS                                                                                                          \
    (WEFT_NEEDS_ALL & ~(WEFT_NEEDS(WEFT_PART_DATA) | WEFT_NEEDS(WEFT_PART_TOKENIZER) | WEFT_NEEDS(WEFT_PART_COMM)))

/* Plans the session with the change and sets the change's requirement. Returns false if these settings cannot be run or
 * planned. */
static bool plan_change(weft_fit_change *change, const weft_fit_question *question) {
    const int32_t level = weft_services_log_level(WEFT_LOG_ERROR); /* suppresses repeated messages of the session */
    const weft_session *session = question->session;
    const weft_plan *planned = &session->engine->plan;
    const size_t n = question->n_overrides;
    const char **overrides = weft_alloc(n + WEFT_TRIAL_KEYS, sizeof *overrides);
    weft_plan plan = {.world = change->ranks, .nodes = change->nodes};
    weft_run *run = NULL;
    weft_plan_spec spec = {0};
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    weft_plan_printing = (struct weft_plan_printing){.mode = -1}; /* the session has used it already */
    if (n > 0) memcpy(overrides, question->overrides, n * sizeof *overrides);
    for (int32_t i = 0; i < change->n_keys; i++) overrides[n + (size_t)i] = change->keys[i];
    status =
        weft_run_open(&run, question->path, overrides, n + (size_t)change->n_keys, NEEDS | WEFT_NEEDS_NO_PINNED, &why);
    if (status == WEFT_OK && session->kind != WEFT_SESSION_EVALUATE)
        status = weft_settings_for_steps(&run->settings, run->config, &why);
    free(overrides);
    memcpy(plan.states, planned->states, sizeof plan.states);
    plan.n_states = planned->n_states;
    plan.hp_bytes = planned->hp_bytes;
    if (status == WEFT_OK) {
        spec = weft_session_spec(session, &run->settings.train);
        status = weft_plan_open(&plan, run, &why);
    }
    if (status == WEFT_OK)
        status = weft_plan_make(&plan, session->engine->kernels, session->engine->device, &spec, &why);
    if (status == WEFT_OK) status = weft_required_memory_plan(&change->need, &plan, &question->room, &why);
    weft_plan_close(&plan);
    weft_run_close(run);
    (void)weft_services_log_level(level);
    return status == WEFT_OK;
}

/* ---- axes ---- */

/* Adds a level with its override, "train.micro_batch=2", or ""; ranks 0: unchanged. Beyond the limit it replaces the
 * last one, the one with the smallest memory. */
static void add_level(axis_levels *axis, int32_t ranks, int32_t nodes, const char *format, ...) WEFT_PRINTF(4, 5);
static void add_level(axis_levels *axis, int32_t ranks, int32_t nodes, const char *format, ...) {
    axis_level *level = &axis->at[axis->n < MOST_LEVELS ? axis->n++ : MOST_LEVELS - 1];
    va_list args;
    level->ranks = ranks;
    level->nodes = nodes;
    va_start(args, format);
    (void)vsnprintf(level->key, sizeof level->key, format, args);
    va_end(args);
}

/* Lists smaller micro-batches of the same batch, but not so many that planning becomes slow. */
static void list_micro_batches(axis_levels *axis, const weft_session *session) {
    const weft_train_settings *keys = &session->run->settings.train;
    const weft_plan *plan = &session->engine->plan;
    const bool any = session->kind == WEFT_SESSION_EVALUATE; /* any micro-batch is valid */
    for (int64_t rows = any ? keys->micro_batch / 2 : keys->micro_batch - 1; rows > 0;
         rows = any ? rows / 2 : rows - 1) {
        if (!any && keys->global_batch % rows != 0) continue;
        if (!any && keys->global_batch / rows * plan->declared->n_segments / plan->world > MOST_WORK) return;
        add_level(axis, 0, 0, "train.micro_batch=%lld", (long long)rows);
    }
}

/* Lists other numbers of ranks. Fewer help if they share the machine's memory, equally many on each machine; more then
 * need more machines with one rank each. */
static void list_ranks(axis_levels axes[WEFT_N_FIT_AXES], const weft_plan *plan, bool shared, bool is_fsdp) {
    for (int32_t ranks = plan->world - 1; shared && ranks >= plan->nodes; ranks--)
        if (plan->world % ranks == 0 && ranks % plan->nodes == 0)
            add_level(&axes[WEFT_FIT_FEWER], ranks, plan->nodes, "%s", "");
    for (int32_t ranks = 2 * (shared ? plan->nodes : plan->world); ranks <= MOST_RANKS; ranks *= 2)
        add_level(&axes[WEFT_FIT_MORE], ranks, shared ? ranks : plan->nodes, "%s",
                  is_fsdp ? "" : "strategy.plugin=fsdp");
}

/* Lists the last half of the trained layers, half of that, and so on. Skipped if the user has selected parameters by
 * name. */
static void list_trainable(axis_levels *axis, const weft_session *session) {
    const char *trained = session->run->settings.train.trainable;
    int64_t layers = session->engine->plan.declared->info.n_layers;
    if (strncmp(trained, "last:", 5) == 0 && strchr(trained, ',') == NULL) layers = strtoll(trained + 5, NULL, 10);
    else if (strcmp(trained, "all") != 0) return;
    for (layers /= 2; layers > 0; layers /= 2) add_level(axis, 0, 0, "train.trainable=last:%lld", (long long)layers);
}

/* Lists the levels of each axis for a session, without level 0, the current setting. */
static void list_axes(axis_levels axes[WEFT_N_FIT_AXES], const weft_fit_question *question) {
    const weft_session *session = question->session;
    const weft_train_settings *keys = &session->run->settings.train;
    const weft_plan *plan = &session->engine->plan;
    const bool is_fsdp = strcmp(weft_run_id(session->run, WEFT_PART_STRATEGY), "fsdp") == 0;
    const char *shard = weft_config_shown(session->run->config, "strategy", "shard");
    if (keys->precision == WEFT_PRECISION_FP32) add_level(&axes[WEFT_FIT_PRECISION], 0, 0, "train.precision=bf16");
    list_micro_batches(&axes[WEFT_FIT_MICRO], session);
    if (session->kind == WEFT_SESSION_EVALUATE) return;
    if (plan->bytes.line[WEFT_ACCOUNT_SNAPSHOT] > 0) add_level(&axes[WEFT_FIT_SAVING], 0, 0, "checkpoint.async=no");
    if (!keys->activation_checkpointing)
        add_level(&axes[WEFT_FIT_CHECKPOINTING], 0, 0, "train.activation_checkpointing=yes");
    if (plan->world > 1 && !is_fsdp) add_level(&axes[WEFT_FIT_SHARDING], 0, 0, "strategy.plugin=fsdp");
    else if (plan->world > 1 && shard != NULL && strcmp(shard, "full") != 0)
        add_level(&axes[WEFT_FIT_SHARDING], 0, 0, "strategy.shard=full");
    list_ranks(axes, plan, question->room.shared, is_fsdp);
    list_trainable(&axes[WEFT_FIT_TRAINABLE], session);
}

/* A level of each axis; 0: the current setting. */
typedef struct choice {
    int32_t level[WEFT_N_FIT_AXES];
} choice;

/* Cache of planned choices. */
typedef struct seen {
    choice of;
    weft_fit_change change;
    bool can_run;
} seen;

typedef struct searcher {
    const weft_fit_question *question;
    axis_levels axes[WEFT_N_FIT_AXES];
    seen *all;
    size_t n;
    int64_t left; /* remaining plans */
    weft_fit *out;
} searcher;

/* ---- one choice ---- */

static void describe_choice(const searcher *self, weft_fit_change *out, const choice *of) {
    const weft_plan *plan = &self->question->session->engine->plan;
    out->ranks = plan->world;
    out->nodes = plan->nodes;
    for (int32_t axis = 0; axis < WEFT_N_FIT_AXES; axis++) {
        const axis_level *level = NULL;
        if (of->level[axis] == 0) continue;
        level = &self->axes[axis].at[of->level[axis] - 1];
        if (level->key[0] != '\0') (void)snprintf(out->keys[out->n_keys++], WEFT_TRIAL_KEY_SIZE, "%s", level->key);
        if (level->ranks == 0) continue;
        out->ranks = level->ranks;
        out->nodes = level->nodes;
        out->moves = true;
        out->grows = axis == WEFT_FIT_MORE;
    }
}

/* Returns a choice with its plan. Any failure of the plan means that the choice cannot be run. The pointer is valid
 * until the next call. */
static const seen *look_at(searcher *self, const choice *of) {
    weft_fit_change *least = &self->out->least;
    seen *one = NULL;
    for (size_t i = 0; i < self->n; i++)
        if (memcmp(&self->all[i].of, of, sizeof *of) == 0) return &self->all[i];
    self->all = weft_realloc(self->all, self->n + 1, sizeof *self->all);
    one = &self->all[self->n++];
    memset(one, 0, sizeof *one);
    one->of = *of;
    describe_choice(self, &one->change, of);
    /* more ranks exclude fewer ranks, and are sharded already */
    if (of->level[WEFT_FIT_MORE] > 0 && (of->level[WEFT_FIT_FEWER] > 0 || of->level[WEFT_FIT_SHARDING] > 0)) return one;
    if (one->change.ranks > MOST_RANKS || self->left < 1) return one;
    self->left--;
    one->can_run = plan_change(&one->change, self->question);
    if (one->can_run && (least->need.ranks == 0 ||
                         weft_required_memory_bytes(&least->need) > weft_required_memory_bytes(&one->change.need)))
        *least = one->change;
    return one;
}

static bool choice_fits(searcher *self, const choice *of) {
    const seen *one = look_at(self, of);
    return one->can_run && weft_required_memory_fits(&one->change.need, &self->question->room);
}

/* ---- the search ---- */

/* Finds the mildest sufficient level of one axis in combination with the others, and sets it in `of`. */
static bool find_mildest(searcher *self, choice *of, int32_t axis, int32_t first) {
    choice one = *of;
    for (one.level[axis] = first; one.level[axis] <= self->axes[axis].n; one.level[axis]++) {
        if (!choice_fits(self, &one)) continue;
        *of = one;
        return true;
    }
    return false;
}

static void keep_choice(searcher *self, const choice *of) {
    const weft_fit_change *change = &look_at(self, of)->change;
    if (self->out->n == WEFT_FIT_CHANGES) return;
    for (int32_t i = 0; i < self->out->n; i++) {
        const weft_fit_change *other = &self->out->fitting[i];
        if (memcmp(other->keys, change->keys, sizeof change->keys) == 0 && other->ranks == change->ranks &&
            other->nodes == change->nodes)
            return;
    }
    self->out->fitting[self->out->n++] = *change;
}

/* Reverts unnecessary changes, the most costly first, and makes the rest as mild as possible. */
static void keep_smallest(searcher *self, choice *of) {
    for (int32_t axis = WEFT_N_FIT_AXES - 1; axis >= 0; axis--)
        if (of->level[axis] > 0) (void)find_mildest(self, of, axis, 0);
    keep_choice(self, of);
}

/* Returns whether a fitting change needs no more devices or machines; nearly every run fits on more of them. */
static bool has_change(const searcher *self, bool on_more) {
    for (int32_t i = 0; i < self->out->n; i++)
        if (self->out->fitting[i].grows == on_more) return true;
    return false;
}

/* Adds each axis that is not in `with` already. */
static void find_joined_changes(searcher *self, const choice *with) {
    choice all = *with;
    if (choice_fits(self, &all)) {
        keep_smallest(self, &all);
        return;
    }
    for (int32_t axis = 0; axis < WEFT_N_FIT_AXES; axis++) {
        choice of = *with;
        if (of.level[axis] > 0 || (axis == WEFT_FIT_MORE && has_change(self, true))) continue;
        if (find_mildest(self, &of, axis, 1)) keep_smallest(self, &of);
    }
}

/* Tries single changes, then all changes that keep the result plus one more, then bf16 in addition, then fewer layers.
 */
static void find_changes(weft_fit *out, const weft_fit_question *question) {
    static const weft_fit_axis joined[] = {WEFT_FIT_CHECKPOINTING, WEFT_FIT_PRECISION, WEFT_FIT_TRAINABLE};
    const weft_plan *plan = &question->session->engine->plan;
    const int64_t work = (int64_t)plan->spec.micro_batches * plan->declared->n_segments / plan->world;
    searcher self = {.question = question, .out = out};
    choice with = {{0}};
    /* so many plans end in seconds; fewer for a run with a slow plan */
    self.left = work <= MOST_WORK ? MOST_PLANS : (int64_t)MOST_PLANS * MOST_WORK / work;
    list_axes(self.axes, question);
    for (int axis = 0; axis < WEFT_N_FIT_AXES; axis++)
        if ((question->stays >> axis & 1u) != 0) self.axes[axis].n = 0;
    for (int axis = 0; axis < WEFT_N_FIT_AXES; axis++) {
        choice of = {{0}};
        if (find_mildest(&self, &of, axis, 1)) keep_choice(&self, &of);
    }
    with.level[WEFT_FIT_SAVING] = self.axes[WEFT_FIT_SAVING].n;
    with.level[WEFT_FIT_MICRO] = self.axes[WEFT_FIT_MICRO].n;
    for (size_t i = 0; i < sizeof joined / sizeof *joined; i++) {
        with.level[joined[i]] = self.axes[joined[i]].n;
        if (!has_change(&self, false)) find_joined_changes(&self, &with);
    }
    free(self.all);
}

/* ---- the check ---- */

static void check_needs(weft_fit *out, const weft_fit_question *question, const rank_need *all, int32_t world) {
    weft_fit_question of = *question;
    *out = (weft_fit){.world = world};
    find_fullest(&out->need, &out->room, all, world);
    of.room = out->room;
    out->fits = weft_required_memory_fits(&out->need, &out->room);
    /* No axis changes the preparation of the data. */
    out->unprepared = !out->fits && out->need.preparation > out->room.bytes;
    if (!out->fits && !out->unprepared) find_changes(out, &of);
}

void weft_fit_check(weft_fit *out, const weft_fit_question *question, const weft_all_rank_plan *all_rank_plan) {
    rank_need *all = list_needs(&question->session->engine->plan, all_rank_plan, &question->room);
    check_needs(out, question, all, all_rank_plan == NULL ? 1 : all_rank_plan->world);
    free(all);
}

weft_status weft_fit_check_ranks(weft_fit *out, const weft_fit_question *question, weft_error *err) {
    const weft_engine *engine = question->session->engine;
    const weft_ranks *ranks = &engine->ranks;
    rank_need own = {engine->plan.bytes, question->room, 0};
    void *all = NULL;
    weft_status status = WEFT_OK;
    if (ranks->world > 1) own.node = ranks->process_context->nodes[ranks->base + ranks->rank];
    status = weft_engine_gather(engine, &all, &own, sizeof own, err);
    if (status == WEFT_OK && ranks->rank == 0) check_needs(out, question, all, ranks->world);
    free(all);
    return weft_process_group_agree(&engine->peers, status, err);
}

/* Returns " of 4 ranks", the ranks that share the memory; "" for one rank. */
static const char *ranks_together(char out[32], const weft_fit *fit) {
    *out = '\0';
    if (fit->need.ranks > 1) (void)snprintf(out, 32, " of %d ranks", (int)fit->need.ranks);
    return out;
}

/* Returns true if each of several ranks has its own device or a part of one: then the fullest is identified by its
 * rank. */
static bool is_a_ranks(const weft_fit *fit) {
    return fit->world > 1 && !fit->room.shared;
}

/* Returns the owner of the memory, "rank 1's device", as the subject of a verb. */
static const char *owner_of(char out[48], const weft_fit *fit) {
    if (is_a_ranks(fit)) (void)snprintf(out, 48, "rank %d's device", (int)fit->need.first);
    else (void)snprintf(out, 48, "%s", weft_available_memory_owner(&fit->room));
    return out;
}

/* Returns the available bytes; memory that others use completely is shown as one byte. */
static const char *room_bytes(char out[WEFT_UNIT_SIZE], const weft_available_memory *room) {
    return weft_unit_bytes(out, room->bytes == 1 ? 0 : room->bytes);
}

const char *weft_fit_largest(int64_t *bytes, const weft_fit *fit) {
    const weft_plan_bytes *of = &fit->need.bytes;
    int largest = 0;
    for (int i = 1; i < WEFT_N_MEMORY_CATEGORIES; i++)
        if (of->category[i] > of->category[largest]) largest = i;
    *bytes = of->category[largest];
    if (of->preparation > of->total) {
        largest = WEFT_MEMORY_DATA;
        *bytes = of->preparation;
    }
    return weft_memory_category_name((weft_memory_category)largest);
}

void weft_fit_change_append(char *out, size_t size, const weft_fit_change *change) {
    for (int32_t i = 0; i < change->n_keys; i++)
        weft_words_append(out, size, "%s%s", i > 0 ? " " : "", change->keys[i]);
    if (change->moves) weft_words_append(out, size, "%s--ranks %d", change->n_keys > 0 ? " " : "", (int)change->ranks);
    if (change->moves && change->nodes > 1) weft_words_append(out, size, " on %d machines", (int)change->nodes);
}

weft_status weft_fit_refuse(const weft_fit *fit, weft_error *err) {
    char room[WEFT_UNIT_SIZE], need[WEFT_UNIT_SIZE], most[WEFT_UNIT_SIZE], ranks[32], fix[1200] = "", apart[80] = "",
                                                                                      owner[48];
    int64_t bytes = 0;
    const char *largest = weft_fit_largest(&bytes, fit);
    for (int32_t i = 0; i < fit->n; i++) {
        weft_words_append(fix, sizeof fix, "%s", i == 0 ? "It would fit with " : ", or with ");
        weft_fit_change_append(fix, sizeof fix, &fit->fitting[i]);
        weft_words_append(fix, sizeof fix, " (%s)",
                          weft_unit_bytes(need, weft_required_memory_bytes(&fit->fitting[i].need)));
    }
    if (fit->unprepared)
        weft_words_append(fix, sizeof fix,
                          "The preparation of the data alone exceeds the memory, and no setting reduces it: use less "
                          "data or a larger machine");
    else if (fit->n == 0)
        weft_words_append(fix, sizeof fix,
                          "No change that was tried is enough: take a smaller model or [data] "
                          "context, or a larger machine");
    if (fit->room.held > 0)
        (void)snprintf(apart, sizeof apart, " in addition to the %s of its context and libraries",
                       weft_unit_bytes(room, fit->room.held));
    return weft_error_set(err, WEFT_E_MEMORY,
                          "%s%s are planned, %s of it %s, and %s has %s%s: nothing was started. %s; --no-fit starts it "
                          "as it is",
                          weft_unit_bytes(need, weft_required_memory_bytes(&fit->need)), ranks_together(ranks, fit),
                          weft_unit_bytes(most, bytes), largest, owner_of(owner, fit), room_bytes(room, &fit->room),
                          apart, fix);
}

void weft_fit_warn(const weft_fit *fit, const weft_host *host) {
    const int64_t bytes = weft_required_memory_bytes(&fit->need);
    char free_now[WEFT_UNIT_SIZE], need[WEFT_UNIT_SIZE], room[WEFT_UNIT_SIZE], owner[48];
    if (!fit->fits || fit->room.free < 0 || bytes <= fit->room.free) return;
    weft_log(host, WEFT_LOG_WARN,
             "%s are planned, and of the %s of %s only %s are free now: the others are in use, and the run may be "
             "ended when it takes more",
             weft_unit_bytes(need, bytes), weft_unit_bytes(room, fit->room.bytes), owner_of(owner, fit),
             weft_unit_bytes(free_now, fit->room.free));
}

void weft_fit_print(const weft_fit *fit, int width, FILE *to) {
    char room[WEFT_UNIT_SIZE], need[WEFT_UNIT_SIZE], ranks[32];
    int64_t largest = 0;
    if (fit->room.bytes == 0) return;
    if (fit->fits) (void)fprintf(to, "%-*s", width, "fits");
    else (void)fprintf(to, "does not fit ");
    (void)room_bytes(room, &fit->room);
    if (is_a_ranks(fit)) (void)fprintf(to, "the %s of rank %d's device", room, (int)fit->need.first);
    else (void)fprintf(to, "%s's %s", weft_available_memory_owner(&fit->room), room);
    if (!fit->fits || fit->world > 1) /* else it is printed above */
        (void)fprintf(to, ": %s%s", weft_unit_bytes(need, weft_required_memory_bytes(&fit->need)),
                      ranks_together(ranks, fit));
    (void)fprintf(to, "; largest: %s%s\n", weft_fit_largest(&largest, fit),
                  fit->need.bytes.preparation > fit->need.bytes.total ? " while it is prepared" : "");
    if (fit->room.held > 0)
        (void)fprintf(to, "%-*sthe device's other %s are its context's and its libraries'\n", width, "apart",
                      weft_unit_bytes(room, fit->room.held));
}
