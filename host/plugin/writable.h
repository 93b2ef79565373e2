/* host/plugin/writable.h: checks whether only this user or root can change a file.
 *
 * Another user can change a file with write permission on it. A user with write permission on a directory of its path,
 * or the owner of such a directory, can replace the file, except for other users' files in a sticky directory such as
 * /tmp. The owner of a link in the path can redirect it. */
#ifndef WEFT_HOST_PLUGIN_WRITABLE_H
#define WEFT_HOST_PLUGIN_WRITABLE_H

#include <limits.h>
#include <stdbool.h>

enum { WEFT_WRITABLE_TEXT = 3 * PATH_MAX };

/* Returns true if another user can change the file. out then has the user, the path and the fix: "can be changed by
 * every user of this machine, who may write to /a/b: chmod o-w /a/b". If there are several, out has the one nearest to
 * the file. Both the path as given and its link targets are checked. Unreadable entries are skipped. [any-thread] */
bool weft_writable_by_others(char out[WEFT_WRITABLE_TEXT], const char *path);

#endif
