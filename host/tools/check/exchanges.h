/* host/tools/check/exchanges.h: every exchange of a communicator, among the ranks of a launch, with numbers that are
 * known before.
 *
 * Counts are 0, 1 and odd ones, the group is the world and two of its ranks in another order, and each exchange is
 * ended once by `wait`, once by `test` and once by `join`. What goes to another place is in error as much as what does
 * not come. At once: sixteen of them under way together, in the world and between two of its ranks, ended in six
 * orders. */
#ifndef WEFT_HOST_TOOLS_CHECK_EXCHANGES_H
#define WEFT_HOST_TOOLS_CHECK_EXCHANGES_H

#include "run/process_context.h"

/* seconds: that one exchange may take; this process ends with a line about it where it takes longer, whatever slot does
 * not come back. [collective] */
weft_status weft_exchanges_try(weft_process_context *process_context, bool at_once, double seconds, weft_error *err);

#endif
