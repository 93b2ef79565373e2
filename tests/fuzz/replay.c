/* replay.c: gives a target the inputs that are kept, in place of libFuzzer: each file of the directory that the only
 * argument names, and what is left of each when half of it or its last byte is gone. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* Exactly as large as the input, so that a sanitizer sees the first byte behind it read. */
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
    return n > 0 ? 0 : 1; /* a target without an input is tested by nothing */
}
