/* host/tools/ab/learning.c: opens the arms of experiment.h, compares their numbers and what they learn. */
#include "tools/ab/experiment.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"
#include "launch/signals.h"
#include "plugin/crash.h"
#include "plugin/enter.h"
#include "train/fit.h"
#include "tools/common/plan_costs.h"
#include "run/coherence.h"
#include "run/values.h"
#include "tools/common/checksums.h"

#include <math.h>
#include <stdlib.h>

static bool weft_ab_alike(const weft_session *a, const weft_session *b);

enum { PIECE = 1 << 16 };

/* Checksum of a micro-batch's gradient of a parameter. parts: pipeline ranks that share a tied gradient. */
typedef struct gradient_checksum {
    uint64_t sum, parts;
} gradient_checksum;

struct weft_ab_bits {
    weft_ab_experiment *experiment;
    weft_ab_arm *arm; /* the compared arm */
    int32_t n, micro_batches, parameters;
    bool keep, same_micro_batches;
    uint64_t *checksums, *now; /* [1 + WEFT_AB_COMPARED][n], [n] */
    double *losses;            /* [WEFT_AB_COMPARED][micro-batches] */
    /* [WEFT_AB_COMPARED][micro-batches][parameters], [world][micro-batches][parameters] */
    gradient_checksum *gradients, *of_ranks;
    unsigned char *staging;
    weft_value_sink sink;
};

/* ---- recording during a step ---- */

static gradient_checksum *own_checksums(const weft_ab_bits *self) {
    const size_t rank = (size_t)self->experiment->meeting.process_context->comm_info.rank;
    return self->of_ranks + rank * (size_t)self->micro_batches * (size_t)self->parameters;
}

static weft_status note_gradient(void *context, int32_t micro_batch, int32_t parameter, weft_ref ref, weft_error *err) {
    weft_ab_bits *self = context;
    const weft_engine *engine = self->arm->session->engine;
    const int64_t numel = engine->plan.declared->parameters[parameter].numel;
    gradient_checksum *checksum =
        &own_checksums(self)[(size_t)micro_batch * (size_t)self->parameters + (size_t)parameter];
    weft_status status = WEFT_OK;
    *checksum = (gradient_checksum){0, 1};
    for (int64_t at = 0; at < numel && status == WEFT_OK; at += PIECE) {
        const int64_t n = numel - at < PIECE ? numel - at : PIECE;
        WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, self->staging,
                         weft_ref_at(ref, weft_f32_bytes(at)), weft_f32_bytes(n));
        if (status == WEFT_OK) checksum->sum += weft_checksum_of(self->staging, weft_f32_bytes(1), n, at);
    }
    return status;
}

/* ---- first difference ---- */

static const char *unit_of(const weft_ab_bits *self, int32_t parameter) {
    const weft_plan *plan = &self->experiment->arms[0].session->engine->plan;
    return plan->layout->units[plan->declared->parameters[parameter].unit].name;
}

static const char *name_of(const weft_ab_bits *self, int32_t parameter) {
    return self->experiment->arms[0].session->engine->plan.declared->parameters[parameter].name;
}

static void part_with_loss(weft_ab_bits *self, int32_t step, int32_t micro_batch) {
    weft_ab_numbers *numbers = &self->arm->numbers;
    numbers->step = step;
    numbers->micro_batch = micro_batch;
    (void)snprintf(numbers->what, sizeof numbers->what, "its loss");
}

static void part_with_gradient(weft_ab_bits *self, int32_t step, int32_t micro_batch, int32_t parameter) {
    weft_ab_numbers *numbers = &self->arm->numbers;
    numbers->step = step;
    numbers->micro_batch = micro_batch;
    (void)snprintf(numbers->unit, sizeof numbers->unit, "%s", unit_of(self, parameter));
    (void)snprintf(numbers->what, sizeof numbers->what, "the gradient of %s", name_of(self, parameter));
}

static void part_with_checksum(weft_ab_bits *self, int32_t step, int32_t checksum) {
    const weft_plan *plan = &self->experiment->arms[0].session->engine->plan;
    weft_ab_numbers *numbers = &self->arm->numbers;
    const int32_t parameter = checksum % self->parameters;
    numbers->step = step;
    (void)snprintf(numbers->unit, sizeof numbers->unit, "%s", unit_of(self, parameter));
    *numbers->what = '\0';
    if (checksum >= self->parameters)
        weft_words_append(numbers->what, sizeof numbers->what, "%s of ",
                          plan->states[checksum / self->parameters - 1].name);
    weft_words_append(numbers->what, sizeof numbers->what, "%s", name_of(self, parameter));
    if (step > 0 && self->same_micro_batches)
        weft_words_append(numbers->what, sizeof numbers->what, ", after equal gradients of all micro-batches");
}

/* ---- steps ---- */

/* Combines all ranks' gradient checksums on rank 0. A micro-batch's gradient is computed on one rank, or in parts. */
static weft_status bring_gradients(weft_ab_bits *self, weft_error *err) {
    const size_t n = (size_t)self->micro_batches * (size_t)self->parameters;
    const int32_t world = self->experiment->meeting.process_context->comm_info.size;
    weft_status status = WEFT_OK;
    if (world == 1) return WEFT_OK;
    status = weft_process_group_gather(&self->experiment->meeting.peers, self->of_ranks,
                                       (int64_t)(n * sizeof *self->of_ranks), err);
    if (status != WEFT_OK || self->experiment->meeting.process_context->comm_info.rank != 0) return status;
    for (int32_t rank = 1; rank < world; rank++)
        for (size_t i = 0; i < n; i++) {
            self->of_ranks[i].sum += self->of_ranks[(size_t)rank * n + i].sum;
            self->of_ranks[i].parts += self->of_ranks[(size_t)rank * n + i].parts;
        }
    return WEFT_OK;
}

/* Compares on rank 0, for each micro-batch: first the loss, then the gradients in backward order. */
static void compare_micro_batches(weft_ab_bits *self, int32_t step) {
    const size_t n = (size_t)self->micro_batches * (size_t)self->parameters;
    double *losses = self->losses + (size_t)(step - 1) * (size_t)self->micro_batches;
    gradient_checksum *then = self->gradients + (size_t)(step - 1) * n;
    for (int32_t m = 0; m < self->micro_batches; m++) {
        const double loss = weft_step_loss(self->arm->session->stepper, m);
        if (self->keep) losses[m] = loss;
        if (self->arm->numbers.step >= 0) continue;
        if (memcmp(&losses[m], &loss, sizeof loss) != 0) part_with_loss(self, step, m);
        for (int32_t p = self->parameters - 1; p >= 0 && self->arm->numbers.step < 0 && !self->keep; p--) {
            const size_t at = (size_t)m * (size_t)self->parameters + (size_t)p;
            if (then[at].parts == self->of_ranks[at].parts && then[at].sum != self->of_ranks[at].sum)
                part_with_gradient(self, step, m, p);
        }
    }
    if (self->keep) memcpy(then, self->of_ranks, n * sizeof *then);
}

static weft_status compare_checksums(weft_ab_bits *self, int32_t step, weft_error *err) {
    uint64_t *then = self->checksums + (size_t)step * (size_t)self->n;
    weft_checksums_odd odd;
    const weft_status status = weft_checksums_take(self->now, &odd, self->arm->session->engine, err);
    if (status != WEFT_OK) return status;
    if (self->keep) memcpy(then, self->now, (size_t)self->n * sizeof *then);
    for (int32_t i = 0; i < self->n && self->arm->numbers.step < 0; i++)
        if (then[i] != self->now[i]) part_with_checksum(self, step, i);
    return WEFT_OK;
}

weft_status weft_ab_bits_begin(weft_ab_bits *self, int32_t i, weft_error *err) {
    weft_ab_arm *first = &self->experiment->arms[0], *arm = &self->experiment->arms[i];
    const weft_plan_spec *a = &first->session->engine->plan.spec, *b = &arm->session->engine->plan.spec;
    self->arm = arm;
    self->keep = i == 0;
    arm->numbers =
        (weft_ab_numbers){.comparable = weft_ab_alike(first->session, arm->session), .step = -1, .micro_batch = -1};
    self->same_micro_batches = a->micro_batches == b->micro_batches && a->rows == b->rows &&
                               weft_ab_same_batches(self->experiment, i);
    if (!arm->numbers.comparable) return WEFT_OK;
    if (self->same_micro_batches) arm->session->stepper->values = &self->sink;
    return compare_checksums(self, 0, err);
}

weft_status weft_ab_bits_step(weft_ab_bits *self, int32_t step, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!self->arm->numbers.comparable) return WEFT_OK;
    if (self->same_micro_batches) {
        status = bring_gradients(self, err);
        if (status == WEFT_OK && self->experiment->meeting.process_context->comm_info.rank == 0)
            compare_micro_batches(self, step);
        memset(own_checksums(self), 0, (size_t)self->micro_batches * (size_t)self->parameters * sizeof *self->of_ranks);
    }
    return status == WEFT_OK ? compare_checksums(self, step, err) : status;
}

void weft_ab_bits_end(weft_ab_bits *self) {
    self->arm->session->stepper->values = NULL;
}

/* ---- memory ---- */

weft_ab_bits *weft_ab_bits_create(weft_ab_experiment *experiment) {
    const weft_engine *engine = experiment->arms[0].session->engine;
    const size_t world = (size_t)experiment->meeting.process_context->comm_info.size;
    weft_ab_bits *self = weft_alloc(1, sizeof *self);
    size_t n = 0;
    self->experiment = experiment;
    self->n = weft_checksums_count(engine);
    self->parameters = engine->plan.declared->n_parameters;
    self->micro_batches = engine->plan.spec.micro_batches;
    self->sink = (weft_value_sink){.context = self, .gradient = note_gradient};
    n = (size_t)self->micro_batches * (size_t)self->parameters;
    self->checksums = weft_alloc((1 + WEFT_AB_COMPARED) * self->n, sizeof *self->checksums);
    self->now = weft_alloc(self->n, sizeof *self->now);
    self->losses = weft_alloc(WEFT_AB_COMPARED * self->micro_batches, sizeof *self->losses);
    self->gradients = weft_alloc(WEFT_AB_COMPARED * n, sizeof *self->gradients);
    self->of_ranks = weft_alloc(world * n, sizeof *self->of_ranks);
    self->staging = weft_alloc(weft_f32_bytes(PIECE), 1);
    return self;
}

void weft_ab_bits_destroy(weft_ab_bits *self) {
    free(self->checksums);
    free(self->now);
    free(self->losses);
    free(self->gradients);
    free(self->of_ranks);
    free(self->staging);
    free(self);
}

/* ---- settings that the arms must share ---- */

/* Lines like "[device] threads = 1" for each key of the device and communicator. */
typedef struct process_context_keys {
    char text[4096];
    size_t n;
} process_context_keys;

static void keep_process_context_key(void *context, const char *key, const char *value) {
    process_context_keys *keys = context;
    if (strncmp(key, "[device", 7) != 0 && strncmp(key, "[comm", 5) != 0) return;
    if (keys->n < sizeof keys->text)
        keys->n += (size_t)snprintf(keys->text + keys->n, sizeof keys->text - keys->n, "%s = %s\n", key, value);
}

/* Collects the keys. Threads may differ between ranks, but not between arms. */
static void keep_process_context(process_context_keys *keys, const weft_config *config) {
    const char *threads = weft_config_shown(config, "device", "threads");
    weft_config_each_same(config, keep_process_context_key, keys);
    if (threads != NULL) keep_process_context_key(keys, "[device] threads", threads);
}

/* Writes the first line that differs, without its newline. */
static void first_difference(char *out, size_t size, const char *a, const char *b) {
    size_t same = 0, line = 0;
    for (; a[same] == b[same] && a[same] != '\0'; same++)
        if (a[same] == '\n') line = same + 1;
    (void)snprintf(out, size, "%.*s and %.*s", (int)strcspn(a + line, "\n"), a + line, (int)strcspn(b + line, "\n"),
                   b + line);
}

static weft_status check_process_context(const weft_ab_arm *first, const weft_ab_arm *arm, weft_error *err) {
    process_context_keys a = {.n = 0}, b = {.n = 0};
    char what[400];
    keep_process_context(&a, first->session->run->config);
    keep_process_context(&b, arm->session->run->config);
    if (strcmp(a.text, b.text) == 0) return WEFT_OK;
    first_difference(what, sizeof what, a.text, b.text);
    return weft_error_set(err, WEFT_E_USER,
                          "%s and %s differ in the device or communicator (%s): all arms run in one launch on the same "
                          "ones; use weft profile for each instead",
                          first->spec->label, arm->spec->label, what);
}

bool weft_ab_same_batches(const weft_ab_experiment *self, int32_t i) {
    const weft_session *a = self->arms[0].session, *b = self->arms[i].session;
    return a->run->settings.train.global_batch == b->run->settings.train.global_batch &&
           a->data_info.fingerprint == b->data_info.fingerprint;
}

/* True if both have the same parameters and optimizer states, so that their values can be compared. */
static bool weft_ab_alike(const weft_session *a, const weft_session *b) {
    const weft_plan *x = &a->engine->plan, *y = &b->engine->plan;
    if (x->n_states != y->n_states || x->declared->n_parameters != y->declared->n_parameters) return false;
    for (int64_t i = 0; i < x->n_states; i++)
        if (strcmp(x->states[i].name, y->states[i].name) != 0) return false;
    for (int32_t i = 0; i < x->declared->n_parameters; i++) {
        const weft_parameter *p = &x->declared->parameters[i], *q = &y->declared->parameters[i];
        if (strcmp(p->name, q->name) != 0 || p->numel != q->numel || p->trainable != q->trainable ||
            p->dtype != q->dtype)
            return false;
    }
    return true;
}

weft_status weft_ab_name(const weft_ab_arm *arm, weft_error *err) {
    if (err != NULL && strncmp(err->text, arm->spec->label, strlen(arm->spec->label)) == 0)
        return (weft_status)err->code;
    return weft_error_prefix(err, "%s: ", arm->spec->label);
}

/* ---- plans ---- */

static weft_status all_rank_plan_arm(weft_ab_arm *arm, weft_error *err) {
    weft_all_rank_plan *all_rank_plan = NULL;
    weft_status status = weft_all_rank_plan_create(&all_rank_plan, &arm->session->engine->plan, err);
    const json_t *numbers = NULL;
    if (status == WEFT_OK) status = weft_plan_diff_facts(&arm->facts, arm->session, all_rank_plan, err);
    numbers = json_object_get(arm->facts, "numbers");
    arm->bytes = json_integer_value(json_object_get(numbers, "memory total"));
    arm->sent = json_integer_value(json_object_get(numbers, "sent total"));
    for (int32_t rank = 0; status == WEFT_OK && rank < all_rank_plan->world; rank++)
        arm->instructions = weft_larger(arm->instructions, all_rank_plan->programs[rank]->n_instructions);
    weft_all_rank_plan_destroy(all_rank_plan);
    return status;
}

/* Describes the first instruction that differs between rank 0's two programs. */
static void part_programs(char *text, size_t size, const weft_mode_plan *a, const weft_mode_plan *b) {
    const int32_t n = a->program->n_instructions < b->program->n_instructions ? a->program->n_instructions
                                                                              : b->program->n_instructions;
    char x[256] = "its end", y[256] = "its end";
    int32_t i = 0;
    for (; i < n; i++) {
        weft_instruction_describe(x, sizeof x, &a->program->instructions[i], &a->job->spec);
        weft_instruction_describe(y, sizeof y, &b->program->instructions[i], &b->job->spec);
        if (strcmp(x, y) != 0 || a->program->instructions[i].queue != b->program->instructions[i].queue) break;
    }
    if (i == a->program->n_instructions && i == b->program->n_instructions) return;
    if (i == n) {
        (void)snprintf(x, sizeof x, "its end");
        (void)snprintf(y, sizeof y, "its end");
        if (i < a->program->n_instructions)
            weft_instruction_describe(x, sizeof x, &a->program->instructions[i], &a->job->spec);
        if (i < b->program->n_instructions)
            weft_instruction_describe(y, sizeof y, &b->program->instructions[i], &b->job->spec);
    }
    (void)snprintf(text, size, "equal for %d instructions of %d and %d, then A has %s, and this one %s", (int)i,
                   (int)a->program->n_instructions, (int)b->program->n_instructions, x, y);
}

static void find_change(weft_ab_arm *arm) {
    const json_t *keys = json_object_get(arm->difference, "keys"), *row = NULL;
    size_t i = 0;
    json_array_foreach(keys, i, row) {
        const weft_ab_change change = weft_ab_change_of(json_string_value(json_object_get(row, "name")));
        if (change > arm->change) arm->change = change;
    }
}

/* Stores facts of an arm that are reported after its session is closed. */
static weft_status hold_against_first(const weft_ab_arm *first, weft_ab_arm *arm, weft_error *err) {
    const weft_mode_plan *mode_plan = &arm->session->engine->plan.train;
    arm->run_seed = arm->session->run->settings.run.seed;
    if (!mode_plan->coverage.covered)
        (void)snprintf(arm->not_covered, sizeof arm->not_covered, "%s", mode_plan->coverage.why);
    if (arm == first) return WEFT_OK;
    arm->difference = weft_plan_diff_make(first->facts, arm->facts);
    if (arm->difference == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the differences");
    part_programs(arm->programs, sizeof arm->programs, &first->session->engine->plan.train, mode_plan);
    find_change(arm);
    return WEFT_OK;
}

/* Opens a session on each rank, without communication. */
static weft_status open_alone(weft_session **out, weft_ab_experiment *self, const weft_ab_spec *spec,
                              const char *const *overrides, size_t n_overrides, weft_session_kind kind,
                              const weft_session *plugin_lookup, weft_error *err) {
    const weft_session_place place = {weft_process_context_rank_span(self->meeting.process_context), plugin_lookup};
    return weft_session_open(out, spec->path, overrides, n_overrides, kind, &place, err);
}

static weft_status meet(weft_ab_experiment *self, const weft_session *session, weft_status status, weft_error *err) {
    const weft_process_group *peers = &self->meeting.peers;
    const bool open = status == WEFT_OK;
    status = weft_coherence_data(peers, open ? session->engine->plan.declared : NULL,
                                 open ? session->data_info.fingerprint : 0, status, err);
    if (status == WEFT_OK) status = weft_coherence_weights(peers, session->run, status, err);
    if (status == WEFT_OK) status = weft_coherence_answers(peers, &session->engine->plan, status, err);
    return status;
}

static weft_status fill(weft_ab_experiment *self, weft_session *session, weft_error *err) {
    weft_status status = weft_session_start(session, err);
    if (status == WEFT_OK) status = weft_engine_load(session->engine, err);
    return weft_process_group_agree(&self->meeting.peers, status, err);
}

/* Opens a session with an arm's settings and optional further overrides, with memory and weights. plugin lookup:
 * session that shares its text and data; NULL: loads its own. [collective] */
static weft_status weft_ab_open_session(weft_session **out, weft_ab_experiment *self, const weft_ab_spec *spec,
                                        const char *const *overrides, size_t n_overrides, weft_session_kind kind,
                                        const weft_session *plugin_lookup, weft_error *err) {
    weft_status status = open_alone(out, self, spec, overrides, n_overrides, kind, plugin_lookup, err);
    status = meet(self, *out, status, err);
    return status == WEFT_OK ? fill(self, *out, err) : status;
}

static weft_status open_arm(weft_ab_experiment *self, int32_t i, weft_error *err) {
    weft_ab_arm *arm = &self->arms[i];
    const weft_ab_spec *spec = arm->spec;
    const weft_session *plugin_lookup = i > 0 && spec->shares_data ? self->arms[0].session : NULL;
    const char *const before = atomic_exchange(&weft_crash_where.arm, spec->label);
    weft_status status = open_alone(&arm->session, self, spec, spec->overrides, spec->n_overrides, WEFT_SESSION_STEPS,
                                    plugin_lookup, err);
    if (status == WEFT_OK) status = check_process_context(&self->arms[0], arm, err);
    if (status == WEFT_OK) status = all_rank_plan_arm(arm, err);
    if (status == WEFT_OK) status = hold_against_first(&self->arms[0], arm, err);
    atomic_store(&weft_crash_where.arm, before);
    return status == WEFT_OK ? WEFT_OK : weft_ab_name(arm, err);
}

/* Checks that the device has enough memory for all arms together. */
static weft_status check_room(const weft_ab_experiment *self, weft_error *err) {
    const int32_t world = self->meeting.process_context->comm_info.size;
    char wanted[WEFT_UNIT_SIZE], there[WEFT_UNIT_SIZE];
    weft_available_memory room;
    int64_t bytes = 0;
    room = weft_available_memory_find(0, &self->meeting.process_context->device_info);
    for (int32_t i = 0; i < self->n; i++) bytes += self->arms[i].bytes;
    if (room.shared)
        bytes *= (world + self->arms[0].session->engine->plan.nodes - 1) / self->arms[0].session->engine->plan.nodes;
    if (room.bytes == 0 || bytes <= room.bytes) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "the %d arms exist at the same time and need %s, and %s has %s. Fix: compare fewer arms or "
                          "use a smaller model; weft plan prints the memory of each arm",
                          (int)self->n, weft_unit_bytes(wanted, bytes), weft_available_memory_owner(&room),
                          weft_unit_bytes(there, room.bytes));
}

weft_status weft_ab_open_arms(weft_ab_experiment *self, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) {
        status = open_arm(self, i, err);
        status = meet(self, self->arms[i].session, status, err);
    }
    if (status == WEFT_OK) status = weft_process_group_agree(&self->meeting.peers, check_room(self, err), err);
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) {
        const char *const before = atomic_exchange(&weft_crash_where.arm, self->arms[i].spec->label);
        status = fill(self, self->arms[i].session, err);
        atomic_store(&weft_crash_where.arm, before);
        if (status != WEFT_OK) status = weft_ab_name(&self->arms[i], err);
    }
    return status;
}

/* Loss sums and target counts of each validation micro-batch. */
typedef struct micro_batch_losses {
    double *losses;
    int64_t *targets, n;
} micro_batch_losses;

typedef struct lesson {
    weft_ab_experiment *experiment;
    const weft_ab_options *options;
    micro_batch_losses first, now; /* of the first arm and of the current arm, with the current seed */
    double means[WEFT_AB_MOST_ARMS][WEFT_AB_MOST_SEEDS];
    double sums[WEFT_AB_MOST_ARMS]; /* sums of evaluation losses over the seeds */
    int32_t seed;
} lesson;

/* ---- decision to measure ---- */

static bool has_validation(const weft_ab_experiment *self) {
    for (int32_t i = 0; i < self->n; i++)
        if (self->arms[i].session->validation_info.rows == 0) return false;
    return true;
}

static bool somebody_parts(const weft_ab_experiment *self) {
    for (int32_t i = 1; i < self->n; i++)
        if (!self->arms[i].numbers.comparable || self->arms[i].numbers.step >= 0) return true;
    return false;
}

weft_status weft_ab_learning_check(weft_ab_experiment *self, const weft_ab_options *options, bool *wanted,
                                   weft_error *err) {
    int32_t answer = 0;
    weft_status status = WEFT_OK;
    if (options->learn == 0) (void)snprintf(self->learning.why, sizeof self->learning.why, "--learn 0 disables it");
    else if (options->learn < 0 && !somebody_parts(self))
        (void)snprintf(self->learning.why, sizeof self->learning.why, "the arms compute the same");
    else if (self->stopped) (void)snprintf(self->learning.why, sizeof self->learning.why, "a signal arrived before");
    else if (!has_validation(self))
        (void)snprintf(self->learning.why, sizeof self->learning.why,
                       "there are no sequences to measure it on: set [data] validation");
    else answer = 1;
    /* numbers are on rank 0 */
    status = weft_process_group_broadcast(&self->meeting.peers, &answer, (int64_t)sizeof answer, err);
    *wanted = answer != 0;
    return status;
}

/* ---- one training run ---- */

static void free_micro_batches(micro_batch_losses *self) {
    free(self->losses);
    free(self->targets);
    *self = (micro_batch_losses){NULL, NULL, 0};
}

/* Evaluates micro-batch by micro-batch, like weft_session_evaluate. Padding in the last pass has no targets. */
static weft_status evaluate_micro_batches(micro_batch_losses *out, weft_session *session, weft_error *err) {
    const weft_plan *plan = &session->engine->plan;
    const int64_t rows = (int64_t)session->validation_info.rows, of_micro_batch = plan->spec.evaluate_rows;
    const int32_t micro_batches = plan->evaluate.program->micro_batches;
    weft_step_result result = {0};
    weft_status status = WEFT_OK;
    free_micro_batches(out);
    out->n = (rows + of_micro_batch - 1) / of_micro_batch;
    out->losses = weft_alloc(out->n, sizeof *out->losses);
    out->targets = weft_alloc(out->n, sizeof *out->targets);
    for (int64_t micro_batch = 0; micro_batch < out->n && status == WEFT_OK; micro_batch += micro_batches) {
        status = weft_stepper_evaluate(session->stepper, &result, WEFT_SPLIT_VALIDATION,
                                       (uint64_t)(micro_batch * of_micro_batch), err);
        for (int32_t m = 0; m < micro_batches && micro_batch + m < out->n && status == WEFT_OK; m++) {
            out->targets[micro_batch + m] = session->stepper->micro_batch_targets[m];
            out->losses[micro_batch + m] = out->targets[micro_batch + m] > 0 ? weft_step_loss(session->stepper, m) : 0;
        }
    }
    return status;
}

/* Trains until done. A signal on rank 0 stops all ranks after the same step. */
static weft_status train_steps(weft_session *session, int64_t steps, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_step_result result = {0};
    for (int64_t step = 1; step <= steps && status == WEFT_OK; step++) {
        int32_t stops = weft_signals_stop();
        status = weft_process_group_broadcast(&session->engine->peers, &stops, (int64_t)sizeof stops, err);
        if (status != WEFT_OK) break;
        if (stops != 0) return weft_error_set(err, WEFT_E_STOPPED, "stopped during the training");
        status = weft_stepper_train(session->stepper, &result, (uint64_t)step, weft_session_lr(session, step),
                                    session->clip, err);
    }
    return status;
}

/* Returns the arm's configured steps, limited to the requested number; the schedule stays that of the full run. */
static int64_t steps_of(const weft_ab_options *options, const weft_session *session) {
    const int64_t most = options->learn > 0 ? options->learn : WEFT_AB_LEARN_STEPS;
    return session->steps < most ? session->steps : most;
}

/* Records a divergence as infinite losses. It is a result, not an error of the comparison. */
static weft_status take_divergence(micro_batch_losses *out, weft_status status, weft_error *err) {
    const weft_error none = WEFT_ERROR_INIT;
    if (status != WEFT_E_NUMERIC) return status;
    if (err != NULL) *err = none;
    for (int64_t i = 0; i < out->n; i++) out->losses[i] = INFINITY;
    return WEFT_OK;
}

static weft_status train_arm(lesson *self, int32_t i, weft_error *err) {
    weft_ab_arm *arm = &self->experiment->arms[i];
    const weft_ab_spec *spec = arm->spec;
    const char **overrides = weft_alloc(spec->n_overrides + 1, sizeof *overrides);
    char seed[48];
    int64_t steps = 0;
    weft_session *session = NULL;
    const char *before = NULL;
    weft_status status = WEFT_OK;
    for (size_t k = 0; k < spec->n_overrides; k++) overrides[k] = spec->overrides[k];
    (void)snprintf(seed, sizeof seed, "run.seed=%lld", (long long)(arm->run_seed + self->seed));
    overrides[spec->n_overrides] = seed;
    before = atomic_exchange(&weft_crash_where.arm, spec->label);
    status = weft_ab_open_session(&session, self->experiment, spec, overrides, spec->n_overrides + (self->seed > 0),
                                  WEFT_SESSION_PROFILE, NULL, err);
    free((void *)overrides);
    if (status == WEFT_OK) {
        steps = steps_of(self->options, session);
        /* also allocates the arrays in case of a divergence */
        status = evaluate_micro_batches(&self->now, session, err);
        if (status == WEFT_OK) status = take_divergence(&self->now, train_steps(session, steps, err), err);
        if (status == WEFT_OK && (self->now.n == 0 || isfinite(self->now.losses[0])))
            status = take_divergence(&self->now, evaluate_micro_batches(&self->now, session, err), err);
        if (self->experiment->learning.steps == 0 || steps < self->experiment->learning.steps)
            self->experiment->learning.steps = steps;
    }
    weft_session_close(session);
    atomic_store(&weft_crash_where.arm, before);
    return status == WEFT_OK ? WEFT_OK : weft_ab_name(arm, err);
}

/* ---- comparison to the first arm ---- */

static bool same_micro_batches(const micro_batch_losses *a, const micro_batch_losses *b) {
    return a->n == b->n && memcmp(a->targets, b->targets, (size_t)a->n * sizeof *a->targets) == 0;
}

static double mean_loss(const micro_batch_losses *self) {
    double sum = 0, targets = 0;
    for (int64_t i = 0; i < self->n; i++) {
        sum += self->losses[i];
        targets += (double)self->targets[i];
    }
    return sum / targets;
}

static void keep_micro_batches(weft_ab_experiment *experiment, weft_ab_learned *learned,
                               const micro_batch_losses *now) {
    learned->micro_batches = weft_alloc(now->n, sizeof *learned->micro_batches);
    for (int64_t k = 0; k < now->n; k++)
        learned->micro_batches[k] = now->targets[k] > 0 ? now->losses[k] / (double)now->targets[k] : NAN;
    experiment->learning.micro_batches = now->n;
}

/* Returns false if the arm has other micro-batches than the first. */
static bool note_arm(lesson *self, int32_t i) {
    weft_ab_learned *learned = &self->experiment->arms[i].learned;
    const double loss = mean_loss(&self->now);
    self->sums[i] += loss;
    if (i == 0) {
        const micro_batch_losses last = self->first;
        self->first = self->now;
        self->now = last;
    } else if (!same_micro_batches(&self->first, &self->now)) {
        return false;
    } else {
        learned->beside =
            weft_paired_loss_of_micro_batches(self->first.losses, self->now.losses, self->now.targets, self->now.n);
        self->means[i][self->seed] = loss - mean_loss(&self->first);
    }
    if (self->seed == 0) keep_micro_batches(self->experiment, learned, i == 0 ? &self->first : &self->now);
    return true;
}

static weft_ab_learning answer_of(const weft_ab_learned *learned, double first) {
    if (isinf(learned->loss) || isinf(first)) {
        if (isinf(learned->loss) && isinf(first)) return WEFT_AB_LEARNING_UNKNOWN;
        return isinf(first) ? WEFT_AB_LEARNS_MORE : WEFT_AB_LEARNS_LESS;
    }
    if (!learned->beside.bounded) return WEFT_AB_LEARNING_UNKNOWN;
    if (learned->beside.high < 0) return WEFT_AB_LEARNS_MORE;
    return learned->beside.low > 0 ? WEFT_AB_LEARNS_LESS : WEFT_AB_LEARNS_ALIKE;
}

static void judge(lesson *self) {
    weft_ab_experiment *experiment = self->experiment;
    for (int32_t i = 0; i < experiment->n; i++) {
        weft_ab_learned *learned = &experiment->arms[i].learned;
        learned->loss = self->sums[i] / experiment->learning.seeds;
        if (i == 0) continue;
        if (experiment->learning.seeds > 1)
            learned->beside = weft_paired_loss_of_seeds(self->means[i], experiment->learning.seeds);
        learned->answer = answer_of(learned, experiment->arms[0].learned.loss);
    }
}

static weft_status run_lessons(lesson *self, bool *same, weft_error *err) {
    weft_status status = WEFT_OK;
    for (self->seed = 0; self->seed < self->options->seeds && status == WEFT_OK; self->seed++)
        for (int32_t i = 0; i < self->experiment->n && status == WEFT_OK && *same; i++) {
            weft_ab_show(self->experiment, self->options, "training: seed %d of %d, arm %c", (int)self->seed + 1,
                         (int)self->options->seeds, 'A' + i);
            status = train_arm(self, i, err);
            if (status == WEFT_OK) *same = note_arm(self, i);
            status = weft_process_group_agree(&self->experiment->meeting.peers, status, err);
        }
    weft_ab_show(self->experiment, self->options, "%s", "");
    return status;
}

/* Stops the measurement. Timing results are reported, partial learning results are not. */
static weft_status leave_off(weft_ab_experiment *experiment, weft_error *err) {
    const weft_error none = WEFT_ERROR_INIT;
    if (err != NULL) *err = none;
    experiment->stopped = true;
    experiment->learning.steps = 0;
    (void)snprintf(experiment->learning.why, sizeof experiment->learning.why,
                   "a signal arrived during the measurement");
    return WEFT_OK;
}

weft_status weft_ab_learn(weft_ab_experiment *experiment, const weft_ab_options *options, weft_error *err) {
    bool same = true;
    weft_status status = WEFT_OK;
    lesson *self = weft_alloc(1, sizeof *self);
    self->experiment = experiment;
    self->options = options;
    experiment->learning.seeds = (int32_t)options->seeds;
    status = run_lessons(self, &same, err);
    if (status == WEFT_OK && same) judge(self);
    if (status == WEFT_E_STOPPED) status = leave_off(experiment, err);
    if (status == WEFT_OK && !same) {
        experiment->learning.steps = 0;
        (void)snprintf(experiment->learning.why, sizeof experiment->learning.why,
                       "their micro-batches of validation differ. Fix: set the same [data], tokenizer and micro_batch");
    }
    free_micro_batches(&self->first);
    free_micro_batches(&self->now);
    free(self);
    return status;
}
