/* host/tools/ab/learning.h: what the arms learn: each trains the same number of steps from its beginning, once for
 * each seed, and both are held against each other on the micro-batches of validation (paired_losses.h).
 *
 * Time is measured by arms that live at once and of which the first takes twice as many steps; so what is learned is
 * measured anew, one training after the other, when the others are gone. */
#ifndef WEFT_HOST_TOOLS_AB_LEARNING_H
#define WEFT_HOST_TOOLS_AB_LEARNING_H

#include "tools/ab/arms.h"

/* Whether it is to be measured, and why not: asked while the arms live. The same on all ranks. [collective] */
weft_status weft_ab_learning_judge(weft_ab_experiment *self, const weft_ab_options *options, bool *wanted,
                                   weft_error *err);

/* After the arms' sessions are closed. [collective] */
weft_status weft_ab_learn(weft_ab_experiment *self, const weft_ab_options *options, weft_error *err);

#endif
