/* host/report/room.h: available memory for a plan: of a rank's device, or of the machine if the device uses host
 * memory, which all ranks of the machine share. */
#ifndef WEFT_HOST_REPORT_ROOM_H
#define WEFT_HOST_REPORT_ROOM_H

#include <stdbool.h>
#include <weft/device.h>

typedef struct weft_room {
    int64_t bytes;    /* 0: unknown */
    int64_t free;     /* of these, now; -1: unknown */
    int64_t held;     /* in addition, used by the device's own context and libraries */
    bool shared;      /* by all ranks of a machine */
    bool is_machines; /* measured on the machine, not set by the user */
    bool limited;     /* limited by this process's control group */
} weft_room;

/* Queries the device, and the kernel for the machine's memory. */
void weft_room_find(weft_room *out, const weft_device_info *info);

/* Sets the memory of one rank's device to the user's value. */
void weft_room_say(weft_room *out, int64_t bytes);

/* Returns the owner of the memory, "this machine", to precede an apostrophe or a verb. */
const char *weft_room_whose(const weft_room *room);

#endif
