/* host/tools/init/lengths.h: how long the documents of a session's data are, in places of a row. */
#ifndef WEFT_HOST_TOOLS_INIT_LENGTHS_H
#define WEFT_HOST_TOOLS_INIT_LENGTHS_H

#include "run/session.h"

/* What 95 of 100 documents do not exceed, of those in some hundred rows; a longer one counts with its windows. */
weft_status weft_lengths_most(int64_t *out, const weft_session *session, weft_error *err);

#endif
