/* host/base/installed.h: finds the files that are installed with the program, in any install prefix. */
#ifndef WEFT_HOST_BASE_INSTALLED_H
#define WEFT_HOST_BASE_INSTALLED_H

#include <stdbool.h>

#include "base/join.h"

/* Writes the absolute path of `name`, relative to the directory of the program `weft` ("plugins", "../share/weft"),
 * with links resolved. A tool in libexec/weft gets the same path as `weft` itself. Returns false if the file does not
 * exist. [any-thread] */
bool weft_async_checkpoint_program(char out[WEFT_PATH_BYTES], const char *name);

#endif
