/* host/launch/proc.c: see proc.h. */
#include "launch/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

weft_proc weft_proc_read(int32_t pid) {
    weft_proc out = {0, -1, ' '};
    char path[64], text[1024];
    const char *at = NULL, *last = NULL;
    FILE *file = NULL;
    size_t n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL) return out;
    n = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    while (n > 0 && text[n - 1] == '\n') n--;
    text[n] = '\0';
    at = strrchr(text, ')'); /* the preceding name may contain any character */
    last = strrchr(text, ' ');
    if (at == NULL || strlen(at) < 4 || last == NULL) return out;
    out.state = at[2];
    out.parent = (int32_t)strtol(at + 3, NULL, 10);
    if (out.state == 'Z') out.status = (int32_t)strtol(last, NULL, 10);
    return out;
}

bool weft_proc_runs(int32_t pid, const char *program) {
    struct stat asked, its;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    return stat(program, &asked) == 0 && stat(path, &its) == 0 && asked.st_dev == its.st_dev &&
           asked.st_ino == its.st_ino;
}
