/* host/run/account.h: device memory that the host takes, counted by category.
 *
 * Every byte that the host takes from a device goes through here, so that the plan's figure and the run's can be
 * compared to the byte. A run takes one buffer for each line of the plan and cuts it into what the plan named: a device
 * may round each buffer up to megabytes. What libraries and plugins take behind the host's back is a category of its
 * own, which the device measures (weft_device_info.held). */
#ifndef WEFT_HOST_RUN_ACCOUNT_H
#define WEFT_HOST_RUN_ACCOUNT_H

#include "program/plan.h"

typedef struct weft_account {
    const weft_device_plugin *kernels;
    weft_device *device;
    int64_t taken[WEFT_N_ACCOUNT_LINES]; /* bytes, now */
    int64_t most;                        /* bytes of all lines together, at the highest moment */
    struct {
        weft_slot_ref whole;
        int64_t cut; /* bytes of it that have been given away */
    } lines[WEFT_N_ACCOUNT_LINES];
} weft_account;

/* One buffer for each line: bytes[WEFT_N_ACCOUNT_LINES]. */
weft_status weft_account_open(weft_account *account, const int64_t *bytes, weft_error *err);
/* The next part of a line's buffer, which begins where devices align buffers to; bytes 0 gives an empty ref. */
weft_status weft_account_cut(weft_account *account, weft_slot_ref *out, int64_t bytes, weft_account_line line,
                             weft_error *err);
/* A failure if a line holds more than its parts, which the plan would then have counted twice. */
weft_status weft_account_judge(const weft_account *account, weft_error *err);
/* Gives all buffers back that open took. */
void weft_account_close(weft_account *account);

/* A buffer by itself, beside what open took; bytes 0 gives an empty ref. */
weft_status weft_account_take(weft_account *account, weft_slot_ref *out, int64_t bytes, weft_account_line line,
                              weft_error *err);
/* Bytes of a line that somebody else has taken, and gives back. */
void weft_account_note(weft_account *account, weft_account_line line, int64_t bytes);
/* Releases and empties the ref; an empty one is fine. */
void weft_account_give(weft_account *account, weft_slot_ref *slot, weft_account_line line);
int64_t weft_account_total(const weft_account *account);
/* What the device says that its context and its libraries hold by now, which is in no line; 0: nothing, or it is the
 * machine's memory. */
int64_t weft_account_held(const weft_account *account);

#endif
