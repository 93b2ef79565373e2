/* plugin.c: see ranks.h. The build defines the MPI library by RANKS_ID, _NAME, _LAUNCHER, _LAUNCH and _LAUNCHED. */
#define WEFT_NOTE_MORE WEFT_NOTE_LAUNCH(RANKS_LAUNCH) WEFT_NOTE_LAUNCHED(RANKS_LAUNCHED)

#include "ranks.h"

WEFT_NO_KEYS(ranks_config)

static const weft_comm_plugin ranks_table = {(uint32_t)sizeof(weft_comm_plugin),
                                             0,
                                             ranks_create,
                                             ranks_destroy,
                                             ranks_info,
                                             ranks_attach,
                                             ranks_group,
                                             ranks_all_gather,
                                             ranks_all_to_all,
                                             ranks_reduce_scatter,
                                             ranks_all_reduce,
                                             ranks_broadcast,
                                             ranks_barrier,
                                             ranks_send,
                                             ranks_recv,
                                             ranks_test,
                                             ranks_wait,
                                             ranks_join,
                                             ranks_poke,
                                             NULL,
                                             NULL,
                                             NULL,
                                             NULL};

WEFT_PLUGIN(comm, 1, RANKS_ID, "0.1.0", "Ranks of " RANKS_NAME ".", ranks_config, NULL, ranks_table)
