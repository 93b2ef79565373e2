/* host/report/world.h: who trains, how the work is split, and what is said of the sums: before a run and after it. */
#ifndef WEFT_HOST_REPORT_WORLD_H
#define WEFT_HOST_REPORT_WORLD_H

#include "train/session.h"

/* Ranks, nodes, the strategy with its settings; replicas and leaves. width: of the words in front. */
void weft_world_print(const weft_session *session, int width, FILE *to);
/* How the leaves' gradients are summed, and whether that is covered by the contract of equal bits. */
void weft_sums_print(const weft_session *session, int width, FILE *to);
/* Which rows of each step every rank takes; nothing where there is one replica. */
void weft_batches_print(const weft_session *session, FILE *to);

/* One line about keys that are set and belong to another strategy; nothing where there are none. */
void weft_idle_keys_say(const weft_run *run);

#endif
