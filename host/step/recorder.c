/* host/step/recorder.c: see recorder.h. */
#include "step/recorder.h"

#include "launch/pulse.h"
#include "plugin/enter.h"
#include "step/leaf.h"
#include "step/run_events.h"
#include <weft/capture.h>

#include <stdlib.h>

/* Lists of lengths that are remembered, recorded or seen once: the one that has not come for longest makes room. */
enum { MOST_KNOWN = 16 };

typedef struct known_pass {
    const weft_stage *stage; /* NULL: free */
    int32_t *lengths;        /* [leaves] */
    double clip;
    weft_recording *made; /* NULL: it was seen, and is not recorded yet */
    weft_traffic sent;    /* what this rank sends in one */
    uint64_t came;        /* passes when it came last */
} known_pass;

struct weft_recorder {
    const weft_device_capture *capture;
    const weft_device_plugin *kernels;
    weft_device *device;
    const weft_host *host;
    int32_t world;
    known_pass known[MOST_KNOWN];
    uint64_t passes;
    uint64_t replayed, in_vain; /* training steps: replays, and lists that made room before they came again */
    bool told;                  /* that lists of lengths come in vain */
    char *leaves;               /* of a whole pass, shared with the device */
    bool *wanted;               /* [leaves] which of them the pass at hand touches */
    bool stopped;               /* the device could not record one: no more are */
};

/* ---- who can ---- */

/* An operator of the model's own that does more than to queue; NULL: none. */
static const char *operator_that_looks(const weft_stage *stage) {
    for (int32_t i = 0; stage->graphs != NULL && i < stage->graphs->n_lengths * stage->graphs->n_segments; i++) {
        const char *name = weft_graph_unqueued(stage->graphs->graphs[i]);
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

static void free_recorder(weft_recorder *self) {
    if (self != NULL) free(self->wanted);
    free(self);
}

/* What recordings read: taken here, for a step takes nothing. */
static weft_status take_leaves(weft_recorder *self, const weft_stepper *stepper, weft_error *err) {
    const weft_engine *engine = stepper->engine;
    const int64_t bytes = weft_step_leaf_room(engine) * weft_plan_most_leaves(&engine->plan);
    void *memory = NULL;
    const weft_status status = weft_order_take(&stepper->order, &memory, bytes, err);
    self->leaves = memory;
    return status;
}

weft_status weft_recorder_open(weft_recorder **out, const weft_stepper *stepper, weft_error *err) {
    const weft_engine *engine = stepper->engine;
    const int64_t replay = engine->plan.run->settings.run.replay;
    const weft_device_capture *capture = NULL;
    weft_recorder *self = NULL;
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
    if (self != NULL) self->wanted = calloc((size_t)weft_plan_most_leaves(&engine->plan) + 1, sizeof *self->wanted);
    if (self == NULL || self->wanted == NULL) {
        free_recorder(self);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for recordings of steps");
    }
    self->capture = capture;
    self->kernels = engine->kernels;
    self->device = engine->device;
    self->host = engine->plan.run->host;
    self->world = engine->ranks.world;
    status = take_leaves(self, stepper, err);
    if (status == WEFT_OK) *out = self;
    else free_recorder(self);
    return status;
}

/* ---- which pass ---- */

static void forget_pass(weft_recorder *self, known_pass *pass) {
    const known_pass none = {0};
    if (pass->made != NULL) {
        const weft_doing before = weft_plugin_enter(self->kernels, "destroy of a recording");
        self->capture->destroy(self->device, pass->made);
        (void)weft_plugin_leave(before, WEFT_OK, NULL);
    }
    free(pass->sent.to);
    free(pass->lengths);
    *pass = none;
}

void weft_recorder_close(weft_recorder *self, const weft_order *order) {
    if (self == NULL) return;
    for (int i = 0; i < MOST_KNOWN; i++) forget_pass(self, &self->known[i]);
    weft_order_give_back(order, self->leaves);
    free_recorder(self);
}

static bool is_this_pass(const known_pass *pass, const weft_stepper *stepper) {
    const size_t bytes = (size_t)stepper->stage->program->leaves * sizeof *pass->lengths;
    return pass->stage == stepper->stage && memcmp(&pass->clip, &stepper->clip, sizeof pass->clip) == 0 &&
           memcmp(pass->lengths, stepper->leaf_lengths, bytes) == 0;
}

static known_pass *longest_gone(weft_recorder *self) {
    known_pass *out = &self->known[0];
    for (int i = 1; i < MOST_KNOWN; i++)
        if (self->known[i].came < out->came) out = &self->known[i];
    return out;
}

/* ---- lists that come in vain ---- */

static bool is_training(const weft_stepper *stepper) {
    return stepper->stage == &stepper->engine->plan.train;
}

/* Fewer steps are replayed than there are lists that are remembered for nothing, which many are. */
static bool come_in_vain(const weft_recorder *self) {
    return self->in_vain >= MOST_KNOWN && self->in_vain > self->replayed;
}

/* replay = yes promised replays; auto goes on, and says so once. */
static weft_status tell_in_vain(weft_recorder *self, const weft_stepper *stepper, weft_error *err) {
    const bool must = stepper->engine->plan.run->settings.run.replay == WEFT_CHOICE_YES;
    char text[600];
    if (self->told) return WEFT_OK;
    self->told = true;
    (void)snprintf(text, sizeof text,
                   "steps are not replayed: their leaves come in more lists of lengths than the %d that are kept "
                   "(step %llu: %llu lists were forgotten before they came again, %llu steps were replayed); fewer "
                   "[data] lengths, or fewer leaves in a step by a larger [train] micro_batch, make fewer lists",
                   MOST_KNOWN, (unsigned long long)stepper->step, (unsigned long long)self->in_vain,
                   (unsigned long long)self->replayed);
    if (must)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "[run] replay = yes, and %s; replay = auto runs such steps event by event", text);
    weft_log(self->host, WEFT_LOG_WARN, "%s", text);
    return WEFT_OK;
}

/* A pass that has come for the first time is remembered, and *out is NULL. */
static weft_status recall_pass(weft_recorder *self, known_pass **out, const weft_stepper *stepper, weft_error *err) {
    const size_t leaves = (size_t)stepper->stage->program->leaves;
    known_pass *pass = NULL;
    *out = NULL;
    self->passes++;
    for (int i = 0; i < MOST_KNOWN && *out == NULL; i++)
        if (is_this_pass(&self->known[i], stepper)) *out = &self->known[i];
    if (*out != NULL) {
        (*out)->came = self->passes;
        return WEFT_OK;
    }
    pass = longest_gone(self);
    self->in_vain += is_training(stepper) && pass->stage == stepper->stage && pass->made == NULL;
    forget_pass(self, pass);
    pass->lengths = malloc((leaves + 1) * sizeof *pass->lengths);
    pass->sent.to = calloc((size_t)self->world, sizeof *pass->sent.to);
    if (pass->lengths == NULL || pass->sent.to == NULL) {
        forget_pass(self, pass);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the leaf lengths of a step");
    }
    memcpy(pass->lengths, stepper->leaf_lengths, leaves * sizeof *pass->lengths);
    pass->stage = stepper->stage;
    pass->clip = stepper->clip;
    pass->came = self->passes;
    return WEFT_OK;
}

/* ---- recording ---- */

/* What is sent between passes may still be on its way. */
static weft_status begin_recording(const weft_recorder *self, const weft_order *order, weft_error *err) {
    weft_status status = weft_order_finish(order, err);
    weft_doing before;
    if (status != WEFT_OK) return status;
    before = weft_plugin_enter(self->kernels, "begin of a recording");
    return weft_plugin_leave(before, self->capture->begin(self->device, NULL, err), err);
}

static weft_status end_recording(const weft_recorder *self, weft_recording **out, weft_error *err) {
    const weft_doing before = weft_plugin_enter(self->kernels, "end of a recording");
    return weft_plugin_leave(before, self->capture->end(self->device, NULL, out, err), err);
}

/* What is sent is counted once for the recording, and then for each of its replays. */
static weft_status record_pass(const weft_recorder *self, known_pass *pass, weft_stepper *stepper,
                               weft_queue_pass *queue, weft_error *err) {
    weft_ranks *ranks = &stepper->engine->ranks;
    weft_traffic *sent = ranks->sent;
    weft_error ended = WEFT_ERROR_INIT;
    weft_status status = begin_recording(self, &stepper->order, err), end = WEFT_OK;
    if (status != WEFT_OK) return weft_step_of_pass(stepper, "", status, err);
    if (sent != NULL) ranks->sent = &pass->sent;
    status = queue(stepper, err);
    ranks->sent = sent;
    end = end_recording(self, &pass->made, status == WEFT_OK ? err : &ended);
    return status == WEFT_OK ? weft_step_of_pass(stepper, "", end, err) : status;
}

/* Nothing of what could not be recorded has run: the pass goes event by event, as do all that follow. */
static void stop_recording(weft_recorder *self, weft_stepper *stepper, bool had_failed, weft_error *err) {
    const weft_error none = WEFT_ERROR_INIT;
    self->stopped = true;
    stepper->engine->failed = had_failed;
    if (err == NULL) return;
    weft_log(self->host, WEFT_LOG_WARN, "steps are not recorded, and run event by event: %s", err->text);
    *err = none;
}

static weft_status replay_pass(weft_recorder *self, const known_pass *pass, weft_stepper *stepper, weft_error *err) {
    const weft_ranks *ranks = &stepper->engine->ranks;
    const weft_doing before = weft_plugin_enter(self->kernels, "replay");
    const weft_status status =
        weft_plugin_leave(before, self->capture->replay(self->device, NULL, pass->made, err), err);
    if (ranks->sent != NULL) weft_traffic_add(ranks->sent, &pass->sent, self->world);
    stepper->result.replayed = true;
    self->replayed += is_training(stepper);
    return weft_step_of_pass(stepper, "", status, err);
}

/* ---- what it reads ---- */

static void note_wanted(const weft_recorder *self, const weft_program *program) {
    memset(self->wanted, 0, (size_t)program->leaves * sizeof *self->wanted);
    for (int32_t i = 0; i < program->n_events; i++) {
        const int32_t kind = program->events[i].kind;
        if (kind == WEFT_EVENT_FORWARD || kind == WEFT_EVENT_RECOMPUTE || kind == WEFT_EVENT_BACKWARD)
            self->wanted[program->events[i].leaf] = true;
    }
}

static weft_status put_all(weft_recorder *self, weft_stepper *stepper, weft_error *err) {
    weft_status status = WEFT_OK;
    note_wanted(self, stepper->stage->program);
    stepper->leaves = self->leaves;
    status = weft_step_make_leaves(stepper, self->wanted, err);
    return status == WEFT_OK ? weft_step_of_pass(stepper, "", weft_step_put_numbers(stepper, err), err) : status;
}

/* For the watcher: no event of it is told. */
static void tell_replay(const weft_stepper *stepper) {
    if (weft_pulse_is_watched()) weft_pulse_event(stepper->step, 0, "a recorded step");
}

static weft_status queue_known(weft_recorder *self, known_pass *pass, weft_stepper *stepper, weft_queue_pass *queue,
                               weft_error *err) {
    const bool had_failed = stepper->engine->failed;
    weft_status status = put_all(self, stepper, err);
    if (status == WEFT_OK && pass->made == NULL) status = record_pass(self, pass, stepper, queue, err);
    stepper->leaves = NULL;
    if (status == WEFT_OK) {
        tell_replay(stepper);
        status = replay_pass(self, pass, stepper, err);
        weft_pulse_rest();
    } else if (status == WEFT_E_UNSUPPORTED && pass->made == NULL) {
        stop_recording(self, stepper, had_failed, err);
        return queue(stepper, err);
    }
    if (status != WEFT_OK) stepper->engine->failed = true;
    return status;
}

weft_status weft_recorder_queue(weft_stepper *stepper, weft_queue_pass *queue, weft_error *err) {
    weft_recorder *self = stepper->recorder;
    known_pass *pass = NULL;
    weft_status status = WEFT_OK;
    if (self == NULL || stepper->sink != NULL || stepper->values != NULL || stepper->hidden != NULL ||
        stepper->count == 0)
        return queue(stepper, err);
    status = recall_pass(self, &pass, stepper, err);
    if (status == WEFT_OK && come_in_vain(self)) status = tell_in_vain(self, stepper, err);
    if (status != WEFT_OK) return status;
    if (pass == NULL || (pass->made == NULL && self->stopped)) return queue(stepper, err);
    return queue_known(self, pass, stepper, queue, err);
}
