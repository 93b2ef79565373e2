/* host/tools/profile/arrival.c: see arrival.h. */
#include "tools/profile/arrival.h"

#include "base/clock.h"
#include "run/engine.h"
#include "plugin/device_queries.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Adds those of a buffer. */
static weft_status add_pages(int64_t *pages, int64_t *absent, const weft_engine *engine, const weft_slot_ref *slot,
                             weft_error *err) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = 0, bytes = 0;
    unsigned char *there = NULL;
    weft_status status = WEFT_OK;
    if (slot->bytes == 0) return WEFT_OK;
    from = (uintptr_t)weft_device_view(engine->kernels, engine->device, slot->ref);
    if (from == 0) return WEFT_OK;
    bytes = from % page + (uintptr_t)slot->bytes;
    there = malloc(bytes / page + 1);
    if (there == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of pages of the weights");
    if (mincore((void *)(from - from % page), bytes, there) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the pages of the weights cannot be counted: %s", strerror(errno));
    for (uintptr_t i = 0; i * page < bytes && status == WEFT_OK; i++) {
        *pages += 1;
        *absent += (there[i] & 1) == 0;
    }
    free(there);
    return status;
}

weft_status weft_weight_pages(int64_t *pages, int64_t *absent, const weft_engine *engine, weft_error *err) {
    weft_status status = WEFT_OK;
    *pages = *absent = 0;
    status = add_pages(pages, absent, engine, &engine->parameters, err);
    return status == WEFT_OK ? add_pages(pages, absent, engine, &engine->compute, err) : status;
}

weft_status weft_arrival_measure(weft_arrival *out, weft_session *session, double begin, weft_error *err) {
    double loading = 0.0, end = 0.0;
    weft_status status = weft_session_start(session, err);
    loading = weft_clock_seconds();
    if (status == WEFT_OK) status = weft_engine_load(session->engine, err);
    end = weft_clock_seconds();
    if (status == WEFT_OK) status = weft_weight_pages(&out->pages, &out->absent, session->engine, err);
    out->seconds = end - begin;
    out->load_seconds = end - loading;
    return status;
}
