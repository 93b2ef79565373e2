/* ranges.cpp: NVTX ranges. WEFT_EMULATOR_RANGES names a file for a line per call: "begin 0 NAME", "end 0". The
 * number is the range's depth. */
#include "emulator.h"

#include "nvtx3/nvToolsExt.h"

using namespace weft_emulator;

namespace {

thread_local int depth = 0;

void log_range(const char *what, const char *name) {
    const char *path = setting("WEFT_EMULATOR_RANGES", nullptr);
    FILE *file = path == nullptr ? nullptr : fopen(path, "a");
    if (file == nullptr) return;
    (void)fprintf(file, "%s %d%s%s\n", what, depth, *name == 0 ? "" : " ", name);
    (void)fclose(file);
}

} // namespace

EXPORT int nvtxRangePushA(const char *message) {
    (void)planted("nvtxRangePushA");
    log_range("begin", message);
    return depth++;
}

EXPORT int nvtxRangePop(void) {
    (void)planted("nvtxRangePop");
    if (depth == 0) fault("nvtxRangePop is called without an open range");
    depth--;
    log_range("end", "");
    return depth;
}
