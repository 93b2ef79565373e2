/* slow_disk: simulates a slow disk, for programs started with it in LD_PRELOAD.
 *
 *     SLOW_DISK=.step-4.tmp/model SLOW_UNTIL=go LD_PRELOAD=.../slow_disk.so weft train run.ini
 *
 * fsync of a file with SLOW_DISK in its path does not return before the file SLOW_UNTIL exists, or for SLOW_SECONDS if
 * set. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int is_slow(int descriptor) {
    const char *part = getenv("SLOW_DISK");
    char link[64], path[PATH_MAX];
    ssize_t n = 0;
    if (part == NULL) return 0;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    return strstr(path, part) != NULL;
}

static void pass_seconds(double seconds) {
    const struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&time, NULL);
}

int fsync(int descriptor) {
    int (*real)(int) = NULL;
    const char *until = getenv("SLOW_UNTIL"), *seconds = getenv("SLOW_SECONDS");
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    if (is_slow(descriptor)) {
        if (seconds != NULL) pass_seconds(strtod(seconds, NULL));
        while (until != NULL && access(until, F_OK) != 0) pass_seconds(0.01);
    }
    return real(descriptor);
}
