/* host/tools/check/conversations.h: a tokenizer that renders conversations is given some as a later host's data plugins
 * have them, and as none has them. */
#ifndef WEFT_HOST_TOOLS_CHECK_CONVERSATIONS_H
#define WEFT_HOST_TOOLS_CHECK_CONVERSATIONS_H

#include <weft/tokenizer.h>

/* One whose structs are longer and zero there has the same text and ids; one that asks for more, or that is shorter
 * than SDK 1.0 has it, is refused with a sentence. A tokenizer without the extension or without a template holds it.
 * [main] */
weft_status weft_conversations_later(const weft_tokenizer_plugin *table, const weft_tokenizer *made, weft_error *err);

#endif
