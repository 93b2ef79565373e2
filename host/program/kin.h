/* host/program/kin.h: the plugins of a part's kind that are not chosen, so far as a configuration speaks of them.
 *
 * [strategy.fsdp] is idle while ddp is chosen: its keys are judged, kept with the run, and have no effect. A key of
 * fsdp that stands in [strategy] itself is refused then, by the name of the section that it belongs to. */
#ifndef WEFT_HOST_PROGRAM_KIN_H
#define WEFT_HOST_PROGRAM_KIN_H

#include "program/run.h"

/* Asks the plugin of each idle section of the part for its keys and declares them. WEFT_E_USER: there is none.
 * One that is there and cannot be used here is told as a warning: its section is kept as it is. */
weft_status weft_kin_declare(weft_run *run, int32_t part, weft_error *err);

/* Refuses unknown keys of the idle sections of all parts ... */
weft_status weft_kin_check_keys(const weft_run *run, weft_error *err);
/* ... keys of adapters where none is chosen, which would be trained without in silence ... */
weft_status weft_kin_check_adapters(const weft_run *run, weft_error *err);
/* ... and values that their keys do not take. */
weft_status weft_kin_judge(weft_run *run, weft_error *err);

/* For a key in the part's section that the chosen plugin does not have or offer: whose it is and where to put it, if
 * another plugin of the kind has it. */
weft_status weft_kin_refuse(const weft_run *run, int32_t part, const char *key, weft_error *err);

/* Refuses so what is not at its default of the host's keys that the chosen plugin of the part does not offer. */
weft_status weft_kin_check_offers(const weft_run *run, int32_t part, weft_error *err);

/* The same in a plugin's own section, where a key of the host must be one that the plugin offers (its flags). */
weft_status weft_kin_refuse_own(const weft_run *run, int32_t part, const char *section, uint32_t flags,
                                weft_error *err);

/* Frees what weft_kin_declare has kept in the run. */
void weft_kin_forget(weft_run *run);

#endif
