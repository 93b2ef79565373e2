/* host/tools/prove/spec.h: which settings make sense for a configuration: its own policy and three others, the
 * strategies that there are plugins of, and what all of them are told. */
#ifndef WEFT_HOST_TOOLS_PROVE_SPEC_H
#define WEFT_HOST_TOOLS_PROVE_SPEC_H

#include "tools/prove/grid.h"
#include "run/session.h"

/* missing: ids of known strategies that no plugin is found of. run: the configuration as it is; session: of one rank.
 * */
void weft_prove_spec(weft_grid_spec *out, char *missing, size_t size, const weft_run *run, const weft_session *session,
                     int32_t world);

/* "ordered", "tree" or "fast". */
const char *weft_prove_reduce(const weft_run *run);

#endif
