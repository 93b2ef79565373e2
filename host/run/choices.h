/* host/run/choices.h: what devices choose at run time (weft/choices.h), chosen once by rank 0 for all ranks. */
#ifndef WEFT_HOST_RUN_CHOICES_H
#define WEFT_HOST_RUN_CHOICES_H

#include "model/process_group.h"
#include <weft/choices.h>

typedef struct weft_choices {
    weft_device_choice *items; /* first what rank 0 needs, in its order, then what others need beside it */
    int32_t n;
} weft_choices;

typedef struct weft_chooser {
    const weft_device_plugin *kernels;
    weft_device *device;
    const weft_process_group *peers; /* NULL: alone */
} weft_chooser;

/* All that any rank has asked its device for so far: a value for each, the same on all ranks. Replaces what is in
 * self; a
 * device without the extension has none. [collective] */
weft_status weft_choices_settle(weft_choices *self, const weft_chooser *by, weft_error *err);
/* Takes from `kept` what self has a key of. WEFT_E_UNSUPPORTED: a value cannot be taken by this device; self keeps its
 * own then, in that place and in those behind it. */
weft_status weft_choices_take(weft_choices *self, const weft_choices *kept, const weft_chooser *by, weft_error *err);
/* One more, at the end. */
weft_status weft_choices_add(weft_choices *self, const weft_device_choice *choice, weft_error *err);
void weft_choices_clear(weft_choices *self); /* a zeroed one is fine */

#endif
