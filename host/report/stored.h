/* host/report/stored.h: in which types a model's parameters are stored: how many in each, and what they take before
 * ranks share them. */
#ifndef WEFT_HOST_REPORT_STORED_H
#define WEFT_HOST_REPORT_STORED_H

#include "model/declare.h"

#include <jansson.h>
#include <stdio.h>

/* A line, its text from column `indent` on: "storage     148,224 parameters in fp32 (592,896 bytes)". */
void weft_stored_print(const weft_declared *declared, int indent, FILE *to);
/* [{"type", "parameters", "bytes"}], what is there alone. */
json_t *weft_stored_array(const weft_declared *declared);

#endif
