/* weft/choices.h: what a device chooses at run time, chosen once for all ranks; an extension of device/1, asked for as
 * WEFT_DEVICE_CHOICES.
 *
 * A library of matrix products has several ways for one shape, which add up in other orders: which of them it takes
 * decides the bits. A device that chooses among them by a library's word or by measuring might choose otherwise on
 * another rank or on another day. So it makes its choices known: the host asks rank 0 for all that any rank needs,
 * gives them to all ranks, prints them in `weft plan` and keeps them in checkpoints, from which a resume takes them.
 *
 *     a plan asks for workspaces: the device notes what will be called
 *     all ranks:  count, get                      what this rank needs; the value is empty where nothing is chosen yet
 *     rank 0:     choose(&choice)                 also for keys that only other ranks have asked for
 *     all ranks:  take(&choice)                   from here on this is what is done
 *
 * What was never asked for is chosen when it is first called, by a rule that depends on the device and the call alone.
 *
 * Later users this serves: attention by a library where that is faster, and an own kernel where it is not.
 */
#ifndef WEFT_CHOICES_H
#define WEFT_CHOICES_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DEVICE_CHOICES "weft.device.choices/1" /* the extension is a const weft_device_choices */

/* Texts without line ends, of printable ASCII. */
typedef struct weft_device_choice {
    uint32_t struct_size;
    uint32_t flags;
    char key[128];   /* what the choice is for: "bf16 to fp32, nt 2048x4096x1024, ..."; once in a device's list */
    char value[160]; /* the choice, as the device reads it again; "": none yet */
    char note[64];   /* the same for people; may be empty */
} weft_device_choice;

typedef struct weft_device_choices {
    uint32_t struct_size;
    uint32_t flags;

    /* What was asked for so far, in that order. [main] [required] */
    int64_t (*count)(const weft_device *device);
    void (*get)(const weft_device *device, int64_t i, weft_device_choice *out);
    /* Fills value and note of a key, chosen here if it was not yet. Nothing that was chosen changes. [main]
     * [required] */
    weft_status (*choose)(weft_device *device, weft_device_choice *choice, weft_error *err);
    /* Takes a value for a key; one that this device was never asked for is let be. WEFT_E_UNSUPPORTED: it cannot be
     * taken
     * here, as where it is of another library's version; then what was chosen stays. [main] [required] */
    weft_status (*take)(weft_device *device, const weft_device_choice *choice, weft_error *err);
} weft_device_choices;

#ifdef __cplusplus
}
#endif
#endif
