/* host/program/plugin_lookup.h: plugin lookup in a run for plugins that wrap other plugins (WEFT_HOST_PLUGINS).
 *
 * The available plugins and their keys depend on the run. Each run therefore has its own host struct, which
 * otherwise equals the process's. */
#ifndef WEFT_HOST_PROGRAM_PLUGIN_LOOKUP_H
#define WEFT_HOST_PROGRAM_PLUGIN_LOOKUP_H

#include "program/run.h"

/* Sets run->host. */
weft_status weft_plugin_lookup_open(weft_run *run, weft_error *err);

/* Disables plugin lookup. The host struct stays valid, because plugins keep a pointer to it. */
void weft_plugin_lookup_close(weft_run *run);

#endif
