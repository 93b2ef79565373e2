/* host/plugin/producer.h: reads the compiler flags that the debug information of a file records. */
#ifndef WEFT_HOST_PLUGIN_PRODUCER_H
#define WEFT_HOST_PLUGIN_PRODUCER_H

#include <stddef.h>

/* Returns true if the file's debug information (DWARF's DW_AT_producer, as gcc writes it) contains a flag that allows
 * reordering sums. [any-thread] */
int weft_producer_reorders(const void *image, size_t size);

#endif
