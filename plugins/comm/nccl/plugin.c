/* plugin.c: see world.h. Ranks are started by the host itself, or by whichever launcher there is. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0)
#define WEFT_NOTE_MORE                                                                                                 \
    WEFT_NOTE_LAUNCH(WEFT_LAUNCH_BY_HOST)                                                                              \
    WEFT_NOTE_LAUNCHED("WEFT_RANK WEFT_RANKS PMI_RANK PMI_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE "             \
                       "PMIX_RANK SLURM_STEP_NUM_TASKS SLURM_PROCID SLURM_STEP_NUM_TASKS RANK WORLD_SIZE")

#include "world.h"

WEFT_NO_KEYS(nccl_config)

static const weft_comm_plugin nccl_table = {(uint32_t)sizeof(weft_comm_plugin),
                                            0,
                                            nccl_create,
                                            nccl_destroy,
                                            nccl_info,
                                            nccl_attach,
                                            nccl_group,
                                            nccl_all_gather,
                                            nccl_all_to_all,
                                            nccl_reduce_scatter,
                                            nccl_all_reduce,
                                            nccl_broadcast,
                                            nccl_barrier,
                                            nccl_send,
                                            nccl_recv,
                                            nccl_test,
                                            nccl_wait,
                                            nccl_join,
                                            NULL,
                                            NULL,
                                            nccl_connect,
                                            nccl_abandon};

WEFT_PLUGIN(comm, 1, "nccl", "0.1.0", "Ranks of NCCL, a CUDA device each.", nccl_config, NULL, nccl_table)
