/* mp.h: the configuration keys, and the functions shared by the files of this plugin.
 *
 *   mp.c        keys, replicas, placements
 *   map.c       device_map from the user
 *   balance.c   computed maps: auto and sequential
 *   program.c   the instructions of one rank */
#ifndef WEFT_STRATEGY_MP_H
#define WEFT_STRATEGY_MP_H

#include <weft/emit.h>

/* clang-format off */
#define MP_KEYS(K)                                                                                                     \
    K(STR, device_map, "auto", "auto,sequential", "", WEFT_SAME,                                                       \
      "Segments of each rank: auto (balanced), sequential, or a map: embed,layers.0-12 = 0; layers.13-21,head = 1.")   \
    K(ENUM, schedule, "naive", "naive,gpipe,1f1b", "", WEFT_SAME,                                                      \
      "Order of micro-batches: one at a time, all forwards before all backwards, or one forward, one backward.")
/* clang-format on */
WEFT_KEYS_STRUCT(mp_config, MP_KEYS)

enum { MP_NAIVE, MP_GPIPE, MP_1F1B };

/* Returns the maximum number of micro-batch gradients of tied storage that a rank has computed and the owner may not
 * have received. With this number neither rank waits if all stages take equal time. */
int32_t mp_parts(const mp_config *keys, int32_t stages);

/* Each fills owners[n_segments]. */
weft_status mp_map_read(const weft_host *host, const mp_config *keys, const weft_strategy_job *job, int32_t *owners,
                        weft_error *err);
weft_status mp_map_balanced(const weft_host *host, const mp_config *keys, const weft_strategy_job *job, int32_t *owners,
                            weft_error *err);
void mp_map_sequential(const weft_strategy_job *job, int32_t *owners);

weft_status mp_compile(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                       const weft_emitter *emitter, weft_error *err);

#endif
