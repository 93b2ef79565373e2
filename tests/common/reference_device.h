/* tests/common/reference_device.h: a device that is as plain as possible: the oracle of kernels, and a device for tests
 * that need one without loading a plugin.
 *
 * One thread, no blocking, every sum in fp64, rounded to fp32 and from there, in bf16, to the nearest, ties to even.
 * Fresh memory is full of NaN, so that reading what nobody wrote shows. Products that add are formed from zero
 * first, as device/1 asks. */
#ifndef WEFT_TESTS_REFERENCE_DEVICE_H
#define WEFT_TESTS_REFERENCE_DEVICE_H

#include <weft/device.h>

extern const weft_device_plugin weft_reference_device;

#endif
