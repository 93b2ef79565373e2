/* host/program/lend.h: plugins of a run for those that wrap them (WEFT_HOST_PLUGINS).
 *
 * Which plugins there are, and what their keys say, is the run's to know; so each run has a host of its own, which is
 * the process's in all else. */
#ifndef WEFT_HOST_PROGRAM_LEND_H
#define WEFT_HOST_PROGRAM_LEND_H

#include "program/run.h"

/* Sets run->host. */
weft_status weft_lender_open(weft_run *run, weft_error *err);

/* Nothing is lent any more; the host itself stays, for plugins keep it. */
void weft_lender_close(weft_run *run);

#endif
