/* host/tools/common/messages.h: prints text of files, and has message texts that one tool prints and another one
 * matches. */
#ifndef WEFT_HOST_TOOLS_COMMON_MESSAGES_H
#define WEFT_HOST_TOOLS_COMMON_MESSAGES_H

#include <weft/base.h>

/* `weft prove` has no reference run: two ranks that trained independently have different results. */
#define WEFT_PROVE_APART "the two results differ"

/* Prints sanitized text to a stream. Prints no text without memory. */
void weft_words_print(FILE *to, const char *format, ...) WEFT_PRINTF(2, 3);

#endif
