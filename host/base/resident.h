/* host/base/resident.h: what this process takes of the machine's memory, as the kernel and the C library count it. */
#ifndef WEFT_HOST_BASE_RESIDENT_H
#define WEFT_HOST_BASE_RESIDENT_H

#include <stdint.h>

/* Peak resident memory of this process so far, bytes (VmHWM); 0: unknown. */
int64_t weft_resident_peak(void);
int64_t weft_resident_now(void);
/* Bytes that malloc and the plugins hold beside the device's memory. */
int64_t weft_library_bytes(void);

#endif
