/* sites.c: see late.h. A wait is known by its kind and by who called: four calls up, as offsets into their files, so
 * that the number is the same in each run of one build.
 *
 *   WEFT_LATE_SITES=FILE    adds a line for each site of this process to FILE: kind, number, calls
 *   WEFT_LATE_DROP=NUMBER   that site's waits are left out */
#include <dlfcn.h>
#include <execinfo.h>
#include <stdlib.h>

#include "late.h"

enum { FRAMES = 7, OWN = 2, CALLERS = 4, MOST_SITES = 256 };

static struct {
    const char *kind;
    uint64_t number;
    int64_t calls;
} sites[MOST_SITES];
static int n_sites;

static uint64_t mix(uint64_t hash, uint64_t x) {
    hash ^= x;
    hash *= 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static uint64_t number_of(const char *kind) {
    void *frames[FRAMES];
    const int n = backtrace(frames, FRAMES);
    uint64_t hash = (uint64_t)kind[0];
    for (int i = OWN; i < n && i < OWN + CALLERS; i++) {
        Dl_info file;
        if (dladdr(frames[i], &file) == 0) continue;
        hash = mix(hash, (uint64_t)((char *)frames[i] - (char *)file.dli_fbase));
    }
    return hash;
}

bool late_is_dropped(const char *kind) {
    const char *drop = getenv("WEFT_LATE_DROP");
    uint64_t number = 0;
    int i = 0;
    if (drop == NULL && getenv("WEFT_LATE_SITES") == NULL) return false;
    number = number_of(kind);
    while (i < n_sites && sites[i].number != number) i++;
    if (i == n_sites && n_sites < MOST_SITES) {
        sites[i].kind = kind;
        sites[i].number = number;
        n_sites++;
    }
    if (i < n_sites) sites[i].calls++;
    return drop != NULL && strtoull(drop, NULL, 16) == number;
}

void late_write_sites(void) {
    const char *path = getenv("WEFT_LATE_SITES");
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    if (file == NULL) return;
    for (int i = 0; i < n_sites; i++)
        (void)fprintf(file, "%s %016llx %lld\n", sites[i].kind, (unsigned long long)sites[i].number,
                      (long long)sites[i].calls);
    (void)fclose(file);
    n_sites = 0;
}
