/* host/base/installed.c: see installed.h. */
#include "base/installed.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/* Removes the last component of a path. */
static void strip_name(char *path) {
    char *slash = strrchr(path, '/');
    if (slash != NULL) *slash = '\0';
}

/* Replaces a tool's directory libexec/weft: in a build tree or a bundle it is below the program's directory, else next
 * to bin. */
static void leave_libexec(char path[PATH_MAX]) {
    static const char below[] = "/libexec/weft";
    const size_t n = strlen(path), suffix = sizeof below - 1;
    char weft[PATH_MAX + sizeof "/weft"];
    if (n < suffix || strcmp(path + n - suffix, below) != 0) return;
    path[n - suffix] = '\0';
    (void)snprintf(weft, sizeof weft, "%s/weft", path);
    if (access(weft, X_OK) != 0) (void)strcat(path, "/bin"); /* shorter than the removed part */
}

bool weft_async_checkpoint_program(char out[WEFT_PATH_BYTES], const char *name) {
    char program[PATH_MAX], path[PATH_MAX + 256], real[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    int n;
    program[length > 0 ? length : 0] = '\0';
    if (program[0] != '/') return false;
    strip_name(program);
    leave_libexec(program);
    n = snprintf(path, sizeof path, "%s/%s", program, name);
    if (n < 0 || (size_t)n >= sizeof path || realpath(path, real) == NULL) return false;
    n = snprintf(out, WEFT_PATH_BYTES, "%s", real);
    return n >= 0 && n < WEFT_PATH_BYTES;
}
