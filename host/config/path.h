/* host/config/path.h: makes relative paths absolute. Opens no file. */
#ifndef WEFT_HOST_CONFIG_PATH_H
#define WEFT_HOST_CONFIG_PATH_H

/* Joins directory (absolute) and path, without `.`, `..` and double slashes. A `..` after a symbolic link is kept,
 * because it does not lead back. An absolute path ignores directory; an empty one remains empty. The caller frees the
 * result. */
char *weft_path_absolute(const char *directory, const char *path);

/* Returns the real base directory for the relative paths of `file`, or the working directory for NULL. The caller frees
 * it; NULL: see errno. */
char *weft_path_home(const char *file);

#endif
