/* kernels.h: common part of the launchers, which the device's host code calls with device pointers, sizes and a stream.
 * A launcher returns a CUDA error. Each is defined in its operator's .cu file, which includes only that operator's
 * header. The caller has validated the sizes and looked up the operands. */
#ifndef WEFT_DEVICE_CUDA_KERNELS_H
#define WEFT_DEVICE_CUDA_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Notes that the launcher's error comes from that call and not from a launch (failure.c). */
void cuda_note_call(const char *call);

#ifdef __cplusplus
}
#endif

#endif
