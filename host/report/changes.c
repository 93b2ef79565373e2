/* host/report/changes.c: see changes.h. */
#include "report/changes.h"

#include "report/axes.h"

#include <stdlib.h>

/* A level of each axis; 0: the current setting. */
typedef struct choice {
    int32_t level[WEFT_N_FIT_AXES];
} choice;

/* Cache of planned choices. */
typedef struct seen {
    choice of;
    bool can_run;
    weft_required_memory need;
} seen;

typedef struct searcher {
    const weft_fit_question *question;
    weft_fit_levels axes[WEFT_N_FIT_AXES];
    seen *all;
    size_t n, room;
    int64_t left; /* remaining plans */
    weft_fit_changes *out;
} searcher;

/* ---- one choice ---- */

static void add_once(weft_fit_change *change, const char *key) {
    for (int32_t i = 0; i < change->n_keys; i++)
        if (strcmp(change->keys[i], key) == 0) return;
    if (*key != '\0' && change->n_keys < WEFT_TRIAL_KEYS)
        (void)snprintf(change->keys[change->n_keys++], WEFT_TRIAL_KEY_SIZE, "%s", key);
}

static void describe_choice(const searcher *self, weft_fit_change *out, const choice *of) {
    const weft_plan *plan = &self->question->session->engine->plan;
    memset(out, 0, sizeof *out);
    out->ranks = plan->world;
    out->nodes = plan->nodes;
    for (int32_t axis = 0; axis < WEFT_N_FIT_AXES; axis++) {
        const weft_fit_level *level = NULL;
        if (of->level[axis] == 0) continue;
        level = &self->axes[axis].at[of->level[axis] - 1];
        add_once(out, level->key);
        if (level->ranks == 0) continue;
        out->ranks = level->ranks;
        out->nodes = level->nodes;
        out->moves = true;
        out->grows = axis == WEFT_FIT_MORE;
    }
}

/* Returns whether a choice is useful: more ranks exclude fewer ranks, and are sharded already. */
static bool makes_sense(const choice *of) {
    return of->level[WEFT_FIT_MORE] == 0 || (of->level[WEFT_FIT_FEWER] == 0 && of->level[WEFT_FIT_SHARDING] == 0);
}

/* Returns a number of plans that lets the search end in seconds; fewer for a run with a slow plan. */
static int64_t plans_allowed(const weft_plan *plan) {
    const int64_t work = (int64_t)plan->spec.micro_batches * plan->declared->n_segments / plan->world;
    return work <= WEFT_FIT_WORK ? WEFT_FIT_PLANS : (int64_t)WEFT_FIT_PLANS * WEFT_FIT_WORK / work;
}

/* Plans a choice. Only WEFT_E_MEMORY is an error of the search: any other means that the choice cannot be run. */
static weft_status plan_choice(searcher *self, seen *out, weft_error *err) {
    weft_fit_change change;
    weft_error why = WEFT_ERROR_INIT;
    weft_trial trial = {0};
    weft_status status = WEFT_OK;
    describe_choice(self, &change, &out->of);
    if (!makes_sense(&out->of) || change.ranks > WEFT_FIT_MOST_RANKS || self->left < 1) return WEFT_OK;
    self->left--;
    trial.ranks = change.ranks;
    trial.nodes = change.nodes;
    for (; trial.n_keys < change.n_keys; trial.n_keys++) trial.keys[trial.n_keys] = change.keys[trial.n_keys];
    status = weft_trial_plan(&out->need, self->question, &trial, &why);
    if (status == WEFT_E_MEMORY) return weft_error_set(err, status, "%s", why.text);
    out->can_run = status == WEFT_OK;
    return WEFT_OK;
}

static void keep_least(const searcher *self, const seen *one) {
    weft_fit_change *least = &self->out->least;
    if (!one->can_run || (least->need.ranks > 0 && least->need.bytes.total <= one->need.bytes.total)) return;
    describe_choice(self, least, &one->of);
    least->need = one->need;
}

static weft_status look_at(searcher *self, const seen **out, const choice *of, weft_error *err) {
    seen one = {.of = *of};
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < self->n; i++) {
        *out = &self->all[i];
        if (memcmp(&self->all[i].of, of, sizeof *of) == 0) return WEFT_OK;
    }
    if (self->n == self->room) {
        seen *grown = realloc(self->all, (2 * self->room + 16) * sizeof *grown);
        if (grown == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what was planned");
        self->all = grown;
        self->room = 2 * self->room + 16;
    }
    status = plan_choice(self, &one, err);
    if (status != WEFT_OK) return status;
    keep_least(self, &one);
    self->all[self->n] = one;
    *out = &self->all[self->n++];
    return WEFT_OK;
}

static weft_status choice_fits(searcher *self, bool *out, const choice *of, weft_error *err) {
    const seen *one = NULL;
    const weft_status status = look_at(self, &one, of, err);
    *out = status == WEFT_OK && one->can_run && weft_required_memory_fits(&one->need, &self->question->room);
    return status;
}

/* ---- the search ---- */

/* Finds the mildest sufficient level of one axis in combination with the others; *found: it exists, and `of` has it. */
static weft_status find_mildest(searcher *self, bool *found, choice *of, int32_t axis, int32_t first, weft_error *err) {
    choice one = *of;
    weft_status status = WEFT_OK;
    *found = false;
    for (int32_t level = first; level <= self->axes[axis].n && status == WEFT_OK && !*found; level++) {
        one.level[axis] = level;
        status = choice_fits(self, found, &one, err);
    }
    if (*found) *of = one;
    return status;
}

static weft_status keep_choice(searcher *self, const choice *of, weft_error *err) {
    weft_fit_change change;
    const seen *one = NULL;
    const weft_status status = look_at(self, &one, of, err);
    if (status != WEFT_OK || self->out->n == WEFT_FIT_CHANGES) return status;
    describe_choice(self, &change, of);
    change.need = one->need;
    for (int32_t i = 0; i < self->out->n; i++) {
        weft_fit_change *other = &self->out->fitting[i];
        if (memcmp(other->keys, change.keys, sizeof change.keys) == 0 && other->ranks == change.ranks &&
            other->nodes == change.nodes)
            return WEFT_OK;
    }
    self->out->fitting[self->out->n++] = change;
    return WEFT_OK;
}

/* Reverts unnecessary changes, the most costly first, and makes the rest as mild as possible. */
static weft_status keep_smallest(searcher *self, choice *of, weft_error *err) {
    weft_status status = WEFT_OK;
    bool found = false;
    for (int32_t axis = WEFT_N_FIT_AXES - 1; axis >= 0 && status == WEFT_OK; axis--)
        if (of->level[axis] > 0) status = find_mildest(self, &found, of, axis, 0, err);
    return status == WEFT_OK ? keep_choice(self, of, err) : status;
}

static weft_status find_single_changes(searcher *self, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t axis = 0; axis < WEFT_N_FIT_AXES && status == WEFT_OK; axis++) {
        choice of = {{0}};
        bool found = false;
        status = find_mildest(self, &found, &of, axis, 1, err);
        if (found) status = keep_choice(self, &of, err);
    }
    return status;
}

/* Returns whether a fitting change needs no more devices or machines; nearly every run fits on more of them. */
static bool has_change(const searcher *self, bool on_more) {
    for (int32_t i = 0; i < self->out->n; i++)
        if (self->out->fitting[i].grows == on_more) return true;
    return false;
}

/* Adds each axis that is not in `with` already. */
static weft_status find_joined_changes(searcher *self, const choice *with, weft_error *err) {
    weft_status status = WEFT_OK;
    choice alone = *with;
    bool found = false;
    status = choice_fits(self, &found, &alone, err);
    if (found) return keep_smallest(self, &alone, err);
    for (int32_t axis = 0; axis < WEFT_N_FIT_AXES && status == WEFT_OK; axis++) {
        choice of = *with;
        if (of.level[axis] > 0 || (axis == WEFT_FIT_MORE && has_change(self, true))) continue;
        status = find_mildest(self, &found, &of, axis, 1, err);
        if (found) status = keep_smallest(self, &of, err);
    }
    return status;
}

/* Tries single changes, then all changes that keep the result plus one more, then bf16 in addition, then fewer layers.
 */
static weft_status find_changes(searcher *self, weft_error *err) {
    static const weft_fit_axis joined[] = {WEFT_FIT_CHECKPOINTING, WEFT_FIT_PRECISION, WEFT_FIT_TRAINABLE};
    choice with = {{0}};
    weft_status status = find_single_changes(self, err);
    with.level[WEFT_FIT_SAVING] = self->axes[WEFT_FIT_SAVING].n;
    with.level[WEFT_FIT_MICRO] = self->axes[WEFT_FIT_MICRO].n;
    for (size_t i = 0; i < sizeof joined / sizeof *joined && status == WEFT_OK; i++) {
        with.level[joined[i]] = self->axes[joined[i]].n;
        if (!has_change(self, false)) status = find_joined_changes(self, &with, err);
    }
    return status;
}

weft_status weft_fit_changes_find(weft_fit_changes *out, const weft_fit_question *question, weft_error *err) {
    searcher self = {.question = question, .out = out};
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    self.left = plans_allowed(&question->session->engine->plan);
    weft_fit_axes(self.axes, question);
    status = find_changes(&self, err);
    free(self.all);
    return status;
}
