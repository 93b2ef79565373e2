/* host/program/sections.h: validates the names in a configuration before any value: sections, plugins, keys.
 *
 * A misspelt name would otherwise be reported as a missing key or another error. The keys of a section depend on its
 * plugin, so the plugins are loaded here. */
#ifndef WEFT_HOST_PROGRAM_SECTIONS_H
#define WEFT_HOST_PROGRAM_SECTIONS_H

#include "launch/find.h"
#include "program/run.h"

/* ---- adapters: [adapter] plugin = lora, mlp-head ----
 *
 * One adapter has its keys in [adapter] or in its own section; each of several only in its own section,
 * [adapter.lora]. */

/* Sets run->adapters from [adapter] plugin or run->adapter. */
weft_status weft_adapters_find(weft_run *run, weft_error *err);
void weft_adapters_forget(weft_run *run);

/* True if no adapter is selected and the configuration has neither `plugin = none` nor a directory of an adapter. */
bool weft_adapters_unnamed(const weft_run *run);

/* Rejects a key of an unselected adapter. line: the missing line, "plugin = lora". */
weft_status weft_adapters_refuse_idle(const weft_run *run, const char *section, const char *key, const char *line,
                                      weft_error *err);

/* Writes the ids of the loaded adapters: "lora, mlp-head". */
void weft_adapters_print(char *out, size_t size, const weft_run *run);

/* ---- unselected plugins with their own section ----
 *
 * [strategy.fsdp] is unused while ddp is selected: its keys are validated and kept with the run, but have no effect.
 * A key of fsdp in [strategy] itself is then rejected, and the error names the correct section. */

/* Rejects invalid values of the keys in unused sections. */
weft_status weft_unselected_validate(weft_run *run, weft_error *err);

/* Rejects host keys with a non-default value that the part's selected plugin does not support, with the same error. */
weft_status weft_unselected_check_capabilities(const weft_run *run, int32_t part, weft_error *err);

/* Frees the data that weft_unselected_declare stored in the run. */
void weft_unselected_forget(weft_run *run);

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
