/* host/program/lend.h: plugin lookup in a run for plugins that wrap other plugins (WEFT_HOST_PLUGINS).
 *
 * The available plugins and their keys depend on the run. Each run therefore has its own host struct, which
 * otherwise equals the process's. */
#ifndef WEFT_HOST_PROGRAM_LEND_H
#define WEFT_HOST_PROGRAM_LEND_H

#include "program/run.h"

/* Sets run->host. */
weft_status weft_lender_open(weft_run *run, weft_error *err);

/* Disables plugin lookup. The host struct stays valid, because plugins keep a pointer to it. */
void weft_lender_close(weft_run *run);

#endif
