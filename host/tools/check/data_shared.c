/* host/tools/check/data_shared.c: bytes that one process makes by `share` and that another one maps. */
#include "tools/check/data_trial.h"

#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED "shared" /* in the rule's own directory */

static weft_status put_bytes(void *context, const void *bytes, size_t n) {
    return fwrite(bytes, 1, n, context) == n ? WEFT_OK : WEFT_E_SYSTEM;
}

static weft_status make_file(weft_share_make *make, void *context, weft_error *err) {
    FILE *file = fopen(SHARED, "wb");
    const weft_bytes_sink sink = {file, put_bytes};
    weft_status status = WEFT_OK;
    if (file == NULL) return weft_error_set(err, WEFT_E_SYSTEM, SHARED " cannot be written: %s", strerror(errno));
    status = make(context, &sink, err);
    return fclose(file) == 0 || status != WEFT_OK ? status : WEFT_E_SYSTEM;
}

/* job->context: whether this process makes the bytes. The map stays until the process ends. */
static weft_status share(const weft_data_job *job, weft_share_make *make, void *context, const void **bytes, size_t *n,
                         weft_error *err) {
    struct stat info = {.st_size = 0};
    weft_status status = job->context != NULL ? make_file(make, context, err) : WEFT_OK;
    const int file = status == WEFT_OK ? open(SHARED, O_RDONLY | O_CLOEXEC) : -1;
    if (status != WEFT_OK) return status;
    if (file >= 0 && fstat(file, &info) == 0 && info.st_size > 0)
        *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) (void)close(file);
    *n = (size_t)info.st_size;
    return info.st_size > 0 && *bytes != MAP_FAILED ? WEFT_OK : WEFT_BROKEN(err, "it shares no bytes");
}

static const weft_data_job *sharing_job(bool makes) {
    static weft_data_job job;
    job = *weft_bytes_job();
    job.share = share;
    job.context = makes ? &job : NULL;
    return &job;
}

/* In another process: writes the file, and to `end` why that failed. */
static void make_there(int end, void *context) {
    weft_data_instance made;
    weft_error err = WEFT_ERROR_INIT;
    if (weft_data_open_for(&made, context, WEFT_POISON_ONE, sharing_job(true), &err) != WEFT_OK)
        (void)dprintf(end, "%s", err.text);
    weft_data_close(&made);
}

static weft_status make_shared(weft_plugin_under_test *tested, weft_error *err) {
    weft_child child = {0};
    weft_status status = weft_child_run(&child, make_there, tested, sizeof err->text, tested->options->seconds, err);
    if (status == WEFT_OK && child.n > 0) status = weft_error_set(err, WEFT_E_UNSUPPORTED, "%s", child.text);
    else if (status == WEFT_OK && (!child.in_time || child.status != 0))
        status = WEFT_BROKEN(err, "a process in which it creates the bytes of share fails");
    else if (status == WEFT_OK && access(SHARED, F_OK) != 0)
        status = WEFT_MOOT(tested, err, "its create does not call share, and need not");
    free(child.text);
    return status;
}

static weft_status micro_batch_is_shared(weft_data_desk *d, const weft_micro_batch_request *request, weft_error *err) {
    weft_status status = weft_data_take(&d->one, &d->self, request, err);
    if (status == WEFT_OK) status = weft_data_take(&d->two, &d->other, request, err);
    if (status == WEFT_OK && !weft_data_same_micro_batch(&d->one, &d->two))
        return WEFT_BROKEN(
            err,
            "the bytes that another process made by share and the plugin's own files have different micro-batches");
    return status;
}

/* The instance that maps is the first of this process: make has left nothing here. */
weft_status weft_data_shares_its_rows(weft_plugin_under_test *tested, weft_error *err) {
    weft_data_desk d = {0};
    weft_status status = make_shared(tested, err);
    if (status != WEFT_OK) return status;
    weft_plugin_under_test_asks("to map the bytes that another process has created by share");
    status = weft_data_open_for(&d.self, tested, WEFT_POISON_TWO, sharing_job(false), err);
    if (status == WEFT_OK) weft_data_micro_batch_make(&d.one, &d.self);
    for (uint32_t i = 0; i < WEFT_DATA_REQUESTS && status == WEFT_OK; i++) { /* before it can find its files' data */
        const weft_micro_batch_request request = weft_data_draw_request(&d.self, i);
        status = weft_data_take(&d.one, &d.self, &request, err);
    }
    if (status == WEFT_OK) status = weft_data_open(&d.other, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && !weft_data_desk_same(&d))
        status = WEFT_BROKEN(err, "the bytes that another process made by share and the plugin's own files have "
                                  "different fingerprints or counts");
    if (status == WEFT_OK) weft_data_micro_batch_make(&d.two, &d.self);
    if (status == WEFT_OK) status = weft_data_each_request_of(&d, micro_batch_is_shared, err);
    weft_data_desk_close(&d);
    return status;
}
