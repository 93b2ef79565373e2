/* dry_run.c: the extension weft/dry_run.h: runs the device's own code and counts the CUDA work instead of queuing it.
 * Updates are still compiled, but not loaded (modules.c). */
#include "dry_run.h"
#include "cuda.h"

static _Thread_local weft_dry_counts now;
static _Thread_local bool under_way;
static _Thread_local uintptr_t next_address; /* of a buffer without memory */

bool cuda_is_dry(void) {
    return under_way;
}

void *cuda_dry_address(int64_t bytes) {
    const uintptr_t at = next_address;
    next_address += (uintptr_t)size_round_up(size_max(bytes, 1), CUDA_LINE);
    return (void *)at;
}

bool cuda_dry_kernel(void) {
    now.kernels += under_way;
    return under_way;
}

bool cuda_dry_product(void) {
    now.products += under_way;
    return under_way;
}

bool cuda_dry_copy(void) {
    now.copies += under_way;
    return under_way;
}

static weft_status begin(weft_device *device, weft_error *err) {
    const weft_dry_counts none = {.struct_size = (uint32_t)sizeof none};
    weft_status status = cuda_not_recording(device, "begin of a dry run", err);
    if (status == WEFT_OK && !under_way) status = cuda_enter(device, "beginning a dry run", err);
    if (status != WEFT_OK) return status;
    if (under_way) return weft_error_set(err, WEFT_E_HOST, "A dry run of device cuda has started during another one.");
    now = none;
    next_address = CUDA_LINE;
    under_way = true;
    cuda_count_launches_into(&now.kernels);
    return WEFT_OK;
}

static void counts(const weft_device *device, weft_dry_counts *out) {
    cuda_settle_waiting(device);
    weft_struct_give(out, &now);
}

static void end(weft_device *device) {
    cuda_settle_waiting(device);
    under_way = false;
    cuda_count_launches_into(NULL);
}

const weft_device_dry_run cuda_dry_run = {(uint32_t)sizeof(weft_device_dry_run), 0, begin, counts, end};
