/* host/run/facts.h: facts that must be alike on all ranks, and the comparison.
 *
 * A list of facts is a text of lines "name<TAB>value". Rank 0's text goes to all, each rank compares its own with it,
 * and only what differs goes back: rank 0 never holds more than one other rank's differences. */
#ifndef WEFT_HOST_RUN_FACTS_H
#define WEFT_HOST_RUN_FACTS_H

#include "model/process_group.h"

#include <stdio.h>

typedef struct weft_facts {
    char *text;
    size_t bytes;
    FILE *file;  /* to write into */
    bool failed; /* no memory for a fact; kept until the comparison */
} weft_facts;

weft_status weft_facts_begin(weft_facts *self, weft_error *err);
void weft_facts_add(weft_facts *self, const char *name, const char *format, ...) WEFT_PRINTF(3, 4);

void weft_facts_drop(weft_facts *self); /* a zeroed one is fine */

/* Compares all ranks' facts, to which none can be added then. Where they differ rank 0 prints the differences to stderr
 * and has the sentence; the other ranks fail without one. what: "its plugins or its configuration". [collective] */
weft_status weft_facts_compare(weft_facts *self, const weft_process_group *peers, const char *what, weft_error *err);

#endif
