/* host/report/contrast.h: what a configuration comes to, as names and values, and what differs between two of them.
 *
 *     {"keys": {"strategy.plugin": "ddp"}, "numbers": {"memory total": 14356896}}
 *
 * Bytes of memory are those of the rank that takes most; events and bytes sent are of all ranks together. */
#ifndef WEFT_HOST_REPORT_CONTRAST_H
#define WEFT_HOST_REPORT_CONTRAST_H

#include "report/survey.h"
#include "run/session.h"

#include <jansson.h>

weft_status weft_contrast_facts(json_t **out, const weft_session *session, const weft_survey *survey, weft_error *err);

/* {"keys": [{"name": ..., "a": ..., "b": ...}], "numbers": [...]}: what differs; null where one of them has it not. */
json_t *weft_contrast_make(const json_t *a, const json_t *b);
/* The same as a table; the names stand above the two columns. */
void weft_contrast_print(const json_t *difference, const char *name_a, const char *name_b, FILE *to);

#endif
