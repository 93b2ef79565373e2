/* host/run/engine.h: a run's engine, opened, prepared and filled.
 *
 * It is made in steps: `open` takes a rank span and declares the model; the optimizer is opened; `prepare` makes the
 * plan, which takes no memory of the device; `allocate` takes exactly what was planned; `load` fills it. Between the
 * steps the ranks compare what must be alike, which is the caller's affair (run/opening.h). */
#ifndef WEFT_HOST_RUN_ENGINE_H
#define WEFT_HOST_RUN_ENGINE_H

#include "run/buffers.h"
#include "run/fetch.h"

/* Model, layout and device in a rank span of a process context, which must outlive the engine; NULL: in a process
 * context of its own, whose watchers are arranged. Enough for weft_model_info and names. */
weft_status weft_engine_open(weft_engine **out, const weft_run *run, const weft_rank_span *rank_span, weft_error *err);
/* The run's optimizer, if it has one. Before prepare. */
weft_status weft_engine_open_optimizer(weft_engine *engine, weft_error *err);
/* Graphs, programs (checked, placed, priced) and the plan of bytes. */
weft_status weft_engine_prepare(weft_engine *engine, const weft_plan_spec *spec, weft_error *err);
/* Who chooses what its device leaves to be chosen (run/choices.h). */
weft_chooser weft_engine_chooser(const weft_engine *engine);
/* The optimizer's step size before the schedule; false: there is no optimizer, or it says none. */
bool weft_engine_lr(const weft_engine *engine, double *out);
/* Where it has failed while ranks may wait for one another: nothing of its device waits for them any longer. Before
 * what it was used with is taken apart. NULL is fine. */
void weft_engine_give_up(weft_engine *engine);
void weft_engine_close(weft_engine *engine); /* NULL is fine */

#endif
