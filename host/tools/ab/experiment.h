/* host/tools/ab/experiment.h: experiment that trains several configurations of one run interleaved in one launch.
 * Blocks of steps alternate between the arms, so that disturbances of the machine affect all arms equally.
 *
 * All arms are open at the same time, and share the first arm's device and communicator. Each starts from its own
 * initial state. In a round all arms run the same steps, with the same sequences and learning rate; the first arm runs
 * each step two times.
 *
 * Phases: the arms are planned and their plans compared. The first three steps of each arm are compared bit by bit. The
 * first arm runs against itself to measure the noise. All arms alternate. Finally, if the arms learn differently, their
 * learning is measured. */
#ifndef WEFT_HOST_TOOLS_AB_EXPERIMENT_H
#define WEFT_HOST_TOOLS_AB_EXPERIMENT_H

#include "tools/ab/arms.h"

/* Opens the arms, compares and times them until each is decided or the minutes are over. Results marked "rank 0" exist
 * only there; outcomes are identical on all ranks. Close it also after a failure. [collective] */
weft_status weft_ab_run(weft_ab_experiment *out, const weft_ab_spec *specs, int32_t n, const weft_ab_options *options,
                        weft_error *err);
void weft_ab_close(weft_ab_experiment *self);

/* Returns the evidence for arm i's outcome. */
weft_ab_evidence weft_ab_evidence_of(const weft_ab_experiment *self, int32_t i);

/* Returns the best arm: the fastest of the better arms, or the first if all others are worse. -1: undecided. */
int32_t weft_ab_winner(const weft_ab_experiment *experiment);

#endif
