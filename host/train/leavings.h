/* host/train/leavings.h: what of a directory a run wrote, so that --overwrite removes nothing else. */
#ifndef WEFT_HOST_TRAIN_LEAVINGS_H
#define WEFT_HOST_TRAIN_LEAVINGS_H

#include <weft/base.h>

/* Refuses checkpoints/ and model/ of a run's directory, by name, where something is in them that no run wrote.
 * [any-thread] */
weft_status weft_leavings_judge(const char *directory, weft_error *err);

#endif
