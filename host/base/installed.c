/* host/base/installed.c: see installed.h. */
#include "base/installed.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

bool weft_beside_program(char out[WEFT_PATH_BYTES], const char *name) {
    char program[PATH_MAX], path[PATH_MAX + 256], real[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    int n;
    program[length > 0 ? length : 0] = '\0';
    if (program[0] != '/') return false;
    *strrchr(program, '/') = '\0';
    n = snprintf(path, sizeof path, "%s/%s", program, name);
    if (n < 0 || (size_t)n >= sizeof path || realpath(path, real) == NULL) return false;
    n = snprintf(out, WEFT_PATH_BYTES, "%s", real);
    return n >= 0 && n < WEFT_PATH_BYTES;
}
