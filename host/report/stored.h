/* host/report/stored.h: the dtypes of a model's stored parameters, with their number and total bytes before sharding.
 */
#ifndef WEFT_HOST_REPORT_STORED_H
#define WEFT_HOST_REPORT_STORED_H

#include "model/declare.h"

#include <jansson.h>
#include <stdio.h>

/* Prints a line, with its text from column `indent` on: "storage     148,224 parameters in fp32 (592,896 bytes)". */
void weft_stored_print(const weft_declared *declared, int indent, FILE *to);
/* Returns [{"type", "parameters", "bytes"}], used dtypes only. */
json_t *weft_stored_array(const weft_declared *declared);

#endif
