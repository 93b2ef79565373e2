/* host/program/sections.h: validates the names in a configuration before any value: sections, plugins, keys.
 *
 * A misspelt name would otherwise be reported as a missing key or another error. The keys of a section depend on its
 * plugin, so the plugins are loaded here. */
#ifndef WEFT_HOST_PROGRAM_SECTIONS_H
#define WEFT_HOST_PROGRAM_SECTIONS_H

#include "launch/find.h"
#include "program/run.h"

/* True if the part is in the file or required without it. */
bool weft_run_wants(const weft_run *run, int32_t part, uint32_t needs);

/* Computes the number of ranks from the configuration and the command line; weft_launch_want has the requirements of
 * the command. path: the INI file. Runs no plugin code. */
weft_status weft_run_ranks(weft_launch *out, const char *path, const char *const *overrides, size_t n_overrides,
                           weft_error *err);

/* Finds the world and loads the communicator, for weft_run_open_comm. WEFT_E_USER: no launcher started this process
 * as one of several ranks. */
weft_status weft_run_name_comm(weft_run *run, weft_error *err);

/* Creates the registry, joins the world of ranks and loads the plugin of each part that the run needs. Rejects names
 * that neither a plugin nor a table of the host declares. */
weft_status weft_run_names(weft_run *run, uint32_t needs, weft_error *err);

#endif
