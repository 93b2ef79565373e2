/* host/launch/ancestor.c: see ancestor.h. */
#include "launch/ancestor.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int parent_of(int pid) {
    char path[64], line[256];
    int parent = 0;
    FILE *file = NULL;
    (void)snprintf(path, sizeof path, "/proc/%d/status", pid);
    file = fopen(path, "re");
    while (file != NULL && parent == 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "PPid: %d", &parent) != 1) parent = 0;
    if (file != NULL) (void)fclose(file);
    return parent;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/* "...\nlaunch=/usr/bin/mpiexec -n {ranks}\n...": the path. */
static bool read_launcher(char out[PATH_MAX], const char *note) {
    const char *at = note;
    while (at != NULL && strncmp(at, "launch=", 7) != 0) {
        at = strchr(at, '\n');
        if (at != NULL) at++;
    }
    if (at == NULL) return false;
    (void)snprintf(out, PATH_MAX, "%.*s", (int)strcspn(at + 7, " \n"), at + 7);
    return true;
}

int weft_ancestor_stderr(const char *note) {
    char launcher[PATH_MAX], path[64];
    if (!read_launcher(launcher, note)) return -1;
    for (int pid = parent_of(getpid()); pid > 1; pid = parent_of(pid)) {
        (void)snprintf(path, sizeof path, "/proc/%d/exe", pid);
        if (!is_same_file(path, launcher)) continue;
        (void)snprintf(path, sizeof path, "/proc/%d/fd/2", pid);
        return open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
    }
    return -1;
}
