/* host/tools/check/data_rules.c: what data have to keep to. They are made with a tokenizer of bytes. */
#include "tools/check/data_trial.h"

#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"

/* ---- beside one with other keys ---- */

static weft_status open_any(void *made, const weft_plugin_under_test *tested, weft_error *err) {
    return weft_data_open(made, tested, WEFT_POISON_ONE, err);
}

static void close_any(void *made) {
    weft_data_close(made);
}

static void add_micro_batch(weft_answer *to, const weft_micro_batch *micro_batch) {
    const size_t n = (size_t)micro_batch->rows * (size_t)micro_batch->length;
    weft_answer_add(to, &micro_batch->length, sizeof micro_batch->length);
    weft_answer_add(to, micro_batch->ids, n * sizeof *micro_batch->ids);
    weft_answer_add(to, micro_batch->targets, n * sizeof *micro_batch->targets);
    weft_answer_add(to, micro_batch->weights, n * sizeof *micro_batch->weights);
}

static weft_status ask_any(weft_answer *to, void *made, weft_error *err) {
    weft_data_instance *self = made;
    weft_micro_batch micro_batch;
    weft_status status = weft_data_micro_batch_make(&micro_batch, self, err);
    weft_answer_add(to, &self->info.fingerprint, sizeof self->info.fingerprint);
    weft_answer_add(to, self->splits, sizeof self->splits);
    for (uint32_t i = 0; i < 8 && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = weft_data_draw_request(self, i);
        status = weft_data_take(&micro_batch, self, &request, err);
        if (status == WEFT_OK) add_micro_batch(to, &micro_batch);
    }
    weft_data_micro_batch_free(&micro_batch);
    return status;
}

static weft_status heeds_its_keys(weft_plugin_under_test *tested, weft_error *err) {
    const weft_answers answers = {sizeof(weft_data_instance), open_any, close_any, ask_any};
    return weft_other_keys(tested, &answers, err);
}

/* ---- instances ---- */

static weft_status made_alike(const weft_data_desk *d, weft_error *err) {
    if (d->self.info.fingerprint == d->other.info.fingerprint &&
        memcmp(d->self.splits, d->other.splits, sizeof d->self.splits) == 0)
        return WEFT_OK;
    return WEFT_BROKEN(err, "the same files and keys have another fingerprint, or other counts, in a second instance");
}

static weft_status rule_made(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d = {0};
    weft_status status = heeds_its_keys(tested, err);
    if (status == WEFT_OK) status = weft_data_desk_open(&d, tested, err);
    if (status == WEFT_OK) status = made_alike(&d, err);
    if (status == WEFT_OK) status = weft_data_tells_rows_apart(&d, tested, err);
    weft_data_desk_close(&d);
    return status;
}

/* ---- micro-batches ---- */

static weft_status micro_batch_holds(weft_data_desk *d, const weft_micro_batch_request *request, weft_error *err) {
    return weft_data_take(&d->one, &d->self, request, err);
}

static weft_status micro_batch_stays(weft_data_desk *d, const weft_micro_batch_request *request, weft_error *err) {
    weft_micro_batch_request further = *request;
    weft_status status = weft_data_take(&d->one, &d->self, request, err);
    further.first_row += 7;
    if (status == WEFT_OK) status = weft_data_take(&d->two, &d->other, request, err);
    if (status == WEFT_OK && !weft_data_same_micro_batch(&d->one, &d->two))
        return WEFT_BROKEN(err, "another instance, which was asked the same before, gives another micro-batch");
    if (status == WEFT_OK) status = weft_data_take(&d->two, &d->self, &further, err);
    if (status == WEFT_OK) status = weft_data_take(&d->two, &d->self, request, err);
    if (status == WEFT_OK && !weft_data_same_micro_batch(&d->one, &d->two))
        return WEFT_BROKEN(err, "asked again it gives another micro-batch");
    return status;
}

/* A row does not depend on the micro-batch that it is in. */
static weft_status row_stays(weft_data_desk *d, const weft_micro_batch_request *request, weft_error *err) {
    weft_status status = weft_data_take(&d->one, &d->self, request, err);
    for (int32_t r = 0; r < request->rows && status == WEFT_OK; r++) {
        weft_micro_batch_request alone = *request;
        alone.rows = 1;
        alone.first_row += (uint64_t)r;
        status = weft_data_take(&d->two, &d->self, &alone, err);
        if (status == WEFT_OK && !weft_data_same_row(&d->one, r, &d->two, 0))
            return WEFT_BROKEN(err, "row %d of the micro-batch is another one than when it is asked for alone", (int)r);
    }
    return status;
}

static weft_status rule_micro_batch(weft_plugin_under_test *tested, weft_error *err) {
    return weft_data_each_request(tested, micro_batch_holds, err);
}

static weft_status rule_same(weft_plugin_under_test *tested, weft_error *err) {
    return weft_data_each_request(tested, micro_batch_stays, err);
}

static weft_status rule_row(weft_plugin_under_test *tested, weft_error *err) {
    return weft_data_each_request(tested, row_stays, err);
}

/* ---- memory ---- */

/* With micro-batches of each split in between, as a slot may keep what it takes. */
static weft_status come_and_go(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d;
    weft_status status = weft_data_desk_open(&d, tested, err);
    for (uint32_t number = 1; number <= 3 && status == WEFT_OK; number++) { /* training, validation, all */
        const weft_micro_batch_request request = weft_data_draw_request(&d.self, number);
        status = weft_data_take(&d.one, &d.self, &request, err);
    }
    weft_data_desk_close(&d);
    return status;
}

static weft_status gives_back(weft_plugin_under_test *tested, weft_error *err) {
    return weft_plugin_under_test_gives_back(tested, come_and_go, err);
}

/* ---- in a later host ---- */

/* `one` of the data as they are against `two` of the same in a later host. */
static weft_status micro_batch_later(weft_data_desk *d, const weft_micro_batch_request *request, weft_error *err) {
    weft_status status = weft_data_take(&d->one, &d->self, request, err);
    if (status != WEFT_OK) return status;
    status = weft_data_take(&d->two, &d->other, request, err);
    return weft_newer_abi_check(status, status == WEFT_OK && weft_data_same_micro_batch(&d->one, &d->two),
                                "micro-batches", err);
}

static weft_status made_later(weft_data_desk *d, const weft_plugin_under_test *tested, weft_error *err) {
    const weft_plugin_under_test *later = weft_newer_abi(tested);
    weft_status status = WEFT_OK;
    if (later == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for data");
    weft_data_close(&d->other);
    status = weft_data_open(&d->other, later, WEFT_POISON_ONE, err);
    return weft_newer_abi_check(status,
                                status == WEFT_OK && d->self.info.fingerprint == d->other.info.fingerprint &&
                                    memcmp(d->self.splits, d->other.splits, sizeof d->self.splits) == 0 &&
                                    weft_data_longest(&d->self) == weft_data_longest(&d->other),
                                "counts, lengths or another fingerprint", err);
}

static weft_status rule_later(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d;
    weft_status status = weft_data_desk_open(&d, tested, err);
    if (status == WEFT_OK) status = made_later(&d, tested, err);
    if (status == WEFT_OK) status = weft_data_each_request_of(&d, micro_batch_later, err);
    weft_data_desk_close(&d);
    return status;
}

/* ---- the rules ---- */

const weft_rule weft_rules_data[] = {
    {"R70", "data", "has the same counts and fingerprint in each instance, and another one for other rows", rule_made,
     false},
    {"R71", "data", "fills each place of a micro-batch with what may stand there", rule_micro_batch, false},
    {"R72", "data", "gives the same micro-batch whenever it is asked", rule_same, false},
    {"R73", "data", "gives a row alike in any micro-batch", rule_row, false},
    {"R74", "data", "has as many targets in each split as it says, and the same rows in each epoch",
     weft_data_counts_hold, false},
    {"R75", "data", "pads behind the end of a split that is read once", weft_data_ends_in_padding, false},
    {"R76", "data", "gives its memory back", gives_back, false},
    {"R77", "data", "gives the same micro-batch to several threads at once", weft_data_threads_alike, false},
    {"R78", "data", "gives the same micro-batches to a host whose structs are longer", rule_later, false},
    {"R79", "data", "takes no wrong file, and names the one that it refuses", weft_data_refuses_wrong_files, false},
    {"R115", "data", "asks for ids that the model does not see", weft_data_asks_for_unseen, false},
    {NULL, NULL, NULL, NULL, false}};
