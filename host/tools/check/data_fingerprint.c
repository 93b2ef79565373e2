/* host/tools/check/data_fingerprint.c: data with other rows have another fingerprint. */
#include "tools/check/data_trial.h"

#include "base/file.h"
#include "base/join.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_TEXT = 1 << 26 };

static bool same_counts(const weft_data_instance *a, const weft_data_instance *b) {
    bool is_same = a->info.n_lengths == b->info.n_lengths;
    for (int32_t i = 0; i < a->info.n_lengths && is_same; i++) is_same = a->info.lengths[i] == b->info.lengths[i];
    for (int32_t s = 0; s < 3 && is_same; s++)
        is_same = a->splits[s].rows == b->splits[s].rows && a->splits[s].targets == b->splits[s].targets;
    return is_same;
}

/* Whether the two instances give other rows, in what is drawn. */
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

static weft_status is_told_apart(weft_data_desk *d, const char *what, weft_error *err) {
    bool differ = false;
    weft_status status = WEFT_OK;
    if (d->self.info.fingerprint != d->other.info.fingerprint) return WEFT_OK;
    status = find_other_rows(&differ, d, err);
    if (status != WEFT_OK) return weft_error_prefix(err, "with %s: ", what);
    if (!differ) return WEFT_OK;
    return WEFT_BROKEN(err,
                       "with %s it gives other rows and the same fingerprint, %016llx: a resume would go on with them "
                       "and not notice",
                       what, (unsigned long long)d->self.info.fingerprint);
}

/* The file with another letter, the next one behind `from`; *at: where. False: there is none behind it. */
static bool change_letter(char *text, size_t bytes, size_t from, size_t *at) {
    for (*at = from; *at < bytes && (text[*at] < 'a' || text[*at] > 'y'); ++*at) {
    }
    if (*at < bytes) text[*at]++;
    return *at < bytes;
}

/* A text that the data do not take says nothing. */
static weft_status tells_text(weft_data_desk *d, const weft_plugin_under_test *changed, const char *what,
                              weft_error *err) {
    weft_error refused = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    weft_plugin_under_test_asks("%s", what);
    weft_data_close(&d->other);
    status = weft_data_open(&d->other, changed, WEFT_POISON_ONE, &refused);
    if (status == WEFT_OK) return is_told_apart(d, what, err);
    if (status == WEFT_E_UNSUPPORTED) return WEFT_OK;
    return weft_error_set(err, status, "with %s: %s", what, refused.text);
}

static weft_status tells_letters(weft_data_desk *d, const weft_plugin_under_test *changed, const char *made, char *text,
                                 size_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    char what[64];
    size_t at = 0;
    for (size_t eighth = 1; eighth < 8 && status == WEFT_OK; eighth += 3) {
        if (!change_letter(text, bytes, bytes / 8 * eighth, &at)) continue;
        (void)snprintf(what, sizeof what, "another letter at byte %zu", at);
        status = weft_file_replace(made, text, bytes, err);
        if (status == WEFT_OK) status = tells_text(d, changed, what, err);
        text[at]--;
    }
    return status;
}

/* Where the line that ends before `end` begins. */
static size_t line_before(const char *text, size_t end) {
    while (end > 0 && text[end - 1] != '\n') end--;
    return end;
}

/* The last two lines change places, so that their sum stays: no letter of them is another one. */
static weft_status tells_order(weft_data_desk *d, const weft_plugin_under_test *changed, const char *made,
                               const char *text, size_t bytes, weft_error *err) {
    const size_t end = bytes > 0 && text[bytes - 1] == '\n' ? bytes - 1 : bytes;
    const size_t last = line_before(text, end);
    const size_t first = last > 0 ? line_before(text, last - 1) : 0;
    char *swapped = NULL;
    weft_status status = WEFT_OK;
    if (last == 0 || first == 0) return WEFT_OK; /* one line, or a head and a line */
    swapped = malloc(bytes);
    if (swapped == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a text");
    memcpy(swapped, text, bytes);
    memcpy(swapped + first, text + last, end - last);
    swapped[first + (end - last)] = '\n';
    memcpy(swapped + first + (end - last) + 1, text + first, last - 1 - first);
    status = weft_file_replace(made, swapped, bytes, err);
    free(swapped);
    return status == WEFT_OK ? tells_text(d, changed, "its last two lines the other way round", err) : status;
}

/* Letters at the begin, in the middle and at the end of the file that `path` names, each by itself, and two of its
 * lines, in a copy. */
static weft_status tells_texts(weft_data_desk *d, const weft_plugin_under_test *changed, const char **path,
                               weft_error *err) {
    const char *right = *path, *slash = strrchr(right, '/');
    char made[WEFT_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    weft_error unread = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (getcwd(made, sizeof made) == NULL || strlen(made) + strlen(slash) >= sizeof made)
        return weft_error_set(err, WEFT_E_SYSTEM, "the working directory cannot be told: %s", strerror(errno));
    (void)strcat(made, slash);
    if (weft_text_read(&text, &bytes, right, MOST_TEXT, &unread) != WEFT_OK)
        return WEFT_OK; /* no file, or a huge one */
    *path = made;
    status = tells_letters(d, changed, made, text, bytes, err);
    if (status == WEFT_OK) status = tells_order(d, changed, made, text, bytes, err);
    *path = right;
    free(text);
    return status;
}

static weft_status tells_seed(weft_data_desk *d, const weft_plugin_under_test *tested, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_data_close(&d->other);
    status = weft_data_open_for(&d->other, tested, WEFT_POISON_ONE, weft_bytes_job_of_another_seed(), err);
    if (status == WEFT_E_UNSUPPORTED) status = WEFT_E_PLUGIN; /* a seed is nobody's mistake */
    return status == WEFT_OK ? is_told_apart(d, "another seed", err) : weft_error_prefix(err, "with another seed: ");
}

weft_status weft_data_tells_rows_apart(weft_data_desk *d, weft_plugin_under_test *tested, weft_error *err) {
    const size_t size = tested->loaded->plugin->config_size;
    weft_plugin_under_test changed = *tested;
    const char **path = NULL;
    weft_status status = tells_seed(d, tested, err);
    if (status != WEFT_OK) return status;
    changed.config = malloc(size + 8);
    if (changed.config == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the keys");
    memcpy(changed.config, tested->config, size);
    path = weft_data_path_in(tested, changed.config);
    if (path != NULL && *path != NULL && (*path)[0] == '/') status = tells_texts(d, &changed, path, err);
    weft_data_close(&d->other); /* before the keys that it may read */
    free(changed.config);
    return status;
}
