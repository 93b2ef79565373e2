/* host/adapter/sites.h: finds the sites at which an adapter may change a model's computation: its matrices and its
 * attention calls.
 *
 * The model declares no sites. Each segment is recorded once: the operator that reads a weight shows whether it is a
 * linear, a table or the head, and the record contains the attention calls with their heads. */
#ifndef WEFT_HOST_ADAPTER_SITES_H
#define WEFT_HOST_ADAPTER_SITES_H

#include "model/declare.h"

/* Fills the sites of a declared model without adapters: weights of one adapter are not sites of another. */
weft_status weft_sites_collect(weft_declared *declared, weft_error *err);

#endif
