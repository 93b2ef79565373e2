/* host/report/all_rank_table.h: memory and traffic of all ranks, as tables and as objects; equal ranks share a row. */
#ifndef WEFT_HOST_REPORT_ALL_RANK_TABLE_H
#define WEFT_HOST_REPORT_ALL_RANK_TABLE_H

#include "report/all_rank_plan.h"

#include <jansson.h>

void weft_all_rank_plan_print(const weft_all_rank_plan *all_rank_plan, FILE *to);
/* Prints the bytes between each pair of ranks. */
weft_status weft_all_rank_plan_print_links(const weft_all_rank_plan *all_rank_plan, FILE *to, weft_error *err);

json_t *weft_memory_object(const weft_plan_bytes *bytes);
/* Returns an object per row, with the numbers of its ranks. */
json_t *weft_all_rank_plan_array(const weft_all_rank_plan *all_rank_plan);
/* Returns [{"from": 0, "to": [1, 3], "bytes": 4096}]: to each rank from the first to the last. NULL: no memory. */
json_t *weft_all_rank_plan_links_array(const weft_all_rank_plan *all_rank_plan);

/* Prints the size of a rank's shard of each unit, each parameter and the complete model, a line each. Of units and of
 * parameters only the first and the last `ends`, 0: all. */
void weft_sharding_print(const weft_plan *plan, const weft_hold *hold, int32_t rank, int32_t ends, FILE *to);
json_t *weft_sharding_object(const weft_plan *plan, const weft_hold *hold, int32_t rank);

#endif
