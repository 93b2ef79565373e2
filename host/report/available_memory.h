/* host/report/available_memory.h: available memory for a plan: of a rank's device, or of the machine if the device
 * uses host memory, which all ranks of the machine share. */
#ifndef WEFT_HOST_REPORT_AVAILABLE_MEMORY_H
#define WEFT_HOST_REPORT_AVAILABLE_MEMORY_H

#include <stdbool.h>
#include <weft/device.h>

typedef struct weft_available_memory {
    int64_t bytes;    /* 0: unknown */
    int64_t free;     /* of these, now; -1: unknown */
    int64_t held;     /* in addition, used by the device's own context and libraries */
    bool shared;      /* by all ranks of a machine */
    bool is_machines; /* measured on the machine, not set by the user */
    bool limited;     /* limited by this process's control group */
} weft_available_memory;

/* Queries the device, and the kernel for the machine's memory. */
void weft_available_memory_find(weft_available_memory *out, const weft_device_info *info);

/* Sets the memory of one rank's device to the user's value. */
void weft_available_memory_describe(weft_available_memory *out, int64_t bytes);

/* Returns the owner of the memory, "this machine", to precede an apostrophe or a verb. */
const char *weft_available_memory_owner(const weft_available_memory *room);

#endif
