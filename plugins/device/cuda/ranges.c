/* ranges.c: the extension weft/ranges.h: NVTX ranges, which Nsight Systems shows above a stream's kernels. NVTX is
 * header-only; it loads a profiler's library if the profiler has started the process, and otherwise does nothing. */
#include <nvtx3/nvToolsExt.h>

#include "cuda.h"

static void begin(weft_device *device, const char *name) {
    (void)device;
    (void)nvtxRangePushA(name);
}

static void end(weft_device *device) {
    (void)device;
    (void)nvtxRangePop();
}

const weft_device_ranges cuda_ranges = {(uint32_t)sizeof(weft_device_ranges), 0, begin, end};
