/* tests/common/reference_device.h: the simplest possible device: an oracle for kernels, and a device for tests that
 * load no plugin.
 *
 * One thread, no blocking. Every sum is fp64, rounded to fp32 and then, in bf16, to nearest, ties to even. New memory
 * is filled with NaN, so that reads of undefined values are visible. Accumulating matmuls are computed from zero first,
 * as device/1 requires. */
#ifndef WEFT_TESTS_REFERENCE_DEVICE_H
#define WEFT_TESTS_REFERENCE_DEVICE_H

#include <weft/device.h>

extern const weft_device_plugin weft_reference_device;

#endif
