/* nvtx3/nvToolsExt.h of the CUDA emulator: ranges of a thread (../../emulator/ranges.cpp). C and C++. */
#ifndef WEFT_EMULATOR_NVTX_H
#define WEFT_EMULATOR_NVTX_H

#ifdef __cplusplus
extern "C" {
#endif

int nvtxRangePushA(const char *message); /* returns the range's depth, from 0 */
int nvtxRangePop(void);                  /* returns the depth of the closed range */

#ifdef __cplusplus
}
#endif
#endif
