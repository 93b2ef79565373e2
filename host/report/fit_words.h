/* host/report/fit_words.h: what is said of a fit: the sentences, and the words that they have in common with tables. */
#ifndef WEFT_HOST_REPORT_FIT_WORDS_H
#define WEFT_HOST_REPORT_FIT_WORDS_H

#include "base/units.h"
#include "report/judge_fit.h"

/* Of one that does not fit. Returns WEFT_E_MEMORY. */
weft_status weft_fit_refuse(const weft_fit *fit, weft_error *err);

/* What can be known to go wrong though it fits: what others hold now is taken from them. */
void weft_fit_warn(const weft_fit *fit, const weft_host *host);

/* ---- words ---- */

/* " of 4 ranks": who wants it together; "": one rank. */
const char *weft_fit_together(char out[32], const weft_fit *fit);

/* Of several ranks each has a device of its own, or a part of one: the fullest is told by its rank. */
bool weft_fit_is_a_ranks(const weft_fit *fit);
/* "rank 1's device" has them; in front of a verb. */
const char *weft_fit_owner(char out[48], const weft_fit *fit);

/* Its bytes; a room of which others have all is given as one byte. */
const char *weft_fit_room_bytes(char out[WEFT_UNIT_SIZE], const weft_room *room);

/* The category that takes most. */
const char *weft_fit_largest(const weft_fit *fit);

/* The i-th of the words that a change consists of, as they are typed: its keys, and its ranks where those are others.
 * False: it has fewer. */
bool weft_fit_change_word(char *out, size_t size, const weft_fit_change *change, int32_t i);

#endif
