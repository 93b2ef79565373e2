/* host/plugin/writable.h: whether what lies at a path is this user's alone to change, or root's.
 *
 * Who may write to a file changes it. Who may write to a directory on the way to it, or owns one, puts another file
 * there, but for others' files in a directory with the sticky bit, as /tmp has it. Who owns a link on the way has it
 * lead elsewhere. */
#ifndef WEFT_HOST_PLUGIN_WRITABLE_H
#define WEFT_HOST_PLUGIN_WRITABLE_H

#include <limits.h>
#include <stdbool.h>

enum { WEFT_WRITABLE_TEXT = 3 * PATH_MAX };

/* True: somebody else can, and out says who, by which path, and what to do: "can be changed by every user of this
 * machine, who may write to /a/b: chmod o-w /a/b". Of several the one next to the file. Links are followed as they lie:
 * what matters is the way as it is given and the one that it leads to. What cannot be looked at is passed over.
 * [any-thread] */
bool weft_writable_by_others(char out[WEFT_WRITABLE_TEXT], const char *path);

#endif
