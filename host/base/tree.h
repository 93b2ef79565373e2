/* host/base/tree.h: creates and removes directories. */
#ifndef WEFT_HOST_BASE_TREE_H
#define WEFT_HOST_BASE_TREE_H

#include <stdbool.h>
#include <weft/base.h>

/* Creates the directory and its parents; one that exists is fine. [any-thread] */
weft_status weft_tree_make(const char *path, weft_error *err);
/* Removes a file or a directory tree. Links are removed, never followed. A missing path is fine. [main] */
weft_status weft_tree_remove(const char *path, weft_error *err);
/* Sets *out to whether the directory exists and contains a name that begins with `beginning`. [any-thread] */
weft_status weft_tree_has(bool *out, const char *path, const char *beginning, weft_error *err);
/* Calls visit for each name in the directory except "." and "..". A missing directory counts as empty. Stops at the
 * first failure. [any-thread] */
weft_status weft_tree_visit(const char *path, weft_status (*visit)(void *context, const char *name, weft_error *err),
                            void *context, weft_error *err);

#endif
