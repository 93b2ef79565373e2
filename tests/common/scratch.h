/* tests/common/scratch.h: a directory of the test's own that goes away with it, and files in it. */
#ifndef WEFT_TEST_SCRATCH_H
#define WEFT_TEST_SCRATCH_H

#include <stddef.h>

extern char scratch[128]; /* absolute and without links; empty before the first scratch_make */

void scratch_make(void);
void scratch_remove(void);
/* The same, and it is the working directory meanwhile. */
void scratch_enter(void);
void scratch_leave(void);

/* Path of `name` in it; four at a time. */
const char *scratch_path(const char *name);

/* The directory and all in it. */
void remove_tree(const char *path);

/* Whole files; a relative path starts at the working directory. What is read ends in a NUL and is the caller's to free;
 * n may be NULL. */
void write_bytes(const char *path, const void *bytes, size_t n);
void write_text(const char *path, const char *text);
char *read_bytes(const char *path, size_t *n);

#endif
