/* host/program/job.c: see job.h. */
#include "program/job.h"

bool weft_job_spec_reads(const weft_job_spec *job, int32_t segment, int32_t unit) {
    const weft_segment_view *view = &job->view.segments[segment];
    for (int32_t i = 0; i < view->n_units; i++)
        if (view->units[i] == unit) return true;
    return false;
}

static weft_status check_counts(const weft_strategy_job *view, weft_error *err) {
    if (view->mode != WEFT_MODE_TRAIN && view->mode != WEFT_MODE_EVALUATE && view->mode != WEFT_MODE_GENERATE)
        return weft_error_set(err, WEFT_E_HOST, "mode %d of the job is none of train, evaluate and generate",
                              (int)view->mode);
    if (view->world < 1 || view->leaves < 1 || view->n_units < 0 || view->n_segments < 1)
        return weft_error_set(err, WEFT_E_HOST,
                              "a job of %d ranks, %d leaves, %d units and %d segments cannot be compiled: at least one "
                              "rank, leaf and segment is needed",
                              (int)view->world, (int)view->leaves, (int)view->n_units, (int)view->n_segments);
    if (view->unit_stride != sizeof(weft_unit_view) || view->segment_stride != sizeof(weft_segment_view))
        return weft_error_set(err, WEFT_E_HOST, "the job's views have strides of %u and %u bytes, not the host's own",
                              (unsigned)view->unit_stride, (unsigned)view->segment_stride);
    if (view->leaves > INT32_MAX / 8 / (view->n_units + view->n_segments))
        return weft_error_set(err, WEFT_E_USER,
                              "%d leaves of %d segments are more than one step program can hold: use a larger "
                              "micro_batch or a smaller global_batch",
                              (int)view->leaves, (int)view->n_segments);
    return WEFT_OK;
}

static weft_status check_segment(const weft_job_spec *job, int32_t s, weft_error *err) {
    const weft_segment_view *view = &job->view.segments[s];
    const weft_segment_sizes *sizes = &job->segments[s];
    for (int32_t i = 0; i < view->n_units; i++)
        if (view->units[i] < (i > 0 ? view->units[i - 1] + 1 : 0) || view->units[i] >= job->view.n_units)
            return weft_error_set(err, WEFT_E_HOST, "segment %s reads unit %d: units must ascend and be below %d",
                                  view->name, (int)view->units[i], (int)job->view.n_units);
    if (sizes->carry < 0 || sizes->tape < 0 || sizes->forward_work < 0 || sizes->forward_work_untaped < 0 ||
        sizes->recompute_work < 0 || sizes->backward_work < 0)
        return weft_error_set(err, WEFT_E_HOST, "segment %s has a negative size", view->name);
    if (job->view.mode != WEFT_MODE_TRAIN) return WEFT_OK;
    if (sizes->has_backward != (view->backward != 0))
        return weft_error_set(err, WEFT_E_HOST,
                              "segment %s: its sizes and its view disagree on whether it has a BACKWARD", view->name);
    if (s > 0 && job->segments[s - 1].has_backward && !sizes->has_backward)
        return weft_error_set(err, WEFT_E_HOST, "segment %s has no BACKWARD, and the segment below it, %s, has one",
                              view->name, job->view.segments[s - 1].name);
    if (sizes->carry_gradient != (s > 0 && job->segments[s - 1].has_backward))
        return weft_error_set(err, WEFT_E_HOST,
                              "segment %s hands a gradient down exactly if the segment below has a BACKWARD",
                              view->name);
    return WEFT_OK;
}

static weft_status check_unit(const weft_job_spec *job, int32_t u, weft_error *err) {
    const weft_unit_view *view = &job->view.units[u];
    if ((job->units[u].gradient > 0) != (view->gradient_bytes > 0))
        return weft_error_set(err, WEFT_E_HOST, "unit %s: its sizes and its view disagree on whether it is trained",
                              view->name);
    if (!weft_job_spec_trains(job, u)) return WEFT_OK;
    for (int32_t s = 0; s < job->view.n_segments; s++)
        if (job->segments[s].has_backward && weft_job_spec_reads(job, s, u)) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_USER,
        "unit %s has trainable parameters, but no segment of the model computes with them: freeze them", view->name);
}

weft_status weft_job_spec_check(const weft_job_spec *job, weft_error *err) {
    weft_status status = check_counts(&job->view, err);
    for (int32_t s = 0; s < job->view.n_segments && status == WEFT_OK; s++) status = check_segment(job, s, err);
    for (int32_t u = 0; u < job->view.n_units && status == WEFT_OK; u++) status = check_unit(job, u, err);
    if (status == WEFT_OK && job->view.mode == WEFT_MODE_TRAIN && !job->segments[job->view.n_segments - 1].has_backward)
        status = weft_error_set(err, WEFT_E_USER,
                                "nothing is trained: no segment has a BACKWARD; name trainable parameters");
    return status;
}
