/* host/launch/log_prefix.h: log prefix: each line that a rank prints starts with its rank, "[2] weft train: ...". Ranks
 * outside [run] log_ranks print only errors. */
#ifndef WEFT_HOST_LAUNCH_LOG_PREFIX_H
#define WEFT_HOST_LAUNCH_LOG_PREFIX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Enables the prefix for stdout and stderr of this process. Once. [main] */
void weft_log_prefix_set(int32_t rank, bool speaks);

/* `--ranks N`: lets rank 0 write to the terminal on stdout of this process, which starts the ranks. Output through a
 * launcher is delayed and is no terminal. Set through the environment before the ranks start. [main] */
void weft_log_prefix_offer_terminal(void);

/* Returns stdout without the prefix, for the results that rank 0 prints and a program may parse. */
FILE *weft_log_prefix_plain(void);

#endif
