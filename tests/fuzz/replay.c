/* replay.c: runs a target on stored inputs, instead of libFuzzer: each file of the directory in the only argument, and
 * truncations of it to one half and by one byte. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* Allocates the exact size, so that a sanitizer detects a read beyond it. */
static void give(const unsigned char *bytes, size_t n) {
    unsigned char *own = malloc(n > 0 ? n : 1);
    if (own == NULL) abort();
    for (size_t i = 0; i < n; i++) own[i] = bytes[i];
    (void)LLVMFuzzerTestOneInput(own, n);
    free(own);
}

static int replay(const char *path) {
    static unsigned char bytes[1 << 20];
    size_t n = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    n = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    give(bytes, n);
    give(bytes, n / 2);
    give(bytes, n > 0 ? n - 1 : 0);
    return 1;
}

int main(int argc, char **argv) {
    char path[4096];
    int n = 0;
    DIR *directory = argc == 2 ? opendir(argv[1]) : NULL;
    for (const struct dirent *entry = NULL; directory != NULL && (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        n += replay(path);
    }
    if (directory != NULL) (void)closedir(directory);
    (void)printf("%d inputs\n", n);
    return n > 0 ? 0 : 1; /* a target without inputs would not be tested */
}
