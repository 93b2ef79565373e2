/* tests/common/scratch.h: a temporary directory of the test, removed at its end, and files in it. */
#ifndef WEFT_TEST_SCRATCH_H
#define WEFT_TEST_SCRATCH_H

#include <stddef.h>

extern char scratch[128]; /* absolute, without symbolic links; empty before the first scratch_make */

void scratch_make(void);
void scratch_remove(void);
/* The same, as working directory. */
void scratch_enter(void);
void scratch_leave(void);

/* Returns the path of `name` in it; four results are valid at a time. */
const char *scratch_path(const char *name);

/* Removes the directory with its content. */
void remove_tree(const char *path);

/* Write and read complete files; a relative path starts at the working directory. The caller frees the result, which is
 * NUL-terminated; n may be NULL. */
void write_bytes(const char *path, const void *bytes, size_t n);
void write_text(const char *path, const char *text);
char *read_bytes(const char *path, size_t *n);
void check_same_file(const char *a, const char *b); /* fails the test otherwise */

#endif
