/* host/tools/check/data_rules.c: rules for data plugins. The plugins run with a byte tokenizer. */
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "tools/check/data_trial.h"
#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- corrupt input files ---- */

static weft_status check_refusal(weft_wrong wrong, const char *path, weft_status status, const weft_error *said,
                                 weft_error *err) {
    if (status != WEFT_E_UNSUPPORTED && status != WEFT_E_SYSTEM) /* instance_open maps user errors to these codes */
        return WEFT_BROKEN(err, "%s as path: %s", weft_wrong_name(wrong), said->text);
    if (strstr(said->text, path) == NULL)
        return WEFT_BROKEN(err, "it rejects path %s with a message that does not contain the path: %s",
                           weft_wrong_name(wrong), said->text);
    return WEFT_OK;
}

static weft_status read_wrong(const weft_plugin_under_test *tested, weft_wrong wrong, const char *path,
                              weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    weft_data_instance self;
    const weft_status status = weft_data_open(&self, tested, WEFT_POISON_ONE, &said);
    const uint64_t targets = status == WEFT_OK ? self.splits[WEFT_SPLIT_TRAIN].targets : 0;
    weft_status left = WEFT_OK;
    if (self.refused) left = weft_plugin_under_test_refused(status, self.made, weft_wrong_name(wrong), err);
    if (self.refused) self.made = NULL;
    weft_data_close(&self);
    if (left != WEFT_OK) return left;
    if (status != WEFT_OK) return check_refusal(wrong, path, status, &said, err);
    if (weft_wrong_is_nothing(wrong) || targets == 0)
        return WEFT_BROKEN(err, "it accepts %s as path, with %llu targets", weft_wrong_name(wrong),
                           (unsigned long long)targets);
    return WEFT_OK;
}

/* Replaces the file by corrupt files of the same name, for plugins that read the extension. */
static weft_status each_wrong(weft_plugin_under_test *wrong, const char **path, weft_error *err) {
    const char *right = *path, *slash = strrchr(right, '/');
    char here[WEFT_PATH_BYTES], made[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    if (getcwd(here, sizeof here) == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "getcwd of the working directory fails: %s", strerror(errno));
    status = weft_path_join(made, here, slash == NULL ? right : slash + 1, err);
    *path = made;
    for (int w = 0; w < WEFT_N_WRONG && status == WEFT_OK; w++) {
        weft_plugin_under_test_asks("%s as path", weft_wrong_name((weft_wrong)w));
        status = weft_wrong_make(made, (weft_wrong)w, right, err);
        if (status == WEFT_OK) status = read_wrong(wrong, (weft_wrong)w, made, err);
    }
    *path = right;
    return status;
}

/* Copies the keys. *path: the address of the training file's name in the copy; NULL: it has no such key. */
static weft_plugin_under_test copy_keys(const weft_plugin_under_test *tested, const char ***path) {
    const size_t size = tested->loaded->plugin->config_size;
    const weft_key *key = weft_plugin_under_test_key(tested, "path", WEFT_KEY_PATH);
    weft_plugin_under_test copy = *tested;
    copy.config = weft_alloc(size + 8, 1);
    memcpy(copy.config, tested->config, size);
    *path = key == NULL ? NULL : (const char **)weft_plugin_under_test_value(&copy, key);
    if (key != NULL && (**path == NULL || (**path)[0] != '/')) *path = NULL;
    return copy;
}

static weft_status refuses_wrong_files(weft_plugin_under_test *tested, weft_error *err) {
    const char **path = NULL;
    weft_plugin_under_test wrong = copy_keys(tested, &path);
    const weft_status status = path == NULL
                                   ? WEFT_MOOT(tested, err, "it has no key path that names a file, and need not")
                                   : each_wrong(&wrong, path, err);
    free(wrong.config);
    return status;
}

/* ---- fingerprints of different data ---- */

enum { MOST_TEXT = 1 << 26 };

static bool same_counts(const weft_data_instance *a, const weft_data_instance *b) {
    bool is_same = a->info.n_lengths == b->info.n_lengths;
    for (int32_t i = 0; i < a->info.n_lengths && is_same; i++) is_same = a->info.lengths[i] == b->info.lengths[i];
    for (int32_t s = 0; s < 3 && is_same; s++)
        is_same = a->splits[s].rows == b->splits[s].rows && a->splits[s].targets == b->splits[s].targets;
    return is_same;
}

/* Sets *differ if the two instances return different sequences for the drawn requests. */
static weft_status find_other_rows(bool *differ, weft_data_desk *d, weft_error *err) {
    weft_status status = WEFT_OK;
    *differ = !same_counts(&d->self, &d->other);
    for (uint32_t i = 0; i < WEFT_DATA_REQUESTS && status == WEFT_OK && !*differ; i++) {
        const weft_micro_batch_request request = weft_data_draw_request(&d->self, i);
        status = weft_data_take(&d->one, &d->self, &request, err);
        if (status == WEFT_OK) status = weft_data_take(&d->two, &d->other, &request, err);
        *differ = status == WEFT_OK && !weft_data_same_micro_batch(&d->one, &d->two);
    }
    return status;
}

static weft_status is_distinguished(weft_data_desk *d, const char *what, weft_error *err) {
    bool differ = false;
    weft_status status = WEFT_OK;
    if (d->self.info.fingerprint != d->other.info.fingerprint) return WEFT_OK;
    status = find_other_rows(&differ, d, err);
    if (status != WEFT_OK) return weft_error_prefix(err, "with %s: ", what);
    if (!differ) return WEFT_OK;
    return WEFT_BROKEN(err,
                       "with %s it returns different sequences and the same fingerprint, %016llx: a resumed run would "
                       "not detect the change",
                       what, (unsigned long long)d->self.info.fingerprint);
}

/* Increments the next lowercase letter after `from`; *at: its index. Returns false if no letter follows. */
static bool change_letter(char *text, size_t bytes, size_t from, size_t *at) {
    for (*at = from; *at < bytes && (text[*at] < 'a' || text[*at] > 'y'); ++*at) {
    }
    if (*at < bytes) text[*at]++;
    return *at < bytes;
}

/* Checks one changed text. A text that the plugin rejects is not evidence and passes. */
static weft_status reports_text(weft_data_desk *d, const weft_plugin_under_test *changed, const char *what,
                                weft_error *err) {
    weft_error refused = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    weft_plugin_under_test_asks("%s", what);
    weft_data_close(&d->other);
    status = weft_data_open(&d->other, changed, WEFT_POISON_ONE, &refused);
    if (status == WEFT_OK) return is_distinguished(d, what, err);
    if (status == WEFT_E_UNSUPPORTED) return WEFT_OK;
    return weft_error_set(err, status, "with %s: %s", what, refused.text);
}

static weft_status reports_letters(weft_data_desk *d, const weft_plugin_under_test *changed, const char *made,
                                   char *text, size_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    char what[64];
    size_t at = 0;
    for (size_t eighth = 1; eighth < 8 && status == WEFT_OK; eighth += 3) {
        if (!change_letter(text, bytes, bytes / 8 * eighth, &at)) continue;
        (void)snprintf(what, sizeof what, "another letter at byte %zu", at);
        status = weft_file_replace(made, text, bytes, err);
        if (status == WEFT_OK) status = reports_text(d, changed, what, err);
        text[at]--;
    }
    return status;
}

/* Returns the start of the line that ends before `end`. */
static size_t line_before(const char *text, size_t end) {
    while (end > 0 && text[end - 1] != '\n') end--;
    return end;
}

/* Swaps the last two lines. All bytes remain, so an order-independent sum does not change. */
static weft_status reports_order(weft_data_desk *d, const weft_plugin_under_test *changed, const char *made,
                                 const char *text, size_t bytes, weft_error *err) {
    const size_t end = bytes > 0 && text[bytes - 1] == '\n' ? bytes - 1 : bytes;
    const size_t last = line_before(text, end);
    const size_t first = last > 0 ? line_before(text, last - 1) : 0;
    char *swapped = NULL;
    weft_status status = WEFT_OK;
    if (last == 0 || first == 0) return WEFT_OK; /* fewer than two lines, or a header and one line */
    swapped = weft_alloc(bytes, 1);
    memcpy(swapped, text, bytes);
    memcpy(swapped + first, text + last, end - last);
    swapped[first + (end - last)] = '\n';
    memcpy(swapped + first + (end - last) + 1, text + first, last - 1 - first);
    status = weft_file_replace(made, swapped, bytes, err);
    free(swapped);
    return status == WEFT_OK ? reports_text(d, changed, "its last two lines in reverse order", err) : status;
}

/* Changes letters at the start, middle and end of a copy of the file, one at a time, and swaps two lines. */
static weft_status reports_texts(weft_data_desk *d, const weft_plugin_under_test *changed, const char **path,
                                 weft_error *err) {
    const char *right = *path, *slash = strrchr(right, '/');
    char made[WEFT_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    weft_error unread = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (getcwd(made, sizeof made) == NULL || strlen(made) + strlen(slash) >= sizeof made)
        return weft_error_set(err, WEFT_E_SYSTEM, "getcwd of the working directory fails: %s", strerror(errno));
    (void)strcat(made, slash);
    if (weft_text_read(&text, &bytes, right, MOST_TEXT, &unread) != WEFT_OK)
        return WEFT_OK; /* no file, or a huge one */
    *path = made;
    status = reports_letters(d, changed, made, text, bytes, err);
    if (status == WEFT_OK) status = reports_order(d, changed, made, text, bytes, err);
    *path = right;
    free(text);
    return status;
}

static weft_status reports_seed(weft_data_desk *d, const weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_data_close(&d->other);
    status = weft_data_open_for(&d->other, tested, WEFT_POISON_ONE, weft_bytes_job_of_another_seed(), err);
    if (status == WEFT_E_UNSUPPORTED) status = WEFT_E_PLUGIN; /* any seed is valid, so this is an error of the plugin */
    return status == WEFT_OK ? is_distinguished(d, "another seed", err) : weft_error_prefix(err, "with another seed: ");
}

static weft_status separates_rows(weft_data_desk *d, weft_plugin_under_test *tested, weft_error *err) {
    const char **path = NULL;
    weft_plugin_under_test changed = copy_keys(tested, &path);
    weft_status status = reports_seed(d, tested, err);
    if (status == WEFT_OK && path != NULL) status = reports_texts(d, &changed, path, err);
    weft_data_close(&d->other); /* first, because it may read the keys */
    free(changed.config);
    return status;
}

/* ---- targets per split and sequence ---- */

enum { MOST_COUNTED = 200000, MOST_COMPARED = 20000 }; /* sequences of a split */

static const char *const split_names[] = {"training", "validation", "all"};

/* Returns the FNV-1a hash of a sequence's content, in a micro-batch of one sequence. */
static uint64_t row_hash(const weft_micro_batch *micro_batch) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int32_t t = 0; t < micro_batch->length; t++) {
        const uint32_t words[] = {(uint32_t)micro_batch->ids[t], (uint32_t)micro_batch->targets[t],
                                  (uint32_t)micro_batch->starts[t], micro_batch->weights[t] > 0.0f};
        for (int i = 0; i < 4; i++) hash = (hash ^ words[i]) * 0x100000001b3u;
    }
    return hash ^ hash >> 29;
}

/* Totals of n sequences: their targets, and an order-independent sum of hashes. */
typedef struct tally {
    uint64_t targets, rows;
} tally;

static weft_status count(weft_data_desk *d, tally *out, int32_t split, uint64_t first, uint64_t n, weft_error *err) {
    weft_status status = WEFT_OK;
    *out = (tally){0, 0};
    for (uint64_t row = 0; status == WEFT_OK && row < n; row++) {
        const weft_micro_batch_request request = {(uint32_t)sizeof request, 0, split, 1, first + row};
        weft_plugin_under_test_asks("sequence %llu of split %s", (unsigned long long)request.first_row,
                                    split_names[split]);
        status = weft_data_take(&d->one, &d->self, &request, err);
        if (status != WEFT_OK)
            return weft_error_prefix(err, "sequence %llu of split %s: ", (unsigned long long)request.first_row,
                                     split_names[split]);
        out->targets += (uint64_t)d->one.n_targets;
        out->rows += row_hash(&d->one);
    }
    return status;
}

/* Checks that an epoch is a permutation of all sequences, also if sequence numbers exceed 32 bits. */
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
                                 "the epoch from sequence %llu of the stream on has different sequences than the first "
                                 "one. Allowed: a permutation of the same %llu",
                                 (unsigned long long)begin, (unsigned long long)n);
    }
    return status;
}

static weft_status split_counts(weft_data_desk *d, int32_t split, weft_error *err) {
    const weft_split_info *info = &d->self.splits[split];
    tally counted;
    weft_status status = WEFT_OK;
    if (info->rows > MOST_COUNTED)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "the %llu sequences of split %s are too many to be counted here",
                              (unsigned long long)info->rows, split_names[split]);
    status = count(d, &counted, split, 0, info->rows, err);
    if (status == WEFT_OK && counted.targets != info->targets)
        return WEFT_BROKEN(err, "the %llu sequences of split %s have %llu targets, and split_info returns %llu",
                           (unsigned long long)info->rows, split_names[split], (unsigned long long)counted.targets,
                           (unsigned long long)info->targets);
    return status == WEFT_OK && split == WEFT_SPLIT_TRAIN ? epochs_alike(d, &counted, err) : status;
}

static weft_status counts_hold(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d;
    weft_status status = weft_data_desk_open(&d, tested, err);
    for (int32_t split = 0; split < 3 && status == WEFT_OK; split++) status = split_counts(&d, split, err);
    weft_data_desk_close(&d);
    return status;
}

/* Checks sequences after the end of a finite split: just after it, and where 32-bit numbers overflow. */
static weft_status pads_behind(weft_data_desk *d, int32_t split, weft_error *err) {
    const uint64_t n = d->self.splits[split].rows;
    const uint64_t firsts[] = {n, n + 1000, (uint64_t)1 << 31, ((uint64_t)1 << 32) - 1, (uint64_t)1 << 62};
    weft_status status = WEFT_OK;
    for (int i = 0; i < 5 && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = {(uint32_t)sizeof request, 0, split, 3, firsts[i]};
        if (firsts[i] < n) continue;
        weft_plugin_under_test_asks("sequences %llu and 2 further ones of split %s", (unsigned long long)firsts[i],
                                    split_names[split]);
        status = weft_data_take(&d->one, &d->self, &request, err);
        if (status == WEFT_OK && d->one.n_targets != 0)
            status = WEFT_BROKEN(err,
                                 "after the %llu sequences of split %s there are %lld targets, from sequence %llu on",
                                 (unsigned long long)n, split_names[split], (long long)d->one.n_targets,
                                 (unsigned long long)firsts[i]);
    }
    return status;
}

static weft_status ends_in_padding(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d;
    weft_status status = weft_data_desk_open(&d, tested, err);
    for (int32_t split = WEFT_SPLIT_VALIDATION; split <= WEFT_SPLIT_ALL && status == WEFT_OK; split++)
        status = pads_behind(&d, split, err);
    weft_data_desk_close(&d);
    return status;
}

/* ---- targets and inputs ---- */

/* Counts of targets, of targets equal to the id at their position, and of positions before a different id of the same
 * document, if both can be distinguished. */
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

static weft_status requests_unseen(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d;
    sight all = {0, 0, 0};
    weft_status status = weft_data_desk_open(&d, tested, err);
    for (uint32_t i = 0; i < WEFT_DATA_REQUESTS && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = weft_data_draw_request(&d.self, i);
        status = weft_data_take(&d.one, &d.self, &request, err);
        if (status == WEFT_OK) look(&all, &d.one);
    }
    if (status == WEFT_OK && all.changes > 0 && all.seen == all.targets)
        status = WEFT_BROKEN(err,
                             "each of %llu targets is the id of its own position, an input of the model: the model "
                             "learns to copy. The target of a position is the id at the next position",
                             (unsigned long long)all.targets);
    weft_data_desk_close(&d);
    return status;
}

/* ---- threads ---- */

/* Run time of all threads, long enough to overlap: shared memory is visible only in overlapping calls. */
#define SECONDS 0.5

typedef struct taker {
    const weft_data_instance *self;
    const weft_micro_batch *wanted; /* [REQUESTS] */
    weft_micro_batch got;
    uint32_t first;
    double until; /* time of weft_clock_seconds */
    int differs;  /* request number + 1; 0: equal */
} taker;

static void take_all(void *context) {
    taker *t = context;
    for (uint32_t i = 0; t->differs == 0 && (i < 20 * WEFT_DATA_REQUESTS || weft_clock_seconds() < t->until); i++) {
        const uint32_t number = (i + t->first) % WEFT_DATA_REQUESTS;
        const weft_micro_batch_request request = weft_data_draw_request(t->self, number);
        weft_error err = WEFT_ERROR_INIT;
        if (weft_data_take(&t->got, t->self, &request, &err) != WEFT_OK ||
            !weft_data_same_micro_batch(&t->got, &t->wanted[number]))
            t->differs = (int)number + 1;
    }
}

static weft_status take_at_once(const weft_data_instance *self, const weft_micro_batch *wanted, weft_error *err) {
    taker takers[WEFT_RULE_THREADS];
    const double until = weft_clock_seconds() + SECONDS;
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < WEFT_RULE_THREADS; i++) {
        takers[i] = (taker){.self = self, .wanted = wanted, .first = i * 17, .until = until};
        weft_data_micro_batch_make(&takers[i].got, self);
    }
    status = weft_rule_threads(take_all, takers, sizeof takers[0], "shape or micro-batch", err);
    for (int i = 0; i < WEFT_RULE_THREADS; i++) {
        if (takers[i].differs != 0 && status == WEFT_OK)
            status = WEFT_BROKEN(err, "micro-batch %d differs if %d threads request it", takers[i].differs - 1,
                                 WEFT_RULE_THREADS);
        weft_data_micro_batch_free(&takers[i].got);
    }
    return status;
}

static weft_status threads_alike(weft_plugin_under_test *tested, weft_error *err) {
    weft_micro_batch wanted[WEFT_DATA_REQUESTS];
    weft_data_instance self;
    weft_status status = weft_data_open(&self, tested, WEFT_POISON_ONE, err);
    memset(wanted, 0, sizeof wanted);
    for (uint32_t i = 0; i < WEFT_DATA_REQUESTS && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = weft_data_draw_request(&self, i);
        weft_data_micro_batch_make(&wanted[i], &self);
        status = weft_data_take(&wanted[i], &self, &request, err);
    }
    weft_plugin_under_test_asks("by %d threads at once", WEFT_RULE_THREADS);
    if (status == WEFT_OK) status = take_at_once(&self, wanted, err);
    for (uint32_t i = 0; i < WEFT_DATA_REQUESTS; i++) weft_data_micro_batch_free(&wanted[i]);
    weft_data_close(&self);
    return status;
}

/* ---- independence from instances with other keys ---- */

static weft_status open_any(void *made, const weft_plugin_under_test *tested, weft_error *err) {
    return weft_data_open(made, tested, WEFT_POISON_ONE, err);
}

static void close_any(void *made) {
    weft_data_close(made);
}

static void add_micro_batch(weft_answer *to, const weft_micro_batch *micro_batch) {
    const size_t n = (size_t)micro_batch->rows * (size_t)micro_batch->length;
    WEFT_ANSWER_ADD(to, micro_batch->length);
    weft_answer_add(to, micro_batch->ids, n * sizeof *micro_batch->ids);
    weft_answer_add(to, micro_batch->targets, n * sizeof *micro_batch->targets);
    weft_answer_add(to, micro_batch->weights, n * sizeof *micro_batch->weights);
}

static weft_status query_any(weft_answer *to, void *made, weft_error *err) {
    weft_data_instance *self = made;
    weft_micro_batch micro_batch;
    weft_status status = WEFT_OK;
    weft_data_micro_batch_make(&micro_batch, self);
    WEFT_ANSWER_ADD(to, self->info.fingerprint);
    WEFT_ANSWER_ADD(to, self->splits);
    for (uint32_t i = 0; i < 8 && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = weft_data_draw_request(self, i);
        status = weft_data_take(&micro_batch, self, &request, err);
        if (status == WEFT_OK) add_micro_batch(to, &micro_batch);
    }
    weft_data_micro_batch_free(&micro_batch);
    return status;
}

static const weft_answers answers = {sizeof(weft_data_instance), open_any, close_any, query_any};

/* ---- instances ---- */

static weft_status rule_made(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d = {0};
    weft_status status = weft_other_keys(tested, &answers, err);
    if (status == WEFT_OK) status = weft_data_desk_open(&d, tested, err);
    if (status == WEFT_OK && !weft_data_desk_same(&d))
        status = WEFT_BROKEN(
            err, "the same files and keys have a different fingerprint, or different counts, in a second instance");
    if (status == WEFT_OK) status = separates_rows(&d, tested, err);
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
        return WEFT_BROKEN(err, "a second instance returns a different micro-batch for the same call");
    if (status == WEFT_OK) status = weft_data_take(&d->two, &d->self, &further, err);
    if (status == WEFT_OK) status = weft_data_take(&d->two, &d->self, request, err);
    if (status == WEFT_OK && !weft_data_same_micro_batch(&d->one, &d->two))
        return WEFT_BROKEN(err, "a second call returns a different micro-batch");
    return status;
}

/* Checks that a sequence does not depend on the micro-batch that contains it. */
static weft_status row_stays(weft_data_desk *d, const weft_micro_batch_request *request, weft_error *err) {
    weft_status status = weft_data_take(&d->one, &d->self, request, err);
    for (int32_t r = 0; r < request->rows && status == WEFT_OK; r++) {
        weft_micro_batch_request alone = *request;
        alone.rows = 1;
        alone.first_row += (uint64_t)r;
        status = weft_data_take(&d->two, &d->self, &alone, err);
        if (status == WEFT_OK && !weft_data_same_row(&d->one, r, &d->two, 0))
            return WEFT_BROKEN(
                err, "sequence %d of the micro-batch differs from the same sequence in a micro-batch of its own",
                (int)r);
    }
    return status;
}

WEFT_RULE_BY(rule_micro_batch, weft_data_each_request, micro_batch_holds)
WEFT_RULE_BY(rule_same, weft_data_each_request, micro_batch_stays)
WEFT_RULE_BY(rule_row, weft_data_each_request, row_stays)

/* ---- memory ---- */

/* Fetches micro-batches of each split between create and destroy, because any slot may leak. */
static weft_status create_and_destroy(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d;
    weft_status status = weft_data_desk_open(&d, tested, err);
    for (uint32_t number = 1; number <= 3 && status == WEFT_OK; number++) { /* training, validation, all */
        const weft_micro_batch_request request = weft_data_draw_request(&d.self, number);
        status = weft_data_take(&d.one, &d.self, &request, err);
    }
    weft_data_desk_close(&d);
    return status;
}

WEFT_RULE_BY(releases, weft_plugin_under_test_releases, create_and_destroy)

/* ---- newer-ABI host ---- */

/* Compares a micro-batch of the plugin (`one`) to the same one through the newer-ABI shim (`two`). */
static weft_status micro_batch_later(weft_data_desk *d, const weft_micro_batch_request *request, weft_error *err) {
    weft_status status = weft_data_take(&d->one, &d->self, request, err);
    if (status != WEFT_OK) return status;
    status = weft_data_take(&d->two, &d->other, request, err);
    return weft_newer_abi_check(status, status == WEFT_OK && weft_data_same_micro_batch(&d->one, &d->two),
                                "micro-batches", err);
}

static weft_status made_later(weft_data_desk *d, const weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_data_close(&d->other);
    status = weft_data_open(&d->other, weft_newer_abi(tested), WEFT_POISON_ONE, err);
    return weft_newer_abi_check(status,
                                status == WEFT_OK && weft_data_desk_same(d) &&
                                    weft_data_longest(&d->self) == weft_data_longest(&d->other),
                                "counts, lengths or a different fingerprint", err);
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
    {"R70", "data", "has the same counts and fingerprint in each instance, and another fingerprint for other data",
     rule_made, false},
    {"R71", "data", "fills each position with a valid value", rule_micro_batch, false},
    {"R72", "data", "returns the same micro-batch on each call", rule_same, false},
    {"R73", "data", "returns the same sequence in any micro-batch", rule_row, false},
    {"R74", "data", "has the declared number of targets per split, and the same sequences in each epoch", counts_hold,
     false},
    {"R75", "data", "pads past the end of a split that is read once", ends_in_padding, false},
    {"R76", "data", "frees its memory", releases, false},
    {"R77", "data", "returns the same micro-batch in several threads at once", threads_alike, false},
    {"R78", "data", "returns the same micro-batches with a host that has longer structs", rule_later, false},
    {"R79", "data", "rejects an invalid file and names it", refuses_wrong_files, false},
    {"R115", "data", "has targets that the model does not see as inputs", requests_unseen, false},
    {"R120", "data", "returns the same sequences from bytes that another process made by share",
     weft_data_shares_its_rows, false},
    {NULL, NULL, NULL, NULL, false}};
