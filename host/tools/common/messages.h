/* host/tools/common/messages.h: message texts that one tool prints and another one matches. */
#ifndef WEFT_HOST_TOOLS_COMMON_MESSAGES_H
#define WEFT_HOST_TOOLS_COMMON_MESSAGES_H

/* `weft prove` has no reference run: two ranks that trained independently have different results. */
#define WEFT_PROVE_APART "the two results differ"

#endif
