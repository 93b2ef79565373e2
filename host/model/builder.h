/* host/model/builder.h: the functions that a model plugin calls to declare itself, and an adapter to extend the model.
 *
 * The builder records the first error and reports it at the end (host/plugin/enter.h), so that a `declare`
 * needs no error checks. */
#ifndef WEFT_HOST_MODEL_BUILDER_H
#define WEFT_HOST_MODEL_BUILDER_H

#include "model/declare.h"

/* Runs the plugin's declare, which fills the arrays of `declared`. The caller frees them with weft_declared_destroy,
 * also after a failure. */
weft_status weft_builder_run(weft_declared *declared, weft_error *err);

/* Runs the declare of the adapter that joined last on the sites of `declared`. The caller sets all of `job` except its
 * builder and its claim. */
weft_status weft_builder_adapt(weft_declared *declared, weft_adapter_job *job, weft_error *err);

#endif
