/* kernels.h: launchers, as the host code of the CUDA device calls them: device pointers and sizes, one stream, and
 * CUDA's answer. Each is defined in the .cu file of its operator, which includes the header of that operator alone.
 * Sizes have been judged and operands looked up when one is called. */
#ifndef WEFT_DEVICE_CUDA_KERNELS_H
#define WEFT_DEVICE_CUDA_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

/* The error that this launcher will answer came from that call, and from no launch (failure.c). */
void cuda_note_call(const char *call);

#ifdef __cplusplus
}
#endif

#endif
