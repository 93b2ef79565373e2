/* host/train/similarity.c: see similarity.h. */
#include "train/similarity.h"

#include "base/alloc.h"
#include "base/file.h"

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

static weft_status save_before(const weft_similarity *self, weft_error *err) {
    json_t *mean = json_array(), *object = json_pack("{s:o}", "mean_last_hidden_state", mean);
    weft_file file;
    FILE *to = weft_file_begin(&file, self->path, err);
    for (int64_t i = 0; i < self->hidden->width; i++) (void)json_array_append_new(mean, json_real(self->before[i]));
    if (to != NULL) (void)json_dumpf(object, to, JSON_REAL_PRECISION(17)); /* commit detects a failure */
    json_decref(object);
    return to == NULL ? WEFT_E_SYSTEM : weft_file_commit(&file, err);
}

/* Reads the initial mean into `before`; false: the file is missing, or belongs to another run. */
static bool read_before(weft_similarity *self) {
    json_t *object = NULL;
    const int64_t n = self->hidden->width;
    bool good = weft_json_read(&object, self->path, 0, NULL) == WEFT_OK;
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

weft_status weft_similarity_open(weft_similarity *self, weft_session *session, const char *path, bool resumed,
                                 weft_error *err) {
    const weft_process_group *peers = &session->engine->peers;
    weft_status status = WEFT_OK;
    if (session->run->settings.run.similarity == 0 || session->engine->plan.evaluate.program == NULL) return WEFT_OK;
    *self = (weft_similarity){.session = session, .path = path, .hidden = weft_hidden_create(session->engine)};
    self->before = weft_alloc(self->hidden->width, sizeof *self->before);
    self->now = weft_alloc(self->hidden->width, sizeof *self->now);
    if (resumed && weft_process_group_is_rank_0(peers)) {
        self->known = read_before(self);
        if (!self->known)
            weft_log(
                session->run->host, WEFT_LOG_WARN,
                "[run] similarity: %s does not contain the mean hidden state at step 0, which similarity = yes stores: "
                "this run reports no similarity",
                path);
    }
    if (resumed) status = weft_process_group_broadcast(peers, &self->known, (int64_t)sizeof self->known, err);
    if (status == WEFT_OK && (!resumed || self->known)) session->stepper->hidden = self->hidden;
    return status;
}

void weft_similarity_close(weft_similarity *self) {
    if (self->session != NULL && self->session->stepper != NULL) self->session->stepper->hidden = NULL;
    weft_hidden_destroy(self->hidden);
    free(self->before);
    free(self->now);
}

weft_status weft_similarity_note(weft_similarity *self, weft_evaluation *out, uint64_t step, weft_error *err) {
    const weft_process_group *peers = self->session == NULL ? NULL : &self->session->engine->peers;
    double *mean = step == 0 ? self->before : self->now;
    weft_status status = WEFT_OK;
    if (peers == NULL || (!self->known && step > 0)) return WEFT_OK;
    if (weft_process_group_is_rank_0(peers)) {
        weft_hidden_mean(self->hidden, mean);
        out->similarity = weft_similarity_of(self->before, mean, self->hidden->width);
    }
    self->known = true;
    status = weft_process_group_broadcast(peers, &out->similarity, (int64_t)sizeof out->similarity, err);
    return status == WEFT_OK && step == 0 && weft_process_group_is_rank_0(peers) ? save_before(self, err) : status;
}
