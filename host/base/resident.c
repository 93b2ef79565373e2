/* host/base/resident.c: see resident.h. */
#include "base/resident.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

/* Reads a line of this process's status, "VmHWM:"; 0: unknown. */
static int64_t read_status_line(const char *field) {
    char line[256];
    long long kib = 0;
    const size_t n = strlen(field);
    FILE *status = fopen("/proc/self/status", "re");
    if (status == NULL) return 0;
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, field, n) == 0 && sscanf(line + n, "%lld kB", &kib) == 1) break;
    (void)fclose(status);
    return kib * 1024;
}

int64_t weft_resident_peak(void) {
    return read_status_line("VmHWM:");
}

int64_t weft_resident_now(void) {
    return read_status_line("VmRSS:");
}

int64_t weft_library_bytes(void) {
    const struct mallinfo2 info = mallinfo2();
    return (int64_t)(info.uordblks + info.hblkhd);
}
