/* host/program/adapters.h: which adapters [adapter] plugin asks for: one, as of any kind, or a list of ids.
 *
 *     [adapter]
 *     plugin = lora, mlp-head
 *
 * One has its keys in [adapter] or in a section of its own; each of several in its own alone, [adapter.lora]. */
#ifndef WEFT_HOST_PROGRAM_ADAPTERS_H
#define WEFT_HOST_PROGRAM_ADAPTERS_H

#include "program/run.h"

/* run->adapters, once run->adapter is known; none where the key says so. A list that names one twice, or what cannot
 * stand in it, is refused at its line. */
weft_status weft_adapters_find(weft_run *run, weft_error *err);
void weft_adapters_forget(weft_run *run);

/* There is none, and nobody says so: neither `plugin = none` nor a directory to read one from. */
bool weft_adapters_unnamed(const weft_run *run);

/* Refuses a key of an adapter there, with the line that is missing: "plugin = lora". */
weft_status weft_adapters_refuse_idle(const weft_run *run, const char *section, const char *key, const char *line,
                                      weft_error *err);

/* The number among them that the part stands for; -1: the part is of another kind. */
int32_t weft_adapter_of_part(int32_t part);

/* The plugins' ids as a list has them; "": none is loaded. */
void weft_adapters_print(char *out, size_t size, const weft_run *run);

#endif
