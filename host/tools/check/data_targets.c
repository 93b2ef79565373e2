/* host/tools/check/data_targets.c: what there is to learn: how many targets each split has, in which rows, and that
 * they are not what the model is given. */
#include "tools/check/data_trial.h"

enum { MOST_COUNTED = 200000, MOST_COMPARED = 20000 }; /* rows of a split */

static const char *const split_names[] = {"training", "validation", "all"};

/* Of what is learned from a row, alone in a micro-batch: FNV-1a. */
static uint64_t row_hash(const weft_micro_batch *micro_batch) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int32_t t = 0; t < micro_batch->length; t++) {
        const uint32_t words[] = {(uint32_t)micro_batch->ids[t], (uint32_t)micro_batch->targets[t],
                                  (uint32_t)micro_batch->starts[t], micro_batch->weights[t] > 0.0f};
        for (int i = 0; i < 4; i++) hash = (hash ^ words[i]) * 0x100000001b3u;
    }
    return hash ^ hash >> 29;
}

/* Of n rows of a split: their targets, and a sum that is the same in any order of them. */
typedef struct tally {
    uint64_t targets, rows;
} tally;

static weft_status count(weft_data_desk *d, tally *out, int32_t split, uint64_t first, uint64_t n, weft_error *err) {
    weft_status status = WEFT_OK;
    *out = (tally){0, 0};
    for (uint64_t row = 0; status == WEFT_OK && row < n; row++) {
        const weft_micro_batch_request request = {(uint32_t)sizeof request, 0, split, 1, first + row};
        weft_plugin_under_test_asks("row %llu of split %s", (unsigned long long)request.first_row, split_names[split]);
        status = weft_data_take(&d->one, &d->self, &request, err);
        if (status != WEFT_OK)
            return weft_error_prefix(err, "row %llu of split %s: ", (unsigned long long)request.first_row,
                                     split_names[split]);
        out->targets += (uint64_t)d->one.n_targets;
        out->rows += row_hash(&d->one);
    }
    return status;
}

/* An epoch is a permutation of all rows, also one in which their numbers need more bits. */
static weft_status epochs_alike(weft_data_desk *d, const tally *first, weft_error *err) {
    const uint64_t n = d->self.splits[WEFT_SPLIT_TRAIN].rows;
    const uint64_t within[] = {n, (uint64_t)1 << 31, (uint64_t)1 << 32, (uint64_t)1 << 62};
    weft_status status = WEFT_OK;
    for (int i = 0; i < 4 && status == WEFT_OK && n <= MOST_COMPARED; i++) {
        const uint64_t begin = within[i] / n * n;
        tally other;
        status = count(d, &other, WEFT_SPLIT_TRAIN, begin, n, err);
        if (status == WEFT_OK && (other.targets != first->targets || other.rows != first->rows))
            status = WEFT_BROKEN(err,
                                 "the epoch that begins with row %llu of the stream has other rows than the first one: "
                                 "each is a permutation of the same %llu",
                                 (unsigned long long)begin, (unsigned long long)n);
    }
    return status;
}

static weft_status split_counts(weft_data_desk *d, int32_t split, weft_error *err) {
    const weft_split_info *info = &d->self.splits[split];
    tally counted;
    weft_status status = WEFT_OK;
    if (info->rows > MOST_COUNTED)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "the %llu rows of split %s are too many to be counted here",
                              (unsigned long long)info->rows, split_names[split]);
    status = count(d, &counted, split, 0, info->rows, err);
    if (status == WEFT_OK && counted.targets != info->targets)
        return WEFT_BROKEN(err, "the %llu rows of split %s have %llu targets, and split_info says %llu",
                           (unsigned long long)info->rows, split_names[split], (unsigned long long)counted.targets,
                           (unsigned long long)info->targets);
    return status == WEFT_OK && split == WEFT_SPLIT_TRAIN ? epochs_alike(d, &counted, err) : status;
}

weft_status weft_data_counts_hold(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d;
    weft_status status = weft_data_desk_open(&d, tested, err);
    for (int32_t split = 0; split < 3 && status == WEFT_OK; split++) status = split_counts(&d, split, err);
    weft_data_desk_close(&d);
    return status;
}

/* Rows past the end of a split that is read once, right behind it and as far as numbers of 32 bits come round. */
static weft_status pads_behind(weft_data_desk *d, int32_t split, weft_error *err) {
    const uint64_t n = d->self.splits[split].rows;
    const uint64_t firsts[] = {n, n + 1000, (uint64_t)1 << 31, ((uint64_t)1 << 32) - 1, (uint64_t)1 << 62};
    weft_status status = WEFT_OK;
    for (int i = 0; i < 5 && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = {(uint32_t)sizeof request, 0, split, 3, firsts[i]};
        if (firsts[i] < n) continue;
        weft_plugin_under_test_asks("rows %llu and 2 further ones of split %s", (unsigned long long)firsts[i],
                                    split_names[split]);
        status = weft_data_take(&d->one, &d->self, &request, err);
        if (status == WEFT_OK && d->one.n_targets != 0)
            status = WEFT_BROKEN(err, "behind the %llu rows of split %s there are %lld targets, from row %llu on",
                                 (unsigned long long)n, split_names[split], (long long)d->one.n_targets,
                                 (unsigned long long)firsts[i]);
    }
    return status;
}

weft_status weft_data_ends_in_padding(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d;
    weft_status status = weft_data_desk_open(&d, tested, err);
    for (int32_t split = WEFT_SPLIT_VALIDATION; split <= WEFT_SPLIT_ALL && status == WEFT_OK; split++)
        status = pads_behind(&d, split, err);
    weft_data_desk_close(&d);
    return status;
}

/* ---- what the model sees ---- */

/* Targets that there are; those that are their own place's id; and places behind which the document goes on with
 * another id, where the two can be told apart. */
typedef struct sight {
    uint64_t targets, seen, changes;
} sight;

static void look(sight *out, const weft_micro_batch *micro_batch) {
    const int32_t n = micro_batch->rows * micro_batch->length;
    for (int32_t i = 0; i < n; i++) {
        const bool goes_on = i + 1 < n && (i + 1) % micro_batch->length != 0 &&
                             micro_batch->starts[i + 1] == micro_batch->starts[i];
        if (!(micro_batch->weights[i] != 0.0f)) continue;
        out->targets++;
        out->seen += micro_batch->targets[i] == micro_batch->ids[i];
        out->changes += goes_on && micro_batch->ids[i + 1] != micro_batch->ids[i];
    }
}

weft_status weft_data_asks_for_unseen(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d;
    sight all = {0, 0, 0};
    weft_status status = weft_data_desk_open(&d, tested, err);
    for (uint32_t i = 0; i < WEFT_DATA_REQUESTS && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = weft_data_draw_request(&d.self, i);
        status = weft_data_take(&d.one, &d.self, &request, err);
        if (status == WEFT_OK) look(&all, &d.one);
    }
    if (status == WEFT_OK && all.changes > 0 && all.seen == all.targets)
        status =
            WEFT_BROKEN(err,
                        "each of %llu targets is the id of its own place, which the model sees: it learns to copy; "
                        "the target of a place is the id behind it",
                        (unsigned long long)all.targets);
    weft_data_desk_close(&d);
    return status;
}
