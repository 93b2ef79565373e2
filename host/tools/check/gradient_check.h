/* host/tools/check/gradient_check.h: gradient check of a model's backward by finite differences of its loss. */
#ifndef WEFT_HOST_TOOLS_CHECK_GRADIENT_CHECK_H
#define WEFT_HOST_TOOLS_CHECK_GRADIENT_CHECK_H

#include "plugin/plugin.h"
#include "tools/check/reference_run.h"

/* Returns the model plugin with its own operators split: each is computed two times from the same inputs, and three
 * quarters of one result are added to one quarter of the other. The sum is unchanged, and each input has two readers, so
 * every backward must accumulate. One per process, never freed. [main] */
const weft_loaded *weft_accumulate_shim(const weft_loaded *loaded);

/* Checks that the loss depends only on earlier ids of its document: another id at a position changes no loss of an
 * earlier position, of another document or of another sequence. Also checks that a sequence's loss does not depend on
 * its index in the micro-batch. WEFT_E_PLUGIN with a message: violated. [main] */
weft_status weft_causal_mask_check(weft_reference_run *played, weft_error *err);

/* Checks that loss and gradients of a micro-batch have the same bits after other micro-batches, and while another one
 * waits for its backward. beside: another instance of the same model. [main] */
weft_status weft_causal_mask_check_history(weft_reference_run *played, weft_reference_run *beside, weft_error *err);

/* A part of a row has the same loss and gradients in micro-batches of both shapes. small: the same model's, which has
 * been recorded and run before; its own are the same bits afterwards. [main] */
weft_status weft_causal_mask_check_shapes(weft_reference_run *small, weft_reference_run *large, weft_error *err);

/* Checks each trained parameter, along its gradient and along random directions. WEFT_E_PLUGIN with a message: a
 * gradient differs from the loss's slope, or is NaN. [main] */
weft_status weft_gradient_check(weft_reference_run *played, weft_error *err);

#endif
