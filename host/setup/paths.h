/* host/setup/paths.h: the files and directories that a configuration names, before anything reads them. */
#ifndef WEFT_HOST_SETUP_PATHS_H
#define WEFT_HOST_SETUP_PATHS_H

#include "setup/run.h"

/* Refuses, by its key, a path that the run would read and that is not there: the model's and the tokenizer's
 * directories, and each PATH key of the tokenizer's and the data's plugin. [main] */
weft_status weft_paths_check(const weft_run *run, weft_error *err);

#endif
