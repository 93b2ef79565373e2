/* host/base/machine.h: how much memory the machine has for this process, as the kernel says it: what is in it, or less
 * where a control group holds it to less, as those of containers and of batch systems do. */
#ifndef WEFT_HOST_BASE_MACHINE_H
#define WEFT_HOST_BASE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_machine_memory {
    int64_t total; /* bytes that can be taken at all; 0: unknown */
    int64_t
        free; /* of these, bytes that can be taken now and nobody has to give back, files in memory counted as free */
    bool limited; /* it is a control group that has no more, and not the machine */
} weft_machine_memory;

/* root: "", or a directory that stands for / in a test. [any-thread] */
void weft_machine_memory_read(weft_machine_memory *out, const char *root);

#endif
