/* host/tools/check/data_trial.c: see data_trial.h. */
#include "tools/check/data_trial.h"

#include "plugin/call.h"
#include "plugin/enter.h"
#include "run/judge_data.h"
#include "run/judge_leaf.h"

#include <stdlib.h>
#include <weft/random.h>

enum { MOST_ROWS = 5 };

/* ---- an instance ---- */

void weft_data_close(weft_data_instance *self) {
    if (self->made != NULL) WEFT_PLUGIN_TELL(self->table, destroy, self->made);
    self->made = NULL;
}

weft_status weft_data_open_for(weft_data_instance *self, const weft_subject *subject, uint8_t poison,
                               const weft_data_job *job, weft_error *err) {
    weft_split_info *infos[3];
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->table = weft_subject_table(subject, data);
    weft_plugin_call_begin(&call, subject->loaded, "create");
    status = self->table->create(&self->made, weft_subject_host(poison), subject->config, job, err);
    status = weft_plugin_call_made(&call, status, self->made, err);
    self->refused = status != WEFT_OK;
    if (status == WEFT_E_USER || status == WEFT_E_DATA) return WEFT_E_UNSUPPORTED; /* another file is what it needs */
    if (status != WEFT_OK) return status;
    self->info.struct_size = (uint32_t)sizeof self->info;
    WEFT_PLUGIN_TELL(self->table, info, self->made, &self->info);
    for (int32_t s = 0; s < 3; s++) {
        infos[s] = &self->splits[s];
        self->splits[s].struct_size = (uint32_t)sizeof self->splits[s];
        WEFT_PLUGIN_TELL(self->table, split_info, self->made, s, &self->splits[s]);
    }
    return weft_data_judge(&self->info, infos, WEFT_BYTES_CONTEXT, true, err);
}

weft_status weft_data_open(weft_data_instance *self, const weft_subject *subject, uint8_t poison, weft_error *err) {
    return weft_data_open_for(self, subject, poison, weft_bytes_job(), err);
}

int32_t weft_data_longest(const weft_data_instance *self) {
    return self->info.lengths[self->info.n_lengths - 1];
}

/* ---- leaves ---- */

void weft_data_leaf_free(weft_leaf *leaf) {
    free(leaf->ids);
    free(leaf->targets);
    free(leaf->weights);
    free(leaf->starts);
    free(leaf->positions);
    memset(leaf, 0, sizeof *leaf);
}

weft_status weft_data_leaf_make(weft_leaf *leaf, const weft_data_instance *self, weft_error *err) {
    const size_t n = (size_t)MOST_ROWS * (size_t)weft_data_longest(self);
    memset(leaf, 0, sizeof *leaf);
    leaf->struct_size = (uint32_t)sizeof *leaf;
    leaf->ids = malloc(n * sizeof *leaf->ids);
    leaf->targets = malloc(n * sizeof *leaf->targets);
    leaf->weights = malloc(n * sizeof *leaf->weights);
    leaf->starts = malloc(n * sizeof *leaf->starts);
    leaf->positions = malloc(n * sizeof *leaf->positions);
    if (leaf->ids != NULL && leaf->targets != NULL && leaf->weights != NULL && leaf->starts != NULL &&
        leaf->positions != NULL)
        return WEFT_OK;
    weft_data_leaf_free(leaf);
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for a leaf");
}

/* The leaf of a request, judged as in a run. */
weft_status weft_data_take(weft_leaf *leaf, const weft_data_instance *self, const weft_leaf_request *request,
                           weft_error *err) {
    const weft_leaf_bounds bounds = {WEFT_BYTES_VOCABULARY, WEFT_BYTES_CONTEXT, self->info.lengths,
                                     self->info.n_lengths};
    const size_t n = (size_t)MOST_ROWS * (size_t)weft_data_longest(self);
    weft_leaf asked;
    weft_status status = WEFT_OK;
    memset(leaf->ids, WEFT_LEAF_POISON, n * sizeof *leaf->ids);
    memset(leaf->targets, WEFT_LEAF_POISON, n * sizeof *leaf->targets);
    memset(leaf->weights, WEFT_LEAF_POISON, n * sizeof *leaf->weights);
    memset(leaf->starts, WEFT_LEAF_POISON, n * sizeof *leaf->starts);
    memset(leaf->positions, WEFT_LEAF_POISON, n * sizeof *leaf->positions);
    leaf->rows = leaf->length = -1;
    leaf->n_targets = -1;
    WEFT_PLUGIN_CALL(status, self->table, shape, err, self->made, leaf, request);
    if (status == WEFT_OK) status = weft_leaf_judge_shape(leaf, request, &bounds, err);
    asked = *leaf;
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, self->table, leaf, err, self->made, leaf, request);
    if (status != WEFT_OK && err->text[0] == '\0') return WEFT_BROKEN(err, "it fails without a sentence");
    return status == WEFT_OK ? weft_leaf_judge(leaf, &asked, request, &bounds, err) : status;
}

/* Rows of the stream that is read without end which no 32 bits hold, or only some of a leaf's; 0: so many epochs on. */
static uint64_t far_row(uint32_t number, uint64_t rows, uint32_t drawn) {
    static const uint64_t far[] = {0,
                                   ((uint64_t)1 << 31) - 2,
                                   ((uint64_t)1 << 32) - 2,
                                   (uint64_t)1 << 62,
                                   ((uint64_t)1 << 32) + 17,
                                   ((uint64_t)1 << 31) + 3};
    const uint32_t at = (number / 20 * 2 + number / 5 % 2) % 6;
    return far[at] != 0 ? far[at] : rows * 1000003u + drawn % 1000u;
}

weft_leaf_request weft_data_draw_request(const weft_data_instance *self, uint32_t number) {
    const weft_random4 r = weft_random(number, WEFT_RANDOM_SAMPLE, 3, 0);
    const int32_t split = number % 4 == 2 ? WEFT_SPLIT_VALIDATION : number % 4 == 3 ? WEFT_SPLIT_ALL : WEFT_SPLIT_TRAIN;
    const uint64_t rows = self->splits[split].rows;
    const bool is_far = split == WEFT_SPLIT_TRAIN && number % 5 == 4;
    const uint64_t first = is_far ? far_row(number, rows, r.v[1])
                                  : r.v[1] % ((split == WEFT_SPLIT_TRAIN ? 3 : 1) * rows + 1);
    const int32_t n = is_far ? MOST_ROWS : 1 + (int32_t)(r.v[0] % MOST_ROWS);
    const weft_leaf_request request = {(uint32_t)sizeof request, 0, split, n, first};
    return request;
}

/* Row r of a leaf against row q of another; the shorter one is padded. */
bool weft_data_same_row(const weft_leaf *a, int32_t r, const weft_leaf *b, int32_t q) {
    const int32_t n = a->length < b->length ? a->length : b->length;
    const int32_t i = r * a->length, k = q * b->length;
    for (int32_t t = 0; t < n; t++)
        if (a->ids[i + t] != b->ids[k + t] || a->targets[i + t] != b->targets[k + t] ||
            memcmp(&a->weights[i + t], &b->weights[k + t], sizeof(float)) != 0 ||
            a->starts[i + t] != b->starts[k + t] || a->positions[i + t] != b->positions[k + t])
            return false;
    return true;
}

bool weft_data_same_leaf(const weft_leaf *a, const weft_leaf *b) {
    if (a->rows != b->rows || a->length != b->length || a->n_targets != b->n_targets) return false;
    for (int32_t r = 0; r < a->rows; r++)
        if (!weft_data_same_row(a, r, b, r)) return false;
    return true;
}

weft_status weft_data_desk_open(weft_data_desk *d, const weft_subject *subject, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(d, 0, sizeof *d);
    status = weft_data_open(&d->self, subject, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = weft_data_open(&d->other, subject, WEFT_POISON_TWO, err);
    if (status == WEFT_OK) status = weft_data_leaf_make(&d->one, &d->self, err);
    return status == WEFT_OK ? weft_data_leaf_make(&d->two, &d->self, err) : status;
}

void weft_data_desk_close(weft_data_desk *d) {
    weft_data_leaf_free(&d->one);
    weft_data_leaf_free(&d->two);
    weft_data_close(&d->self);
    weft_data_close(&d->other);
}

weft_status weft_data_each_request_of(weft_data_desk *d, weft_on_request holds, weft_error *err) {
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < WEFT_DATA_REQUESTS && status == WEFT_OK; i++) {
        const weft_leaf_request request = weft_data_draw_request(&d->self, i);
        weft_subject_asks("rows %llu and %d further ones of split %d", (unsigned long long)request.first_row,
                          (int)request.rows - 1, (int)request.split);
        status = holds(d, &request, err);
        if (status != WEFT_OK)
            (void)weft_error_prefix(err, "rows %llu and %d further ones: ", (unsigned long long)request.first_row,
                                    (int)request.rows - 1);
    }
    return status;
}

weft_status weft_data_each_request(const weft_subject *subject, weft_on_request holds, weft_error *err) {
    weft_data_desk d;
    weft_status status = weft_data_desk_open(&d, subject, err);
    if (status == WEFT_OK) status = weft_data_each_request_of(&d, holds, err);
    weft_data_desk_close(&d);
    return status;
}
