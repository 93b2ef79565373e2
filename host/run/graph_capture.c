/* host/run/graph_capture.c: passes that the device has captured and replays with one call (weft/capture.h).
 *
 * A graph cache has one captured graph for each slice of a program (program/plan.h), list of lengths of its
 * micro-batches, and clip. The first pass in which a slice has some list runs instruction by instruction. Once all
 * lists of a pass are known, the slices that have no graph yet run once more under capture. From then on a pass
 * fetches its micro-batches into the memory that the graphs read, writes COUNT and the optimizer's struct, and
 * replays the graphs in order.
 *
 * If more lists alternate than the cache holds, no pass is replayed: the run warns once, or fails under replay =
 * yes. A pass with a listener (weft profile, --print-values) and one that looks for a non-finite number are not
 * replayed. */
#include "base/alloc.h"
#include "launch/heartbeat.h"
#include "plugin/enter.h"
#include "run/stepper.h"

#include <stdlib.h>
#include <weft/capture.h>

enum { CACHE_ENTRIES = 16 }; /* of a slice; the least recently used one is replaced */

typedef struct cache_entry {
    int32_t *lengths; /* of the slice's micro-batches; NULL: free */
    double clip;
    weft_captured_graph *graph; /* NULL: not captured yet */
    weft_traffic sent;          /* of this rank */
    uint64_t used;              /* the cache's pass that used it last */
} cache_entry;

/* The captured graphs of a mode. */
typedef struct graph_cache {
    const weft_mode_plan *mode_plan; /* NULL: the run has no such passes */
    uint64_t passes;
    cache_entry *entries;  /* [slices][CACHE_ENTRIES] */
    cache_entry **current; /* [slices] of the current pass */
} graph_cache;

struct weft_graph_capture {
    const weft_device_capture *capture;
    const weft_engine *engine;
    graph_cache train, evaluate;
    uint64_t replayed, evicted; /* training steps: replays, and passes that evicted a list that was not captured */
    bool warned;                /* of steps that are not replayed */
    char *micro_batches;        /* of a complete pass, in transfer memory */
    bool *wanted;               /* [micro-batches] those that the current pass uses */
    bool stopped;               /* the device failed to capture one */
};

static void clear_entry(const weft_graph_capture *self, cache_entry *entry) {
    if (entry->graph != NULL) {
        const weft_call_record before = weft_plugin_enter(self->engine->kernels, "destroy of a recording");
        self->capture->destroy(self->engine->device, entry->graph);
        (void)weft_plugin_leave(before, WEFT_OK, NULL);
    }
    free(entry->sent.to);
    free(entry->lengths);
    memset(entry, 0, sizeof *entry);
}

static void open_cache(graph_cache *out, const weft_mode_plan *mode_plan) {
    if (mode_plan->program == NULL) return;
    out->mode_plan = mode_plan;
    out->entries = weft_alloc((size_t)mode_plan->slices->n * CACHE_ENTRIES, sizeof *out->entries);
    out->current = weft_alloc(mode_plan->slices->n, sizeof(cache_entry *));
}

static void close_cache(const weft_graph_capture *self, graph_cache *cache) {
    for (int32_t i = 0; cache->entries != NULL && i < cache->mode_plan->slices->n * CACHE_ENTRIES; i++)
        clear_entry(self, &cache->entries[i]);
    free(cache->entries);
    free(cache->current);
}

/* Looks up slice k of the current pass. Sets *known to false for a new list, and *evicted if that evicts one that was
 * not captured. */
static cache_entry *look_up(const weft_graph_capture *self, const graph_cache *cache, int32_t k,
                            const weft_stepper *stepper, bool *known, bool *evicted) {
    const weft_slices *slices = cache->mode_plan->slices;
    const int32_t *micro_batches = slices->micro_batches + slices->at[k], n = slices->at[k + 1] - slices->at[k];
    const double clip = stepper->step > 0 && k == slices->n - 1 ? stepper->clip : 0.0; /* NORM is captured as well */
    cache_entry *all = &cache->entries[(size_t)k * CACHE_ENTRIES], *oldest = all;
    for (int e = 0; e < CACHE_ENTRIES; e++) {
        bool same = all[e].lengths != NULL && memcmp(&all[e].clip, &clip, sizeof clip) == 0;
        for (int32_t i = 0; i < n && same; i++)
            same = all[e].lengths[i] == stepper->micro_batch_lengths[micro_batches[i]];
        if (same) return &all[e];
        if (all[e].used < oldest->used) oldest = &all[e];
    }
    *known = false;
    *evicted = *evicted || (oldest->lengths != NULL && oldest->graph == NULL);
    clear_entry(self, oldest);
    oldest->lengths = weft_alloc(n, sizeof *oldest->lengths);
    oldest->sent.to = weft_alloc(self->engine->ranks.world, sizeof *oldest->sent.to);
    for (int32_t i = 0; i < n; i++) oldest->lengths[i] = stepper->micro_batch_lengths[micro_batches[i]];
    oldest->clip = clip;
    return oldest;
}

/* Returns an operator of the model's own that does more than to queue; NULL: none. */
static const char *unqueued_operator(const weft_mode_plan *mode_plan) {
    for (int32_t i = 0; mode_plan->graphs != NULL && i < mode_plan->graphs->n_lengths * mode_plan->graphs->n_segments;
         i++) {
        const char *name = weft_graph_unqueued(mode_plan->graphs->graphs[i]);
        if (name != NULL) return name;
    }
    return NULL;
}

/* Prints why passes cannot be captured; false: they can. */
static bool print_obstacle(char *out, size_t size, const weft_stepper *stepper, const weft_device_capture *capture) {
    const weft_engine *engine = stepper->engine;
    const weft_ranks *ranks = &engine->ranks;
    const char *name = unqueued_operator(&engine->plan.train);
    char title[700];
    if (name == NULL) name = unqueued_operator(&engine->plan.evaluate);
    if (capture == NULL || stepper->order.transfer == NULL) {
        weft_plugin_title(title, sizeof title, engine->kernels);
        (void)snprintf(out, size, "%s cannot capture steps", title);
    } else if (ranks->world > 1 && ranks->info.progress != WEFT_PROGRESS_OWN) {
        weft_plugin_title(title, sizeof title, ranks->plugin);
        (void)snprintf(out, size, "the exchanges of %s move only while the host calls it", title);
    } else if (name != NULL) {
        weft_plugin_title(title, sizeof title, engine->plan.declared->plugin);
        (void)snprintf(out, size, "the operator %s of %s is called in each step", name, title);
    } else {
        return false;
    }
    return true;
}

weft_status weft_graph_capture_open(weft_graph_capture **out, const weft_stepper *stepper, weft_error *err) {
    const weft_engine *engine = stepper->engine;
    const int64_t replay = engine->plan.run->settings.run.replay, n = weft_plan_most(&engine->plan, micro_batches);
    const int64_t bytes = weft_step_micro_batch_bytes(engine) * n;
    const weft_device_capture *capture = NULL;
    weft_graph_capture *self = NULL;
    void *memory = NULL;
    char obstacle[1000];
    weft_status status = WEFT_OK;
    *out = NULL;
    if (replay == WEFT_CHOICE_NO) return WEFT_OK;
    status = weft_device_capture_find(&capture, engine->kernels, engine->device, err);
    if (status != WEFT_OK) return status;
    if (print_obstacle(obstacle, sizeof obstacle, stepper, capture)) {
        if (replay == WEFT_CHOICE_AUTO) return WEFT_OK;
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "[run] replay = yes, and %s: set replay = auto, which records steps where it can be",
                              obstacle);
    }
    status = weft_stream_sync_alloc(&stepper->order, &memory, bytes, err);
    if (status != WEFT_OK) return status;
    self = weft_alloc(1, sizeof *self);
    self->micro_batches = memset(memory, 0, (size_t)bytes);
    self->wanted = weft_alloc(n, sizeof *self->wanted);
    self->capture = capture;
    self->engine = engine;
    open_cache(&self->train, &engine->plan.train);
    open_cache(&self->evaluate, &engine->plan.evaluate);
    *out = self;
    return WEFT_OK;
}

void weft_graph_capture_close(weft_graph_capture *self, weft_stepper *stepper) {
    if (self == NULL) return;
    close_cache(self, &self->train); /* the graphs refer to the micro-batches' memory */
    close_cache(self, &self->evaluate);
    weft_stream_sync_free(&stepper->order, self->micro_batches);
    free(self->wanted);
    free(self);
}

static bool is_training(const weft_stepper *stepper) {
    return stepper->mode_plan == &stepper->engine->plan.train;
}

static bool must_replay(const weft_stepper *stepper) {
    return stepper->engine->plan.run->settings.run.replay == WEFT_CHOICE_YES;
}

/* Warns once, or fails under replay = yes, if the cache evicts lists before they are captured in more steps than are
 * replayed. */
static weft_status check_evictions(weft_graph_capture *self, const weft_stepper *stepper, weft_error *err) {
    char text[600];
    if (self->stopped || self->warned || self->evicted < CACHE_ENTRIES || self->evicted <= self->replayed)
        return WEFT_OK;
    self->warned = true;
    (void)snprintf(
        text, sizeof text,
        "steps are not replayed: micro-batches have more lists of lengths than the %d that the cache has for each of "
        "the %d slices of a step (step %llu: in %llu steps a list was evicted before its capture, %llu were replayed). "
        "Fix: fewer [data] lengths, a larger [train] micro_batch, or with fsdp [strategy] prefetch = 0",
        CACHE_ENTRIES, (int)stepper->mode_plan->slices->n, (unsigned long long)stepper->step,
        (unsigned long long)self->evicted, (unsigned long long)self->replayed);
    if (must_replay(stepper))
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "[run] replay = yes, and %s; replay = auto runs such steps instruction by instruction",
                              text);
    weft_log(self->engine->plan.run->host, WEFT_LOG_WARN, "%s", text);
    return WEFT_OK;
}

/* Captures slice k. Waits first for transfers between passes. The traffic is counted once here and added at each
 * replay. */
static weft_status capture_slice(const weft_graph_capture *self, cache_entry *entry, weft_stepper *stepper, int32_t k,
                                 weft_queue_part *queue, weft_error *err) {
    const int32_t *first = &stepper->mode_plan->slices->first[k];
    weft_ranks *ranks = &stepper->engine->ranks;
    weft_traffic *sent = ranks->sent;
    weft_error ignored = WEFT_ERROR_INIT;
    weft_call_record before;
    weft_status status = weft_stream_sync_finish(&stepper->order, err), end = WEFT_OK;
    if (status == WEFT_OK) {
        before = weft_plugin_enter(self->engine->kernels, "begin of a captured graph");
        status = weft_plugin_leave(before, self->capture->begin(self->engine->device, NULL, err), err);
    }
    if (status != WEFT_OK) return weft_step_of_pass(stepper, "", status, err);
    if (sent != NULL) ranks->sent = &entry->sent;
    status = queue(stepper, first[0], first[1], err);
    ranks->sent = sent;
    if (status != WEFT_OK) err = &ignored;
    before = weft_plugin_enter(self->engine->kernels, "end of a captured graph");
    end = weft_plugin_leave(before, self->capture->end(self->engine->device, NULL, &entry->graph, err), err);
    return status == WEFT_OK ? weft_step_of_pass(stepper, "", end, err) : status;
}

static weft_status replay_pass(weft_graph_capture *self, const graph_cache *cache, weft_stepper *stepper,
                               weft_error *err) {
    weft_ranks *ranks = &stepper->engine->ranks;
    weft_status status = WEFT_OK;
    if (weft_heartbeat_is_watched()) weft_heartbeat_instruction(stepper->step, 0, "a recorded step");
    for (int32_t k = 0; k < cache->mode_plan->slices->n && status == WEFT_OK; k++) {
        const weft_call_record before = weft_plugin_enter(self->engine->kernels, "replay");
        status = weft_plugin_leave(before,
                                   self->capture->replay(self->engine->device, NULL, cache->current[k]->graph, err),
                                   err);
        for (int kind = 0; ranks->sent != NULL && kind < WEFT_N_TRAFFIC; kind++)
            ranks->sent->sent[kind] += cache->current[k]->sent.sent[kind];
        for (int32_t rank = 0; ranks->sent != NULL && rank < ranks->world; rank++)
            ranks->sent->to[rank] += cache->current[k]->sent.to[rank];
    }
    stepper->result.replayed = true;
    self->replayed += is_training(stepper);
    weft_heartbeat_rest();
    return weft_step_of_pass(stepper, "", status, err);
}

/* Fetches the micro-batches and writes the numbers that the graphs read. */
static weft_status write_inputs(weft_graph_capture *self, weft_stepper *stepper, weft_error *err) {
    const weft_program *program = stepper->mode_plan->program;
    weft_status status = WEFT_OK;
    memset(self->wanted, 0, (size_t)program->micro_batches * sizeof *self->wanted);
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const int32_t kind = program->instructions[i].kind;
        if (kind == WEFT_INSTRUCTION_FORWARD || kind == WEFT_INSTRUCTION_RECOMPUTE || kind == WEFT_INSTRUCTION_BACKWARD)
            self->wanted[program->instructions[i].micro_batch] = true;
    }
    stepper->micro_batches = self->micro_batches;
    status = weft_step_make_micro_batches(stepper, self->wanted, err);
    return status == WEFT_OK ? weft_step_of_pass(stepper, "", weft_step_put_numbers(stepper, err), err) : status;
}

static weft_status queue_pass(weft_stepper *stepper, weft_queue_part *queue, weft_error *err) {
    return queue(stepper, 0, stepper->mode_plan->program->n_instructions, err);
}

/* Captures the slices that have no graph yet, and replays the pass. If the device cannot capture, nothing has run: this
 * pass and all others run instruction by instruction. */
static weft_status queue_known(weft_graph_capture *self, const graph_cache *cache, weft_stepper *stepper,
                               weft_queue_part *queue, weft_error *err) {
    const bool had_failed = stepper->engine->failed;
    weft_status status = write_inputs(self, stepper, err), captured = WEFT_OK;
    for (int32_t k = 0; k < cache->mode_plan->slices->n && status == WEFT_OK; k++)
        if (cache->current[k]->graph == NULL)
            status = captured = capture_slice(self, cache->current[k], stepper, k, queue, err);
    stepper->micro_batches = NULL;
    if (status == WEFT_OK) status = replay_pass(self, cache, stepper, err);
    else if (captured == WEFT_E_UNSUPPORTED && must_replay(stepper))
        (void)weft_error_prefix(err, "[run] replay = yes, and steps are not recorded: ");
    else if (captured == WEFT_E_UNSUPPORTED) {
        self->stopped = true;
        stepper->engine->failed = had_failed;
        if (err != NULL) {
            weft_log(self->engine->plan.run->host, WEFT_LOG_WARN,
                     "steps are not recorded, and run instruction by instruction: %s", err->text);
            *err = (weft_error)WEFT_ERROR_INIT;
        }
        return queue_pass(stepper, queue, err);
    }
    if (status != WEFT_OK) stepper->engine->failed = true;
    return status;
}

weft_status weft_graph_capture_queue(weft_stepper *stepper, weft_queue_part *queue, weft_error *err) {
    weft_graph_capture *self = stepper->graph_capture;
    graph_cache *cache = NULL;
    bool known = true, evicted = false;
    weft_status status = WEFT_OK;
    if (self == NULL || stepper->sink != NULL || stepper->values != NULL || stepper->hidden != NULL ||
        stepper->count == 0)
        return queue_pass(stepper, queue, err);
    cache = is_training(stepper) ? &self->train : &self->evaluate;
    cache->passes++;
    for (int32_t k = 0; k < cache->mode_plan->slices->n; k++) {
        cache->current[k] = look_up(self, cache, k, stepper, &known, &evicted);
        cache->current[k]->used = cache->passes;
    }
    self->evicted += is_training(stepper) && evicted;
    status = check_evictions(self, stepper, err);
    if (status != WEFT_OK) return status;
    for (int32_t k = 0; self->stopped && k < cache->mode_plan->slices->n; k++)
        known = known && cache->current[k]->graph != NULL; /* graphs captured before the failure are still replayed */
    return known ? queue_known(self, cache, stepper, queue, err) : queue_pass(stepper, queue, err);
}
