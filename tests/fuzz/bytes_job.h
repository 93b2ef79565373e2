/* bytes_job.h: a data plugin's job whose tokenizer has an id for each byte, 256 and 257 around an answer, and what is
 * asked of the data that comes of it. */
#ifndef WEFT_TEST_FUZZ_BYTES_JOB_H
#define WEFT_TEST_FUZZ_BYTES_JOB_H

#include "fuzz.h"

#include <weft/data.h>

enum { FUZZ_CONTEXT = 16 };

/* The job; the same one each time. */
const weft_data_job *fuzz_bytes_job(void);

/* Creates data by these overrides, takes the first rows of each split and holds them to what a micro-batch must be, and
 * destroys it again. */
void fuzz_take_data(fuzz_entry *entry, const char *const *overrides, size_t n);

#endif
