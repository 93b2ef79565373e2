/* host/tools/check/wrong_files.h: files that are not what a plugin reads. */
#ifndef WEFT_HOST_TOOLS_CHECK_WRONG_FILES_H
#define WEFT_HOST_TOOLS_CHECK_WRONG_FILES_H

#include <stdbool.h>
#include <weft/base.h>

typedef enum weft_wrong {
    WEFT_WRONG_MISSING = 0,
    WEFT_WRONG_DIRECTORY = 1,
    WEFT_WRONG_EMPTY = 2,
    WEFT_WRONG_JUNK = 3, /* bytes of any value */
    WEFT_WRONG_CUT = 4,  /* the first two thirds of a right one, which may be right, too */
    WEFT_N_WRONG = 5
} weft_wrong;

const char *weft_wrong_name(weft_wrong wrong); /* "an empty file" */
/* Nothing of it can be read. */
bool weft_wrong_is_nothing(weft_wrong wrong);

/* Puts it to `path`, where something wrong may be already; right: the file that it is in place of. [main] */
weft_status weft_wrong_make(const char *path, weft_wrong wrong, const char *right, weft_error *err);

#endif
