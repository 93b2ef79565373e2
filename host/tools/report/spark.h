/* host/tools/report/spark.h: a line of numbers in a few places of a terminal. */
#ifndef WEFT_HOST_TOOLS_REPORT_SPARK_H
#define WEFT_HOST_TOOLS_REPORT_SPARK_H

#include <stdbool.h>
#include <stddef.h>

enum { WEFT_SPARK_MOST = 60 };

/* At most `places` characters (WEFT_SPARK_MOST), each the mean of a part of the n numbers (`stride` bytes apart) on a
 * scale from low to high: eight blocks where the terminal has UTF-8, else signs of ASCII. out: 3 * WEFT_SPARK_MOST + 1.
 * What is not finite is left out. */
void weft_spark(char out[3 * WEFT_SPARK_MOST + 1], const double *numbers, size_t n, size_t stride, size_t places,
                double low, double high, bool utf8);

#endif
