/* host/model/builder.h: what a model plugin calls while it declares itself.
 *
 * A mistake is kept and everything after it does nothing, so that a `declare` reads as a list without checks; the first
 * mistake is what is reported. */
#ifndef WEFT_HOST_MODEL_BUILDER_H
#define WEFT_HOST_MODEL_BUILDER_H

#include "model/declare.h"

/* Runs the plugin's declare, which fills the arrays of `declared`. After a failure too they are what
 * weft_declared_destroy gives back. */
weft_status weft_builder_run(weft_declared *declared, weft_error *err);

#endif
