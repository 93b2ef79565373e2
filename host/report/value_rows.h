/* host/report/value_rows.h: prints the values that the instructions of a step compute (run/values.h). */
#ifndef WEFT_HOST_REPORT_VALUE_ROWS_H
#define WEFT_HOST_REPORT_VALUE_ROWS_H

#include "run/values.h"

/* Prints each value on a line of stdout: step, instruction, object, and its first numbers. */
const weft_value_sink *weft_value_rows_to_stdout(void);

#endif
