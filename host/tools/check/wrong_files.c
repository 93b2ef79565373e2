/* host/tools/check/wrong_files.c: see wrong_files.h. */
#include "tools/check/wrong_files.h"

#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/random.h>

enum { JUNK = 5000, MOST_RIGHT = 1 << 26 };

const char *weft_wrong_name(weft_wrong wrong) {
    static const char *const names[] = {"a file that is not there", "a directory", "an empty file", "a file of junk",
                                        "a file that was cut"};
    return names[wrong];
}

bool weft_wrong_is_nothing(weft_wrong wrong) {
    return wrong <= WEFT_WRONG_EMPTY;
}

static weft_status make_junk(const char *path, weft_error *err) {
    char junk[JUNK];
    for (uint32_t i = 0; i < JUNK; i++) junk[i] = (char)(unsigned char)weft_random(3, WEFT_RANDOM_SAMPLE, 4, i).v[0];
    return weft_file_replace(path, junk, sizeof junk, err);
}

static weft_status make_cut(const char *path, const char *right, weft_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    weft_status status = weft_text_read(&text, &bytes, right, MOST_RIGHT, err);
    if (status == WEFT_OK) status = weft_file_replace(path, text, bytes / 3 * 2, err);
    free(text);
    return status;
}

weft_status weft_wrong_make(const char *path, weft_wrong wrong, const char *right, weft_error *err) {
    (void)unlink(path);
    (void)rmdir(path);
    switch (wrong) {
    case WEFT_WRONG_MISSING: return WEFT_OK;
    case WEFT_WRONG_DIRECTORY:
        if (mkdir(path, 0700) == 0) return WEFT_OK;
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be made: %s", path, strerror(errno));
    case WEFT_WRONG_EMPTY: return weft_file_replace(path, "", 0, err);
    case WEFT_WRONG_JUNK: return make_junk(path, err);
    default: return make_cut(path, right, err);
    }
}
