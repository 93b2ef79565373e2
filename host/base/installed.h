/* host/base/installed.h: what lies beside the program, wherever its tree was moved to. */
#ifndef WEFT_HOST_BASE_INSTALLED_H
#define WEFT_HOST_BASE_INSTALLED_H

#include <stdbool.h>

#include "base/join.h"

/* The absolute path of `name`, seen from the program's directory ("plugins", "../share/weft"), without links. False:
 * it is not there. [any-thread] */
bool weft_beside_program(char out[WEFT_PATH_BYTES], const char *name);

#endif
