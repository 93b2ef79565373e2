/* host/conform/optimizer_rules.c: what an optimizer has to keep to. */
#include "conform/rule.h"

#include "engine/judge_optimizer.h"
#include "conform/later.h"
#include "plugin/call.h"
#include "plugin/enter.h"

#include <math.h>
#include <stdlib.h>

enum { ELEMENTS = 1031, MARGIN = 64, ALL = ELEMENTS + 2 * MARGIN, STEPS = 5 };

#define EDGE 12345.0f /* what lies behind the elements of a call, and must stay */

typedef struct instance {
    const weft_optimizer_plugin *table;
    weft_optimizer *made;
    weft_optimizer_facts facts;
} instance;

static void instance_close(instance *self) {
    if (self->made != NULL) WEFT_PLUGIN_TELL(self->table, destroy, self->made);
    self->made = NULL;
}

static weft_status instance_open(instance *self, const weft_subject *subject, uint8_t poison, weft_error *err) {
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->table = weft_subject_table(subject, optimizer);
    weft_plugin_call_begin(&call, subject->loaded, "create");
    status = self->table->create(&self->made, weft_subject_host(poison), subject->config, err);
    status = weft_plugin_call_made(&call, status, self->made, err);
    if (status == WEFT_OK)
        status = weft_optimizer_judge(&self->facts, self->table, self->made, subject->loaded->plugin->id, err);
    return status;
}

static double step_size(const instance *self) {
    return WEFT_HAS(self->table, lr) && self->table->lr != NULL ? self->table->lr(self->made) : 1.0;
}

/* hp is filled with a byte before, so that what prepare leaves out shows. */
static weft_status prepare(const instance *self, void *hp, uint64_t update, double lr, uint8_t poison,
                           weft_error *err) {
    const weft_step_info step = {(uint32_t)sizeof step, 0, update, lr};
    weft_status status = WEFT_OK;
    memset(hp, poison, WEFT_MAX_HP);
    weft_subject_asks("update %llu", (unsigned long long)step.update);
    WEFT_PLUGIN_CALL(status, self->table, prepare, err, self->made, hp, &step);
    if (status != WEFT_OK && err->text[0] == '\0') return WEFT_BROKEN(err, "prepare fails without a sentence");
    return status;
}

/* ---- weights that are updated ---- */

typedef struct bench {
    float weight[ALL], gradient[ALL], states[WEFT_MAX_STATES][ALL];
} bench;

static float noise(uint32_t i, uint32_t salt) {
    uint32_t x = i * 0x9e3779b1u + salt * 0x85ebca77u;
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    x ^= x >> 13;
    return (float)(x >> 8) / 8388608.0f - 1.0f;
}

static void bench_fill(bench *self) {
    for (uint32_t i = 0; i < ALL; i++) {
        const bool is_edge = i < MARGIN || i >= ALL - MARGIN;
        self->weight[i] = is_edge ? EDGE : noise(i, 1);
        self->gradient[i] = is_edge ? EDGE : noise(i, 2);
        for (int32_t s = 0; s < WEFT_MAX_STATES; s++) self->states[s][i] = is_edge ? EDGE : 0.0f;
    }
}

static void update(const instance *self, bench *on, const void *hp, const weft_range *range, int64_t begin,
                   int64_t end) {
    weft_elementwise_call call;
    weft_doing before;
    memset(&call, 0, sizeof call);
    call.struct_size = (uint32_t)sizeof call;
    call.weight = on->weight;
    call.gradient = on->gradient;
    for (int64_t s = 0; s < self->facts.n_states; s++) call.states[s] = on->states[s];
    call.hp = hp;
    call.range = range;
    call.begin = begin;
    call.end = end;
    call.coefficient = 1.0f;
    before = weft_plugin_enter(self->table, "update");
    weft_subject_asks("elements %lld to %lld", (long long)begin, (long long)end);
    self->table->update(self->made)->cpu(&call);
    (void)weft_plugin_leave(before, WEFT_OK, NULL);
}

static weft_range whole_range(float lr_scale, float decay) {
    const weft_range range = {(uint32_t)sizeof range, 0, MARGIN, ELEMENTS, lr_scale, decay};
    return range;
}

/* ---- the rules ---- */

static bool same_facts(const weft_optimizer_facts *a, const weft_optimizer_facts *b) {
    if (a->n_states != b->n_states || a->hp_bytes != b->hp_bytes) return false;
    for (int64_t s = 0; s < a->n_states; s++)
        if (strcmp(a->states[s].name, b->states[s].name) != 0 || a->states[s].dtype != b->states[s].dtype) return false;
    return true;
}

static weft_status declares_alike(weft_subject *subject, weft_error *err) {
    instance one, two;
    weft_optimizer_facts again;
    const char *id = subject->loaded->plugin->id;
    weft_status status = instance_open(&one, subject, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = instance_open(&two, subject, WEFT_POISON_TWO, err);
    else memset(&two, 0, sizeof two);
    if (status == WEFT_OK) status = weft_optimizer_judge(&again, one.table, one.made, id, err);
    if (status == WEFT_OK && (!same_facts(&one.facts, &two.facts) || !same_facts(&one.facts, &again)))
        status = WEFT_BROKEN(err, "states or hp_size give another answer when they are asked again");
    instance_close(&two);
    instance_close(&one);
    return status;
}

static weft_status prepares_alike(weft_subject *subject, weft_error *err) {
    unsigned char first[WEFT_MAX_HP], other[WEFT_MAX_HP], later[WEFT_MAX_HP];
    instance one, two;
    weft_status status = instance_open(&one, subject, WEFT_POISON_ONE, err);
    memset(&two, 0, sizeof two);
    if (status == WEFT_OK) status = instance_open(&two, subject, WEFT_POISON_TWO, err);
    if (status == WEFT_OK) status = prepare(&one, first, 3, 0.01, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = prepare(&one, later, 7, 0.02, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = prepare(&one, other, 3, 0.01, WEFT_POISON_TWO, err);
    if (status == WEFT_OK && memcmp(first, other, (size_t)one.facts.hp_bytes) != 0)
        status = WEFT_BROKEN(err,
                             "prepare of update 3 gives other bytes after update 7 was prepared: it depends on what "
                             "was asked before, or leaves bytes of hp unset");
    if (status == WEFT_OK) status = prepare(&two, later, 3, 0.01, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && memcmp(first, later, (size_t)one.facts.hp_bytes) != 0)
        status = WEFT_BROKEN(err, "prepare gives other bytes in a second instance of the same keys");
    instance_close(&two);
    instance_close(&one);
    return status;
}

/* A few updates, each in calls of `piece` elements. */
static weft_status run_updates(const weft_subject *subject, bench *on, int64_t piece, uint8_t poison, weft_error *err) {
    const weft_range range = whole_range(0.5f, 1.0f);
    unsigned char hp[WEFT_MAX_HP];
    instance self;
    weft_status status = instance_open(&self, subject, poison, err);
    bench_fill(on);
    for (uint64_t step = 1; step <= STEPS && status == WEFT_OK; step++) {
        status = prepare(&self, hp, step, step_size(&self), poison, err);
        for (int64_t at = MARGIN; at < MARGIN + ELEMENTS && status == WEFT_OK; at += piece)
            update(&self, on, hp, &range, at, at + piece < MARGIN + ELEMENTS ? at + piece : MARGIN + ELEMENTS);
    }
    instance_close(&self);
    return status;
}

static weft_status cuts_alike(weft_subject *subject, weft_error *err) {
    bench *on = malloc(2 * sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) status = run_updates(subject, &on[0], ELEMENTS, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = run_updates(subject, &on[1], 13, WEFT_POISON_TWO, err);
    for (int32_t i = 0; i < ALL && status == WEFT_OK; i++)
        if (memcmp(&on[0].weight[i], &on[1].weight[i], sizeof(float)) != 0)
            status =
                WEFT_BROKEN(err,
                            "element %d is %.9g after %d updates in one piece, and %.9g in pieces of 13: it depends "
                            "on where a call begins",
                            i - MARGIN, (double)on[0].weight[i], STEPS, (double)on[1].weight[i]);
    free(on);
    return status;
}

static weft_status stays_inside(weft_subject *subject, weft_error *err) {
    bench *on = malloc(sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) status = run_updates(subject, on, ELEMENTS, WEFT_POISON_ONE, err);
    for (int32_t i = 0; i < ALL && status == WEFT_OK; i++) {
        const bool is_edge = i < MARGIN || i >= ALL - MARGIN;
        bool touched = is_edge && on->weight[i] != EDGE;
        for (int32_t s = 0; s < WEFT_MAX_STATES; s++) touched = touched || (is_edge && on->states[s][i] != EDGE);
        if (touched)
            status = WEFT_BROKEN(err, "the update writes %d elements outside of what it was given",
                                 i < MARGIN ? MARGIN - i : i - (ALL - MARGIN) + 1);
        else if (!is_edge && on->gradient[i] != noise((uint32_t)i, 2))
            status = WEFT_BROKEN(err, "the update changes the gradient");
    }
    free(on);
    return status;
}

/* One update of chosen weights and gradients. */
static weft_status update_once(const weft_subject *subject, bench *on, double lr, const weft_range *range,
                               weft_error *err) {
    unsigned char hp[WEFT_MAX_HP];
    instance self;
    weft_status status = instance_open(&self, subject, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = prepare(&self, hp, 1, lr < 0 ? step_size(&self) : lr, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) update(&self, on, hp, range, MARGIN, MARGIN + ELEMENTS);
    instance_close(&self);
    return status;
}

static weft_status stays_put(const bench *on, const char *why, weft_error *err) {
    for (uint32_t i = MARGIN; i < MARGIN + ELEMENTS; i++)
        if (on->weight[i] != noise(i, 1))
            return WEFT_BROKEN(err, "a weight goes from %.9g to %.9g although %s", (double)noise(i, 1),
                               (double)on->weight[i], why);
    return WEFT_OK;
}

static weft_status heeds_the_step_size(weft_subject *subject, weft_error *err) {
    const weft_range full = whole_range(1.0f, 1.0f), none = whole_range(0.0f, 1.0f);
    bench *on = malloc(sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) bench_fill(on);
    if (status == WEFT_OK) status = update_once(subject, on, 0.0, &full, err);
    if (status == WEFT_OK) status = stays_put(on, "the step size is zero", err);
    if (status == WEFT_OK) bench_fill(on);
    if (status == WEFT_OK) status = update_once(subject, on, -1, &none, err);
    if (status == WEFT_OK) status = stays_put(on, "its range has lr_scale = 0", err);
    free(on);
    return status;
}

static weft_status heeds_decay(weft_subject *subject, weft_error *err) {
    const weft_range spared = whole_range(1.0f, 0.0f);
    bench *on = NULL;
    weft_status status = WEFT_OK;
    if ((weft_subject_table(subject, optimizer)->flags & WEFT_OFFERS_DECAY) == 0)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "it does not offer the key decay");
    on = malloc(sizeof *on);
    if (on == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    bench_fill(on);
    for (int32_t i = MARGIN; i < MARGIN + ELEMENTS; i++) on->gradient[i] = 0.0f;
    status = update_once(subject, on, -1, &spared, err);
    if (status == WEFT_OK) status = stays_put(on, "its gradient is zero and its range has decay = 0", err);
    free(on);
    return status;
}

/* Along the gradient of w^2 / 2, which is w. */
static weft_status goes_downhill(weft_subject *subject, weft_error *err) {
    const weft_range range = whole_range(1.0f, 1.0f);
    unsigned char hp[WEFT_MAX_HP];
    double before = 0, after = 0;
    instance self;
    bench *on = malloc(sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    memset(&self, 0, sizeof self);
    if (status == WEFT_OK) status = instance_open(&self, subject, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) bench_fill(on);
    for (uint64_t step = 1; step <= 20 && status == WEFT_OK; step++) {
        for (int32_t i = MARGIN; i < MARGIN + ELEMENTS; i++) on->gradient[i] = on->weight[i];
        status = prepare(&self, hp, step, step_size(&self), WEFT_POISON_ONE, err);
        if (status == WEFT_OK) update(&self, on, hp, &range, MARGIN, MARGIN + ELEMENTS);
    }
    for (uint32_t i = MARGIN; i < MARGIN + ELEMENTS && status == WEFT_OK; i++) {
        before += (double)noise(i, 1) * (double)noise(i, 1);
        after += (double)on->weight[i] * (double)on->weight[i];
    }
    if (status == WEFT_OK && !(after < before))
        status = WEFT_BROKEN(err,
                             "20 updates along the gradient of w^2 / 2 take it from %.6g to %.6g: it goes uphill, or "
                             "nowhere",
                             before / 2, after / 2);
    instance_close(&self);
    free(on);
    return status;
}

static weft_status stays_finite(weft_subject *subject, weft_error *err) {
    static const float gradients[] = {0.0f, 1e-30f, 1e-3f, 1.0f, 1e4f, 1e10f};
    const weft_range range = whole_range(1.0f, 1.0f);
    bench *on = malloc(sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) bench_fill(on);
    for (int32_t i = 0; i < ELEMENTS && status == WEFT_OK; i++) on->gradient[MARGIN + i] = gradients[i % 6];
    if (status == WEFT_OK) status = update_once(subject, on, -1, &range, err);
    for (int32_t i = 0; i < ELEMENTS && status == WEFT_OK; i++)
        if (!isfinite(on->weight[MARGIN + i]))
            status = WEFT_BROKEN(err, "a gradient of %g makes a weight %g", (double)gradients[i % 6],
                                 (double)on->weight[MARGIN + i]);
    free(on);
    return status;
}

static weft_status come_and_go(weft_subject *subject, weft_error *err) {
    instance self;
    weft_status status = instance_open(&self, subject, WEFT_POISON_ONE, err);
    instance_close(&self);
    return status;
}

static weft_status gives_back(weft_subject *subject, weft_error *err) {
    return weft_subject_gives_back(subject, come_and_go, err);
}

static weft_status updates_later(weft_subject *subject, weft_error *err) {
    const weft_subject *later = weft_later(subject);
    bench *on = malloc(2 * sizeof *on);
    weft_status status = on != NULL && later != NULL ? WEFT_OK
                                                     : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) status = run_updates(subject, &on[0], ELEMENTS, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) {
        status = run_updates(later, &on[1], ELEMENTS, WEFT_POISON_ONE, err);
        status = weft_later_judge(status, memcmp(on[0].weight, on[1].weight, sizeof on->weight) == 0, "weights", err);
    }
    free(on);
    return status;
}

const weft_rule weft_rules_optimizer[] = {
    {"R30", "optimizer", "declares the same states whenever it is asked", declares_alike, false},
    {"R31", "optimizer", "prepares each update from its number and step size alone", prepares_alike, false},
    {"R32", "optimizer", "updates an element alike wherever a call begins and ends", cuts_alike, false},
    {"R33", "optimizer", "writes its elements alone, and no gradient", stays_inside, false},
    {"R34", "optimizer", "moves nothing where the step size or lr_scale is zero", heeds_the_step_size, false},
    {"R35", "optimizer", "does not decay where the range's decay is zero", heeds_decay, false},
    {"R36", "optimizer", "goes downhill", goes_downhill, false},
    {"R37", "optimizer", "keeps finite weights finite", stays_finite, false},
    {"R38", "optimizer", "gives its memory back", gives_back, false},
    {"R39", "optimizer", "updates alike in a host whose structs are longer", updates_later, false},
    {NULL, NULL, NULL, NULL, false}};
