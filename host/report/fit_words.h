/* host/report/fit_words.h: messages about a fit, and the phrases that they share with tables. */
#ifndef WEFT_HOST_REPORT_FIT_WORDS_H
#define WEFT_HOST_REPORT_FIT_WORDS_H

#include "base/units.h"
#include "report/check_fit.h"

/* Sets the error for a plan that does not fit. Returns WEFT_E_MEMORY. */
weft_status weft_fit_refuse(const weft_fit *fit, weft_error *err);

/* Warns if a fitting plan needs memory that other processes use now. */
void weft_fit_warn(const weft_fit *fit, const weft_host *host);

/* ---- phrases ---- */

/* Returns " of 4 ranks", the ranks that share the memory; "" for one rank. */
const char *weft_fit_together(char out[32], const weft_fit *fit);

/* Returns true if each of several ranks has its own device or a part of one: then the fullest is identified by its
 * rank. */
bool weft_fit_is_a_ranks(const weft_fit *fit);
/* Returns the owner of the memory, "rank 1's device", as the subject of a verb. */
const char *weft_fit_owner(char out[48], const weft_fit *fit);

/* Returns the available bytes; memory that others use completely is shown as one byte. */
const char *weft_fit_room_bytes(char out[WEFT_UNIT_SIZE], const weft_available_memory *room);

/* Returns the largest memory category. */
const char *weft_fit_largest(const weft_fit *fit);

/* Returns the i-th command-line word of a change: its keys, and its ranks if they differ. Returns false past the end.
 */
bool weft_fit_change_word(char *out, size_t size, const weft_fit_change *change, int32_t i);

#endif
