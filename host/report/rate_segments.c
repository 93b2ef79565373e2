/* host/report/rate_segments.c: measures FORWARD and BACKWARD of each segment for a micro-batch of the largest shape.
 * Segments with equal work, such as the layers of a model, are measured once. */
#include "report/rater.h"
#include "report/segment_rig.h"

static weft_status time_segment(weft_segment_rig *rig, weft_segment_rate *out, int32_t segment, weft_error *err) {
    weft_status status = weft_segment_rig_take(rig, segment, err);
    rig->back = false;
    if (status == WEFT_OK) status = weft_rater_time(rig->engine, &out->forward, weft_segment_rig_run, rig, err);
    rig->back = true;
    if (status == WEFT_OK && weft_segment_rig_has_backward(rig))
        status = weft_rater_time(rig->engine, &out->backward, weft_segment_rig_run, rig, err);
    return status;
}

weft_status weft_rate_segments(weft_rates *out, weft_engine *engine, weft_error *err) {
    weft_segment_rig rig;
    weft_status status = weft_segment_rig_open(&rig, engine, out->rows, out->places, err);
    for (int32_t segment = 0; segment < engine->plan.declared->n_segments && status == WEFT_OK; segment++) {
        const int32_t like = weft_segment_like(engine, out->places, segment);
        if (like == segment) {
            status = time_segment(&rig, &out->segments[segment], segment, err);
        } else {
            out->segments[segment].forward = out->segments[like].forward;
            out->segments[segment].backward = out->segments[like].backward;
        }
    }
    weft_segment_rig_close(&rig);
    return status;
}
