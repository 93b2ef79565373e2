/* host/report/tables.c: see tables.h. */
#include "report/tables.h"

#include "report/all_rank_table.h"
#include "report/world_line.h"
#include "report/wrapping.h"

enum { SHOWN_ENDS = 15 };

static weft_status print_wrapping(const weft_engine *engine, FILE *to, weft_error *err) {
    weft_wrapped wrapped;
    const weft_status status = weft_wrapped_make(&wrapped, engine->plan.declared, engine->plan.layout, err);
    if (status == WEFT_OK) weft_wrapped_print(&wrapped, engine->plan.declared, engine->plan.layout, to);
    weft_wrapped_free(&wrapped);
    return status;
}

static weft_status print_sharding(const weft_plan *plan, FILE *to, weft_error *err) {
    weft_hold *hold = NULL;
    const weft_status status = weft_all_rank_plan_hold(&hold, plan, plan->rank, err);
    if (status == WEFT_OK) weft_sharding_print(plan, hold, plan->rank, SHOWN_ENDS, to);
    weft_hold_destroy(hold);
    return status;
}

weft_status weft_tables_print(const weft_session *session, uint32_t tables, int64_t step, FILE *to, weft_error *err) {
    weft_status status = WEFT_OK;
    if ((tables & WEFT_SHOWN_WRAPPING) != 0) status = print_wrapping(session->engine, to, err);
    if (status == WEFT_OK && (tables & WEFT_SHOWN_SHARDING) != 0)
        status = print_sharding(&session->engine->plan, to, err);
    if (status == WEFT_OK && (tables & WEFT_SHOWN_SAMPLES) != 0) status = weft_samples_print(session, step, to, err);
    (void)fflush(to);
    return status;
}
