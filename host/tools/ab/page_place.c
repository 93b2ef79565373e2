/* host/tools/ab/page_place.c: see page_place.h. */
#include "tools/ab/page_place.h"

#include "base/file.h"

#include <sys/stat.h>

weft_status weft_ab_page_try(const char *path, weft_error *err) {
    weft_file file;
    struct stat at;
    if (stat(path, &at) == 0 && S_ISDIR(at.st_mode))
        return weft_error_set(err, WEFT_E_USER, "--html %s is a directory: give the name of a file", path);
    if (weft_file_begin(&file, path, err) == NULL) return weft_error_prefix(err, "--html: ");
    weft_file_cancel(&file);
    return WEFT_OK;
}
