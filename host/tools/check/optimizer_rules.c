/* host/tools/check/optimizer_rules.c: what an optimizer has to keep to. */
#include "tools/check/rule.h"

#include "run/validate_optimizer.h"
#include "tools/check/compiled_body.h"
#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"
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
    weft_body_fn *body; /* the update's text, compiled; NULL: the plugin's own function */
} instance;

static void instance_close(instance *self) {
    if (self->made != NULL) WEFT_PLUGIN_TELL(self->table, destroy, self->made);
    self->made = NULL;
}

static weft_status instance_open(instance *self, const weft_plugin_under_test *tested, uint8_t poison,
                                 weft_error *err) {
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->table = weft_plugin_under_test_table(tested, optimizer);
    weft_plugin_call_begin(&call, tested->loaded, "create");
    status = self->table->create(&self->made, weft_plugin_under_test_host(poison), tested->config, err);
    status = weft_plugin_call_made(&call, status, self->made, err);
    if (status == WEFT_OK)
        status = weft_optimizer_validate(&self->facts, self->table, self->made, tested->loaded->plugin->id, err);
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
    weft_plugin_under_test_asks("update %llu", (unsigned long long)step.update);
    WEFT_PLUGIN_CALL(status, self->table, prepare, err, self->made, hp, &step);
    if (status != WEFT_OK && err->text[0] == '\0') return WEFT_BROKEN(err, "prepare fails without a sentence");
    for (int64_t i = self->facts.hp_bytes; i < WEFT_MAX_HP && status == WEFT_OK; i++)
        if (((unsigned char *)hp)[i] != poison)
            status = WEFT_BROKEN(err, "prepare writes byte %lld of hp, and its hp_size is %lld", (long long)i,
                                 (long long)self->facts.hp_bytes);
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
    weft_plugin_under_test_asks("elements %lld to %lld", (long long)begin, (long long)end);
    if (self->body != NULL) self->body(&call);
    else self->table->update(self->made)->cpu(&call);
    (void)weft_plugin_leave(before, WEFT_OK, NULL);
}

static weft_range whole_range(float lr_scale, float decay) {
    const weft_range range = {(uint32_t)sizeof range, 0, MARGIN, ELEMENTS, lr_scale, decay};
    return range;
}

/* ---- updates by a course ---- */

/* A few updates by gradients that differ from one to the next. */
typedef struct course {
    double schedule; /* times its own step size */
    float lr_scale, decay;
    int64_t steps;
    bool from_zero; /* all weights are zero at first, so that none decays */
} course;

static weft_status follow(bench *on, const weft_plugin_under_test *tested, const course *by, weft_error *err) {
    const weft_range range = whole_range(by->lr_scale, by->decay);
    unsigned char hp[WEFT_MAX_HP];
    instance self;
    weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, err);
    bench_fill(on);
    for (int64_t i = MARGIN; i < MARGIN + ELEMENTS && by->from_zero; i++) on->weight[i] = 0.0f;
    for (int64_t step = 1; step <= by->steps && status == WEFT_OK; step++) {
        for (uint32_t i = MARGIN; i < MARGIN + ELEMENTS; i++) on->gradient[i] = noise(i, 2 + (uint32_t)step);
        status = prepare(&self, hp, (uint64_t)step, by->schedule * step_size(&self), WEFT_POISON_ONE, err);
        if (status == WEFT_OK) update(&self, on, hp, &range, MARGIN, MARGIN + ELEMENTS);
    }
    instance_close(&self);
    return status;
}

/* The first element that two courses take to other places, but for rounding; -1: none. */
static int32_t parted(const bench *a, const bench *b, bool from_zero) {
    for (int32_t i = MARGIN; i < MARGIN + ELEMENTS; i++) {
        const double start = from_zero ? 0.0 : (double)noise((uint32_t)i, 1);
        const double one = (double)a->weight[i] - start, two = (double)b->weight[i] - start;
        const double most = 1e-4 * fmax(fabs(one), fabs(two)) + 5e-7 * fabs(start) + 1e-37;
        if (fabs(one - two) > most) return i;
    }
    return -1;
}

/* ---- the rules ---- */

static bool same_facts(const weft_optimizer_facts *a, const weft_optimizer_facts *b) {
    if (a->n_states != b->n_states || a->hp_bytes != b->hp_bytes) return false;
    for (int64_t s = 0; s < a->n_states; s++)
        if (strcmp(a->states[s].name, b->states[s].name) != 0 || a->states[s].dtype != b->states[s].dtype) return false;
    return true;
}

static weft_status declares_alike(weft_plugin_under_test *tested, weft_error *err) {
    instance one, two;
    weft_optimizer_facts again;
    const char *id = tested->loaded->plugin->id;
    weft_status status = instance_open(&one, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = instance_open(&two, tested, WEFT_POISON_TWO, err);
    else memset(&two, 0, sizeof two);
    if (status == WEFT_OK) status = weft_optimizer_validate(&again, one.table, one.made, id, err);
    if (status == WEFT_OK && (!same_facts(&one.facts, &two.facts) || !same_facts(&one.facts, &again)))
        status = WEFT_BROKEN(err, "states or hp_size give another answer when they are asked again");
    instance_close(&two);
    instance_close(&one);
    return status;
}

/* hp is filled whatever the step: a schedule may begin and end with a step size of zero. */
static weft_status fills_all(const instance *self, weft_error *err) {
    const double sizes[] = {0, step_size(self)};
    unsigned char one[WEFT_MAX_HP], two[WEFT_MAX_HP];
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < 4 && status == WEFT_OK; i++) {
        const uint64_t number = i < 2 ? 1 : 1000;
        status = prepare(self, one, number, sizes[i % 2], WEFT_POISON_ONE, err);
        if (status == WEFT_OK) status = prepare(self, two, number, sizes[i % 2], WEFT_POISON_TWO, err);
        if (status == WEFT_OK && memcmp(one, two, (size_t)self->facts.hp_bytes) != 0)
            status = WEFT_BROKEN(err, "prepare of update %llu with a step size of %g leaves bytes of hp unset",
                                 (unsigned long long)number, sizes[i % 2]);
    }
    return status;
}

/* What it declares and prepares, for weft_other_keys. */
static weft_status open_any(void *made, const weft_plugin_under_test *tested, weft_error *err) {
    return instance_open(made, tested, WEFT_POISON_ONE, err);
}

static void close_any(void *made) {
    instance_close(made);
}

static weft_status answer(weft_answer *to, void *made, weft_error *err) {
    const instance *self = made;
    const double size = step_size(self);
    unsigned char hp[WEFT_MAX_HP];
    weft_status status = WEFT_OK;
    weft_answer_add(to, &self->facts.n_states, sizeof self->facts.n_states);
    weft_answer_add(to, &self->facts.hp_bytes, sizeof self->facts.hp_bytes);
    weft_answer_add(to, &size, sizeof size);
    for (int64_t s = 0; s < self->facts.n_states; s++) {
        weft_answer_add_text(to, self->facts.states[s].name);
        WEFT_ANSWER_ADD(to, self->facts.states[s].dtype);
        WEFT_ANSWER_ADD(to, self->facts.states[s].flags);
    }
    for (uint64_t number = 1; number <= 1000 && status == WEFT_OK; number *= 10) {
        status = prepare(self, hp, number, 0.01, WEFT_POISON_ONE, err);
        if (status == WEFT_OK) weft_answer_add(to, hp, (size_t)self->facts.hp_bytes);
    }
    return status;
}

static weft_status prepares_by_its_keys(weft_plugin_under_test *tested, weft_error *err) {
    const weft_answers answers = {sizeof(instance), open_any, close_any, answer};
    return weft_other_keys(tested, &answers, err);
}

static weft_status prepares_alike(weft_plugin_under_test *tested, weft_error *err) {
    unsigned char first[WEFT_MAX_HP], other[WEFT_MAX_HP], later[WEFT_MAX_HP];
    instance one = {0}, two = {0};
    weft_status status = prepares_by_its_keys(tested, err);
    if (status == WEFT_OK) status = instance_open(&one, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = instance_open(&two, tested, WEFT_POISON_TWO, err);
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
    if (status == WEFT_OK) status = fills_all(&one, err);
    instance_close(&two);
    instance_close(&one);
    return status;
}

/* A few updates, each in calls of `piece` elements. */
static weft_status run_body(const weft_plugin_under_test *tested, bench *on, int64_t piece, uint8_t poison,
                            weft_body_fn *body, weft_error *err) {
    const weft_range range = whole_range(0.5f, 1.0f);
    unsigned char hp[WEFT_MAX_HP];
    instance self;
    weft_status status = instance_open(&self, tested, poison, err);
    self.body = body;
    bench_fill(on);
    for (uint64_t step = 1; step <= STEPS && status == WEFT_OK; step++) {
        status = prepare(&self, hp, step, step_size(&self), poison, err);
        for (int64_t at = MARGIN; at < MARGIN + ELEMENTS && status == WEFT_OK; at += piece)
            update(&self, on, hp, &range, at, at + piece < MARGIN + ELEMENTS ? at + piece : MARGIN + ELEMENTS);
    }
    instance_close(&self);
    return status;
}

static weft_status run_updates(const weft_plugin_under_test *tested, bench *on, int64_t piece, uint8_t poison,
                               weft_error *err) {
    return run_body(tested, on, piece, poison, NULL, err);
}

/* ---- its text ---- */

static weft_status compile_body(weft_body_fn **out, const weft_plugin_under_test *tested, weft_error *err) {
    const weft_elementwise *kernel = NULL;
    instance self;
    int64_t bytes = 0;
    weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) WEFT_PLUGIN_ASK(kernel, self.table, update, self.made);
    if (status == WEFT_OK) status = weft_body_compile(out, &bytes, kernel, err);
    if (status == WEFT_OK && bytes != self.facts.hp_bytes)
        status = WEFT_BROKEN(err, "%s has %lld bytes as its members say, and hp_size is %lld", kernel->hp_name,
                             (long long)bytes, (long long)self.facts.hp_bytes);
    instance_close(&self);
    return status;
}

static weft_status compare_bodies(const bench *own, const bench *text, weft_error *err) {
    for (int32_t i = 0; i < ALL; i++) {
        bool same = memcmp(&own->weight[i], &text->weight[i], sizeof(float)) == 0;
        for (int32_t s = 0; s < WEFT_MAX_STATES; s++)
            same = same && memcmp(&own->states[s][i], &text->states[s][i], sizeof(float)) == 0;
        if (!same)
            return WEFT_BROKEN(err,
                               "element %d is %.9g after %d updates by its function, and %.9g by the text of its body, "
                               "which a card compiles: it was built with contraction of products and sums (build it "
                               "with -ffp-contract=off), or its function is of another text",
                               i - MARGIN, (double)own->weight[i], STEPS, (double)text->weight[i]);
    }
    return WEFT_OK;
}

/* What a card computes comes from the text. */
static weft_status follows_its_text(weft_plugin_under_test *tested, weft_error *err) {
    bench *on = malloc(2 * sizeof *on);
    weft_body_fn *body = NULL;
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) status = compile_body(&body, tested, err);
    if (status == WEFT_OK) status = run_updates(tested, &on[0], ELEMENTS, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = run_body(tested, &on[1], ELEMENTS, WEFT_POISON_ONE, body, err);
    if (status == WEFT_OK) status = compare_bodies(&on[0], &on[1], err);
    free(on);
    return status;
}

static weft_status cuts_alike(weft_plugin_under_test *tested, weft_error *err) {
    bench *on = malloc(2 * sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) status = run_updates(tested, &on[0], ELEMENTS, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = run_updates(tested, &on[1], 13, WEFT_POISON_TWO, err);
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

static weft_status stays_inside(weft_plugin_under_test *tested, weft_error *err) {
    bench *on = malloc(sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) status = run_updates(tested, on, ELEMENTS, WEFT_POISON_ONE, err);
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
static weft_status update_once(const weft_plugin_under_test *tested, bench *on, double lr, const weft_range *range,
                               weft_error *err) {
    unsigned char hp[WEFT_MAX_HP];
    instance self;
    weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, err);
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

/* What half of a schedule does half of lr_scale does, and twice that of a quarter. */
static weft_status scales_alike(const weft_plugin_under_test *tested, weft_error *err) {
    const course half = {0.5, 1.0f, 1.0f, STEPS, false};
    const course scaled[] = {{1.0, 0.5f, 1.0f, STEPS, false}, {0.25, 2.0f, 1.0f, STEPS, false}};
    bench *on = malloc(2 * sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) status = follow(&on[0], tested, &half, err);
    for (int32_t s = 0; s < 2 && status == WEFT_OK; s++) {
        int32_t at = -1;
        status = follow(&on[1], tested, &scaled[s], err);
        if (status == WEFT_OK) at = parted(&on[0], &on[1], false);
        if (at >= 0)
            status = WEFT_BROKEN(err,
                                 "a weight goes from %.9g to %.9g by %g times its step size under lr_scale = %g, and "
                                 "to %.9g by half of it under 1: lr_scale multiplies the step size",
                                 (double)noise((uint32_t)at, 1), (double)on[1].weight[at], scaled[s].schedule,
                                 (double)scaled[s].lr_scale, (double)on[0].weight[at]);
    }
    free(on);
    return status;
}

static weft_status heeds_the_step_size(weft_plugin_under_test *tested, weft_error *err) {
    const weft_range full = whole_range(1.0f, 1.0f), none = whole_range(0.0f, 1.0f);
    bench *on = malloc(sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) bench_fill(on);
    if (status == WEFT_OK) status = update_once(tested, on, 0.0, &full, err);
    if (status == WEFT_OK) status = stays_put(on, "the step size is zero", err);
    if (status == WEFT_OK) bench_fill(on);
    if (status == WEFT_OK) status = update_once(tested, on, -1, &none, err);
    if (status == WEFT_OK) status = stays_put(on, "its range has lr_scale = 0", err);
    free(on);
    return status == WEFT_OK ? scales_alike(tested, err) : status;
}

/* ---- its key lr ---- */

static weft_status gives_its_key(const weft_plugin_under_test *tested, const weft_key *key, weft_error *err) {
    const double value = *(const double *)weft_plugin_under_test_value(tested, key);
    instance self;
    double given = value;
    weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) given = step_size(&self);
    if (status == WEFT_OK && !(fabs(given - value) <= 1e-6 * fabs(value)))
        status = WEFT_BROKEN(err, "its slot lr gives %.9g where its key lr is %.9g", given, value);
    instance_close(&self);
    return status;
}

/* Half of the key and the whole schedule do what the whole key and half of the schedule do, where nothing decays. */
static weft_status shares_with_schedule(const weft_plugin_under_test *whole, const weft_plugin_under_test *half,
                                        double value, weft_error *err) {
    const course by_schedule = {0.5, 1.0f, 0.0f, 1, true}, by_key = {1.0, 1.0f, 0.0f, 1, true};
    bench *on = malloc(2 * sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    int32_t at = -1;
    if (status == WEFT_OK) status = follow(&on[0], whole, &by_schedule, err);
    if (status == WEFT_OK) status = follow(&on[1], half, &by_key, err);
    if (status == WEFT_OK) at = parted(&on[0], &on[1], true);
    if (at >= 0)
        status = WEFT_BROKEN(err,
                             "a weight of 0 goes to %.9g with lr = %.9g where the schedule is a half, and to %.9g with "
                             "lr = %.9g where it is 1: the key and the schedule count once each, as step->lr has them",
                             (double)on[0].weight[at], value, (double)on[1].weight[at], value / 2);
    free(on);
    return status;
}

static weft_status heeds_its_key(weft_plugin_under_test *tested, weft_error *err) {
    const weft_key *key = weft_plugin_under_test_key(tested, "lr", WEFT_KEY_F64);
    const weft_optimizer_plugin *table = weft_plugin_under_test_table(tested, optimizer);
    weft_plugin_under_test_other whole = {0}, half = {0};
    weft_status status = WEFT_OK;
    double value = 0;
    if (key == NULL) return WEFT_MOOT(tested, err, "it has no key lr that is a number, and need not");
    value = *(const double *)weft_plugin_under_test_value(tested, key);
    if (!(value > 0)) value = 1e-3; /* one that moves nothing says nothing */
    status = weft_plugin_under_test_open_other(&whole, tested, "lr", value, err);
    if (status == WEFT_OK) status = weft_plugin_under_test_open_other(&half, tested, "lr", value / 2, err);
    if (status == WEFT_E_USER) status = WEFT_E_UNSUPPORTED; /* with the sentence that refuses the number */
    if (status == WEFT_OK && WEFT_HAS(table, lr) && table->lr != NULL) {
        status = gives_its_key(&whole.tested, key, err);
        if (status == WEFT_OK) status = gives_its_key(&half.tested, key, err);
    }
    if (status == WEFT_OK) status = shares_with_schedule(&whole.tested, &half.tested, value, err);
    weft_plugin_under_test_close_other(&half);
    weft_plugin_under_test_close_other(&whole);
    return status;
}

/* ---- decay ---- */

/* Where the range's decay is `decay`, and a key of its own is `value`; key NULL: as it is. WEFT_E_USER: it is not. */
static weft_status decay_by(bench *on, const weft_plugin_under_test *tested, const char *key, double value, float decay,
                            weft_error *err) {
    const course by = {1.0, 1.0f, decay, STEPS, false};
    weft_plugin_under_test_other other = {0};
    weft_status status = WEFT_OK;
    if (key == NULL) return follow(on, tested, &by, err);
    status = weft_plugin_under_test_open_other(&other, tested, key, value, err);
    if (status == WEFT_OK) status = follow(on, &other.tested, &by, err);
    weft_plugin_under_test_close_other(&other);
    return status;
}

/* What a range's decay multiplies: the key that does nothing at 0 but what a range does whose decay is 0. none: that
 * one. *found NULL: there is no such key, and nothing is known of a half. */
static weft_status find_decay_key(const weft_key **found, const weft_plugin_under_test *tested, const bench *none,
                                  bench *room, weft_error *err) {
    const weft_plugin *plugin = tested->loaded->plugin;
    *found = NULL;
    for (uint64_t i = 0; i < plugin->n_keys && *found == NULL; i++) {
        const char *at = (const char *)plugin->keys + i * plugin->key_stride;
        const weft_key *key = (const weft_key *)(const void *)at;
        weft_error refused = WEFT_ERROR_INIT;
        weft_status status = WEFT_OK;
        if (key->type != WEFT_KEY_F64 || !(*(const double *)weft_plugin_under_test_value(tested, key) > 0)) continue;
        status = decay_by(room, tested, key->name, 0, 1.0f, &refused);
        if (status == WEFT_E_MEMORY) return weft_error_set(err, status, "%s", refused.text);
        if (status == WEFT_OK && parted(none, room, false) < 0) *found = key;
    }
    return WEFT_OK;
}

enum { FULL, HALF, NONE, OTHER, COURSES };

/* Half of the range's decay does what half of the key does. */
static weft_status decays_by_halves(const weft_plugin_under_test *tested, weft_error *err) {
    bench *on = malloc(COURSES * sizeof *on);
    const weft_key *key = NULL;
    int32_t at = -1;
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) status = decay_by(&on[FULL], tested, NULL, 0, 1.0f, err);
    if (status == WEFT_OK) status = decay_by(&on[NONE], tested, NULL, 0, 0.0f, err);
    if (status != WEFT_OK || parted(&on[FULL], &on[NONE], false) < 0) goto done; /* nothing decays by its keys */
    status = find_decay_key(&key, tested, &on[NONE], &on[OTHER], err);
    if (status != WEFT_OK || key == NULL) goto done;
    status = decay_by(&on[HALF], tested, NULL, 0, 0.5f, err);
    if (status == WEFT_OK)
        status = decay_by(&on[OTHER], tested, key->name, *(const double *)weft_plugin_under_test_value(tested, key) / 2,
                          1.0f, err);
    if (status == WEFT_OK) at = parted(&on[HALF], &on[OTHER], false);
    if (at >= 0)
        status = WEFT_BROKEN(err,
                             "a weight goes from %.9g to %.9g in a range with decay = 0.5, and to %.9g with half of "
                             "%s and decay = 1: decay multiplies the weight decay",
                             (double)noise((uint32_t)at, 1), (double)on[HALF].weight[at], (double)on[OTHER].weight[at],
                             key->name);
    if (status == WEFT_E_USER) status = WEFT_OK; /* a key that takes no half */
done:
    free(on);
    return status;
}

static weft_status heeds_decay(weft_plugin_under_test *tested, weft_error *err) {
    const weft_range spared = whole_range(1.0f, 0.0f);
    bench *on = NULL;
    weft_status status = WEFT_OK;
    if ((weft_plugin_under_test_table(tested, optimizer)->flags & WEFT_CAPABILITY_DECAY) == 0)
        return WEFT_MOOT(tested, err, "it does not offer the key decay, and need not");
    on = malloc(sizeof *on);
    if (on == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    bench_fill(on);
    for (int32_t i = MARGIN; i < MARGIN + ELEMENTS; i++) on->gradient[i] = 0.0f;
    status = update_once(tested, on, -1, &spared, err);
    if (status == WEFT_OK) status = stays_put(on, "its gradient is zero and its range has decay = 0", err);
    free(on);
    return status == WEFT_OK ? decays_by_halves(tested, err) : status;
}

/* Along the gradient of w^2 / 2, which is w. */
static weft_status goes_downhill(weft_plugin_under_test *tested, weft_error *err) {
    const weft_range range = whole_range(1.0f, 1.0f);
    unsigned char hp[WEFT_MAX_HP];
    double before = 0, after = 0;
    instance self;
    bench *on = malloc(sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    memset(&self, 0, sizeof self);
    if (status == WEFT_OK) status = instance_open(&self, tested, WEFT_POISON_ONE, err);
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

static weft_status stays_finite(weft_plugin_under_test *tested, weft_error *err) {
    static const float gradients[] = {0.0f, 1e-30f, 1e-3f, 1.0f, 1e4f, 1e10f};
    const weft_range range = whole_range(1.0f, 1.0f);
    bench *on = malloc(sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) bench_fill(on);
    for (int32_t i = 0; i < ELEMENTS && status == WEFT_OK; i++) on->gradient[MARGIN + i] = gradients[i % 6];
    if (status == WEFT_OK) status = update_once(tested, on, -1, &range, err);
    for (int32_t i = 0; i < ELEMENTS && status == WEFT_OK; i++)
        if (!isfinite(on->weight[MARGIN + i]))
            status = WEFT_BROKEN(err, "a gradient of %g makes a weight %g", (double)gradients[i % 6],
                                 (double)on->weight[MARGIN + i]);
    free(on);
    return status;
}

/* ---- states that have no sign ---- */

/* The first element below zero, or no number, of a state that is declared as never negative; -1: none. */
static int32_t below_zero(const instance *self, const bench *on, int64_t *state) {
    for (int64_t s = 0; s < self->facts.n_states; s++) {
        if ((self->facts.states[s].flags & WEFT_STATE_NOT_NEGATIVE) == 0) continue;
        *state = s;
        for (int32_t i = MARGIN; i < MARGIN + ELEMENTS; i++)
            if (!(on->states[s][i] >= 0.0f)) return i;
    }
    return -1;
}

static bool has_unsigned_state(const instance *self) {
    for (int64_t s = 0; s < self->facts.n_states; s++)
        if ((self->facts.states[s].flags & WEFT_STATE_NOT_NEGATIVE) != 0) return true;
    return false;
}

/* Of any size, and each element's of one sign in a third of them, of the other one in another third, and of both in the
 * last: what is a mean of gradients goes below zero in one of them. */
static float signed_gradient(uint32_t i, uint32_t step) {
    static const float sizes[] = {1e-8f, 1e-3f, 1.0f, 100.0f};
    const float x = noise(i, 40 + step) * sizes[i / 3 % 4];
    return i % 3 == 0 ? fabsf(x) : i % 3 == 1 ? -fabsf(x) : x;
}

static weft_status update_by_signs(const instance *self, bench *on, weft_error *err) {
    const weft_range range = whole_range(1.0f, 1.0f);
    unsigned char hp[WEFT_MAX_HP];
    weft_status status = WEFT_OK;
    bench_fill(on);
    for (uint32_t step = 1; step <= 20 && status == WEFT_OK; step++) {
        int64_t state = 0;
        int32_t at = -1;
        for (uint32_t i = MARGIN; i < MARGIN + ELEMENTS; i++) on->gradient[i] = signed_gradient(i, step);
        status = prepare(self, hp, step, step_size(self), WEFT_POISON_ONE, err);
        if (status != WEFT_OK) return status;
        update(self, on, hp, &range, MARGIN, MARGIN + ELEMENTS);
        at = below_zero(self, on, &state);
        if (at >= 0)
            return WEFT_BROKEN(err,
                               "its state %s, which it declares as WEFT_STATE_NOT_NEGATIVE, is %.9g after update %u by "
                               "a gradient of %.9g: states = 8bit would store it without a sign, as zero",
                               self->facts.states[state].name, (double)on->states[state][at], step,
                               (double)on->gradient[at]);
    }
    return status;
}

static weft_status stays_above_zero(weft_plugin_under_test *tested, weft_error *err) {
    bench *on = malloc(sizeof *on);
    instance self = {0};
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) status = instance_open(&self, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && !has_unsigned_state(&self))
        status = WEFT_MOOT(tested, err, "it declares no state as WEFT_STATE_NOT_NEGATIVE, and need not");
    if (status == WEFT_OK) status = update_by_signs(&self, on, err);
    instance_close(&self);
    free(on);
    return status;
}

/* With an update in between, as a slot may keep what it takes. */
static weft_status come_and_go(weft_plugin_under_test *tested, weft_error *err) {
    const weft_range range = whole_range(1.0f, 1.0f);
    bench *on = malloc(sizeof *on);
    weft_status status = on != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) bench_fill(on);
    if (status == WEFT_OK) status = update_once(tested, on, -1, &range, err);
    free(on);
    return status;
}

static weft_status gives_back(weft_plugin_under_test *tested, weft_error *err) {
    return weft_plugin_under_test_gives_back(tested, come_and_go, err);
}

static weft_status updates_later(weft_plugin_under_test *tested, weft_error *err) {
    const weft_plugin_under_test *later = weft_newer_abi(tested);
    bench *on = malloc(2 * sizeof *on);
    weft_status status = on != NULL && later != NULL ? WEFT_OK
                                                     : weft_error_set(err, WEFT_E_MEMORY, "no memory for weights");
    if (status == WEFT_OK) status = run_updates(tested, &on[0], ELEMENTS, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) {
        status = run_updates(later, &on[1], ELEMENTS, WEFT_POISON_ONE, err);
        status =
            weft_newer_abi_check(status, memcmp(on[0].weight, on[1].weight, sizeof on->weight) == 0, "weights", err);
    }
    free(on);
    return status;
}

const weft_rule weft_rules_optimizer[] = {
    {"R29", "optimizer", "has the step size that its key lr and the schedule say", heeds_its_key, false},
    {"R30", "optimizer", "declares the same states whenever it is asked", declares_alike, false},
    {"R31", "optimizer", "prepares each update from its number and step size alone", prepares_alike, false},
    {"R32", "optimizer", "updates an element alike wherever a call begins and ends", cuts_alike, false},
    {"R33", "optimizer", "writes its elements alone, and no gradient", stays_inside, false},
    {"R34", "optimizer", "moves by step size times lr_scale, and not at all where one is zero", heeds_the_step_size,
     false},
    {"R35", "optimizer", "decays by the range's decay, and not at all where that is zero", heeds_decay, false},
    {"R36", "optimizer", "goes downhill", goes_downhill, false},
    {"R37", "optimizer", "keeps finite weights finite", stays_finite, false},
    {"R38", "optimizer", "gives its memory back", gives_back, false},
    {"R39", "optimizer", "updates alike in a host whose structs are longer", updates_later, false},
    {"R114", "optimizer", "keeps a state from below zero that it declares as never negative", stays_above_zero, false},
    {"R117", "optimizer", "computes by its function what the text of its body says", follows_its_text, false},
    {NULL, NULL, NULL, NULL, false}};
