/* host/plugin/producer.h: with which flags a file was compiled, where it says so. */
#ifndef WEFT_HOST_PLUGIN_PRODUCER_H
#define WEFT_HOST_PLUGIN_PRODUCER_H

#include <stddef.h>

/* True: what a debugger reads of the file (DWARF's DW_AT_producer, as gcc writes it) has a flag by which sums may be
 * reordered. [any-thread] */
int weft_producer_reorders(const void *image, size_t size);

#endif
