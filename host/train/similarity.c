/* host/train/similarity.c: see similarity.h. */
#include "train/similarity.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

double weft_similarity_of(const double *a, const double *b, int64_t n) {
    double aa = 0.0, bb = 0.0, sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        aa += a[i] * a[i];
        bb += b[i] * b[i];
    }
    if (!(aa > 0.0) || !(bb > 0.0)) return (double)NAN;
    for (int64_t i = 0; i < n; i++) {
        const double apart = a[i] / sqrt(aa) - b[i] / sqrt(bb);
        sum += apart * apart;
    }
    return sum / 2.0;
}

/* ---- the file of the initial mean ---- */

static weft_status file_path(char path[4096], const weft_similarity *self, weft_error *err) {
    const int n = snprintf(path, 4096, "%s/" WEFT_SIMILARITY_NAME, self->directory);
    if (n > 0 && n < 4096) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "[run] out: the path %s/" WEFT_SIMILARITY_NAME " is too long",
                          self->directory);
}

static weft_status keep_before(const weft_similarity *self, weft_error *err) {
    char path[4096];
    weft_file file;
    FILE *to = NULL;
    json_t *object = NULL, *mean = NULL;
    weft_status status = file_path(path, self, err);
    if (status != WEFT_OK) return status;
    mean = json_array();
    for (int64_t i = 0; i < weft_hidden_width(self->hidden); i++)
        (void)json_array_append_new(mean, json_real(self->before[i]));
    object = json_pack("{s:o}", "mean_last_hidden_state", mean);
    to = weft_file_begin(&file, path, err);
    if (to != NULL) (void)json_dumpf(object, to, JSON_REAL_PRECISION(17)); /* commit detects a failure */
    json_decref(object);
    return to == NULL ? WEFT_E_SYSTEM : weft_file_commit(&file, err);
}

/* Reads the initial mean into `before`; false: the file is missing, or belongs to another run. */
static bool read_before(weft_similarity *self, const char *path) {
    json_t *object = NULL;
    const int64_t n = weft_hidden_width(self->hidden);
    bool good = weft_json_read(&object, path, 0, NULL) == WEFT_OK;
    const json_t *mean = json_object_get(object, "mean_last_hidden_state");
    good = good && (int64_t)json_array_size(mean) == n;
    for (int64_t i = 0; i < n && good; i++) {
        const json_t *number = json_array_get(mean, (size_t)i);
        good = json_is_number(number);
        self->before[i] = json_number_value(number);
    }
    json_decref(object);
    return good;
}

static weft_status find_before(weft_similarity *self, weft_error *err) {
    const weft_process_group *peers = &self->session->engine->peers;
    char path[4096];
    const weft_status status = file_path(path, self, err);
    if (status != WEFT_OK) return status;
    if (weft_process_group_is_rank_0(peers)) {
        self->known = read_before(self, path);
        if (!self->known)
            weft_log(self->session->run->host, WEFT_LOG_WARN,
                     "[run] similarity: %s does not hold how this run began, which is measured before step 1 where "
                     "similarity = yes: none is told",
                     path);
    }
    return weft_process_group_broadcast(peers, &self->known, (int64_t)sizeof self->known, err);
}

weft_status weft_similarity_open(weft_similarity *self, weft_session *session, const char *directory, bool resumed,
                                 weft_error *err) {
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    if (session->run->settings.run.similarity == 0 || session->engine->plan.evaluate.program == NULL) return WEFT_OK;
    self->session = session;
    self->directory = directory;
    self->hidden = weft_hidden_create(session->engine);
    status = weft_process_group_agree(&session->engine->peers, status, err);
    if (status != WEFT_OK) return status;
    self->before = weft_alloc(weft_hidden_width(self->hidden), sizeof *self->before);
    self->now = weft_alloc(weft_hidden_width(self->hidden), sizeof *self->now);
    if (resumed) status = find_before(self, err);
    if (status == WEFT_OK && (!resumed || self->known)) session->stepper->hidden = self->hidden;
    return status;
}

void weft_similarity_close(weft_similarity *self) {
    if (self->session != NULL && self->session->stepper != NULL) self->session->stepper->hidden = NULL;
    weft_hidden_destroy(self->hidden);
    free(self->before);
    free(self->now);
    memset(self, 0, sizeof *self);
}

weft_status weft_similarity_note(weft_similarity *self, weft_evaluation *out, uint64_t step, weft_error *err) {
    const weft_process_group *peers = self->session == NULL ? NULL : &self->session->engine->peers;
    weft_status status = WEFT_OK;
    if (peers == NULL || (!self->known && step > 0)) return WEFT_OK;
    if (weft_process_group_is_rank_0(peers)) {
        weft_hidden_mean(self->hidden, step == 0 ? self->before : self->now);
        out->similarity =
            weft_similarity_of(self->before, step == 0 ? self->before : self->now, weft_hidden_width(self->hidden));
    }
    self->known = true;
    status = weft_process_group_broadcast(peers, &out->similarity, (int64_t)sizeof out->similarity, err);
    return status == WEFT_OK && step == 0 && weft_process_group_is_rank_0(peers) ? keep_before(self, err) : status;
}
