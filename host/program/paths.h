/* host/program/paths.h: the files and directories that a configuration names, before anything reads them. */
#ifndef WEFT_HOST_PROGRAM_PATHS_H
#define WEFT_HOST_PROGRAM_PATHS_H

#include "program/run.h"

/* Each path among the keys of a part's plugin, in the order of its table, those of lists too; words such as none are no
 * paths. Nothing where the part is not loaded. [main] */
typedef weft_status weft_path_visit(void *context, const char *key, const char *path, weft_error *err);
weft_status weft_part_each_path(const weft_part *part, weft_path_visit *visit, void *context, weft_error *err);

/* Refuses, by its key, a path that the run would read and that is not there: the model's and the tokenizer's
 * directories, and each path of the tokenizer's and the data's plugin. [main] */
weft_status weft_paths_check(const weft_run *run, weft_error *err);

#endif
