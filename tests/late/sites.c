/* sites.c: see late.h. A wait is identified by its kind and call stack: four callers, as offsets into their files, so
 * that the number is the same in every run of a build.
 *
 *   WEFT_LATE_SITES=FILE    appends a line for each site of this process to FILE: kind, number, calls, and the callers
 *                           as file+offset, for addr2line
 *   WEFT_LATE_DROP=NUMBER   skips the waits of this site */
#include <dlfcn.h>
#include <execinfo.h>
#include <stdlib.h>

#include "late.h"

enum { FRAMES = 7, OWN = 2, CALLERS = 4, MOST_SITES = 256, MOST_LINE = 4096 };

static struct {
    const char *kind;
    uint64_t number;
    int64_t calls;
    void *callers[CALLERS];
} sites[MOST_SITES];
static int n_sites;
bool late_has_computed;

static uint64_t mix(uint64_t hash, uint64_t x) {
    hash ^= x;
    hash *= 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static uint64_t number_of(const char *kind, void *callers[CALLERS]) {
    void *frames[FRAMES] = {NULL};
    uint64_t hash = (uint64_t)kind[0];
    (void)backtrace(frames, FRAMES);
    for (int i = 0; i < CALLERS; i++) {
        Dl_info file;
        callers[i] = frames[OWN + i];
        if (callers[i] == NULL || dladdr(callers[i], &file) == 0) continue;
        hash = mix(hash, (uint64_t)((char *)callers[i] - (char *)file.dli_fbase));
    }
    return hash;
}

static void count(const char *kind, uint64_t number, void *const callers[CALLERS]) {
    int i = 0;
    while (i < n_sites && sites[i].number != number) i++;
    if (i == MOST_SITES) abort(); /* a test fails */
    if (i == n_sites) {
        sites[i].kind = kind;
        sites[i].number = number;
        memcpy(sites[i].callers, callers, sizeof sites[i].callers);
        n_sites++;
    }
    sites[i].calls++;
}

bool late_is_dropped(const char *kind, bool needed) {
    const char *drop = getenv("WEFT_LATE_DROP");
    void *callers[CALLERS];
    uint64_t number = 0;
    if (drop == NULL && getenv("WEFT_LATE_SITES") == NULL) return false;
    number = number_of(kind, callers);
    if (drop != NULL) return strtoull(drop, NULL, 16) == number;
    if (needed && late_has_computed) count(kind, number, callers);
    return false;
}

static void write_callers(FILE *file, void *const callers[CALLERS]) {
    for (int i = 0; i < CALLERS; i++) {
        Dl_info of;
        if (callers[i] == NULL || dladdr(callers[i], &of) == 0) continue;
        (void)fprintf(file, " %s+0x%zx", of.dli_fname, (size_t)((char *)callers[i] - (char *)of.dli_fbase));
    }
}

void late_write_sites(void) {
    const char *path = getenv("WEFT_LATE_SITES");
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    static char all[MOST_SITES * MOST_LINE];
    if (file == NULL) return;
    /* Other ranks write to the same file: all lines are appended in one write, so that they are not interleaved. */
    (void)setvbuf(file, all, _IOFBF, sizeof all);
    for (int i = 0; i < n_sites; i++) {
        (void)fprintf(file, "%s %016llx %lld", sites[i].kind, (unsigned long long)sites[i].number,
                      (long long)sites[i].calls);
        write_callers(file, sites[i].callers);
        (void)fputc('\n', file);
    }
    (void)fclose(file);
    n_sites = 0;
}
