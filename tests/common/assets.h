/* tests/common/assets.h: real models, tokenizers and texts, which lie outside the project. A test that lacks one says
 * so in a line that begins with "skipped: ". */
#ifndef WEFT_TEST_ASSETS_H
#define WEFT_TEST_ASSETS_H

/* Path of `name` among them; four at a time. WEFT_ASSETS, as it is when the test runs, says where they are; a relative
 * one starts at the source directory. Without it: ../shared/assets. */
const char *asset_path(const char *name);

#endif
