/* nvrtc.h of the CUDA emulator: device code compiled at run time by the host's compiler. C and C++. */
#ifndef WEFT_EMULATOR_NVRTC_H
#define WEFT_EMULATOR_NVRTC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    NVRTC_SUCCESS = 0,
    NVRTC_ERROR_OUT_OF_MEMORY = 1,
    NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
    NVRTC_ERROR_INVALID_INPUT = 3,
    NVRTC_ERROR_INVALID_PROGRAM = 4,
    NVRTC_ERROR_INVALID_OPTION = 5,
    NVRTC_ERROR_COMPILATION = 6,
    NVRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7,
    NVRTC_ERROR_INTERNAL_ERROR = 11
} nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;

const char *nvrtcGetErrorString(nvrtcResult result);
nvrtcResult nvrtcVersion(int *major, int *minor);
nvrtcResult nvrtcCreateProgram(nvrtcProgram *out, const char *source, const char *name, int n_headers,
                               const char *const *headers, const char *const *names);
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program);
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int n_options, const char *const *options);
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes);
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *out);
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes);
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *out);

#ifdef __cplusplus
}
#endif
#endif
