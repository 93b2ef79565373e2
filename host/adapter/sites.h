/* host/adapter/sites.h: where an adapter may change what a model computes: its matrices, and its calls of attention.
 *
 * The model says nothing of it. Each segment is recorded once, and what reads a weight says whether that is a linear, a
 * table or the head; where attention is called, and with how many heads, stands in the same record. */
#ifndef WEFT_HOST_ADAPTER_SITES_H
#define WEFT_HOST_ADAPTER_SITES_H

#include "model/declare.h"

/* Fills the sites of a model that has declared itself, and to which nothing has been added: what one adapter
 * adds is no site of another. */
weft_status weft_sites_collect(weft_declared *declared, weft_error *err);

#endif
