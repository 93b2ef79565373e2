/* For LD_PRELOAD: another process's file cannot be opened through /proc. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int open(const char *path, int flags, ...) {
    va_list args;
    mode_t mode = 0;
    va_start(args, flags);
    if (flags & O_CREAT) mode = va_arg(args, mode_t);
    va_end(args);
    if (strncmp(path, "/proc/", 6) == 0 && strstr(path, "/fd/") != NULL && (flags & O_NONBLOCK)) {
        errno = EACCES;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
