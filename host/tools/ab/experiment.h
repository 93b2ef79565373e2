/* host/tools/ab/experiment.h: several configurations of one run trained side by side in one launch: their blocks of
 * steps take turns, so that what the machine does meanwhile happens to all of them alike.
 *
 * All arms live at once. Each starts from its own beginning, and in a round all take the same steps: the same rows at
 * the same learning rate. The first, which takes twice as many, goes through each of them twice. They share device and
 * communicator, which are the first's. First the arms are planned and held against one another; then the first three
 * steps of each are compared bit by bit; then the first runs against itself, which tells the machine's noise; then all
 * take turns; at last, where they learn something else, what they learn is measured. */
#ifndef WEFT_HOST_TOOLS_AB_EXPERIMENT_H
#define WEFT_HOST_TOOLS_AB_EXPERIMENT_H

#include "tools/ab/arms.h"

/* Opens the arms, compares and times them until each is decided or the minutes are over; the same on all ranks, but for
 * what is rank 0's; the outcomes are all ranks'. To be closed also after a failure. [collective] */
weft_status weft_ab_run(weft_ab_experiment *out, const weft_ab_spec *specs, int32_t n, const weft_ab_options *options,
                        weft_error *err);
void weft_ab_close(weft_ab_experiment *self);

/* What arm i's outcome was found from. */
weft_ab_evidence weft_ab_evidence_of(const weft_ab_experiment *self, int32_t i);

/* The arm that is better than all others by its outcome beside the first: of those that are better the fastest; the
 * first where all others are worse. -1: none. */
int32_t weft_ab_winner(const weft_ab_experiment *experiment);

#endif
