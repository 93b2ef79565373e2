/* host/tools/check/strategy_rules.c: rules for strategies, whose programs the checker of every run verifies. */
#include "program/job.h"
#include "program/program.h"
#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"
#include "tools/check/rule.h"

#include <stdlib.h>
#include <weft/random.h>

/* jobs with units and segments as strategies receive them, generated from a number. */

enum { WEFT_DRAWN_UNITS = 82, WEFT_DRAWN_SEGMENTS = 82, WEFT_DRAWN_JOBS = 108, WEFT_DRAWN_WORLD = 16 };

typedef struct weft_drawn_job {
    weft_job_spec spec; /* points into this struct, so a job must not be copied */
    weft_unit_view unit_views[WEFT_DRAWN_UNITS];
    weft_placement placements[WEFT_DRAWN_UNITS];
    weft_segment_view segment_views[WEFT_DRAWN_SEGMENTS];
    weft_graph_sizes segments[WEFT_DRAWN_SEGMENTS];
    weft_unit_sizes units[WEFT_DRAWN_UNITS];
    int32_t reads[WEFT_DRAWN_SEGMENTS][WEFT_DRAWN_UNITS];
    char names[WEFT_DRAWN_SEGMENTS][32], unit_names[WEFT_DRAWN_UNITS][32];
    char says[160]; /* "3 ranks, 2 micro-batches, training, tied, unit 1 frozen" */
} weft_drawn_job;

typedef struct sketch {
    int32_t world, micro_batches, blocks, per_block, blocks_per_unit;
    bool tied;
    uint32_t frozen; /* bit mask of units */
    int32_t nodes;   /* 0: one node */
    int32_t empty;   /* index of a unit with zero bytes; 0: none, because the root always has some */
    bool uneven;     /* sizes are one more than a multiple of all rank counts */
} sketch;

enum { BY_CHANCE = 96, ALL_DIVIDE = 720720 }; /* divisible by 1 to 16 */

static const sketch others[WEFT_DRAWN_JOBS - BY_CHANCE] = {
    {.world = 2, .micro_batches = 2, .blocks = 78, .per_block = 1, .blocks_per_unit = 1},
    {.world = 16, .micro_batches = 1, .blocks = 39, .per_block = 2, .blocks_per_unit = 2, .uneven = true},
    {.world = 16, .micro_batches = 2, .blocks = 5, .per_block = 2, .blocks_per_unit = 1, .nodes = 2},
    {.world = 2, .micro_batches = 2, .blocks = 3, .per_block = 1, .blocks_per_unit = 1, .nodes = 2},
    {.world = 4, .micro_batches = 3, .blocks = 4, .per_block = 2, .blocks_per_unit = 1, .nodes = 2, .uneven = true},
    {.world = 6, .micro_batches = 2, .blocks = 6, .per_block = 1, .blocks_per_unit = 2, .nodes = 2, .empty = 2},
    {.world = 8, .micro_batches = 2, .blocks = 6, .per_block = 2, .blocks_per_unit = 1, .nodes = 2, .tied = true},
    {.world = 3, .micro_batches = 2, .blocks = 4, .per_block = 1, .blocks_per_unit = 1, .empty = 1, .uneven = true},
    {.world = 1, .micro_batches = 3, .blocks = 2, .per_block = 1, .blocks_per_unit = 1, .empty = 2},
    {.world = 7, .micro_batches = 1, .blocks = 6, .per_block = 2, .blocks_per_unit = 1, .uneven = true, .frozen = 3},
    {.world = 12, .micro_batches = 1, .blocks = 6, .per_block = 2, .blocks_per_unit = 1, .nodes = 2, .empty = 3},
    {.world = 5, .micro_batches = 2, .blocks = 5, .per_block = 1, .blocks_per_unit = 2, .tied = true, .empty = 1}};

static int32_t draw(uint32_t number, uint32_t what, int32_t below) {
    return (int32_t)(weft_random(number, WEFT_RANDOM_SAMPLE, 1, what).v[0] % (uint32_t)below);
}

/* Draws a sketch. Units: the root (embedding, and the head if tied), the blocks, and the final norm and head. */
static sketch by_chance(uint32_t number) {
    sketch s = {.world = 1 + (int32_t)(number % 8),
                .micro_batches = 1 + draw(number, 1, 3),
                .blocks = 1 + draw(number, 2, 6),
                .per_block = 1 + draw(number, 3, 2),
                .blocks_per_unit = 1 + draw(number, 4, 2),
                .tied = draw(number, 5, 3) == 0};
    if (draw(number, 6, 3) == 0) s.frozen = 1u << draw(number, 7, 3);
    if (draw(number, 8, 4) == 0) s.frozen |= 3u;
    return s;
}

static sketch sketch_of(uint32_t number) {
    if (number >= BY_CHANCE) return others[number - BY_CHANCE];
    return by_chance(number);
}

static int32_t block_units(const sketch *s) {
    return (s->blocks + s->blocks_per_unit - 1) / s->blocks_per_unit;
}

static void read_unit(weft_drawn_job *job, int32_t segment, int32_t unit) {
    weft_segment_view *view = &job->segment_views[segment];
    job->reads[segment][view->n_units++] = unit;
}

static void add_segment(weft_drawn_job *job, int32_t unit, const char *name) {
    const int32_t s = job->spec.view.n_segments++;
    weft_segment_view *view = &job->segment_views[s];
    (void)snprintf(job->names[s], sizeof job->names[0], "%s", name);
    view->struct_size = (uint32_t)sizeof *view;
    view->name = job->names[s];
    view->owner = -1;
    view->units = job->reads[s];
    read_unit(job, s, unit);
}

static void add_units(weft_drawn_job *job, const sketch *s) {
    const int32_t n = block_units(s) + 2;
    for (int32_t u = 0; u < n; u++) {
        weft_unit_view *view = &job->unit_views[u];
        const bool empty = u > 0 && u == s->empty;
        const bool trained = !empty && (u >= 32 || (s->frozen >> u & 1) == 0);
        if (u == 0) (void)snprintf(job->unit_names[u], sizeof job->unit_names[0], "root");
        else if (u == n - 1) (void)snprintf(job->unit_names[u], sizeof job->unit_names[0], "norm");
        else (void)snprintf(job->unit_names[u], sizeof job->unit_names[0], "layers.%d", (int)u - 1);
        view->struct_size = (uint32_t)sizeof *view;
        view->flags = u == 0 ? WEFT_UNIT_IS_ROOT : 0;
        view->name = job->unit_names[u];
        view->parameter_bytes = view->gather_bytes = empty ? 0 : s->uneven ? ALL_DIVIDE * (1 + u) + 1 : 4096 + 512 * u;
        view->gradient_bytes = !trained ? 0 : s->uneven ? view->parameter_bytes : 2048 + 64 * u;
        view->state_bytes = 2 * view->gradient_bytes;
        job->placements[u].struct_size = (uint32_t)sizeof(weft_placement);
        job->placements[u].owner = -1;
        job->units[u].gradient = view->gradient_bytes;
        job->units[u].gathered = view->gather_bytes;
        for (int32_t scope = WEFT_SCOPE_ALL; scope <= WEFT_SCOPE_ACROSS && trained; scope++)
            job->units[u].exchange[scope] = 1024;
    }
    job->spec.view.n_units = n;
}

static void add_segments(weft_drawn_job *job, const sketch *s) {
    const int32_t end = job->spec.view.n_units - 1;
    char name[32];
    add_segment(job, 0, "embed");
    for (int32_t i = 0; i < s->blocks * s->per_block; i++) {
        (void)snprintf(name, sizeof name, "layers.%d.%d", (int)(i / s->per_block), (int)(i % s->per_block));
        add_segment(job, 1 + i / s->per_block / s->blocks_per_unit, name);
    }
    add_segment(job, s->tied ? 0 : end, "head");
    if (s->tied) read_unit(job, job->spec.view.n_segments - 1, end);
}

/* Sets sizes as a graph would: a segment has a BACKWARD if it or a lower one contains trained parameters. */
static void size_segments(weft_drawn_job *job, int32_t mode) {
    bool below = false;
    for (int32_t s = 0; s < job->spec.view.n_segments; s++) {
        weft_segment_view *view = &job->segment_views[s];
        weft_graph_sizes *sizes = &job->segments[s];
        for (int32_t i = 0; i < view->n_units; i++) below = below || job->unit_views[view->units[i]].gradient_bytes > 0;
        sizes->has_backward = mode == WEFT_MODE_TRAIN && below;
        sizes->backward_reads_carry = s % 3 != 1;
        sizes->carry = s == job->spec.view.n_segments - 1 ? 0 : 640;
        sizes->tape = sizes->has_backward ? 1024 + 64 * s : 0;
        sizes->forward_work = 320;
        sizes->forward_work_untaped = 512;
        sizes->recompute_work = sizes->backward_work = 768;
        view->backward = sizes->has_backward ? 1 : 0;
        view->carry_bytes = sizes->carry;
        view->tape_bytes = sizes->tape;
        view->parameter_bytes = job->unit_views[view->units[0]].parameter_bytes;
    }
}

/* Draws job `number` in a mode. Numbers below 96 have 1 to 8 ranks, 1 to 3 micro-batches, and 1 to 6 blocks of one or
 * two segments. They include tied storage, frozen units at the bottom and in the middle, units of several blocks, and
 * units that no segment reads. Numbers from 96 on cover cases that random draws miss: up to 16 ranks, two nodes, 80
 * segments, a unit of zero bytes, and sizes that no rank count divides. The job has no placement. */
static void weft_job_draw(weft_drawn_job *out, uint32_t number, int32_t mode) {
    const sketch s = sketch_of(number);
    weft_strategy_job *view = &out->spec.view;
    memset(out, 0, sizeof *out);
    add_units(out, &s);
    add_segments(out, &s);
    size_segments(out, mode);
    view->struct_size = (uint32_t)sizeof *view;
    view->mode = mode;
    view->world = s.world;
    view->nodes = s.nodes > 0 ? s.nodes : 1;
    view->ranks_per_node = view->world / view->nodes;
    view->micro_batches = mode == WEFT_MODE_TRAIN ? s.micro_batches : 1;
    view->units = out->unit_views;
    view->segments = out->segment_views;
    view->placements = out->placements;
    view->unit_stride = (uint32_t)sizeof(weft_unit_view);
    view->segment_stride = (uint32_t)sizeof(weft_segment_view);
    view->placement_stride = (uint32_t)sizeof(weft_placement);
    out->spec.segments = out->segments;
    out->spec.units = out->units;
    out->spec.micro_batch_bytes = 200;
    out->spec.step_work = 256;
    (void)snprintf(out->says, sizeof out->says,
                   "%d ranks on %d %s, %d micro-batches, %d blocks in %d units, %s%s%s%s%s", (int)s.world,
                   (int)view->nodes, view->nodes == 1 ? "machine" : "machines", (int)s.micro_batches, (int)s.blocks,
                   (int)block_units(&s), weft_mode_name(mode), s.tied ? ", tied" : "",
                   s.frozen != 0 ? ", partly frozen" : "", s.empty > 0 ? ", a unit without a byte" : "",
                   s.uneven ? ", sizes that no number of ranks divides" : "");
}

typedef struct asked {
    weft_drawn_job job;
    weft_program *programs[WEFT_DRAWN_WORLD];
    bool is_none; /* the strategy has no job to run */
} asked;

static void asked_clear(asked *self) {
    for (int32_t rank = 0; rank < WEFT_DRAWN_WORLD; rank++) {
        weft_program_destroy(self->programs[rank]);
        self->programs[rank] = NULL;
    }
}

/* True if several owners read one unit that is not tied storage. A run's host splits such a unit and calls again. */
static bool is_split(const weft_job_spec *job) {
    for (int32_t u = 0; u < job->view.n_units; u++) {
        int32_t owner = -1;
        for (int32_t s = 0; s < job->view.n_segments; s++) {
            const int32_t other = job->view.segments[s].owner;
            if (other < 0 || !weft_job_spec_reads(job, s, u)) continue;
            if (owner >= 0 && owner != other && u != 0) return true;
            owner = other;
        }
    }
    return false;
}

/* True for the codes with which a strategy rejects a job. The error must have a message. */
static bool is_refusal(weft_status status) {
    return status == WEFT_E_USER || status == WEFT_E_UNSUPPORTED;
}

/* Returns the programs of all ranks for a drawn job. is_refusal: the strategy rejects such a job. */
static weft_status ask(asked *out, const weft_plugin_under_test *tested, uint32_t number, int32_t mode, int32_t reduce,
                       uint8_t poison, weft_error *err) {
    const weft_strategy_plugin *table = weft_plugin_under_test_table(tested, strategy);
    const weft_host *host = weft_plugin_under_test_host(poison);
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    weft_job_draw(&out->job, number, mode);
    out->job.spec.view.reduce = reduce;
    weft_plugin_under_test_asks("job %u (%s)", number, out->job.says);
    status = weft_job_spec_check(&out->job.spec, err);
    out->is_none = status != WEFT_OK;
    if (status != WEFT_OK) return weft_error_set(err, WEFT_E_USER, "the job has no trained parameter");
    status = weft_job_replicas(&out->job.spec, host, table, tested->config, err);
    if (status == WEFT_OK) status = weft_job_place(&out->job.spec, host, table, tested->config, err);
    out->is_none = status == WEFT_OK && is_split(&out->job.spec);
    if (out->is_none) return weft_error_set(err, WEFT_E_USER, "its units would be split");
    for (int32_t rank = 0; rank < out->job.spec.view.world && status == WEFT_OK; rank++)
        status = weft_program_compile(&out->programs[rank], host, table, tested->config, &out->job.spec, rank, err);
    if (status != WEFT_OK && err->text[0] == '\0') return WEFT_BROKEN(err, "it fails without an error message");
    return status;
}

typedef weft_status (*on_job)(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                              weft_error *err);

enum { ONE_JOB_IN = 20 }; /* minimum share of accepted jobs: a strategy may support only one rank */

/* Runs a test for each job. Skips jobs that the strategy rejects with a message. */
static weft_status each_job(weft_plugin_under_test *tested, on_job holds, weft_error *err) {
    static const int32_t modes[] = {WEFT_MODE_TRAIN, WEFT_MODE_EVALUATE, WEFT_MODE_GENERATE};
    asked *a = weft_alloc(1, sizeof *a);
    weft_tried tried = {0};
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < 3 * WEFT_DRAWN_JOBS && status == WEFT_OK; i++) {
        status = holds(a, tested, i / 3, modes[i % 3], err);
        tried.tried += status == WEFT_OK;
        if (status != WEFT_OK && !is_refusal(status)) (void)weft_error_prefix(err, "job %u (%s): ", i / 3, a->job.says);
        if (is_refusal(status)) {
            if (!a->is_none) weft_tried_refused(&tried, weft_plugin_under_test_asked(), err);
            err->text[0] = '\0';
            status = WEFT_OK;
        }
        asked_clear(a);
    }
    free(a);
    return status == WEFT_OK ? weft_tried_check(&tried, tested, "jobs in a mode", ONE_JOB_IN, err) : status;
}

/* ---- the rules ---- */

static weft_status is_proved(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                             int32_t reduce, weft_error *err) {
    weft_coverage coverage;
    weft_status status = ask(a, tested, number, mode, reduce, WEFT_POISON_ONE, err);
    if (status != WEFT_OK) return status;
    status = weft_programs_check(&coverage, (const weft_program *const *)a->programs, &a->job.spec, err);
    if (status == WEFT_OK && reduce != WEFT_REDUCE_FAST && !coverage.covered)
        return WEFT_BROKEN(err, "its sums are not those of `reduce`: %s", coverage.why);
    return status == WEFT_E_USER ? WEFT_BROKEN(err, "%s", err->text) : status;
}

static weft_status proved(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                          weft_error *err) {
    return is_proved(a, tested, number, mode, WEFT_REDUCE_ORDERED, err);
}

static weft_status proved_reduced(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                                  weft_error *err) {
    weft_status status = is_proved(a, tested, number, mode, WEFT_REDUCE_TREE, err);
    asked_clear(a);
    return status == WEFT_OK ? is_proved(a, tested, number, mode, WEFT_REDUCE_FAST, err) : status;
}

static bool same_programs(const asked *a, const asked *b) {
    for (int32_t rank = 0; rank < a->job.spec.view.world; rank++) {
        const weft_program *one = a->programs[rank], *two = b->programs[rank];
        if (one->n_instructions != two->n_instructions ||
            memcmp(one->instructions, two->instructions, (size_t)one->n_instructions * sizeof *one->instructions) != 0)
            return false;
    }
    return memcmp(a->job.placements, b->job.placements, sizeof a->job.placements) == 0;
}

static weft_status answered_alike(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                                  weft_error *err) {
    asked *again = weft_alloc(1, sizeof *again);
    weft_status status = ask(a, tested, number, mode, WEFT_REDUCE_ORDERED, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = ask(again, tested, number, mode, WEFT_REDUCE_ORDERED, WEFT_POISON_TWO, err);
    if (status == WEFT_OK && !same_programs(a, again))
        status = WEFT_BROKEN(err, "it returns a different program or placement on a second call");
    asked_clear(again);
    free(again);
    return status;
}

/* ---- independence from instances with other keys ---- */

enum { KEYED_EVERY = 9 }; /* every ninth job */

static weft_status query_keyed(weft_answer *to, void *made, weft_error *err) {
    const weft_keyed *self = made;
    asked *a = weft_alloc(1, sizeof *a);
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < WEFT_DRAWN_JOBS / KEYED_EVERY && status == WEFT_OK; i++) {
        const uint32_t number = KEYED_EVERY * weft_keyed_at(self, i, WEFT_DRAWN_JOBS / KEYED_EVERY);
        weft_answer one;
        weft_answer_begin(&one);
        status = ask(a, self->tested, number, WEFT_MODE_TRAIN, WEFT_REDUCE_ORDERED, WEFT_POISON_ONE, err);
        for (int32_t rank = 0; rank < a->job.spec.view.world && status == WEFT_OK; rank++)
            weft_answer_add(&one, a->programs[rank]->instructions,
                            (size_t)a->programs[rank]->n_instructions * sizeof *a->programs[rank]->instructions);
        if (status == WEFT_OK) WEFT_ANSWER_ADD(&one, a->job.placements);
        WEFT_ANSWER_ADD(&one, status);
        weft_keyed_add(to, number, &one);
        if (is_refusal(status)) { /* the strategy rejects the job */
            err->text[0] = '\0';
            status = WEFT_OK;
        }
        asked_clear(a);
    }
    free(a);
    return status;
}

static const weft_answers answers = {sizeof(weft_keyed), weft_keyed_open, weft_keyed_close, query_keyed};

/* ---- newer-ABI host ---- */

static weft_status answered_later(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                                  weft_error *err) {
    asked *again = weft_alloc(1, sizeof *again);
    weft_status status = ask(a, tested, number, mode, WEFT_REDUCE_ORDERED, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) {
        status = ask(again, weft_newer_abi(tested), number, mode, WEFT_REDUCE_ORDERED, WEFT_POISON_ONE, err);
        status =
            weft_newer_abi_check(status, status == WEFT_OK && same_programs(a, again), "programs or placements", err);
    }
    asked_clear(again);
    free(again);
    return status;
}

static weft_status keeps_no_memory(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                                   weft_error *err) {
    const weft_status status = ask(a, tested, number, mode, WEFT_REDUCE_ORDERED, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && weft_plugin_under_test_pieces() != 0)
        return WEFT_BROKEN(err, "it does not release %lld allocations of host->alloc",
                           (long long)weft_plugin_under_test_pieces());
    return status;
}

WEFT_RULE_BY(rule_proved, each_job, proved)

static weft_status rule_reduced(weft_plugin_under_test *tested, weft_error *err) {
    if ((weft_plugin_under_test_table(tested, strategy)->flags & WEFT_CAPABILITY_REDUCE) == 0)
        return WEFT_MOOT(tested, err, "it does not offer the key reduce, and need not");
    return each_job(tested, proved_reduced, err);
}

static weft_status rule_alike(weft_plugin_under_test *tested, weft_error *err) {
    const weft_status status = weft_other_keys(tested, &answers, err);
    return status == WEFT_OK ? each_job(tested, answered_alike, err) : status;
}

WEFT_RULE_BY(rule_later, each_job, answered_later)
WEFT_RULE_BY(create_and_destroy, each_job, keeps_no_memory)
WEFT_RULE_BY(rule_memory, weft_plugin_under_test_releases, create_and_destroy)

const weft_rule weft_rules_strategy[] = {
    {"R50", "compiles valid programs for jobs of 1 to 16 ranks, in each mode", rule_proved, false},
    {"R51", "compiles valid programs with reduce = tree and fast, if it supports them", rule_reduced, false},
    {"R52", "compiles the same programs on each call", rule_alike, false},
    {"R53", "frees its memory", rule_memory, false},
    {"R54", "compiles the same programs with a host that has longer structs", rule_later, false},
    {NULL, NULL, NULL, false}};
