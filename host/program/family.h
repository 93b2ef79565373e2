/* host/program/family.h: which model plugin a model's directory asks for, where the configuration names none.
 *
 * A model plugin has the name of the family that it computes, as config.json has it in model_type. That is a stranger's
 * word: it chooses among the plugins that are found by their ids, and is never taken for the path of a file. */
#ifndef WEFT_HOST_PROGRAM_FAMILY_H
#define WEFT_HOST_PROGRAM_FAMILY_H

#include "program/run.h"

/* model_type of the directory's config.json, to be freed; NULL: it has none that could be an id. */
char *weft_family_read(const char *directory);

/* Fails if the file of the directory cannot be read or is no JSON object; err has line and column. */
weft_status weft_family_check(const char *directory, const char *file, weft_error *err);

/* run->family by [model] path, where nobody names the plugin; NULL where that comes to none. */
void weft_family_find(weft_run *run);

/* run->adapter by the directory that [adapter] from or use names, where nobody names the plugin: those that
 * weft_adapter.json lists, or peft_type of its adapter_config.json in small letters; NULL where there is no such
 * directory. */
/* Modules of the base that were trained whole with the adapter in a directory, as [train] trainable names them:
 * "*model.norm.*, *lm_head.*", to be freed; NULL: none, or no memory. PEFT finds them by the ends of their paths. */
char *weft_family_whole_modules(const char *directory);

void weft_family_find_adapter(weft_run *run);

/* Of a model plugin that nobody names and no config.json either: what is wrong, from the directory on. */
weft_status weft_family_missing(const weft_run *run, weft_error *err);

#endif
