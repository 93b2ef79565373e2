/* host/tools/check/jobs.c: see jobs.h. */
#include "tools/check/jobs.h"

#include <weft/random.h>

typedef struct sketch {
    int32_t world, micro_batches, blocks, per_block, blocks_per_unit;
    bool tied;
    uint32_t frozen; /* mask of units */
    int32_t nodes;   /* 0: one */
    int32_t empty;   /* a unit that has no byte; 0: none, for the root has some */
    bool uneven;     /* sizes are one more than what all numbers of ranks divide */
} sketch;

enum { BY_CHANCE = 96, ALL_DIVIDE = 720720 }; /* 1 to 16 divide it */

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

/* Units: the root (embedding, and the head where it is tied), blocks, and the end's norm and head. */
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

/* Sizes as graphs would have them: a segment with something trained at or below it has a BACKWARD. */
static void size_segments(weft_drawn_job *job, int32_t mode) {
    bool below = false;
    for (int32_t s = 0; s < job->spec.view.n_segments; s++) {
        weft_segment_view *view = &job->segment_views[s];
        weft_segment_sizes *sizes = &job->segments[s];
        sizes->carry_gradient = mode == WEFT_MODE_TRAIN && below;
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

void weft_job_draw(weft_drawn_job *out, uint32_t number, int32_t mode) {
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
