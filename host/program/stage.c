/* host/program/stage.c: see stage.h. */
#include "program/stage.h"

#include "program/norm_nodes.h"
#include "program/placing.h"
#include "program/show.h"
#include "program/sums.h"
#include "plugin/enter.h"

#include <stdlib.h>

static weft_status compile_all(const weft_plan *plan, const weft_stage *stage, weft_program **all, weft_error *err) {
    const weft_run *run = plan->run;
    weft_status status = WEFT_OK;
    for (int32_t rank = 0; rank < plan->world && status == WEFT_OK; rank++) {
        status = weft_program_compile(&all[rank], run->host, weft_run_table(run, WEFT_PART_STRATEGY, strategy),
                                      run->parts[WEFT_PART_STRATEGY].config, &stage->job->spec, rank, err);
        if (status != WEFT_OK) weft_show_refused(all[rank], &stage->job->spec, -1);
    }
    return status;
}

static weft_status check_all(weft_stage *stage, weft_program *const *all, weft_error *err) {
    const weft_status status =
        weft_programs_check(&stage->coverage, (const weft_program *const *)all, &stage->job->spec, err);
    if (status != WEFT_OK && stage->coverage.refused_rank >= 0)
        weft_show_refused(all[stage->coverage.refused_rank], &stage->job->spec, stage->coverage.refused_event);
    return status;
}

/* This rank's, which the stage has, and the one that somebody wants to see. */
static weft_status keep_programs(const weft_plan *plan, weft_stage *stage, weft_program **all, weft_status status,
                                 weft_error *err) {
    const int32_t shown = weft_show_rank(stage->job->spec.view.mode);
    all[plan->rank] = NULL;
    if (status == WEFT_OK && shown >= 0 && shown < plan->world && shown != plan->rank) {
        stage->shown = all[shown];
        all[shown] = NULL;
        status = weft_program_place(stage->shown, &stage->job->spec, err);
    }
    for (int32_t rank = 0; rank < plan->world; rank++) weft_program_destroy(all[rank]);
    return status;
}

/* The programs of all ranks, which only together can be proved. */
static weft_status compile_programs(weft_plan *plan, weft_stage *stage, weft_error *err) {
    const int32_t world = plan->world;
    const weft_job_spec *spec = &stage->job->spec;
    weft_status status = WEFT_OK;
    weft_program **all = calloc((size_t)world, sizeof *all);
    if (all == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the programs of %d ranks", (int)world);
    status = compile_all(plan, stage, all, err);
    if (status == WEFT_OK) status = check_all(stage, all, err);
    if (status == WEFT_OK) stage->identity = weft_programs_identity((const weft_program *const *)all, spec);
    stage->program = all[plan->rank];
    if (status == WEFT_OK && spec->view.mode == WEFT_MODE_TRAIN)
        status = weft_sums_plan(plan, stage, (const weft_program *const *)all, err);
    if (status == WEFT_OK) status = weft_sums_losses(stage, (const weft_program *const *)all, world, err);
    if (status == WEFT_OK)
        status = weft_slices_create(&stage->slices, (const weft_program *const *)all, world, plan->rank,
                                    stage->graphs->n_lengths > 1, err);
    status = keep_programs(plan, stage, all, status, err);
    free(all);
    return status;
}

static weft_status make_stage(const weft_stage_maker *maker, weft_stage *stage, const weft_graph_set_spec *spec,
                              int32_t leaves, weft_error *err) {
    weft_plan *plan = maker->plan;
    const weft_strategy_plugin *strategy = weft_run_table(plan->run, WEFT_PART_STRATEGY, strategy);
    const int64_t step_work = spec->mode == WEFT_MODE_TRAIN ? weft_norm_work(plan, maker->kernels, maker->device) : 0;
    weft_status status =
        weft_graph_set_create(&stage->graphs, plan->declared, maker->kernels, maker->device, spec, err);
    if (status != WEFT_OK) return weft_plugin_blame(plan->declared->plugin, status, err);
    status = weft_place_job(plan, stage, leaves, step_work, err);
    if (status == WEFT_OK) status = compile_programs(plan, stage, err);
    if (status == WEFT_OK) status = weft_program_place(stage->program, &stage->job->spec, err);
    if (status == WEFT_OK) weft_program_price(&stage->price, stage->program);
    return weft_plugin_blame(strategy, status, err);
}

weft_status weft_stage_make(const weft_stage_maker *maker, weft_stage *stage, const weft_graph_set_spec *spec,
                            int32_t leaves, weft_error *err) {
    const char *before = weft_plugin_serve(weft_mode_name(spec->mode));
    const weft_status status = make_stage(maker, stage, spec, leaves, err);
    (void)weft_plugin_serve(before);
    return status;
}
