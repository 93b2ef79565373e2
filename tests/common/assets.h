/* tests/common/assets.h: paths of real models, tokenizers and texts outside the project. A test without its asset
 * prints a line that starts with "skipped: ". */
#ifndef WEFT_TEST_ASSETS_H
#define WEFT_TEST_ASSETS_H

/* Returns the path of `name`; four results are valid at a time. WEFT_ASSETS is read at run time; a relative path starts
 * at the source directory. Default: ../shared/assets. */
const char *asset_path(const char *name);

#endif
