/* row_sums.h: sums over rows in runs, shared by sum_rows and the norms' backward (see row_sums.c). */
#ifndef WEFT_DEVICE_CPU_ROW_SUMS_H
#define WEFT_DEVICE_CPU_ROW_SUMS_H

#include "cpu.h"

/* Returns the number of runs: run i has the rows [cpu_cut(rows, n, i), cpu_cut(rows, n, i + 1)). */
int64_t runs_of(int64_t rows);
/* Returns the workspace bytes of their sums. */
int64_t runs_bytes(int64_t rows, int64_t width);
/* Returns the zeroed sums of run i. */
float *runs_begin(float *runs, int64_t width, int64_t i);
/* Adds all runs, in order, to the first one; returns false for zero runs. */
bool runs_fold(const weft_device *device, float *runs, int64_t rows, int64_t width);
/* out (width) = or += all runs, in order. */
void runs_add(const weft_device *device, float *out, float *runs, int64_t rows, int64_t width, bool accumulate);

#endif
