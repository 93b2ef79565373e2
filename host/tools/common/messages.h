/* host/tools/common/messages.h: parts of messages that one tool prints and another one recognizes. */
#ifndef WEFT_HOST_TOOLS_COMMON_MESSAGES_H
#define WEFT_HOST_TOOLS_COMMON_MESSAGES_H

/* `weft prove` has no reference: two ranks that train by themselves get different results. */
#define WEFT_PROVE_APART "the two compute differently"

#endif
