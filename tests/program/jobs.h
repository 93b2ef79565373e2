/* tests/program/jobs.h: small jobs for the tests of this folder, and the built-in strategies, loaded as plugins. */
#ifndef WEFT_TESTS_PROGRAM_JOBS_H
#define WEFT_TESTS_PROGRAM_JOBS_H

#include "plugin/services.h"
#include "program/execute.h"

#include "model/llama.h"
#include "suite.h"

#define JOB_MAX  8
#define TEAM_MAX 8

/* A job with all its arrays in one struct. */
typedef struct tiny_job {
    weft_job_spec spec;
    weft_unit_view unit_views[JOB_MAX];
    weft_placement placements[JOB_MAX];
    weft_segment_view segment_views[JOB_MAX];
    weft_graph_sizes segments[JOB_MAX];
    weft_unit_sizes units[JOB_MAX];
    int32_t reads[JOB_MAX][JOB_MAX];
} tiny_job;

typedef struct tiny_options {
    int32_t mode, micro_batches;
    bool tied;       /* the last segment also reads unit 0 */
    uint32_t frozen; /* bit mask of units */
    bool checkpointing;
    int32_t world; /* 0: one rank */
    int32_t reduce;
    int32_t prefetch;
} tiny_options;

static const char *const tiny_names[] = {"embed",         "layers.0.attn", "layers.0.mlp",
                                         "layers.1.attn", "layers.1.mlp",  "head"};
static const char *const tiny_units[] = {"root", "layers.0", "layers.1", "norm"};
static const int32_t tiny_reads[][2] = {{0, -1}, {1, -1}, {1, -1}, {2, -1}, {2, -1}, {3, -1}};
enum { TINY_SEGMENTS = 6, TINY_UNITS = 4, TINY_DEAF = 2 }; /* the BACKWARD of TINY_DEAF needs only its tape */

static inline void tiny_segment(tiny_job *job, const tiny_options *options, int32_t s, bool *below) {
    weft_segment_view *view = &job->segment_views[s];
    weft_graph_sizes *sizes = &job->segments[s];
    bool trained = *below;
    view->struct_size = (uint32_t)sizeof *view;
    view->name = tiny_names[s];
    view->units = job->reads[s];
    view->owner = -1;
    if (options->tied && s == TINY_SEGMENTS - 1) job->reads[s][view->n_units++] = 0;
    job->reads[s][view->n_units++] = tiny_reads[s][0];
    for (int32_t i = 0; i < view->n_units; i++)
        if ((options->frozen >> job->reads[s][i] & 1) == 0) trained = true;
    sizes->carry = s == TINY_SEGMENTS - 1 ? 0 : 640;
    sizes->has_backward = options->mode == WEFT_MODE_TRAIN && trained;
    sizes->backward_reads_carry = s != TINY_DEAF;
    sizes->tape = sizes->has_backward ? 1000 + 100 * s : 0;
    sizes->forward_work = 300 + 10 * s;
    sizes->forward_work_untaped = 500 + 10 * s;
    sizes->recompute_work = 200 + 10 * s;
    sizes->backward_work = 700 + 10 * s;
    view->backward = sizes->has_backward;
    view->carry_bytes = sizes->carry;
    view->tape_bytes = sizes->tape;
    *below = trained;
}

/* embed (root); two layers of attn and mlp (layers.0, layers.1); head (norm, and root if tied). */
static inline void tiny_make(tiny_job *job, const tiny_options *options) {
    bool below = false;
    weft_strategy_job *view = &job->spec.view;
    memset(job, 0, sizeof *job);
    for (int32_t u = 0; u < TINY_UNITS; u++) {
        job->unit_views[u].struct_size = (uint32_t)sizeof(weft_unit_view);
        job->unit_views[u].name = tiny_units[u];
        job->unit_views[u].parameter_bytes = 4096;
        job->placements[u].owner = -1;
        job->unit_views[u].flags = u == 0 ? WEFT_UNIT_IS_ROOT : 0;
        if ((options->frozen >> u & 1) == 0) job->unit_views[u].gradient_bytes = 2000 + 64 * u;
        job->units[u].gradient = job->unit_views[u].gradient_bytes;
        job->units[u].gathered = 4096;
        for (int32_t scope = WEFT_SCOPE_ALL; scope <= WEFT_SCOPE_ACROSS && job->units[u].gradient > 0; scope++)
            job->units[u].exchange[scope] = 1024;
    }
    for (int32_t s = 0; s < TINY_SEGMENTS; s++) tiny_segment(job, options, s, &below);
    view->struct_size = (uint32_t)sizeof *view;
    view->mode = options->mode;
    view->world = view->ranks_per_node = options->world == 0 ? 1 : options->world;
    view->nodes = 1;
    view->micro_batches = options->micro_batches;
    view->reduce = options->reduce;
    view->n_units = TINY_UNITS;
    view->n_segments = TINY_SEGMENTS;
    view->units = job->unit_views;
    view->segments = job->segment_views;
    view->placements = job->placements;
    view->unit_stride = (uint32_t)sizeof(weft_unit_view);
    view->segment_stride = (uint32_t)sizeof(weft_segment_view);
    view->placement_stride = (uint32_t)sizeof(weft_placement);
    job->spec.segments = job->segments;
    job->spec.units = job->units;
    job->spec.micro_batch_bytes = 200;
    job->spec.step_work = 256;
    job->spec.activation_checkpointing = options->checkpointing;
    job->spec.prefetch = options->prefetch;
}

/* ---- strategies ---- */

/* A strategy as loaded by the host, and the values of its keys. */
typedef struct strategy {
    const weft_strategy_plugin *table;
    int64_t config[64];
} strategy;

static inline void set_key(strategy *to, const weft_key *key, const char *value) {
    char *at = (char *)to->config + key->offset;
    int64_t number = 0;
    if (key->type == WEFT_KEY_STR || key->type == WEFT_KEY_LIST) {
        memcpy(at, &value, sizeof value);
        return;
    }
    if (key->type == WEFT_KEY_ENUM) {
        const char *rest = key->range;
        for (; strncmp(rest, value, strcspn(rest, ",")) != 0 || strlen(value) != strcspn(rest, ","); number++) {
            rest = strchr(rest, ',');
            ck_assert_msg(rest != NULL, "%s has no value %s", key->name, value);
            rest++;
        }
    } else if (key->type == WEFT_KEY_BOOL) number = strcmp(value, "yes") == 0;
    else number = strcmp(value, "auto") == 0 ? WEFT_AUTO_I64 : strtoll(value, NULL, 10);
    memcpy(at, &number, sizeof number);
}

/* keys: "shard=hybrid shard_group=2", or NULL; the text must outlive the strategy. */
static inline void load_strategy(strategy *out, const char *name, const char *keys) {
    char path[64];
    static char values[64][64];
    static int next;
    const weft_plugin *plugin = NULL;
    (void)snprintf(path, sizeof path, "strategy-%s", name);
    plugin = built_plugin(path);
    memset(out, 0, sizeof *out);
    out->table = plugin->table;
    ck_assert_uint_le(plugin->config_size, sizeof out->config);
    for (uint64_t k = 0; k < plugin->n_keys; k++) {
        const weft_key *key = &plugin->keys[k];
        const size_t length = strlen(key->name);
        const char *value = key->fallback, *at = keys;
        while (at != NULL && !(strncmp(at, key->name, length) == 0 && at[length] == '='))
            at = strchr(at, ' ') == NULL ? NULL : strchr(at, ' ') + 1;
        if (at != NULL) {
            char *copy = values[next++ % 64];
            (void)snprintf(copy, sizeof values[0], "%.*s", (int)strcspn(at + length + 1, " "), at + length + 1);
            value = copy;
        }
        set_key(out, key, value);
    }
}

static inline const weft_strategy_plugin *load_single(void) {
    static strategy single;
    if (single.table == NULL) load_strategy(&single, "single", NULL);
    return single.table;
}

/* ---- programs ---- */

static inline void place_job(tiny_job *job, const strategy *by) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(weft_job_replicas(&job->spec, weft_services(), by->table, by->config, &err), err);
    ck_assert_ok(weft_job_place(&job->spec, weft_services(), by->table, by->config, &err), err);
}

static inline weft_program *compile_rank(const tiny_job *job, const strategy *by, int32_t rank) {
    weft_error err = WEFT_ERROR_INIT;
    weft_program *program = NULL;
    ck_assert_ok(weft_program_compile(&program, weft_services(), by->table, by->config, &job->spec, rank, &err), err);
    return program;
}

/* With one rank. */
static inline weft_program *tiny_program(tiny_job *job, const tiny_options *options) {
    const strategy by = {.table = load_single()};
    tiny_make(job, options);
    place_job(job, &by);
    return compile_rank(job, &by, 0);
}

/* The programs of all ranks of a job. */
typedef struct team {
    tiny_job job;
    int32_t world;
    weft_program *programs[TEAM_MAX];
} team;

static inline void team_make(team *out, const tiny_options *options, const strategy *by) {
    tiny_make(&out->job, options);
    place_job(&out->job, by);
    out->world = out->job.spec.view.world;
    for (int32_t rank = 0; rank < out->world; rank++) out->programs[rank] = compile_rank(&out->job, by, rank);
}

static inline void team_free(team *self) {
    for (int32_t rank = 0; rank < self->world; rank++) weft_program_destroy(self->programs[rank]);
}

static inline weft_status team_check(const team *self, weft_coverage *coverage, weft_error *err) {
    return weft_programs_check(coverage, (const weft_program *const *)self->programs, &self->job.spec, err);
}

/* No two slots that are live at the same time share bytes of the arena. */
static inline void check_slots(const weft_program *program) {
    for (int32_t i = 0; i < program->n_slots; i++)
        for (int32_t j = 0; j < i; j++) {
            const weft_slot *a = &program->slots[i], *b = &program->slots[j];
            must(a->offset + a->bytes <= program->arena);
            must(a->offset < 0 || b->offset < 0 || a->last < b->first || b->last < a->first ||
                 a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
        }
}

/* Returns the index of the instruction; -1: not found. Operands unused by the kind are -1. */
static inline int32_t find_instruction(const weft_program *program, int32_t kind, int32_t segment, int32_t unit,
                                       int32_t micro_batch) {
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        if (instruction->kind == kind && instruction->segment == segment && instruction->unit == unit &&
            instruction->micro_batch == micro_batch)
            return i;
    }
    return -1;
}

#endif
