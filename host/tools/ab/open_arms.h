/* host/tools/ab/open_arms.h: the sessions of an experiment, planned, held against one another and started. */
#ifndef WEFT_HOST_TOOLS_AB_OPEN_ARMS_H
#define WEFT_HOST_TOOLS_AB_OPEN_ARMS_H

#include "tools/ab/arms.h"

/* Opens each arm's session in the experiment's meeting, plans it, holds its plan against the first's, and takes
 * memory and weights. [collective] */
weft_status weft_ab_open_arms(weft_ab_experiment *self, weft_error *err);

/* A session of an arm's settings, perhaps with one more, with memory and weights. plugin lookup: whose text and data it
 * uses;
 * NULL: its own. [collective] */
weft_status weft_ab_open_session(weft_session **out, weft_ab_experiment *self, const weft_ab_spec *spec,
                                 const char *const *overrides, size_t n_overrides, weft_session_kind kind,
                                 const weft_session *plugin_lookup, weft_error *err);

/* Puts the arm before what went wrong with it, unless that is named there. Returns err's code. */
weft_status weft_ab_name(const weft_ab_arm *arm, weft_error *err);

/* Whether arm i takes the rows of the first's at each step. */
bool weft_ab_same_batches(const weft_ab_experiment *self, int32_t i);

/* Whether the two have the same parameters with the same states, so that their numbers can be held against each
 * other. */
bool weft_ab_alike(const weft_session *a, const weft_session *b);

#endif
