/* host/program/mode_plan.c: see mode_plan.h. */
#include "program/mode_plan.h"

#include "program/norm_nodes.h"
#include "program/placing.h"
#include "program/show.h"
#include "program/sums.h"
#include "plugin/enter.h"

#include <stdlib.h>

static weft_status compile_all(const weft_plan *plan, const weft_mode_plan *mode_plan, weft_program **all,
                               weft_error *err) {
    const weft_run *run = plan->run;
    weft_status status = WEFT_OK;
    for (int32_t rank = 0; rank < plan->world && status == WEFT_OK; rank++) {
        status = weft_program_compile(&all[rank], run->host, weft_run_table(run, WEFT_PART_STRATEGY, strategy),
                                      run->parts[WEFT_PART_STRATEGY].config, &mode_plan->job->spec, rank, err);
        if (status != WEFT_OK) weft_show_refused(all[rank], &mode_plan->job->spec, -1);
    }
    return status;
}

static weft_status check_all(weft_mode_plan *mode_plan, weft_program *const *all, weft_error *err) {
    const weft_status status =
        weft_programs_check(&mode_plan->coverage, (const weft_program *const *)all, &mode_plan->job->spec, err);
    if (status != WEFT_OK && mode_plan->coverage.refused_rank >= 0)
        weft_show_refused(all[mode_plan->coverage.refused_rank], &mode_plan->job->spec,
                          mode_plan->coverage.refused_instruction);
    return status;
}

/* This rank's, which the stage has, and the one that somebody wants to see. */
static weft_status keep_programs(const weft_plan *plan, weft_mode_plan *mode_plan, weft_program **all,
                                 weft_status status, weft_error *err) {
    const int32_t shown = weft_show_rank(mode_plan->job->spec.view.mode);
    all[plan->rank] = NULL;
    if (status == WEFT_OK && shown >= 0 && shown < plan->world && shown != plan->rank) {
        mode_plan->shown = all[shown];
        all[shown] = NULL;
        status = weft_program_place(mode_plan->shown, &mode_plan->job->spec, err);
    }
    for (int32_t rank = 0; rank < plan->world; rank++) weft_program_destroy(all[rank]);
    return status;
}

/* The programs of all ranks, which only together can be proved. */
static weft_status compile_programs(weft_plan *plan, weft_mode_plan *mode_plan, weft_error *err) {
    const int32_t world = plan->world;
    const weft_job_spec *spec = &mode_plan->job->spec;
    weft_status status = WEFT_OK;
    weft_program **all = calloc((size_t)world, sizeof *all);
    if (all == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the programs of %d ranks", (int)world);
    status = compile_all(plan, mode_plan, all, err);
    if (status == WEFT_OK) status = check_all(mode_plan, all, err);
    if (status == WEFT_OK) mode_plan->identity = weft_programs_identity((const weft_program *const *)all, spec);
    mode_plan->program = all[plan->rank];
    if (status == WEFT_OK && spec->view.mode == WEFT_MODE_TRAIN)
        status = weft_sums_plan(plan, mode_plan, (const weft_program *const *)all, err);
    if (status == WEFT_OK) status = weft_sums_losses(mode_plan, (const weft_program *const *)all, world, err);
    if (status == WEFT_OK)
        status = weft_slices_create(&mode_plan->slices, (const weft_program *const *)all, world, plan->rank,
                                    mode_plan->graphs->n_lengths > 1, err);
    status = keep_programs(plan, mode_plan, all, status, err);
    free(all);
    return status;
}

static weft_status make_mode_plan(const weft_mode_plan_maker *maker, weft_mode_plan *mode_plan,
                                  const weft_graph_set_spec *spec, int32_t micro_batches, weft_error *err) {
    weft_plan *plan = maker->plan;
    const weft_strategy_plugin *strategy = weft_run_table(plan->run, WEFT_PART_STRATEGY, strategy);
    const int64_t step_work = spec->mode == WEFT_MODE_TRAIN ? weft_norm_work(plan, maker->kernels, maker->device) : 0;
    weft_status status =
        weft_graph_set_create(&mode_plan->graphs, plan->declared, maker->kernels, maker->device, spec, err);
    if (status != WEFT_OK) return weft_plugin_blame(plan->declared->plugin, status, err);
    status = weft_place_job(plan, mode_plan, micro_batches, step_work, err);
    if (status == WEFT_OK) status = compile_programs(plan, mode_plan, err);
    if (status == WEFT_OK) status = weft_program_place(mode_plan->program, &mode_plan->job->spec, err);
    if (status == WEFT_OK) weft_program_price(&mode_plan->price, mode_plan->program);
    return weft_plugin_blame(strategy, status, err);
}

weft_status weft_mode_plan_make(const weft_mode_plan_maker *maker, weft_mode_plan *mode_plan,
                                const weft_graph_set_spec *spec, int32_t micro_batches, weft_error *err) {
    const char *before = weft_plugin_serve(weft_mode_name(spec->mode));
    const weft_status status = make_mode_plan(maker, mode_plan, spec, micro_batches, err);
    (void)weft_plugin_serve(before);
    return status;
}
