/* plugin.c: see world.h. The host or any launcher starts the ranks. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0)
#define WEFT_NOTE_MORE                                                                                                 \
    WEFT_NOTE_LAUNCH(WEFT_LAUNCH_BY_HOST)                                                                              \
    WEFT_NOTE_LAUNCHED("WEFT_RANK WEFT_RANKS PMI_RANK PMI_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE "             \
                       "PMIX_RANK SLURM_STEP_NUM_TASKS SLURM_PROCID SLURM_STEP_NUM_TASKS RANK WORLD_SIZE")             \
    WEFT_NOTE_NATIVE("cuda")

#include "world.h"

#include <dlfcn.h>

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
                                            nccl_abandon,
                                            nccl_watch_ask};

static weft_status nccl_works(const weft_host *host, weft_error *err) {
    void *driver = dlopen(NCCL_DRIVER, RTLD_LAZY | RTLD_LOCAL);
    (void)host;
    if (driver == NULL)
        return weft_error_set(err, WEFT_E_DEVICE,
                              "there is no NVIDIA driver on this machine (" NCCL_DRIVER " was not found).");
    (void)dlclose(driver);
    return WEFT_OK;
}

WEFT_PLUGIN_THAT(comm, 1, "nccl", "0.1.0", "Ranks of NCCL, a CUDA device each.", nccl_config, NULL, nccl_table,
                 nccl_works)
