/* host/tools/prove/cell_memory.h: whether a rank's device has the room for each cell, before the first of them is
 * started. A cell is judged by itself: how many run at once on one machine is no part of it. */
#ifndef WEFT_HOST_TOOLS_PROVE_CELL_MEMORY_H
#define WEFT_HOST_TOOLS_PROVE_CELL_MEMORY_H

#include "tools/prove/verification_run.h"
#include "run/meeting.h"

/* Of all ranks the least. said: what somebody says that there is; 0: what their devices have. [collective] */
weft_status weft_cell_memory_find(weft_available_memory *out, weft_meeting *meeting, const weft_session *session,
                                  int64_t said, weft_error *err);

/* Refuses the cells, compiled, if the one that wants most does not fit, by the sentence of a run that does not: what of
 * it is largest, and what would make it fit that a proof leaves as it is. [collective] */
weft_status weft_cell_memory_judge(const weft_grid *grid, const weft_verification_run_spec *spec,
                                   const weft_available_memory *room, const weft_meeting *meeting, weft_error *err);

#endif
