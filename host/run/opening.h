/* host/run/opening.h: an engine opened and prepared in step with the other ranks: what must be alike is compared
 * before anything goes on, and a rank that cannot go on tells the others. */
#ifndef WEFT_HOST_RUN_OPENING_H
#define WEFT_HOST_RUN_OPENING_H

#include "run/engine.h"

/* rank span: NULL for a process context of the engine's own, whose ranks compare run and device; engines in a rank
 * span of somebody else's compare nothing. [collective] */
weft_status weft_opening_engine(weft_engine **out, const weft_run *run, const weft_rank_span *rank_span,
                                weft_error *err);

/* weft_engine_prepare; then the ranks compare programs, make the groups and lanes that those need, and choose what
 * devices leave open. [collective], but of an engine in a rank span of somebody else's, which says nothing to others
 * here: its ranks have not met. */
weft_status weft_opening_prepare(weft_engine *engine, const weft_plan_spec *spec, weft_error *err);

/* weft_engine_allocate, for which the ranks of an engine meet; in a rank span of somebody else's they choose then.
 * [collective] */
weft_status weft_opening_allocate(weft_engine *engine, weft_error *err);

#endif
