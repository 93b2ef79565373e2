/* host/base/installed.h: finds the files that are installed with the program, wherever the tree was moved to. */
#ifndef WEFT_HOST_BASE_INSTALLED_H
#define WEFT_HOST_BASE_INSTALLED_H

#include <stdbool.h>

#include "base/join.h"

/* Writes the absolute path of `name`, relative to the directory of the program `weft` ("plugins", "../share/weft"),
 * with links resolved. A tool in libexec/weft gets the same answer as `weft` itself. False: the file does not exist.
 * [any-thread] */
bool weft_beside_program(char out[WEFT_PATH_BYTES], const char *name);

#endif
