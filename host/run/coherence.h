/* host/run/coherence.h: before anything is trained, the ranks prove to each other that they are about to do the
 * same: the same host, plugin files, configuration, device, model, weights and data, and the same answers of plugins,
 * to the programs of all ranks. */
#ifndef WEFT_HOST_RUN_COHERENCE_H
#define WEFT_HOST_RUN_COHERENCE_H

#include "run/state.h"

/* Each takes the status of what went before on this rank, so that a failure on one rank alone ends all. peers: all
 * ranks of the process context; NULL: nothing is compared. [collective] */
weft_status weft_coherence_run(const weft_process_group *peers, const weft_run *run, const weft_device_info *device,
                               weft_status status, weft_error *err);
/* declared: not looked at where the status says failure. rows: the fingerprint of the data. */
weft_status weft_coherence_data(const weft_process_group *peers, const weft_declared *declared, uint64_t rows,
                                weft_status status, weft_error *err);
/* Of the files that the run starts from, names, sizes and all bytes, as files.h says; nothing under start = fresh. */
weft_status weft_coherence_weights(const weft_process_group *peers, const weft_run *run, weft_status status,
                                   weft_error *err);
/* What plugins have answered by now, from the model's parameters to the programs: a difference is told with the name of
 * the first that answers otherwise. */
weft_status weft_coherence_answers(const weft_process_group *peers, const weft_engine *engine, weft_status status,
                                   weft_error *err);

/* The peers of an engine that has the process context to itself; NULL: it has a rank span among others. */
const weft_process_group *weft_coherence_peers(const weft_engine *engine);

#endif
