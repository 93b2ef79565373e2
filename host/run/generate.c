/* host/run/generate.c: see generate.h. The program is the strategy's, one FORWARD per segment. The graphs of a chunk of
 * the text are created for its length: the prompt, then one position at a time with the key-value cache. */
#include "run/generate.h"

#include "base/alloc.h"
#include "base/units.h"
#include "program/budget.h"
#include "run/stepper.h"

#include <math.h>
#include <stdlib.h>
#include <weft/random.h>

/* Takes the lowest id among equals. */
static int32_t pick_greedily(const float *logits, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

static int compare_descending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Returns the smallest logit that may be drawn. */
static float find_threshold(const float *logits, int64_t n, const weft_generate_options *options, float *sorted) {
    const double top = (double)logits[pick_greedily(logits, n)];
    double whole = 0.0, sum = 0.0;
    int64_t kept = options->top_k > 0 && options->top_k < n ? options->top_k : n;
    if (kept == n && options->top_p >= 1.0) return -INFINITY;
    memcpy(sorted, logits, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_descending);
    for (int64_t i = 0; i < kept; i++) whole += exp(((double)sorted[i] - top) / options->temperature);
    for (int64_t i = 0; i < kept; i++) {
        sum += exp(((double)sorted[i] - top) / options->temperature);
        if (sum >= options->top_p * whole) return sorted[i];
    }
    return sorted[kept - 1];
}

void weft_penalize(float *out, const float *logits, int64_t n, const int32_t *text, int64_t n_text, double penalty) {
    const float p = (float)penalty;
    memcpy(out, logits, (size_t)n * sizeof *out);
    for (int64_t i = 0; i < n_text; i++)
        if (text[i] >= 0 && text[i] < n)
            out[text[i]] = logits[text[i]] < 0.0f ? logits[text[i]] * p : logits[text[i]] / p;
}

/* Draws from the softmax of logits / temperature, cut to the top_k largest and then to the smallest set whose
 * probability reaches top_p (Holtzman et al., arXiv 1904.09751). The random number depends on seed and position. */
int32_t weft_sample(const float *logits, int64_t n, const weft_generate_options *options, uint64_t position,
                    float *scratch) {
    const weft_random4 r = weft_random(options->seed, WEFT_RANDOM_SAMPLE, 0, position);
    const double u = ((double)r.v[0] + (double)r.v[1] / 4294967296.0) / 4294967296.0;
    const int32_t best = pick_greedily(logits, n);
    double whole = 0.0, at = 0.0;
    float least = 0.0f;
    int32_t last = best;
    if (options->temperature <= 0.0) return best;
    least = find_threshold(logits, n, options, scratch);
    for (int64_t i = 0; i < n; i++)
        if (logits[i] >= least) whole += exp((double)(logits[i] - logits[best]) / options->temperature);
    for (int64_t i = 0; i < n; i++) {
        if (logits[i] < least) continue;
        at += exp((double)(logits[i] - logits[best]) / options->temperature);
        last = (int32_t)i;
        if (at > u * whole) break;
    }
    return last;
}

struct weft_generator {
    const weft_run *run;
    weft_generate_options options;
    weft_engine *engine;
    weft_graph_set *graphs; /* of the current chunk */
    int64_t past, length;   /* positions before it, and its own */
    weft_slot_ref *states;  /* [n_segments] key-value state */
    weft_stream_sync order;
    char *micro_batch; /* transfer memory: the chunk in the device's layout, and the two below */
    int64_t *past_out;
    float *row;     /* logits */
    float *scratch; /* [2 vocabulary]: sorted logits of sampling; penalized logits */
    weft_trace *trace;
    weft_slot_ref more_work; /* scratch of a chunk that needs more than the longest one, which the plan counts */
};

const weft_plan *weft_generator_plan(const weft_generator *self) {
    return &self->engine->plan;
}

static weft_status on_nothing(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                              weft_error *err) {
    (void)context;
    (void)instruction;
    (void)slots;
    (void)err;
    return WEFT_OK;
}

static weft_status on_forward(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                              weft_error *err) {
    weft_generator *self = context;
    const weft_engine *engine = self->engine;
    const weft_program *program = engine->plan.generate.program;
    const weft_slot_ref micro_batch = weft_engine_slot(engine, program, slots->micro_batch);
    const weft_graph *graph = weft_graph_set_at(self->graphs, (int32_t)self->length, instruction->segment);
    weft_graph_binding b = {.parameters = engine->compute_refs,
                            .dtypes = engine->compute_dtypes,
                            .tables = engine->tables,
                            .past = {.ref = engine->scalars.past, .bytes = (int64_t)sizeof self->past}};
    weft_status status = WEFT_OK;
    weft_micro_batch_bind(&b, micro_batch, 1, (int32_t)self->length);
    b.carry_in = weft_engine_slot(engine, program, slots->carry_in);
    b.carry_out = weft_engine_slot(engine, program, slots->carry_out);
    b.state = self->states[instruction->segment];
    b.logits = engine->logits;
    b.work = weft_engine_slot(engine, program, slots->work);
    if (b.work.bytes < weft_graph_size(graph)->forward_work_untaped) b.work = self->more_work;
    if (instruction->segment == 0)
        status = weft_stream_sync_upload(&self->order, micro_batch.ref, self->micro_batch,
                                         weft_micro_batch_bytes(1, (int32_t)self->length), NULL, err);
    if (status == WEFT_OK) status = weft_graph_forward(graph, &b, false, err);
    return status;
}

/* Creates graphs for a chunk of this length, unless they exist. A shorter chunk may need a little more scratch than the
 * longest one, which the plan counts: kernels divide it otherwise. */
static weft_status prepare_graphs(weft_generator *self, int64_t length, weft_error *err) {
    weft_engine *engine = self->engine;
    const weft_graph_set *planned = engine->plan.generate.graphs;
    const weft_graph_spec spec = {.mode = WEFT_MODE_GENERATE,
                                  .dtype = engine->plan.dtype,
                                  .rows = 1,
                                  .cache_rows = engine->plan.spec.cache_rows,
                                  .kernels = engine->kernels,
                                  .device = engine->device};
    const int32_t rows = (int32_t)length;
    int64_t needed = 0;
    weft_status status = WEFT_OK;
    if (self->graphs != NULL && self->graphs->lengths[0] == rows) return WEFT_OK;
    weft_graph_set_destroy(self->graphs);
    self->graphs = NULL;
    status = weft_graph_set_create(&self->graphs, engine->plan.declared, &spec, &rows, 1, err);
    for (int32_t i = 0; i < planned->n_segments && status == WEFT_OK; i++) {
        const int64_t bytes = weft_graph_size(self->graphs->graphs[i])->forward_work_untaped;
        if (bytes > weft_graph_size(planned->graphs[i])->forward_work_untaped) needed = weft_larger(needed, bytes);
    }
    if (status != WEFT_OK || needed <= self->more_work.bytes) return status;
    weft_account_free(&engine->account, &self->more_work, WEFT_ACCOUNT_ARENA);
    return weft_account_alloc(&engine->account, &self->more_work, needed, WEFT_ACCOUNT_ARENA, err);
}

static int32_t *part_of(const weft_generator *self, int part) {
    return (int32_t *)(void *)(self->micro_batch + weft_micro_batch_part_offset(1, (int32_t)self->length, part));
}

weft_status weft_generator_logits(weft_generator *self, const float **out, const int32_t *text, int64_t past,
                                  int64_t n_text, weft_error *err) {
    const weft_engine *engine = self->engine;
    const int64_t vocabulary = engine->plan.declared->info.vocab_size;
    const weft_exec_table table = {.context = self,
                                   .run = {[WEFT_INSTRUCTION_FORWARD] = on_forward, /* one rank has all parameters */
                                           [WEFT_INSTRUCTION_GATHER] = on_nothing,
                                           [WEFT_INSTRUCTION_RELEASE] = on_nothing}};
    weft_status status = prepare_graphs(self, n_text - past, err);
    self->past = *self->past_out = past; /* the previous upload is complete: each chunk ends with its logits */
    self->length = n_text - past;
    for (int64_t i = 0; i < self->length; i++) {
        part_of(self, 0)[i] = text[past + i];
        part_of(self, 3)[i] = 0;
        part_of(self, 4)[i] = (int32_t)(past + i);
    }
    if (status == WEFT_OK)
        status = weft_stream_sync_upload(&self->order, engine->scalars.past, self->past_out, (int64_t)sizeof past, NULL,
                                         err);
    if (status == WEFT_OK)
        status = weft_program_execute(engine->plan.generate.program, 0, engine->plan.generate.program->n_instructions,
                                      &engine->plan.generate.job->spec, &table, self->trace, 0, err);
    if (status == WEFT_OK)
        status = weft_stream_sync_download(&self->order, self->row, engine->logits.ref, weft_f32_bytes(vocabulary),
                                           NULL, err);
    if (status == WEFT_OK) status = weft_stream_sync_finish(&self->order, err);
    for (int64_t i = 0; i < vocabulary && status == WEFT_OK; i++)
        if (isnan(self->row[i]))
            status = weft_error_set(err, WEFT_E_NUMERIC, "the logits contain NaN: the model's weights are invalid");
    if (status != WEFT_OK)
        return weft_error_prefix(err, "the prediction after position %lld of the text: ", (long long)n_text - 1);
    *out = self->row;
    return WEFT_OK;
}

weft_status weft_generator_run(weft_generator *self, const int32_t *prompt, int64_t n_prompt, const weft_stop_ids *stop,
                               weft_generate_sink *sink, void *context, weft_error *err) {
    const int64_t vocabulary = self->engine->plan.declared->info.vocab_size;
    int32_t *text = weft_alloc(n_prompt + self->options.tokens + 1, sizeof *text);
    int64_t n = n_prompt, past = 0;
    weft_status status = WEFT_OK;
    memcpy(text, prompt, (size_t)n_prompt * sizeof *text);
    for (int64_t i = 0; i < n_prompt && status == WEFT_OK; i++)
        if (prompt[i] < 0 || prompt[i] >= vocabulary) /* it would read past the embedding table */
            status = weft_error_set(err, WEFT_E_USER,
                                    "the tokenizer returns the id %d, but the model in %s has a vocabulary of %lld. "
                                    "Fix: set [tokenizer] path to the model's own",
                                    (int)prompt[i], self->run->settings.model.path, (long long)vocabulary);
    while (status == WEFT_OK && n < n_prompt + self->options.tokens) {
        const float *logits = NULL;
        status = weft_generator_logits(self, &logits, text, past, n, err);
        if (status != WEFT_OK) break;
        if (self->options.repetition_penalty > 0.0) {
            float *penalized = self->scratch + vocabulary;
            weft_penalize(penalized, logits, vocabulary, text, n, self->options.repetition_penalty);
            logits = penalized;
        }
        text[n] = weft_sample(logits, vocabulary, &self->options, (uint64_t)n, self->scratch);
        if (!self->options.ignore_eos && weft_stop_ids_have(stop, text[n])) break;
        past = self->options.cache ? n : 0;
        status = sink(context, text[n++], err);
    }
    free(text);
    return status;
}

/* Allocates the transfer memory and divides the engine's buffer of key-value states. */
static weft_status bind_memory(weft_generator *self, int64_t positions, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_graph_set *set = engine->plan.generate.graphs;
    const int64_t vocabulary = engine->plan.declared->info.vocab_size;
    const int64_t micro_batch = weft_micro_batch_bytes(1, (int32_t)positions);
    const int64_t total = micro_batch + 64 + weft_f32_bytes(vocabulary);
    int64_t at = 0;
    void *memory = NULL;
    weft_status status = weft_stream_sync_open(&self->order, engine->kernels, engine->device, 1, err);
    if (status == WEFT_OK) status = weft_stream_sync_alloc(&self->order, &memory, total, err);
    if (status != WEFT_OK) return status;
    self->micro_batch = memset(memory, 0, (size_t)total);
    self->past_out = (int64_t *)(void *)(self->micro_batch + micro_batch);
    self->row = (float *)(void *)(self->micro_batch + micro_batch + 64);
    self->states = weft_alloc(set->n_segments, sizeof *self->states);
    self->scratch = weft_alloc(2 * vocabulary, sizeof *self->scratch);
    for (int32_t s = 0; s < set->n_segments; s++) {
        const int64_t bytes = weft_graph_size(set->graphs[s])->state;
        if (bytes == 0) continue;
        self->states[s].ref = weft_ref_at(engine->key_values.ref, at);
        self->states[s].bytes = bytes;
        at += weft_cache_lines(bytes);
    }
    return WEFT_OK;
}

/* prefix: positions of an adapter before the prompt; 0: none, or not known yet. */
static weft_status check_length(const weft_generator *self, int64_t n_prompt, int64_t prefix, weft_error *err) {
    const int64_t has = self->engine->plan.declared->info.max_context, most = has - prefix;
    char behind[96] = "";
    if (n_prompt + self->options.tokens - 1 <= most) return WEFT_OK;
    if (most < 1)
        return weft_error_set(err, WEFT_E_USER,
                              "the adapter's prefix has %lld positions and the model %lld: no prompt fits. Fix: use an "
                              "adapter with a shorter prefix",
                              (long long)prefix, (long long)has);
    if (prefix > 0) (void)snprintf(behind, sizeof behind, " after the %lld of the adapter's prefix", (long long)prefix);
    if (n_prompt > most)
        return weft_error_set(err, WEFT_E_USER,
                              "the prompt has %lld ids, and the model %lld positions%s. Fix: shorten it by %lld ids",
                              (long long)n_prompt, (long long)most, behind, (long long)(n_prompt - most));
    return weft_error_set(err, WEFT_E_USER,
                          "a prompt of %lld ids and %lld tokens more exceed the model's %lld positions%s. Allowed: at "
                          "most %lld tokens",
                          (long long)n_prompt, (long long)self->options.tokens, (long long)most, behind,
                          (long long)(most + 1 - n_prompt));
}

weft_status weft_generator_create(weft_generator **out, const weft_run *run, int64_t n_prompt,
                                  const weft_generate_options *options, weft_error *err) {
    const int64_t places = n_prompt + options->tokens;
    weft_plan_spec spec = {.micro_batches = 1, .rows = 1};
    weft_status status = WEFT_OK;
    weft_generator *self = weft_alloc(1, sizeof *self);
    self->run = run;
    self->options = *options;
    spec.cache_rows = (int32_t)places;
    spec.prompt_rows = (int32_t)(options->cache ? n_prompt : places);
    status = weft_engine_open(&self->engine, run, NULL, err);
    if (status == WEFT_OK) status = check_length(self, n_prompt, 0, err);
    if (status == WEFT_OK) status = weft_engine_prepare(self->engine, &spec, err);
    if (status == WEFT_OK) status = check_length(self, n_prompt, weft_budget_prefix_rows(&self->engine->plan), err);
    if (status == WEFT_OK && options->check != NULL) status = options->check(options->check_context, self->engine, err);
    if (status == WEFT_OK) status = weft_engine_allocate(self->engine, err);
    if (status == WEFT_OK) status = weft_engine_load(self->engine, err);
    if (status == WEFT_OK) self->trace = weft_trace_create(1024);
    if (status == WEFT_OK) status = bind_memory(self, places, err);
    if (status == WEFT_OK) *out = self;
    else weft_generator_destroy(self);
    return status;
}

void weft_generator_destroy(weft_generator *self) {
    if (self == NULL) return;
    weft_engine_abandon(self->engine);
    weft_stream_sync_free(&self->order, self->micro_batch);
    weft_stream_sync_close(&self->order);
    weft_trace_destroy(self->trace);
    weft_graph_set_destroy(self->graphs);
    if (self->engine != NULL) weft_account_free(&self->engine->account, &self->more_work, WEFT_ACCOUNT_ARENA);
    weft_engine_close(self->engine);
    free(self->states);
    free(self->scratch);
    free(self);
}
