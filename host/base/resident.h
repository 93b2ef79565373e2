/* host/base/resident.h: memory of this process, as the kernel and the C library count it. */
#ifndef WEFT_HOST_BASE_RESIDENT_H
#define WEFT_HOST_BASE_RESIDENT_H

#include <stdint.h>

/* Returns the peak resident memory of this process so far in bytes (VmHWM); 0: unknown. */
int64_t weft_resident_peak(void);
int64_t weft_resident_now(void);
/* Returns the bytes allocated by malloc and the plugins, without the device's memory. */
int64_t weft_library_bytes(void);

#endif
