/* host/launch/ancestor.c: see ancestor.h. */
#include "launch/ancestor.h"

#include "launch/proc.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Reads the path in "...\nlaunch=/usr/bin/mpiexec -n {ranks}\n...". */
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

static int find_launcher(const char *note) {
    char launcher[PATH_MAX];
    int pid = (int)getppid();
    if (!read_launcher(launcher, note)) return 0;
    for (; pid > 1; pid = weft_proc_read(pid).parent)
        if (weft_proc_runs(pid, launcher)) return pid;
    return 0;
}

weft_ancestor weft_ancestor_find(const char *note) {
    weft_ancestor out = {-1, -1};
    const int pid = find_launcher(note);
    char path[64];
    if (pid == 0) return out;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/2", pid);
    out.process = (int)syscall(SYS_pidfd_open, pid, 0);
    out.voice = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
    if (out.process < 0 || out.voice < 0) weft_ancestor_close(&out);
    return out;
}

void weft_ancestor_close(weft_ancestor *self) {
    if (self->process >= 0) (void)close(self->process);
    if (self->voice >= 0) (void)close(self->voice);
    self->process = self->voice = -1;
}
