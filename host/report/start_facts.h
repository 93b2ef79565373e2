/* host/report/start_facts.h: the request and the environment of a training process, as one object of starts.jsonl. */
#ifndef WEFT_HOST_REPORT_START_FACTS_H
#define WEFT_HOST_REPORT_START_FACTS_H

#include "run/session.h"

#include <jansson.h>

/* Returns the object on rank 0. planned: of weft_planned_array; ownership is transferred. NULL: no memory. */
json_t *weft_start_facts(const weft_session *session, bool resumed, json_t *planned);

#endif
