/* host/run/compute.h: making the compute copy, which program/copies.h decides on: what products read where the model
 * computes in bf16. */
#ifndef WEFT_HOST_RUN_COMPUTE_H
#define WEFT_HOST_RUN_COMPUTE_H

#include "run/state.h"

/* Takes the copy's memory and fills engine->compute_refs and their types; engine->parameter_refs are there. */
weft_status weft_compute_copy_take(weft_engine *engine, weft_error *err);

/* Has the copy made piece by piece while the masters are filled, so that they need not be read again. False: this
 * device's memory cannot be seen, and the copy has to be made afterwards. */
bool weft_compute_copy_follow(weft_region *masters, const weft_engine *engine);

/* Rounds the masters into the copy: all of them, or those that a step changes. */
weft_status weft_compute_copy_refresh(const weft_engine *engine, bool trained_only, weft_error *err);

#endif
