/* cuda/ranks.h: programs of several processes that communicate by the emulated NCCL (cases_ranks.cu). */
#ifndef WEFT_TEST_CUDA_RANKS_H
#define WEFT_TEST_CUDA_RANKS_H

#include <nccl.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int ranks_case(int rank, int ranks, const ncclUniqueId *id);
ranks_case ranks_streams, ranks_split, ranks_graph, ranks_one_ends, ranks_differ;
ranks_case ranks_look_early, ranks_host_memory, ranks_exit, ranks_share;

#ifdef __cplusplus
}
#endif
#endif
