/* host/base/machine.h: memory that the kernel reports as available to this process: the machine's memory, or the limit
 * of a control group (containers, batch systems) if that is lower. */
#ifndef WEFT_HOST_BASE_MACHINE_H
#define WEFT_HOST_BASE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_machine_memory {
    int64_t total; /* bytes that can be allocated in total; 0: unknown */
    int64_t free;  /* of these, bytes available now, counting the page cache as free */
    bool limited;  /* the limit is a control group's, not the machine's */
} weft_machine_memory;

/* Reads the memory sizes. root: "", or a directory that replaces / in a test. [any-thread] */
void weft_machine_memory_read(weft_machine_memory *out, const char *root);

/* Return the peak and current resident memory of this process in bytes; 0: unknown. [any-thread] */
int64_t weft_resident_peak(void);
int64_t weft_resident_now(void);
/* Returns the bytes allocated by malloc and the plugins, without the device's memory. [any-thread] */
int64_t weft_library_bytes(void);

#endif
