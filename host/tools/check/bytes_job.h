/* host/tools/check/bytes_job.h: what data are made for that are tried: a tokenizer whose ids are bytes, behind which
 * stand 256, which begins a text, and 257, which ends it. */
#ifndef WEFT_HOST_TOOLS_CHECK_BYTES_JOB_H
#define WEFT_HOST_TOOLS_CHECK_BYTES_JOB_H

#include <weft/data.h>

enum { WEFT_BYTES_VOCABULARY = 258, WEFT_BYTES_CONTEXT = 1 << 16 };

const weft_data_job *weft_bytes_job(void);
const weft_data_job *weft_bytes_job_of_another_seed(void);

#endif
