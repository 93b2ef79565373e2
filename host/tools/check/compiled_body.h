/* host/tools/check/compiled_body.h: an update's body compiled from its text, apart from the file that it comes in. */
#ifndef WEFT_HOST_TOOLS_CHECK_COMPILED_BODY_H
#define WEFT_HOST_TOOLS_CHECK_COMPILED_BODY_H

#include <weft/optimizer.h>

typedef void weft_body_fn(const weft_elementwise_call *call);

/* Compiles the text as a device does: with its hp, its range and <math.h>, and without contraction of products and
 * sums. Works in the current directory; the function stays loaded. WEFT_E_UNSUPPORTED: no C compiler ($CC, cc, gcc,
 * clang) is here. WEFT_E_PLUGIN: the text does not compile by itself. hp_bytes: of the struct. [main] */
weft_status weft_body_compile(weft_body_fn **out, int64_t *hp_bytes, const weft_elementwise *update, weft_error *err);

#endif
