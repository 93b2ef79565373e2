/* host/base/tree.h: making and removing directories. */
#ifndef WEFT_HOST_BASE_TREE_H
#define WEFT_HOST_BASE_TREE_H

#include <stdbool.h>
#include <weft/base.h>

/* The directory and its parents; one that exists is fine. [any-thread] */
weft_status weft_tree_make(const char *path, weft_error *err);
/* A file, or a directory with all that is in it; links are removed, never followed. One that is not there is fine.
 * [main] */
weft_status weft_tree_remove(const char *path, weft_error *err);
/* Sets *out to whether the directory exists and holds a name that begins with `beginning`. [any-thread] */
weft_status weft_tree_has(bool *out, const char *path, const char *beginning, weft_error *err);
/* Calls visit for each name in the directory but "." and ".."; one that does not exist has none. Ends at the first
 * failure. [any-thread] */
weft_status weft_tree_visit(const char *path, weft_status (*visit)(void *context, const char *name, weft_error *err),
                            void *context, weft_error *err);

#endif
