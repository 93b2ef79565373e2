/* bytes_job.h: a data plugin's job with a byte tokenizer, where 256 and 257 enclose an answer, and the calls of the
 * data. */
#ifndef WEFT_TEST_FUZZ_BYTES_JOB_H
#define WEFT_TEST_FUZZ_BYTES_JOB_H

#include "fuzz.h"

#include <weft/data.h>

enum { FUZZ_CONTEXT = 16 };

/* Returns the job, always the same. */
const weft_data_job *fuzz_bytes_job(void);

/* Creates data with these overrides, fetches and validates the first sequences of each split, and destroys the data. */
void fuzz_take_data(fuzz_entry *entry, const char *const *overrides, size_t n);

#endif
