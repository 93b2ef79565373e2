/* host/tools/ab/open_arms.c: see open_arms.h. */
#include "tools/ab/open_arms.h"

#include "base/units.h"
#include "report/available_memory.h"
#include "report/all_rank_plan.h"
#include "plugin/crash.h"
#include "report/plan_diff.h"
#include "run/coherence.h"

#include <stdlib.h>

/* ---- what the arms must have in common ---- */

/* "[device] threads = 1" of each key that is the process context's, one a line. */
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

/* Threads may differ from rank to rank, but not from arm to arm. */
static void keep_process_context(process_context_keys *keys, const weft_config *config) {
    const char *threads = weft_config_shown(config, "device", "threads");
    weft_config_each_same(config, keep_process_context_key, keys);
    if (threads != NULL) keep_process_context_key(keys, "[device] threads", threads);
}

/* The first line that differs, without its end. */
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

bool weft_ab_alike(const weft_session *a, const weft_session *b) {
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

/* ---- planned ---- */

static weft_status all_rank_plan_arm(weft_ab_arm *arm, weft_error *err) {
    weft_all_rank_plan *all_rank_plan = NULL;
    weft_status status = weft_all_rank_plan_create(&all_rank_plan, &arm->session->engine->plan, err);
    for (int32_t rank = 0; status == WEFT_OK && rank < all_rank_plan->world; rank++) {
        const weft_rank_plan *plan = &all_rank_plan->ranks[rank];
        if (plan->bytes.total > arm->bytes) arm->bytes = plan->bytes.total;
        if (plan->n_instructions > arm->instructions) arm->instructions = plan->n_instructions;
        arm->sent += plan->total_sent;
    }
    if (status == WEFT_OK) status = weft_plan_diff_facts(&arm->facts, arm->session, all_rank_plan, err);
    weft_all_rank_plan_destroy(all_rank_plan);
    return status;
}

/* Of rank 0's programs the first instructions that are not alike. */
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
    (void)snprintf(text, size, "alike for %d instructions of %d and %d, then A has %s, and this one %s", (int)i,
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

/* What is told of the arm when its session is gone. */
static weft_status hold_against_first(const weft_ab_arm *first, weft_ab_arm *arm, weft_error *err) {
    const weft_mode_plan *mode_plan = &arm->session->engine->plan.train;
    arm->run_seed = arm->session->run->settings.run.seed;
    if (!mode_plan->coverage.covered)
        (void)snprintf(arm->not_covered, sizeof arm->not_covered, "%s", mode_plan->coverage.why);
    if (arm == first) return WEFT_OK;
    arm->difference = weft_plan_diff_make(first->facts, arm->facts);
    if (arm->difference == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what differs");
    part_programs(arm->programs, sizeof arm->programs, &first->session->engine->plan.train, mode_plan);
    find_change(arm);
    return WEFT_OK;
}

/* Each rank by itself; the ranks have not met then. */
static weft_status open_alone(weft_session **out, weft_ab_experiment *self, const weft_ab_spec *spec,
                              const char *const *overrides, size_t n_overrides, weft_session_kind kind,
                              const weft_session *plugin_lookup, weft_error *err) {
    const weft_session_place place = {weft_process_context_rank_span(self->meeting.process_context), plugin_lookup};
    return weft_session_open_at(out, spec->path, overrides, n_overrides, kind, &place, err);
}

static weft_status meet(weft_ab_experiment *self, const weft_session *session, weft_status status, weft_error *err) {
    const weft_process_group *peers = &self->meeting.peers;
    const bool open = status == WEFT_OK;
    status = weft_coherence_data(peers, open ? session->engine->plan.declared : NULL,
                                 open ? session->data_info.fingerprint : 0, status, err);
    if (status == WEFT_OK) status = weft_coherence_weights(peers, session->run, status, err);
    if (status == WEFT_OK) status = weft_coherence_answers(peers, session->engine, status, err);
    return status;
}

static weft_status fill(weft_ab_experiment *self, weft_session *session, weft_error *err) {
    weft_status status = weft_session_start(session, err);
    if (status == WEFT_OK) status = weft_engine_load(session->engine, err);
    return weft_process_group_agree(&self->meeting.peers, status, err);
}

weft_status weft_ab_open_session(weft_session **out, weft_ab_experiment *self, const weft_ab_spec *spec,
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
    const char *const before = weft_crash_arm(spec->label);
    weft_status status = open_alone(&arm->session, self, spec, spec->overrides, spec->n_overrides, WEFT_SESSION_STEPS,
                                    plugin_lookup, err);
    if (status == WEFT_OK) status = check_process_context(&self->arms[0], arm, err);
    if (status == WEFT_OK) status = all_rank_plan_arm(arm, err);
    if (status == WEFT_OK) status = hold_against_first(&self->arms[0], arm, err);
    (void)weft_crash_arm(before);
    return status == WEFT_OK ? WEFT_OK : weft_ab_name(arm, err);
}

/* All arms live at once. */
static weft_status check_room(const weft_ab_experiment *self, weft_error *err) {
    const int32_t world = weft_process_context_size(self->meeting.process_context);
    char wanted[WEFT_UNIT_SIZE], there[WEFT_UNIT_SIZE];
    weft_available_memory room;
    int64_t bytes = 0;
    weft_available_memory_find(&room, &self->meeting.process_context->device_info);
    for (int32_t i = 0; i < self->n; i++) bytes += self->arms[i].bytes;
    if (room.shared)
        bytes *= (world + self->arms[0].session->engine->plan.nodes - 1) / self->arms[0].session->engine->plan.nodes;
    if (room.bytes == 0 || bytes <= room.bytes) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "the %d arms, which live at once, want %s together, and %s has %s: compare fewer of them, or "
                          "a smaller model; weft plan says what each takes",
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
        const char *const before = weft_crash_arm(self->arms[i].spec->label);
        status = fill(self, self->arms[i].session, err);
        (void)weft_crash_arm(before);
        if (status != WEFT_OK) status = weft_ab_name(&self->arms[i], err);
    }
    return status;
}
