/* tests/common/assets.c: see assets.h. */
#include "assets.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

const char *asset_path(const char *name) {
    static char paths[4][4096];
    static int next;
    const char *assets = getenv("WEFT_ASSETS"), *source = getenv("WEFT_SOURCE");
    char *path = paths[next = (next + 1) % 4];
    if (assets == NULL || *assets == '\0') assets = "../shared/assets";
    ck_assert_msg(*assets == '/' || source != NULL, "WEFT_SOURCE is not set: ctest sets it");
    if (*assets == '/') ck_assert_int_lt(snprintf(path, sizeof paths[0], "%s/%s", assets, name), (int)sizeof paths[0]);
    else ck_assert_int_lt(snprintf(path, sizeof paths[0], "%s/%s/%s", source, assets, name), (int)sizeof paths[0]);
    return path;
}
