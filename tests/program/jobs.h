/* tests/program/jobs.h: small jobs for the tests of this folder, and the built-in strategy, loaded as a plugin. */
#ifndef WEFT_TESTS_PROGRAM_JOBS_H
#define WEFT_TESTS_PROGRAM_JOBS_H

#include "program/events.h"

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <weft/plugin.h>

#define JOB_MAX 8

/* A job whose arrays lie in one struct. */
typedef struct tiny_job {
    weft_job_spec spec;
    weft_unit_view unit_views[JOB_MAX];
    weft_segment_view segment_views[JOB_MAX];
    weft_segment_sizes segments[JOB_MAX];
    weft_unit_sizes units[JOB_MAX];
    int32_t reads[JOB_MAX][JOB_MAX];
} tiny_job;

typedef struct tiny_options {
    int32_t mode, leaves;
    bool tied;       /* the last segment reads unit 0 as well */
    uint32_t frozen; /* mask of units */
    bool checkpointing;
} tiny_options;

static const char *const tiny_names[] = {"embed",         "layers.0.attn", "layers.0.mlp",
                                         "layers.1.attn", "layers.1.mlp",  "head"};
static const char *const tiny_units[] = {"root", "layers.0", "layers.1", "norm"};
static const int32_t tiny_reads[][2] = {{0, -1}, {1, -1}, {1, -1}, {2, -1}, {2, -1}, {3, -1}};
enum { TINY_SEGMENTS = 6, TINY_UNITS = 4, TINY_DEAF = 2 }; /* the deaf one's BACKWARD needs its tape alone */

static inline void tiny_segment(tiny_job *job, const tiny_options *options, int32_t s, bool *below) {
    weft_segment_view *view = &job->segment_views[s];
    weft_segment_sizes *sizes = &job->segments[s];
    bool trained = *below;
    view->struct_size = (uint32_t)sizeof *view;
    view->name = tiny_names[s];
    view->units = job->reads[s];
    if (options->tied && s == TINY_SEGMENTS - 1) job->reads[s][view->n_units++] = 0;
    job->reads[s][view->n_units++] = tiny_reads[s][0];
    for (int32_t i = 0; i < view->n_units; i++)
        if ((options->frozen >> job->reads[s][i] & 1) == 0) trained = true;
    sizes->carry = s == TINY_SEGMENTS - 1 ? 0 : 640;
    sizes->has_backward = options->mode == WEFT_MODE_TRAIN && trained;
    sizes->backward_reads_carry = s != TINY_DEAF;
    sizes->carry_gradient = options->mode == WEFT_MODE_TRAIN && *below;
    sizes->tape = sizes->has_backward ? 1000 + 100 * s : 0;
    sizes->forward_work = 300 + 10 * s;
    sizes->forward_work_untaped = 500 + 10 * s;
    sizes->recompute_work = 200 + 10 * s;
    sizes->backward_work = 700 + 10 * s;
    sizes->forward_seconds = 0.5;
    sizes->backward_seconds = 1.0;
    view->backward = sizes->has_backward;
    view->carry_bytes = sizes->carry;
    view->tape_bytes = sizes->tape;
    *below = trained;
}

/* embed (root); two layers of attn and mlp (layers.0, layers.1); head (norm, and root where tied). */
static inline void tiny_make(tiny_job *job, const tiny_options *options) {
    bool below = false;
    weft_strategy_job *view = &job->spec.view;
    memset(job, 0, sizeof *job);
    for (int32_t u = 0; u < TINY_UNITS; u++) {
        job->unit_views[u].struct_size = (uint32_t)sizeof(weft_unit_view);
        job->unit_views[u].name = tiny_units[u];
        job->unit_views[u].parameter_bytes = 4096;
        if ((options->frozen >> u & 1) == 0) job->unit_views[u].gradient_bytes = 2000 + 64 * u;
        job->units[u].gradient = job->unit_views[u].gradient_bytes;
    }
    for (int32_t s = 0; s < TINY_SEGMENTS; s++) tiny_segment(job, options, s, &below);
    view->struct_size = (uint32_t)sizeof *view;
    view->mode = options->mode;
    view->world = view->nodes = view->ranks_per_node = 1;
    view->leaves = options->leaves;
    view->n_units = TINY_UNITS;
    view->n_segments = TINY_SEGMENTS;
    view->units = job->unit_views;
    view->segments = job->segment_views;
    view->unit_stride = (uint32_t)sizeof(weft_unit_view);
    view->segment_stride = (uint32_t)sizeof(weft_segment_view);
    job->spec.segments = job->segments;
    job->spec.units = job->units;
    job->spec.leaf_bytes = 200;
    job->spec.reduce_work = 128;
    job->spec.step_work = 256;
    job->spec.activation_checkpointing = options->checkpointing;
}

/* strategy/single as the host would load it. */
static inline const weft_strategy_plugin *load_single(void) {
    static const weft_strategy_plugin *table = NULL;
    char path[1024];
    void *file = NULL;
    void *symbol = NULL;
    weft_plugin_entry_fn *entry = NULL;
    weft_error err = WEFT_ERROR_INIT;
    const char *directory = getenv("WEFT_PLUGIN_PATH");
    if (table != NULL) return table;
    ck_assert_msg(directory != NULL, "WEFT_PLUGIN_PATH is not set: run the tests through ctest");
    (void)snprintf(path, sizeof path, "%s/weft-strategy-single.so", directory);
    file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(file != NULL, "cannot load %s", path);
    symbol = dlsym(file, "weft_plugin_entry");
    ck_assert_ptr_nonnull(symbol);
    memcpy(&entry, &symbol, sizeof entry);
    table = entry(NULL, &err)->plugins[0].table;
    return table;
}

static inline weft_program *compile_with(tiny_job *job, const weft_strategy_plugin *strategy) {
    weft_error err = WEFT_ERROR_INIT;
    weft_program *program = NULL;
    ck_assert_msg(weft_program_compile(&program, NULL, strategy, NULL, &job->spec, 0, &err) == WEFT_OK, "%s", err.text);
    return program;
}

static inline weft_program *tiny_program(tiny_job *job, const tiny_options *options) {
    tiny_make(job, options);
    return compile_with(job, load_single());
}

/* Index of the event; -1: none. Operands that the kind does not speak of are -1. */
static inline int32_t find_event(const weft_program *program, int32_t kind, int32_t segment, int32_t unit,
                                 int32_t leaf) {
    for (int32_t i = 0; i < program->n_events; i++) {
        const weft_event *event = &program->events[i];
        if (event->kind == kind && event->segment == segment && event->unit == unit && event->leaf == leaf) return i;
    }
    return -1;
}

#endif
