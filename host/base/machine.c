/* host/base/machine.c: see machine.h. */
#include "base/machine.h"

#include "base/units.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = 4096 };

/* A hierarchy of control groups and its files. The limit of a group also applies to all groups below it. */
typedef struct hierarchy {
    const char *mount, *line; /* mount point; start of its line in /proc/self/cgroup after the number */
    const char *limit, *used;
    const char *cache; /* in memory.stat: reclaimable page cache */
} hierarchy;

static const hierarchy hierarchies[] = {
    {"/sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file"},
    {"/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
};

/* Returns the number after `name` at the start of a line, or the first number if name is ""; -1: missing or "max". */
static int64_t read_field(const char *root, const char *directory, const char *file, const char *name) {
    char path[PATH_SIZE], line[256];
    const size_t n = strlen(name);
    long long value = -1;
    FILE *stream = NULL;
    const int length = snprintf(path, sizeof path, "%s%s/%s", root, directory, file);
    if (length < 0 || (size_t)length >= sizeof path || (stream = fopen(path, "re")) == NULL) return -1;
    while (value < 0 && fgets(line, sizeof line, stream) != NULL) {
        if (strncmp(line, name, n) != 0 || (n > 0 && line[n] != ' ' && line[n] != ':')) continue;
        if (sscanf(line + n + (line[n] == ':'), "%lld", &value) != 1) value = -1;
        if (n == 0) break;
    }
    (void)fclose(stream);
    return value;
}

/* Finds the group of this process: "4:memory:/batch/job" or "0::/batch/job". Returns false if it has no group. */
static bool find_group(char group[PATH_SIZE], const char *root, const hierarchy *of) {
    char path[PATH_SIZE], line[PATH_SIZE];
    bool found = false;
    FILE *stream = NULL;
    const int length = snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (length < 0 || (size_t)length >= sizeof path || (stream = fopen(path, "re")) == NULL) return false;
    while (!found && fgets(line, sizeof line, stream) != NULL) {
        char *names = strchr(line, ':'), *at = names == NULL ? NULL : strchr(names + 1, ':');
        if (at == NULL) continue;
        at[0] = '\0';
        (void)snprintf(group, PATH_SIZE, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
        found = strcmp(names + 1, of->line) == 0;
        for (names++; !found && names != NULL;) found = strcmp(strsep(&names, ","), of->line) == 0;
    }
    (void)fclose(stream);
    return found;
}

/* Applies the limits of the group and its ancestors. A container may not see its own group's directory, only the root
 * of its mount, which then is its group. */
static void hold_to_groups(weft_machine_memory *out, const char *root, const hierarchy *of) {
    char group[PATH_SIZE], directory[2 * PATH_SIZE];
    if (!find_group(group, root, of)) return;
    for (;;) {
        char *last = strrchr(group, '/');
        int64_t limit = 0, left = 0;
        (void)snprintf(directory, sizeof directory, "%s%s", of->mount, strcmp(group, "/") == 0 ? "" : group);
        limit = read_field(root, directory, of->limit, "");
        left = limit - weft_larger(0, read_field(root, directory, of->used, "")) +
               weft_larger(0, read_field(root, directory, "memory.stat", of->cache));
        if (limit >= 0 && limit < out->total) {
            out->total = limit;
            out->limited = true;
            out->free = weft_smaller(out->free, weft_larger(0, left));
        }
        if (last == NULL || group[0] == '\0') return;
        *last = '\0';
    }
}

void weft_machine_memory_read(weft_machine_memory *out, const char *root) {
    const int64_t total = read_field(root, "/proc", "meminfo", "MemTotal");
    const int64_t available = read_field(root, "/proc", "meminfo", "MemAvailable");
    memset(out, 0, sizeof *out);
    if (total <= 0) return;
    out->total = total * 1024;
    out->free = available >= 0 ? available * 1024 : out->total;
    for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++) hold_to_groups(out, root, &hierarchies[i]);
}

int64_t weft_resident_peak(void) {
    return 1024 * weft_larger(0, read_field("", "/proc/self", "status", "VmHWM"));
}

int64_t weft_resident_now(void) {
    return 1024 * weft_larger(0, read_field("", "/proc/self", "status", "VmRSS"));
}

int64_t weft_library_bytes(void) {
    const struct mallinfo2 info = mallinfo2();
    return (int64_t)(info.uordblks + info.hblkhd);
}
