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

/* Writes the ids of the loaded adapters: "lora, mlp-head". */
void weft_adapters_print(char *out, size_t size, const weft_run *run);

/* ---- unselected plugins with their own section ----
 *
 * [strategy.fsdp] is unused while ddp is selected: its keys are validated and kept with the run, but have no effect.
 * A key of fsdp in [strategy] itself is then rejected, and the error names the correct section. */

/* Rejects host keys with a non-default value that the selected plugin does not support, with the same error, then
 * invalid values of the keys in unused sections. */
weft_status weft_unselected_validate(weft_run *run, weft_error *err);

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

/* ---- plugins inferred from a model's or adapter's directory (family.c) ----
 *
 * A model plugin is named after its model family, as in model_type of config.json. That value is untrusted: it
 * selects only among installed plugin ids and is never used as a file path. */

/* Returns model_type of the directory's config.json, which the caller frees; NULL: it is missing or not a valid id. */
char *weft_family_read(const char *directory);

/* Fails if the file of the directory cannot be read or is not a JSON object; err has line and column. */
weft_status weft_family_check(const char *directory, const char *file, weft_error *err);

/* Returns the base modules that were fully trained with the adapter in a directory, in the syntax of [train]
 * trainable: "*model.norm.*, *lm_head.*". The caller frees it. NULL: no such modules. PEFT matches them by path
 * suffix. */
char *weft_family_full_modules(const char *directory);

/* Sets run->adapter from the directory in [adapter] from or use if no plugin is named. The value is the list in
 * weft_adapter.json, or peft_type of adapter_config.json in lower case. NULL: no such directory. */
void weft_family_find_adapter(weft_run *run);

/* Reports why no model plugin could be inferred, starting with the directory. */
weft_status weft_family_missing(const weft_run *run, weft_error *err);

/* ---- [tokenizer] add and pad (tokens.c) ---- */

/* Sets *out to the pad token in a directory's tokenizer_config.json, which the caller frees; NULL: not found. */
weft_status weft_token_files_pad(char **out, const char *directory, weft_error *err);

/* Sets *out to the tokens in `has`/tokenizer.json that `had`/tokenizer.json does not list, except a pad token that only
 * `has` names: "A,B" in the order of their ids. The caller frees it. NULL: none, or a file does not exist. */
weft_status weft_token_files_more(char **out, const char *had, const char *has, weft_error *err);

/* True if the configuration adds tokens. */
bool weft_tokens_wanted(const weft_run *run);

/* Adds the tokens to a new tokenizer. A pad token that is already the tokenizer's own is not added. */
weft_status weft_tokens_add(weft_text *text, const weft_run *run, weft_error *err);

/* Sets run->vocabulary if the configuration adds tokens: the rows of the model grow to the highest id, and an added pad
 * token becomes pad_token_id. Fails if the tokens of the run's adapter have other ids in this run. */
weft_status weft_tokens_settle(weft_run *run, weft_error *err);

#endif
