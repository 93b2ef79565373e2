/* weft/team.h: changes the number of threads of a device's kernels; an extension of device/1, queried as
 * WEFT_DEVICE_TEAM.
 *
 * More threads are not always faster. Kernels of a small model can be shorter than a thread barrier, and on a busy
 * machine the barrier waits for threads that are not scheduled. Before a run, the host compares a few calls with all
 * threads and with one thread, and reports it if one is faster. Results do not depend on the number of threads
 * (weft/device.h).
 *
 * A workspace size that a kernel returned is sufficient for the thread count at that time and for fewer threads.
 *
 * Intended users: a host that selects the number of threads.
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

    /* Sets the number of threads, from 1 to the number at creation; weft_device_info.threads follows. No work runs on
     * the device meanwhile. [main] [required] */
    weft_status (*resize)(weft_device *device, int32_t threads, weft_error *err);
} weft_device_team;

#ifdef __cplusplus
}
#endif
#endif
