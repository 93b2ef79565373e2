/* host/model/builder.h: what a model plugin calls while it declares itself, and an adapter while it adds to that.
 *
 * The first mistake is kept and told at the end (host/plugin/mistake.h), so that a `declare` reads as a list without
 * checks. */
#ifndef WEFT_HOST_MODEL_BUILDER_H
#define WEFT_HOST_MODEL_BUILDER_H

#include "model/declare.h"

/* Runs the plugin's declare, which fills the arrays of `declared`. After a failure too they are what
 * weft_declared_destroy gives back. */
weft_status weft_builder_run(weft_declared *declared, weft_error *err);

/* Runs the declare of the adapter that joined last on the sites of `declared`; the job lacks its builder and its claim
 * alone. */
weft_status weft_builder_adapt(weft_declared *declared, weft_adapter_job *job, weft_error *err);

#endif
