/* host/run/generate.c: see generate.h. The program is the strategy's, one FORWARD per segment; the graphs of a
 * piece of the text are made for its length: the prompt once, then one place at a time on the key-value state.
 * Without the cache each token's graphs cover the whole text. */
#include "run/generate.h"
#include "base/sizes.h"
#include "program/budget.h"
#include "run/opening.h"

#include "run/stream_sync.h"
#include "program/execute.h"

#include <math.h>
#include <stdlib.h>

struct weft_generator {
    const weft_run *run;
    weft_generate_options options;
    weft_engine *engine;
    weft_graph_set *graphs; /* of the piece that runs now */
    int64_t past, length;   /* places before it, and its own */
    weft_slot_ref *states;  /* [n_segments] key-value state */
    weft_stream_sync order;
    char *shared;      /* what goes to the device and comes back: the three below */
    char *micro_batch; /* the piece, as it lies on the device */
    int64_t *past_out;
    float *row;     /* logits */
    float *scratch; /* [2 vocabulary]: sorted logits of sampling; penalized logits */
    weft_trace *trace;
    weft_slot_ref more_work; /* scratch of a piece that needs more than the longest one, for which the plan has room */
};

const weft_model_info *weft_generator_model(const weft_generator *self) {
    return &self->engine->plan.declared->info;
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
        status = weft_stream_sync_send(&self->order, micro_batch.ref, self->micro_batch,
                                       weft_micro_batch_bytes(1, (int32_t)self->length), NULL, err);
    if (status == WEFT_OK) status = weft_graph_forward(graph, &b, false, err);
    return status;
}

/* A shorter piece may need more scratch than the longest one, for which the plan has room: kernels divide it otherwise,
 * and what lives together is placed in another order. It is little, and taken when it shows. */
static weft_status take_more_work(weft_generator *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_graph_set *planned = engine->plan.generate.graphs;
    int64_t needed = 0;
    weft_status status = WEFT_OK;
    for (int32_t s = 0; s < planned->n_segments; s++) {
        const int64_t bytes = weft_graph_size(self->graphs->graphs[s])->forward_work_untaped;
        if (bytes > weft_graph_size(planned->graphs[s])->forward_work_untaped) needed = weft_larger(needed, bytes);
    }
    if (needed <= self->more_work.bytes) return WEFT_OK;
    if (self->more_work.ref.buffer != NULL) engine->kernels->release(engine->device, self->more_work.ref.buffer);
    memset(&self->more_work, 0, sizeof self->more_work);
    status = engine->kernels->alloc(engine->device, &self->more_work.ref.buffer, needed, err);
    if (status == WEFT_OK) self->more_work.bytes = needed;
    return status;
}

/* Graphs for a piece of this length, unless they are there. */
static weft_status graphs_for(weft_generator *self, int64_t length, weft_error *err) {
    const weft_graph_set_spec spec = {.mode = WEFT_MODE_GENERATE,
                                      .dtype = self->engine->plan.dtype,
                                      .rows = 1,
                                      .cache_rows = self->engine->plan.spec.cache_rows,
                                      .n_lengths = 1,
                                      .lengths = {(int32_t)length}};
    weft_status status = WEFT_OK;
    if (self->graphs != NULL && self->graphs->lengths[0] == (int32_t)length) return WEFT_OK;
    weft_graph_set_destroy(self->graphs);
    self->graphs = NULL;
    status = weft_graph_set_create(&self->graphs, self->engine->plan.declared, self->engine->kernels,
                                   self->engine->device, &spec, err);
    return status == WEFT_OK ? take_more_work(self, err) : status;
}

static int32_t *part_of(const weft_generator *self, int part) {
    return (int32_t *)(void *)(self->micro_batch + weft_micro_batch_part_offset(1, (int32_t)self->length, part));
}

/* What was there before has gone to the device: each piece ends with its logits. */
static void put_piece(weft_generator *self, const int32_t *text) {
    int32_t *ids = part_of(self, 0), *starts = part_of(self, 3), *positions = part_of(self, 4);
    *self->past_out = self->past;
    for (int64_t i = 0; i < self->length; i++) {
        ids[i] = text[self->past + i];
        starts[i] = 0;
        positions[i] = (int32_t)(self->past + i);
    }
}

static weft_status run_piece(weft_generator *self, const int32_t *text, int64_t past, int64_t n_text, weft_error *err) {
    const weft_engine *engine = self->engine;
    const int64_t length = n_text - past;
    weft_exec_table table = {.context = self};
    table.run[WEFT_INSTRUCTION_FORWARD] = on_forward;
    table.run[WEFT_INSTRUCTION_GATHER] = table.run[WEFT_INSTRUCTION_RELEASE] = on_nothing; /* one rank: all lies here */
    const int64_t n = engine->plan.declared->info.vocab_size;
    weft_status status = graphs_for(self, length, err);
    self->past = past;
    self->length = length;
    put_piece(self, text);
    if (status == WEFT_OK)
        status =
            weft_stream_sync_send(&self->order, engine->scalars.past, self->past_out, (int64_t)sizeof past, NULL, err);
    if (status == WEFT_OK)
        status = weft_program_execute(engine->plan.generate.program, &engine->plan.generate.job->spec, &table,
                                      self->trace, 0, err);
    if (status == WEFT_OK)
        status = weft_stream_sync_fetch(&self->order, self->row, engine->logits.ref, weft_f32_bytes(n), err);
    for (int64_t i = 0; i < n && status == WEFT_OK; i++)
        if (isnan(self->row[i]))
            status = weft_error_set(err, WEFT_E_NUMERIC, "logits are not numbers: the model's weights are broken");
    return status;
}

weft_status weft_generator_logits(weft_generator *self, const float **out, const int32_t *text, int64_t past,
                                  int64_t n_text, weft_error *err) {
    const weft_status status = run_piece(self, text, past, n_text, err);
    if (status != WEFT_OK)
        return weft_error_prefix(err, "what follows place %lld of the text: ", (long long)n_text - 1);
    *out = self->row;
    return status;
}

static bool is_stop_id(const weft_stop_ids *stop, int32_t id) {
    for (int32_t i = 0; i < stop->n; i++)
        if (stop->ids[i] == id) return true;
    return false;
}

/* A row that a table does not have would be read from beside it. */
static weft_status check_ids(const weft_generator *self, const int32_t *ids, int64_t n, weft_error *err) {
    const int64_t vocabulary = self->engine->plan.declared->info.vocab_size;
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < vocabulary) continue;
        return weft_error_set(err, WEFT_E_USER,
                              "the tokenizer gives the id %d, and the vocabulary of the model in %s has %lld: they do "
                              "not belong together; set [tokenizer] path to the model's own",
                              (int)ids[i], self->run->settings.model.path, (long long)vocabulary);
    }
    return WEFT_OK;
}

weft_status weft_generator_run(weft_generator *self, const int32_t *prompt, int64_t n_prompt, const weft_stop_ids *stop,
                               weft_generate_sink *sink, void *context, weft_error *err) {
    const int64_t vocabulary = self->engine->plan.declared->info.vocab_size;
    int32_t *text = malloc((size_t)(n_prompt + self->options.tokens + 1) * sizeof *text);
    int64_t n = n_prompt, past = 0;
    weft_status status = WEFT_OK;
    if (text == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %lld ids", (long long)n_prompt);
    memcpy(text, prompt, (size_t)n_prompt * sizeof *text);
    status = check_ids(self, prompt, n_prompt, err);
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
        if (!self->options.ignore_eos && is_stop_id(stop, text[n])) break;
        past = self->options.cache ? n : 0;
        status = sink(context, text[n++], err);
    }
    free(text);
    return status;
}

/* Memory that the device shares. */
static weft_status take_shared(weft_generator *self, int64_t places, int64_t logits, weft_error *err) {
    const weft_engine *engine = self->engine;
    const int64_t micro_batch = weft_micro_batch_bytes(1, (int32_t)places);
    void *memory = NULL;
    weft_status status = weft_stream_sync_open(&self->order, engine->kernels, engine->device, err);
    if (status == WEFT_OK) status = weft_stream_sync_take(&self->order, &memory, micro_batch + 64 + logits, err);
    if (status != WEFT_OK) return status;
    self->shared = self->micro_batch = memory;
    self->past_out = (int64_t *)(void *)(self->micro_batch + micro_batch);
    self->row = (float *)(void *)(self->micro_batch + micro_batch + 64);
    return WEFT_OK;
}

/* The states lie one after the other in the engine's buffer. */
static weft_status bind_memory(weft_generator *self, int64_t places, weft_error *err) {
    const weft_graph_set *set = self->engine->plan.generate.graphs;
    const int64_t vocabulary = self->engine->plan.declared->info.vocab_size;
    int64_t at = 0;
    const weft_status status = take_shared(self, places, weft_f32_bytes(vocabulary), err);
    if (status != WEFT_OK) return status;
    self->states = calloc((size_t)set->n_segments + 1, sizeof *self->states);
    self->scratch = calloc(2 * (size_t)vocabulary + 1, sizeof *self->scratch);
    if (self->states == NULL || self->scratch == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a text of %lld places", (long long)places);
    for (int32_t s = 0; s < set->n_segments; s++) {
        const int64_t bytes = weft_graph_size(set->graphs[s])->state;
        if (bytes == 0) continue;
        self->states[s].ref = weft_ref_at(self->engine->key_values.ref, at);
        self->states[s].bytes = bytes;
        at += weft_cache_lines(bytes);
    }
    return WEFT_OK;
}

/* prefix: places of an adapter's before the prompt; 0: none, or not known yet. */
static weft_status check_length(const weft_generator *self, int64_t n_prompt, int64_t prefix, weft_error *err) {
    const int64_t has = self->engine->plan.declared->info.max_context, most = has - prefix;
    char behind[96] = "";
    if (n_prompt + self->options.tokens - 1 <= most) return WEFT_OK;
    if (most < 1)
        return weft_error_set(err, WEFT_E_USER,
                              "the adapter's prefix has %lld places and the model %lld: no prompt fits behind it; take "
                              "an adapter with a shorter one",
                              (long long)prefix, (long long)has);
    if (prefix > 0)
        (void)snprintf(behind, sizeof behind, " behind the %lld of the adapter's prefix", (long long)prefix);
    if (n_prompt > most)
        return weft_error_set(err, WEFT_E_USER,
                              "the prompt has %lld ids and the model %lld places%s: shorten it by %lld ids",
                              (long long)n_prompt, (long long)most, behind, (long long)(n_prompt - most));
    return weft_error_set(err, WEFT_E_USER,
                          "a prompt of %lld ids and %lld tokens more do not fit into the model's %lld "
                          "places%s: ask for at most %lld tokens",
                          (long long)n_prompt, (long long)self->options.tokens, (long long)most, behind,
                          (long long)(most + 1 - n_prompt));
}

int64_t weft_generator_places(const weft_generator *self) {
    return self->engine->plan.declared->info.max_context - weft_budget_prefix_rows(&self->engine->plan);
}

weft_status weft_generator_create(weft_generator **out, const weft_run *run, int64_t n_prompt,
                                  const weft_generate_options *options, weft_error *err) {
    const int64_t places = n_prompt + options->tokens;
    weft_plan_spec spec = {.micro_batches = 1, .rows = 1};
    weft_status status = WEFT_OK;
    weft_generator *self = calloc(1, sizeof *self);
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the generator");
    self->run = run;
    self->options = *options;
    spec.cache_rows = (int32_t)places;
    spec.prompt_rows = (int32_t)(options->cache ? n_prompt : places);
    status = weft_opening_engine(&self->engine, run, NULL, err);
    if (status == WEFT_OK) status = check_length(self, n_prompt, 0, err);
    if (status == WEFT_OK) status = weft_opening_prepare(self->engine, &spec, err);
    if (status == WEFT_OK) status = check_length(self, n_prompt, weft_budget_prefix_rows(&self->engine->plan), err);
    if (status == WEFT_OK && options->judge != NULL) status = options->judge(options->judge_context, self->engine, err);
    if (status == WEFT_OK) status = weft_engine_allocate(self->engine, err);
    if (status == WEFT_OK) status = weft_engine_load(self->engine, err);
    if (status == WEFT_OK) status = weft_trace_create(&self->trace, 1024, err);
    if (status == WEFT_OK) status = bind_memory(self, places, err);
    if (status == WEFT_OK) *out = self;
    else weft_generator_destroy(self);
    return status;
}

void weft_generator_destroy(weft_generator *self) {
    if (self == NULL) return;
    weft_engine_give_up(self->engine);
    if (self->shared != NULL) weft_stream_sync_give_back(&self->order, self->shared);
    weft_stream_sync_close(&self->order);
    weft_trace_destroy(self->trace);
    weft_graph_set_destroy(self->graphs);
    if (self->more_work.ref.buffer != NULL)
        self->engine->kernels->release(self->engine->device, self->more_work.ref.buffer);
    weft_engine_close(self->engine);
    free(self->states);
    free(self->scratch);
    free(self);
}
