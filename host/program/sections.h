/* host/program/sections.h: the names in a configuration, judged before any value is: sections, plugins, keys.
 *
 * A misspelt name is a key that is missing or a rule that is broken elsewhere; told first, it is told as what it is.
 * The keys of a section are known once its plugin is, so the plugins are loaded here. */
#ifndef WEFT_HOST_PROGRAM_SECTIONS_H
#define WEFT_HOST_PROGRAM_SECTIONS_H

#include "launch/find.h"
#include "program/run.h"

/* Whether the part is in the file, or needed without it. */
bool weft_run_wants(const weft_run *run, int32_t part, uint32_t needs);

/* How many ranks the configuration and the command line come to; what the command wants is known by weft_launch_want.
 * path: the INI file. No plugin's code runs. */
weft_status weft_run_ranks(weft_launch *out, const char *path, const char *const *overrides, size_t n_overrides,
                           weft_error *err);

/* For weft_run_open_comm: finds the world and loads the communicator. WEFT_E_USER: no launcher started this process as
 * one of several ranks. */
weft_status weft_run_name_comm(weft_run *run, weft_error *err);

/* Makes the registry, joins the world of ranks, loads the plugin of each part that the run wants, and refuses every
 * name that none of them and no table of the host declares. */
weft_status weft_run_names(weft_run *run, uint32_t needs, weft_error *err);

#endif
