#include "program/program.h"
weft_status weft_programs_check(weft_coverage *out, const weft_program *const *programs, const weft_job_spec *job,
                                weft_error *err) {
    (void)programs;
    (void)job;
    (void)err;
    memset(out, 0, sizeof *out);
    return WEFT_OK;
}
