/* replay.c: runs a target on stored inputs, instead of libFuzzer: each file of the directory in the only argument,
 * truncations of it to one half and by one byte, and mutations of it, which are the same in every run. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MUTANTS = 4000, MOST_PIECE = 24 }; /* of all inputs together */

/* Allocates the exact size, so that a sanitizer detects a read beyond it. */
static void give(const unsigned char *bytes, size_t n) {
    unsigned char *own = malloc(n > 0 ? n : 1);
    if (own == NULL) abort();
    if (n > 0) memcpy(own, bytes, n);
    (void)LLVMFuzzerTestOneInput(own, n);
    free(own);
}

static uint64_t state;

/* Returns a number below n. */
static size_t pick(size_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)((state >> 33) % n);
}

/* Inserts a piece, deletes or repeats a range, or changes a byte. The buffer has room for MOST_PIECE more bytes.
 * Returns the new length. */
static size_t mutate(unsigned char *bytes, size_t n) {
    static const char *const pieces[] = {"{",    "}",    "[",     "]",    "\"",   "\\",   ",",        ":",   "=",
                                         "#",    "\n",   "\r\n",  "none", "auto", "-1",   "1e9",      "300", "%",
                                         "null", "true", "..",    "/",    "\xff", "\x01", "\xC3\xA4", " ",   "[]",
                                         "{}",   "\"\"", "\"a\"", "[[",   "]] x", "u-e"};
    const char *piece = pieces[pick(sizeof pieces / sizeof *pieces)];
    const size_t length = strlen(piece), at = pick(n + 1), range = pick(MOST_PIECE),
                 some = range < n - at ? range : n - at;
    switch (pick(4)) {
    case 0:
        memmove(bytes + at + length, bytes + at, n - at);
        memcpy(bytes + at, piece, length);
        return n + length;
    case 1: memmove(bytes + at, bytes + at + some, n - at - some); return n - some;
    case 2: memmove(bytes + at + some, bytes + at, n - at); return n + some;
    default:
        if (at < n) bytes[at] = (unsigned char)pick(256);
        return n;
    }
}

static int replay(const char *path, int mutants) {
    static unsigned char bytes[1 << 20], mutant[sizeof bytes + 4 * MOST_PIECE];
    size_t n = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    n = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    give(bytes, n);
    give(bytes, n / 2);
    give(bytes, n > 0 ? n - 1 : 0);
    state = n;
    for (int i = 0; i < mutants; i++) {
        size_t length = n;
        memcpy(mutant, bytes, n);
        for (size_t times = 1 + pick(4); times > 0; times--) length = mutate(mutant, length);
        give(mutant, length);
    }
    return 1;
}

int main(int argc, char **argv) {
    char path[4096];
    int n = 0, files = 0;
    DIR *directory = argc == 2 ? opendir(argv[1]) : NULL;
    const struct dirent *entry = NULL;
    while (directory != NULL && (entry = readdir(directory)) != NULL) files += entry->d_name[0] != '.';
    if (directory != NULL) rewinddir(directory);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        n += replay(path, MUTANTS / files);
    }
    if (directory != NULL) (void)closedir(directory);
    (void)printf("%d inputs\n", n);
    return n > 0 ? 0 : 1; /* a target without inputs would not be tested */
}
