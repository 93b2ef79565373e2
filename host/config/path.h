/* host/config/path.h: relative paths made absolute. Nothing is opened here. */
#ifndef WEFT_HOST_CONFIG_PATH_H
#define WEFT_HOST_CONFIG_PATH_H

/* directory (absolute) and path joined, without `.`, `..` and double slashes; a `..` behind a symbolic link stays,
 * since it does not lead back. An absolute path ignores directory; an empty one stays empty. To be freed; NULL: no
 * memory. */
char *weft_path_absolute(const char *directory, const char *path);

/* The real directory that a file's relative paths start at: that of `file`, or the working directory for NULL. To be
 * freed; NULL: errno says why. */
char *weft_path_home(const char *file);

#endif
