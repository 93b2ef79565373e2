/* host/run/graph_capture.c: see graph_capture.h. */
#include "run/graph_capture.h"

#include "launch/heartbeat.h"
#include "plugin/enter.h"
#include "run/graph_cache.h"
#include "run/micro_batch.h"
#include "run/run_instructions.h"

#include <stdlib.h>

struct weft_graph_capture {
    const weft_device_capture *capture;
    const weft_device_plugin *kernels;
    weft_device *device;
    const weft_host *host;
    int32_t world;
    weft_graph_cache train, evaluate;
    uint64_t replayed, in_vain; /* training steps: replays, and lists that made room before they came again */
    bool told;                  /* that lists of lengths come in vain */
    char *micro_batches;        /* of a whole pass, shared with the device */
    bool *wanted;               /* [micro-batches] which of them the pass at hand touches */
    bool stopped;               /* the device could not record one: no more are */
};

/* ---- who can ---- */

/* An operator of the model's own that does more than to queue; NULL: none. */
static const char *operator_that_looks(const weft_mode_plan *mode_plan) {
    for (int32_t i = 0; mode_plan->graphs != NULL && i < mode_plan->graphs->n_lengths * mode_plan->graphs->n_segments;
         i++) {
        const char *name = weft_graph_unqueued(mode_plan->graphs->graphs[i]);
        if (name != NULL) return name;
    }
    return NULL;
}

/* A sentence about who keeps passes from being recorded; false: nobody. */
static bool say_who_cannot(char *out, size_t size, const weft_stepper *stepper, const weft_device_capture *capture) {
    const weft_engine *engine = stepper->engine;
    const weft_ranks *ranks = &engine->ranks;
    const char *name = operator_that_looks(&engine->plan.train);
    char title[700];
    if (name == NULL) name = operator_that_looks(&engine->plan.evaluate);
    if (capture == NULL || stepper->order.transfer == NULL) {
        weft_plugin_title(title, sizeof title, engine->kernels);
        (void)snprintf(out, size, "%s records no steps", title);
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

/* A captured graph names the micro-batches' memory, so it goes first. */
static void free_graph_capture(weft_graph_capture *self, const weft_stream_sync *order) {
    if (self == NULL) return;
    weft_graph_cache_close(&self->train);
    weft_graph_cache_close(&self->evaluate);
    if (self->micro_batches != NULL) weft_stream_sync_give_back(order, self->micro_batches);
    free(self->wanted);
    free(self);
}

/* For the passes of a stage that the run has. */
static weft_status open_graph_cache(weft_graph_cache *out, const weft_graph_capture *self,
                                    const weft_mode_plan *mode_plan, weft_error *err) {
    if (mode_plan->program == NULL) return WEFT_OK;
    out->capture = self->capture;
    out->kernels = self->kernels;
    out->device = self->device;
    out->mode_plan = mode_plan;
    return weft_graph_cache_open(out, self->world, err);
}

/* What captured graphs read: taken here, for a step takes nothing. */
static weft_status take_micro_batches(weft_graph_capture *self, const weft_stepper *stepper, weft_error *err) {
    const weft_engine *engine = stepper->engine;
    const int64_t bytes = weft_step_micro_batch_room(engine) * weft_plan_most_micro_batches(&engine->plan);
    void *memory = NULL;
    const weft_status status = weft_stream_sync_take(&stepper->order, &memory, bytes, err);
    self->micro_batches = memory;
    return status;
}

weft_status weft_graph_capture_open(weft_graph_capture **out, const weft_stepper *stepper, weft_error *err) {
    const weft_engine *engine = stepper->engine;
    const int64_t replay = engine->plan.run->settings.run.replay;
    const weft_device_capture *capture = NULL;
    weft_graph_capture *self = NULL;
    char who[1000];
    weft_status status = WEFT_OK;
    *out = NULL;
    if (replay == WEFT_CHOICE_NO) return WEFT_OK;
    status = weft_device_capture_find(&capture, engine->kernels, engine->device, err);
    if (status != WEFT_OK) return status;
    if (say_who_cannot(who, sizeof who, stepper, capture)) {
        if (replay == WEFT_CHOICE_AUTO) return WEFT_OK;
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "[run] replay = yes, and %s: set replay = auto, which records steps where it can be",
                              who);
    }
    self = calloc(1, sizeof *self);
    if (self != NULL)
        self->wanted = calloc((size_t)weft_plan_most_micro_batches(&engine->plan) + 1, sizeof *self->wanted);
    if (self == NULL || self->wanted == NULL) {
        free_graph_capture(self, &stepper->order);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for captured graphs of steps");
    }
    self->capture = capture;
    self->kernels = engine->kernels;
    self->device = engine->device;
    self->host = engine->plan.run->host;
    self->world = engine->ranks.world;
    status = open_graph_cache(&self->train, self, &engine->plan.train, err);
    if (status == WEFT_OK) status = open_graph_cache(&self->evaluate, self, &engine->plan.evaluate, err);
    if (status == WEFT_OK) status = take_micro_batches(self, stepper, err);
    if (status == WEFT_OK) *out = self;
    else free_graph_capture(self, &stepper->order);
    return status;
}

void weft_graph_capture_close(weft_graph_capture *self, const weft_stream_sync *order) {
    free_graph_capture(self, order);
}

/* ---- lists that come in vain ---- */

static bool is_training(const weft_stepper *stepper) {
    return stepper->mode_plan == &stepper->engine->plan.train;
}

/* Fewer steps are replayed than there were in which a list made room that was remembered for nothing, and those are
 * many. Where the device cannot record that is the reason. */
static bool come_in_vain(const weft_graph_capture *self) {
    return !self->stopped && self->in_vain >= WEFT_GRAPH_CACHE_ENTRIES && self->in_vain > self->replayed;
}

/* replay = yes promised replays. */
static bool must_replay(const weft_stepper *stepper) {
    return stepper->engine->plan.run->settings.run.replay == WEFT_CHOICE_YES;
}

/* With auto the run goes on, and says so once. */
static weft_status tell_in_vain(weft_graph_capture *self, const weft_stepper *stepper, weft_error *err) {
    char text[600];
    if (self->told) return WEFT_OK;
    self->told = true;
    (void)snprintf(
        text, sizeof text,
        "steps are not replayed: their micro-batches come in more lists of lengths than the %d that are kept "
        "of each slice of a step, and this one has %d (step %llu: in %llu steps a list was forgotten before "
        "it was recorded, %llu were replayed); fewer [data] lengths, fewer micro-batches in a step by a larger "
        "[train] micro_batch, or under fsdp [strategy] prefetch = 0, make fewer lists",
        WEFT_GRAPH_CACHE_ENTRIES, (int)stepper->mode_plan->slices->n, (unsigned long long)stepper->step,
        (unsigned long long)self->in_vain, (unsigned long long)self->replayed);
    if (must_replay(stepper))
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "[run] replay = yes, and %s; replay = auto runs such steps instruction by instruction",
                              text);
    weft_log(self->host, WEFT_LOG_WARN, "%s", text);
    return WEFT_OK;
}

/* ---- captured graph ---- */

/* What is sent between passes may still be on its way. */
static weft_status begin_captured_graph(const weft_graph_capture *self, const weft_stream_sync *order,
                                        weft_error *err) {
    weft_status status = weft_stream_sync_finish(order, err);
    weft_doing before;
    if (status != WEFT_OK) return status;
    before = weft_plugin_enter(self->kernels, "begin of a captured graph");
    return weft_plugin_leave(before, self->capture->begin(self->device, NULL, err), err);
}

static weft_status end_captured_graph(const weft_graph_capture *self, weft_captured_graph **out, weft_error *err) {
    const weft_doing before = weft_plugin_enter(self->kernels, "end of a captured graph");
    return weft_plugin_leave(before, self->capture->end(self->device, NULL, out, err), err);
}

/* What is sent is counted once for the captured graph, and then for each of its replays. */
static weft_status record_slice(const weft_graph_capture *self, weft_graph_cache_entry *kept, weft_stepper *stepper,
                                int32_t k, weft_queue_part *queue, weft_error *err) {
    const int32_t *first = &stepper->mode_plan->slices->first[k];
    weft_ranks *ranks = &stepper->engine->ranks;
    weft_traffic *sent = ranks->sent;
    weft_error ended = WEFT_ERROR_INIT;
    weft_status status = begin_captured_graph(self, &stepper->order, err), end = WEFT_OK;
    if (status != WEFT_OK) return weft_step_of_pass(stepper, "", status, err);
    if (sent != NULL) ranks->sent = &kept->sent;
    status = queue(stepper, first[0], first[1], err);
    ranks->sent = sent;
    end = end_captured_graph(self, &kept->made, status == WEFT_OK ? err : &ended);
    return status == WEFT_OK ? weft_step_of_pass(stepper, "", end, err) : status;
}

/* Those of the pass's slices that are not recorded yet. */
static weft_status record_missing(const weft_graph_capture *self, const weft_graph_cache *graph_cache,
                                  weft_stepper *stepper, weft_queue_part *queue, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t k = 0; k < graph_cache->mode_plan->slices->n && status == WEFT_OK; k++)
        if (graph_cache->now[k]->made == NULL) status = record_slice(self, graph_cache->now[k], stepper, k, queue, err);
    return status;
}

/* Nothing of what could not be recorded has run: the pass goes instruction by instruction, as do all that follow. */
static void stop_captured_graph(weft_graph_capture *self, weft_stepper *stepper, bool had_failed, weft_error *err) {
    const weft_error none = WEFT_ERROR_INIT;
    self->stopped = true;
    stepper->engine->failed = had_failed;
    if (err == NULL) return;
    weft_log(self->host, WEFT_LOG_WARN, "steps are not recorded, and run instruction by instruction: %s", err->text);
    *err = none;
}

static weft_status replay_slice(const weft_graph_capture *self, const weft_graph_cache_entry *kept, weft_ranks *ranks,
                                weft_error *err) {
    const weft_doing before = weft_plugin_enter(self->kernels, "replay");
    const weft_status status =
        weft_plugin_leave(before, self->capture->replay(self->device, NULL, kept->made, err), err);
    if (ranks->sent != NULL) weft_traffic_add(ranks->sent, &kept->sent, self->world);
    return status;
}

static weft_status replay_pass(weft_graph_capture *self, const weft_graph_cache *graph_cache, weft_stepper *stepper,
                               weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t k = 0; k < graph_cache->mode_plan->slices->n && status == WEFT_OK; k++)
        status = replay_slice(self, graph_cache->now[k], &stepper->engine->ranks, err);
    stepper->result.replayed = true;
    self->replayed += is_training(stepper);
    return weft_step_of_pass(stepper, "", status, err);
}

/* ---- what it reads ---- */

static void note_wanted(const weft_graph_capture *self, const weft_program *program) {
    memset(self->wanted, 0, (size_t)program->micro_batches * sizeof *self->wanted);
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const int32_t kind = program->instructions[i].kind;
        if (kind == WEFT_INSTRUCTION_FORWARD || kind == WEFT_INSTRUCTION_RECOMPUTE || kind == WEFT_INSTRUCTION_BACKWARD)
            self->wanted[program->instructions[i].micro_batch] = true;
    }
}

static weft_status put_all(weft_graph_capture *self, weft_stepper *stepper, weft_error *err) {
    weft_status status = WEFT_OK;
    note_wanted(self, stepper->mode_plan->program);
    stepper->micro_batches = self->micro_batches;
    status = weft_step_make_micro_batches(stepper, self->wanted, err);
    return status == WEFT_OK ? weft_step_of_pass(stepper, "", weft_step_put_numbers(stepper, err), err) : status;
}

/* For the watcher: no instruction of it is told. */
static void tell_replay(const weft_stepper *stepper) {
    if (weft_heartbeat_is_watched()) weft_heartbeat_instruction(stepper->step, 0, "a recorded step");
}

static weft_status queue_whole(weft_stepper *stepper, weft_queue_part *queue, weft_error *err) {
    return queue(stepper, 0, stepper->mode_plan->program->n_instructions, err);
}

static weft_status queue_known(weft_graph_capture *self, const weft_graph_cache *graph_cache, weft_stepper *stepper,
                               weft_queue_part *queue, weft_error *err) {
    const bool had_failed = stepper->engine->failed;
    weft_status status = put_all(self, stepper, err), recorded = WEFT_OK;
    if (status == WEFT_OK) status = recorded = record_missing(self, graph_cache, stepper, queue, err);
    stepper->micro_batches = NULL;
    if (status == WEFT_OK) {
        tell_replay(stepper);
        status = replay_pass(self, graph_cache, stepper, err);
        weft_heartbeat_rest();
    } else if (recorded == WEFT_E_UNSUPPORTED && must_replay(stepper)) {
        (void)weft_error_prefix(err, "[run] replay = yes, and steps are not recorded: ");
    } else if (recorded == WEFT_E_UNSUPPORTED) {
        stop_captured_graph(self, stepper, had_failed, err);
        return queue_whole(stepper, queue, err);
    }
    if (status != WEFT_OK) stepper->engine->failed = true;
    return status;
}

/* Once the device could not record, what there is may still be replayed. */
static bool is_replayable(const weft_graph_capture *self, const weft_graph_cache *graph_cache) {
    for (int32_t k = 0; self->stopped && k < graph_cache->mode_plan->slices->n; k++)
        if (graph_cache->now[k]->made == NULL) return false;
    return true;
}

weft_status weft_graph_capture_queue(weft_stepper *stepper, weft_queue_part *queue, weft_error *err) {
    weft_graph_capture *self = stepper->graph_capture;
    weft_graph_cache *graph_cache = NULL;
    weft_graph_cache_result recall;
    weft_status status = WEFT_OK;
    if (self == NULL || stepper->sink != NULL || stepper->values != NULL || stepper->hidden != NULL ||
        stepper->count == 0)
        return queue_whole(stepper, queue, err);
    graph_cache = is_training(stepper) ? &self->train : &self->evaluate;
    status = weft_graph_cache_find(graph_cache, &recall, stepper, err);
    self->in_vain += is_training(stepper) && recall.in_vain;
    if (status == WEFT_OK && come_in_vain(self)) status = tell_in_vain(self, stepper, err);
    if (status != WEFT_OK) return status;
    if (!recall.is_known || !is_replayable(self, graph_cache)) return queue_whole(stepper, queue, err);
    return queue_known(self, graph_cache, stepper, queue, err);
}
