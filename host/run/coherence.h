/* host/run/coherence.h: comparison of the facts that must be identical on all ranks before training: host, plugin
 * files, configuration, device, model, weights, data, and the answers of plugins up to the programs of all ranks. */
#ifndef WEFT_HOST_RUN_COHERENCE_H
#define WEFT_HOST_RUN_COHERENCE_H

#include "model/process_group.h"
#include "program/plan.h"

/* Facts are lines "name<TAB>value" of an allocated text; NULL: none. Rank 0's text is sent to all, each rank compares
 * its own with it, and only differences go back: rank 0 never holds more than one other rank's differences. */
void weft_facts_add(char **facts, const char *name, const char *value);

/* Compares all ranks' facts. Rank 0 prints the differences to stderr and gets the message; the other ranks fail without
 * one. what: "plugins or configuration". [collective] */
weft_status weft_facts_compare(const char *facts, const weft_process_group *peers, const char *what, weft_error *err);

/* These take the status of this rank so far: a failure on one rank ends all. peers: all ranks of the process context;
 * NULL: nothing is compared. [collective] */
weft_status weft_coherence_run(const weft_process_group *peers, const weft_run *run, const weft_device_info *device,
                               weft_status status, weft_error *err);
/* rows: the fingerprint of the data. declared: may be NULL after a failure. */
weft_status weft_coherence_data(const weft_process_group *peers, const weft_declared *declared, uint64_t rows,
                                weft_status status, weft_error *err);
/* Names, sizes and content of the files that the run starts from; nothing under start = fresh. */
weft_status weft_coherence_weights(const weft_process_group *peers, const weft_run *run, weft_status status,
                                   weft_error *err);
/* The answers of plugins so far. A difference is reported with the first plugin that answers differently. */
weft_status weft_coherence_answers(const weft_process_group *peers, const weft_plan *plan, weft_status status,
                                   weft_error *err);

#endif
