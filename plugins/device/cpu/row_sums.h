/* row_sums.h: sums over rows in runs: what sum_rows and the norms' backward share (row_sums.c says how). */
#ifndef WEFT_DEVICE_CPU_ROW_SUMS_H
#define WEFT_DEVICE_CPU_ROW_SUMS_H

#include "cpu.h"

/* How many runs so many rows are cut into: run i is [cpu_cut(rows, n, i), cpu_cut(rows, n, i + 1)). */
int64_t runs_of(int64_t rows);
/* Of a workspace for their sums. */
int64_t runs_bytes(int64_t rows, int64_t width);
/* Where run i is summed: zeros. */
float *runs_begin(float *runs, int64_t width, int64_t i);
/* Adds all runs, in order, onto the first one; false: there are none. */
bool runs_fold(const weft_device *device, float *runs, int64_t rows, int64_t width);
/* out (width) = or += all runs, in order. */
void runs_add(const weft_device *device, float *out, float *runs, int64_t rows, int64_t width, bool accumulate);

#endif
