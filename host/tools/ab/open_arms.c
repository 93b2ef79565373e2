/* host/tools/ab/open_arms.c: see open_arms.h. */
#include "tools/ab/open_arms.h"

#include "base/units.h"
#include "report/room.h"
#include "report/survey.h"
#include "plugin/crash.h"
#include "report/contrast.h"
#include "run/coherence.h"

#include <stdlib.h>

/* ---- what the arms must have in common ---- */

/* "[device] threads = 1" of each key that is the platform's, one a line. */
typedef struct platform_keys {
    char text[4096];
    size_t n;
} platform_keys;

static void keep_platform_key(void *context, const char *key, const char *value) {
    platform_keys *keys = context;
    if (strncmp(key, "[device", 7) != 0 && strncmp(key, "[comm", 5) != 0) return;
    if (keys->n < sizeof keys->text)
        keys->n += (size_t)snprintf(keys->text + keys->n, sizeof keys->text - keys->n, "%s = %s\n", key, value);
}

/* Threads may differ from rank to rank, but not from arm to arm. */
static void keep_platform(platform_keys *keys, const weft_config *config) {
    const char *threads = weft_config_shown(config, "device", "threads");
    weft_config_each_same(config, keep_platform_key, keys);
    if (threads != NULL) keep_platform_key(keys, "[device] threads", threads);
}

/* The first line that differs, without its end. */
static void first_difference(char *out, size_t size, const char *a, const char *b) {
    size_t same = 0, line = 0;
    for (; a[same] == b[same] && a[same] != '\0'; same++)
        if (a[same] == '\n') line = same + 1;
    (void)snprintf(out, size, "%.*s and %.*s", (int)strcspn(a + line, "\n"), a + line, (int)strcspn(b + line, "\n"),
                   b + line);
}

static weft_status check_platform(const weft_ab_arm *first, const weft_ab_arm *arm, weft_error *err) {
    platform_keys a = {.n = 0}, b = {.n = 0};
    char what[400];
    keep_platform(&a, first->session->run->config);
    keep_platform(&b, arm->session->run->config);
    if (strcmp(a.text, b.text) == 0) return WEFT_OK;
    first_difference(what, sizeof what, a.text, b.text);
    return weft_error_set(err, WEFT_E_USER,
                          "%s and %s differ in the device or communicator (%s): all arms run in one launch on the same "
                          "ones; use weft profile for each instead",
                          first->spec->label, arm->spec->label, what);
}

bool weft_ab_same_batches(const weft_ab_contest *self, int32_t i) {
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

static weft_status survey_arm(weft_ab_arm *arm, weft_error *err) {
    weft_survey *survey = NULL;
    weft_status status = weft_survey_create(&survey, &arm->session->engine->plan, err);
    for (int32_t rank = 0; status == WEFT_OK && rank < survey->world; rank++) {
        const weft_rank_plan *plan = &survey->ranks[rank];
        if (plan->bytes.total > arm->bytes) arm->bytes = plan->bytes.total;
        if (plan->n_events > arm->events) arm->events = plan->n_events;
        arm->sent += plan->total_sent;
    }
    if (status == WEFT_OK) status = weft_contrast_facts(&arm->facts, arm->session, survey, err);
    weft_survey_destroy(survey);
    return status;
}

/* Of rank 0's programs the first events that are not alike. */
static void part_programs(char *text, size_t size, const weft_stage *a, const weft_stage *b) {
    const int32_t n = a->program->n_events < b->program->n_events ? a->program->n_events : b->program->n_events;
    char x[256] = "its end", y[256] = "its end";
    int32_t i = 0;
    for (; i < n; i++) {
        weft_event_describe(x, sizeof x, &a->program->events[i], &a->job->spec);
        weft_event_describe(y, sizeof y, &b->program->events[i], &b->job->spec);
        if (strcmp(x, y) != 0 || a->program->events[i].queue != b->program->events[i].queue) break;
    }
    if (i == a->program->n_events && i == b->program->n_events) return;
    if (i == n) {
        (void)snprintf(x, sizeof x, "its end");
        (void)snprintf(y, sizeof y, "its end");
        if (i < a->program->n_events) weft_event_describe(x, sizeof x, &a->program->events[i], &a->job->spec);
        if (i < b->program->n_events) weft_event_describe(y, sizeof y, &b->program->events[i], &b->job->spec);
    }
    (void)snprintf(text, size, "alike for %d events of %d and %d, then A has %s, and this one %s", (int)i,
                   (int)a->program->n_events, (int)b->program->n_events, x, y);
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
    const weft_stage *stage = &arm->session->engine->plan.train;
    arm->run_seed = arm->session->run->settings.run.seed;
    if (!stage->coverage.covered) (void)snprintf(arm->not_covered, sizeof arm->not_covered, "%s", stage->coverage.why);
    if (arm == first) return WEFT_OK;
    arm->difference = weft_contrast_make(first->facts, arm->facts);
    if (arm->difference == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what differs");
    part_programs(arm->programs, sizeof arm->programs, &first->session->engine->plan.train, stage);
    find_change(arm);
    return WEFT_OK;
}

/* Each rank by itself; the ranks have not met then. */
static weft_status open_alone(weft_session **out, weft_ab_contest *self, const weft_ab_spec *spec,
                              const char *const *overrides, size_t n_overrides, weft_session_kind kind,
                              const weft_session *lender, weft_error *err) {
    const weft_session_place place = {weft_platform_seat(self->meeting.platform), lender};
    return weft_session_open_at(out, spec->path, overrides, n_overrides, kind, &place, err);
}

static weft_status meet(weft_ab_contest *self, const weft_session *session, weft_status status, weft_error *err) {
    const weft_peers *peers = &self->meeting.peers;
    const bool open = status == WEFT_OK;
    status = weft_coherence_data(peers, open ? session->engine->plan.declared : NULL,
                                 open ? session->data_info.fingerprint : 0, status, err);
    if (status == WEFT_OK) status = weft_coherence_weights(peers, session->run, status, err);
    if (status == WEFT_OK) status = weft_coherence_answers(peers, session->engine, status, err);
    return status;
}

static weft_status fill(weft_ab_contest *self, weft_session *session, weft_error *err) {
    weft_status status = weft_session_start(session, err);
    if (status == WEFT_OK) status = weft_engine_load(session->engine, err);
    return weft_peers_agree(&self->meeting.peers, status, err);
}

weft_status weft_ab_open_session(weft_session **out, weft_ab_contest *self, const weft_ab_spec *spec,
                                 const char *const *overrides, size_t n_overrides, weft_session_kind kind,
                                 const weft_session *lender, weft_error *err) {
    weft_status status = open_alone(out, self, spec, overrides, n_overrides, kind, lender, err);
    status = meet(self, *out, status, err);
    return status == WEFT_OK ? fill(self, *out, err) : status;
}

static weft_status open_arm(weft_ab_contest *self, int32_t i, weft_error *err) {
    weft_ab_arm *arm = &self->arms[i];
    const weft_ab_spec *spec = arm->spec;
    const weft_session *lender = i > 0 && spec->shares_data ? self->arms[0].session : NULL;
    const char *const before = weft_crash_arm(spec->label);
    weft_status status =
        open_alone(&arm->session, self, spec, spec->overrides, spec->n_overrides, WEFT_SESSION_STEPS, lender, err);
    if (status == WEFT_OK) status = check_platform(&self->arms[0], arm, err);
    if (status == WEFT_OK) status = survey_arm(arm, err);
    if (status == WEFT_OK) status = hold_against_first(&self->arms[0], arm, err);
    (void)weft_crash_arm(before);
    return status == WEFT_OK ? WEFT_OK : weft_ab_name(arm, err);
}

/* All arms live at once. */
static weft_status check_room(const weft_ab_contest *self, weft_error *err) {
    const int32_t world = weft_platform_size(self->meeting.platform);
    char wanted[WEFT_UNIT_SIZE], there[WEFT_UNIT_SIZE];
    weft_room room;
    int64_t bytes = 0;
    weft_room_find(&room, &self->meeting.platform->device_info);
    for (int32_t i = 0; i < self->n; i++) bytes += self->arms[i].bytes;
    if (room.shared)
        bytes *= (world + self->arms[0].session->engine->plan.nodes - 1) / self->arms[0].session->engine->plan.nodes;
    if (room.bytes == 0 || bytes <= room.bytes) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "the %d arms, which live at once, want %s together, and %s has %s: compare fewer of them, or "
                          "a smaller model; weft plan says what each takes",
                          (int)self->n, weft_unit_bytes(wanted, bytes), weft_room_whose(&room),
                          weft_unit_bytes(there, room.bytes));
}

weft_status weft_ab_open_arms(weft_ab_contest *self, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) {
        status = open_arm(self, i, err);
        status = meet(self, self->arms[i].session, status, err);
    }
    if (status == WEFT_OK) status = weft_peers_agree(&self->meeting.peers, check_room(self, err), err);
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) {
        const char *const before = weft_crash_arm(self->arms[i].spec->label);
        status = fill(self, self->arms[i].session, err);
        (void)weft_crash_arm(before);
        if (status != WEFT_OK) status = weft_ab_name(&self->arms[i], err);
    }
    return status;
}
