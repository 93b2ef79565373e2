/* host/program/plugin_answers.c: records and compares hashes of plugin results (plan.h). */
#include "program/plan.h"

#include "base/text.h"

/* Of FNV-1a hashes. */
#define FNV_BEGIN 0xCBF29CE484222325u

/* Continues a hash. */
static uint64_t mix(uint64_t hash, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3u;
    return hash;
}

static uint64_t mix_number(uint64_t hash, int64_t value) {
    return mix(hash, &value, sizeof value);
}

static uint64_t mix_text(uint64_t number, const char *text) {
    return mix(number, text == NULL ? "" : text, text == NULL ? 1 : strlen(text) + 1);
}

static uint64_t mix_parameter(uint64_t number, const weft_parameter *p) {
    const int64_t fields[] = {p->rank, p->role, p->is_bias, p->frozen, p->dims[0], p->dims[1], p->dtype, p->n_aliases};
    number = mix_text(number, p->name);
    number = mix(number, fields, sizeof fields);
    for (int32_t i = 0; i < p->n_aliases; i++) number = mix_text(number, p->aliases[i]);
    return number;
}

/* Records the parameters of the model (added = 0) or of an adapter. */
static void note_parameters(weft_plan_answer *out, const weft_declared *declared, int32_t added) {
    int64_t numel = 0;
    int32_t n = 0;
    out->number = FNV_BEGIN;
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        const weft_parameter *parameter = &declared->parameters[p];
        if (parameter->added != added) continue;
        out->number = mix_parameter(out->number, parameter);
        numel += parameter->numel;
        n++;
    }
    (void)snprintf(out->said, sizeof out->said, "%d, of %lld elements", (int)n, (long long)numel);
}

void weft_answers_note_model(weft_plan *plan) {
    const weft_declared *declared = plan->declared;
    const weft_model_info *info = &declared->info;
    const int64_t fields[] = {info->vocab_size, info->max_context, info->n_layers, declared->carry_width};
    weft_plan_answer *out = &plan->answers.of[WEFT_ANSWER_MODEL];
    note_parameters(out, declared, 0);
    out->number = mix(out->number, fields, sizeof fields);
    for (int32_t s = 0; s < declared->n_segments; s++) out->number = mix_text(out->number, declared->segments[s].name);
}

void weft_answers_note_adapters(weft_plan *plan) {
    for (int32_t i = 0; i < plan->declared->n_adapters; i++)
        note_parameters(&plan->answers.of[WEFT_ANSWER_ADAPTERS + i], plan->declared, 1 + i);
}

/* Writes "3 (root, model.layers.0, model.layers.1)", or only the first names. */
static void describe_units(weft_plan_answer *out, const weft_layout *layout) {
    const size_t room = sizeof out->said - 8;
    (void)snprintf(out->said, sizeof out->said, "%d (", (int)layout->n_units);
    for (int32_t u = 0; u < layout->n_units; u++) {
        const char *name = layout->units[u].name;
        if (strlen(out->said) + strlen(name) + 2 >= room) {
            weft_words_append(out->said, sizeof out->said, "%s...", u == 0 ? "" : ", ");
            break;
        }
        weft_words_append(out->said, sizeof out->said, "%s%s", u == 0 ? "" : ", ", name);
    }
    weft_words_append(out->said, sizeof out->said, ")");
}

void weft_answers_note_units(weft_plan *plan) {
    const weft_layout *layout = plan->layout;
    weft_plan_answer *out = &plan->answers.of[WEFT_ANSWER_UNITS];
    out->number = FNV_BEGIN;
    for (int32_t u = 0; u < layout->n_units; u++) out->number = mix_text(out->number, layout->units[u].name);
    describe_units(out, layout);
    for (int32_t p = 0; p < plan->declared->n_parameters; p++)
        out->number = mix_number(out->number, plan->declared->parameters[p].unit);
}

static uint64_t mix_segments(uint64_t number, const weft_graph_set *set) {
    for (int32_t s = 0; set != NULL && s < set->n_segments; s++) {
        int32_t n = 0;
        const weft_graph_read *reads = weft_graph_reads(set->graphs[s], &n);
        number = mix_number(number, n);
        for (int32_t i = 0; i < n; i++) number = mix_number(number, reads[i].parameter);
    }
    return number;
}

static uint64_t mix_places(uint64_t number, const weft_job *job) {
    const weft_strategy_job *view = &job->spec.view;
    number = mix_number(mix_number(number, view->replicas), view->micro_batches);
    for (int32_t u = 0; u < view->n_units; u++) {
        const weft_placement *p = &job->placements[u];
        const int32_t fields[] = {p->parameters, p->gradients, p->optimizer, p->owner, p->group, p->tier};
        number = mix(number, fields, sizeof fields);
    }
    for (int32_t s = 0; s < view->n_segments; s++) number = mix_number(number, job->segment_views[s].owner);
    return number;
}

/* Writes the number of replicas and of units by placement. */
static void describe_places(weft_plan_answer *out, const weft_job *job) {
    const weft_strategy_job *view = &job->spec.view;
    int32_t sharded[3] = {0}, owned = 0;
    for (int32_t u = 0; u < view->n_units; u++) {
        const weft_placement *p = &job->placements[u];
        sharded[0] += p->parameters == WEFT_SHARDED;
        sharded[1] += p->gradients == WEFT_SHARDED;
        sharded[2] += p->optimizer == WEFT_SHARDED;
        owned += p->parameters == WEFT_OWNED;
    }
    (void)snprintf(out->said, sizeof out->said,
                   "%d replicas, of %d units %d with sharded parameters, %d gradients, %d states, %d owned",
                   (int)view->replicas, (int)view->n_units, (int)sharded[0], (int)sharded[1], (int)sharded[2],
                   (int)owned);
}

uint64_t weft_programs_identity(const weft_program *const *programs, const weft_job_spec *job) {
    const weft_strategy_job *view = &job->view;
    const int32_t counts[] = {view->world, view->replicas, view->micro_batches};
    uint64_t hash = mix(FNV_BEGIN, counts, sizeof counts);
    for (int32_t u = 0; u < view->n_units; u++) {
        const weft_unit_view *unit = &view->units[u];
        const weft_placement *p = &view->placements[u];
        const int64_t fields[] = {
            unit->parameter_bytes, unit->gradient_bytes, p->parameters, p->gradients, p->optimizer, p->owner, p->group};
        hash = mix(hash, fields, sizeof fields);
    }
    for (int32_t s = 0; s < view->n_segments; s++) {
        hash = mix_number(hash, view->segments[s].owner);
        hash = mix(hash, view->segments[s].units, (size_t)view->segments[s].n_units * sizeof *view->segments[s].units);
    }
    for (int32_t rank = 0; rank < view->world; rank++) {
        const weft_program *program = programs[rank];
        hash = mix_number(hash, program->n_instructions);
        hash = mix(hash, program->instructions, (size_t)program->n_instructions * sizeof *program->instructions);
    }
    return hash;
}

void weft_answers_note_programs(weft_plan *plan) {
    const weft_mode_plan *modes[] = {&plan->train, &plan->evaluate};
    weft_plan_answer *segments = &plan->answers.of[WEFT_ANSWER_SEGMENTS];
    weft_plan_answer *places = &plan->answers.of[WEFT_ANSWER_PLACES];
    weft_plan_answer *programs = &plan->answers.of[WEFT_ANSWER_PROGRAMS];
    segments->number = places->number = programs->number = FNV_BEGIN;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (modes[i]->program == NULL) continue;
        segments->number = mix_segments(segments->number, modes[i]->graphs);
        places->number = mix_places(places->number, modes[i]->job);
        programs->number = mix_number(programs->number, (int64_t)modes[i]->identity);
        if (places->said[0] == '\0') describe_places(places, modes[i]->job);
    }
}

int32_t weft_answers_part(const weft_plan_answers *a, const weft_plan_answers *b) {
    int32_t kind = 0;
    while (kind < WEFT_N_ANSWERS && a->of[kind].number == b->of[kind].number) kind++;
    return kind;
}

weft_status weft_answers_report_difference(const weft_plan *plan, int32_t kind, const char *here,
                                           const weft_plan_answers *mine, const char *there,
                                           const weft_plan_answers *theirs, weft_error *err) {
    static const struct {
        const char *does;
        int32_t part;
    } kinds[WEFT_N_ANSWERS] = {
        [WEFT_ANSWER_MODEL] = {"declares other parameters", WEFT_PART_MODEL},
        [WEFT_ANSWER_ADAPTERS] = {"adds other parameters", WEFT_PART_ADAPTER},
        [WEFT_ANSWER_UNITS] = {"makes other units", WEFT_PART_POLICY},
        [WEFT_ANSWER_SEGMENTS] = {"reads other parameters in its segments", WEFT_PART_MODEL},
        [WEFT_ANSWER_PLACES] = {"places units otherwise", WEFT_PART_STRATEGY},
        [WEFT_ANSWER_PROGRAMS] = {"compiles other programs", WEFT_PART_STRATEGY},
    };
    const int32_t adapter = kind > WEFT_ANSWER_ADAPTERS && kind < WEFT_ANSWER_UNITS ? kind - WEFT_ANSWER_ADAPTERS : 0;
    const weft_loaded *loaded = plan->run->parts[kinds[kind - adapter].part + adapter].loaded;
    const weft_plan_answer *a = &mine->of[kind], *b = &theirs->of[kind];
    char what[320] = "";
    if (strcmp(a->said, b->said) != 0)
        (void)snprintf(what, sizeof what, "%s %s and %s %s; ", a->said, here, b->said, there);
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "%s:%s (%s) %s %s than %s: %sits file, its keys and its inputs are the same there, so its "
                          "result depends on the process: on its rank, its environment, its process id, an address, "
                          "the time, or uninitialized memory",
                          loaded->plugin->kind, loaded->plugin->id, loaded->path, kinds[kind - adapter].does, here,
                          there, what);
}
