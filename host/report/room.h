/* host/report/room.h: how many bytes there are for a plan: those of a rank's device, or of the machine where its device
 * has the machine's own memory, which all ranks of it share. */
#ifndef WEFT_HOST_REPORT_ROOM_H
#define WEFT_HOST_REPORT_ROOM_H

#include <stdbool.h>
#include <weft/device.h>

typedef struct weft_room {
    int64_t bytes;    /* 0: nobody knows */
    int64_t free;     /* of these, now; -1: nobody knows */
    int64_t held;     /* beside these, of the device's own context and its libraries */
    bool shared;      /* by all ranks of a machine */
    bool is_machines; /* it is the machine's and not what somebody has said */
    bool limited;     /* ... as far as this process's control group lets it have that */
} weft_room;

/* As the device tells of itself, and the kernel of the machine. */
void weft_room_find(weft_room *out, const weft_device_info *info);

/* As somebody says: what the device of one rank has. */
void weft_room_say(weft_room *out, int64_t bytes);

/* "this machine": whose bytes they are, in front of an apostrophe or a verb. */
const char *weft_room_whose(const weft_room *room);

#endif
