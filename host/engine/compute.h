/* host/engine/compute.h: the compute copy: what products read where the model computes in bf16.
 *
 * The masters are fp32 and are what is updated, saved and hashed. Of each matrix that products read a rounded copy lies
 * beside them for the whole run, made again from the masters whenever those change: after a load, and at the end of
 * STEP. Gains are read from the masters, and so are tables that are looked up and nothing else: a look-up rounds what
 * it takes, to the same bits. In fp32 there is no copy: products read the masters. */
#ifndef WEFT_HOST_ENGINE_COMPUTE_H
#define WEFT_HOST_ENGINE_COMPUTE_H

#include "engine/engine.h"

/* Bytes of the copy; 0 in fp32. */
int64_t weft_compute_copy_bytes(const weft_engine *engine);

/* Takes the copy's memory and fills engine->compute_refs and their types; engine->parameter_refs are there. */
weft_status weft_compute_copy_take(weft_engine *engine, weft_error *err);

/* Has the copy made piece by piece while the masters are filled, so that they need not be read again. False: this
 * device's memory cannot be seen, and the copy has to be made afterwards. */
bool weft_compute_copy_follow(weft_region *masters, const weft_engine *engine);

/* Rounds the masters into the copy: all of them, or those that a step changes. */
weft_status weft_compute_copy_refresh(const weft_engine *engine, bool trained_only, weft_error *err);

/* Bytes that a refresh after a step reads and writes. */
int64_t weft_compute_copy_traffic(const weft_engine *engine);

#endif
