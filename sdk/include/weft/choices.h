/* weft/choices.h: runtime selection of kernel algorithms, identical on all ranks; an extension of device/1, queried as
 * WEFT_DEVICE_CHOICES.
 *
 * A GEMM library has several algorithms for one shape. They sum in different orders, so the selected algorithm
 * determines the result's bits. A device that selects by a library heuristic or by measurement could select differently
 * on another rank or on another day. With this extension the host queries rank 0 for every selection that any rank
 * needs, and sends the selections to all ranks. `weft plan` prints them, and checkpoints store them for resume.
 *
 *     planning queries workspace sizes: the device records later calls
 *     all ranks:  count, get                      keys that this rank needs; the value is empty if not yet selected
 *     rank 0:     choose(&choice)                 also for keys that only other ranks need; before the run's buffers
 *                                                 are allocated, so that a device can measure in temporary memory
 *     all ranks:  take(&choice)                   uses this selection from now on
 *
 * A call with no recorded key is selected on its first use, by a rule that depends only on the device and the call.
 *
 * Intended users: library attention for the shapes where it is faster than the device's own kernel.
 */
#ifndef WEFT_CHOICES_H
#define WEFT_CHOICES_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DEVICE_CHOICES "weft.device.choices/1" /* the extension is a const weft_device_choices */

/* Strings of printable ASCII, without line ends. */
typedef struct weft_device_choice {
    uint32_t struct_size;
    uint32_t flags;
    char key[128];   /* the call: "bf16 to fp32, nt 2048x4096x1024, ..."; unique within a device */
    char value[160]; /* the selection, in a form that the device can parse; "": not yet selected */
    char note[64];   /* human-readable form of value; may be empty */
} weft_device_choice;

typedef struct weft_device_choices {
    uint32_t struct_size;
    uint32_t flags;

    /* Returns the number of keys recorded so far; indices follow the recording order. [main] [required] */
    int64_t (*count)(const weft_device *device);
    void (*get)(const weft_device *device, int64_t i, weft_device_choice *out);
    /* Fills value and note of a key, selecting now if necessary. Never changes an earlier selection. [main]
     * [required] */
    weft_status (*choose)(weft_device *device, weft_device_choice *choice, weft_error *err);
    /* Sets the value of a key; a key that this device never recorded is ignored. WEFT_E_UNSUPPORTED: the value cannot
     * be used here, for example with another library version; the earlier selection stays. [main] [required] */
    weft_status (*take)(weft_device *device, const weft_device_choice *choice, weft_error *err);
} weft_device_choices;

#ifdef __cplusplus
}
#endif
#endif
