/* cuda/cases.h: small correct and faulty programs for the CUDA emulator. They return 0 for the expected result. */
#ifndef WEFT_TEST_CUDA_CASES_H
#define WEFT_TEST_CUDA_CASES_H

#ifdef __cplusplus
extern "C" {
#endif

typedef int cuda_case(void);

/* cases_blocks.cu: threads of a block, and two blocks */
cuda_case case_block_sum, case_block_sum_without_barrier, case_block_sum_reused, case_barrier_left_out_by_one;
cuda_case case_two_barriers, case_shared_not_written, case_shared_too_far, case_dynamic_too_far, case_votes;
cuda_case case_late_copy, case_late_copy_without_wait, case_too_much_shared, case_stack_full;
cuda_case case_sums, case_sums_run_ahead, case_blocks_race, case_blocks_independent, case_first_block_waits;
cuda_case case_second_block_waits;
/* cases_warps.cu: lanes of a warp */
cuda_case case_warp_sum, case_shuffles, case_short_warp, case_shuffle_not_by_all, case_shuffle_by_the_gone;
cuda_case case_shuffle_masks_differ, case_meeting, case_syncwarp_left_out;
/* cases_memory.cu: memory accesses */
cuda_case case_grid, case_past_the_end, case_before_the_start, case_just_past_the_end, case_after_free,
    case_freed_twice;
cuda_case case_not_written, case_host_reads, case_host_writes, case_kernel_reads_host, case_misaligned,
    case_copy_too_long;
cuda_case case_too_large, case_null_pointer;
/* cases_streams.cu: synchronization */
cuda_case case_order, case_event, case_event_left_out, case_host_does_not_wait, case_source_reused, case_pinned_reused;
cuda_case case_read_early, case_first_stream, case_not_blocking, case_copy_is_staged, case_query, case_destroyed;
/* cases_graphs.cu */
cuda_case case_graph, case_graph_of_two_streams, case_graph_not_joined, case_graph_allocates;
cuda_case case_graph_waits, case_graph_pageable, case_graph_foreign_event, case_graph_fork_left_out;
/* cases_libraries.cu: cuBLASLt */
cuda_case case_products_differ;
/* cases_errors.cu */
cuda_case case_planted, case_planted_kernel, case_bad_launches, case_no_card, case_no_driver, case_step_allocates;

#ifdef __cplusplus
}
#endif
#endif
