/* weft/team.h: how many threads a device's kernels use, while it lives; an extension of device/1, asked for as
 * WEFT_DEVICE_TEAM.
 *
 * More threads are not always faster: the kernels of a small model end sooner than a team has met, and on a busy
 * machine the team waits for members that are not running. The host compares a few calls by as many threads as there
 * are with the same by one, before a run, and says so where one is faster. Results are the same by any number
 * (weft/device.h).
 *
 * A scratch that a kernel asked for is enough for as many threads as the device had then, and for fewer.
 *
 * Later users this serves: a host that chooses the number itself.
 */
#ifndef WEFT_TEAM_H
#define WEFT_TEAM_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DEVICE_TEAM "weft.device.team/1" /* the extension is a const weft_device_team */

typedef struct weft_device_team {
    uint32_t struct_size;
    uint32_t flags;

    /* From now on; what weft_device_info tells of threads follows. Nothing runs on the device meanwhile. threads: 1 to
     * as many as it had when it was made. [main] [required] */
    weft_status (*resize)(weft_device *device, int32_t threads, weft_error *err);
} weft_device_team;

#ifdef __cplusplus
}
#endif
#endif
