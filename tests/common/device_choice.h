/* tests/common/device_choice.h: the device that the environment selects for tests that run on any device.
 * WEFT_TEST_DEVICE has its name (default: cpu), and WEFT_TEST_KEYS its keys, "share=yes workspace=1Mi". */
#ifndef WEFT_TEST_DEVICE_CHOICE_H
#define WEFT_TEST_DEVICE_CHOICE_H

#include <stddef.h>

enum { DEVICE_CHOICE_MOST = 8 };

const char *device_choice(void);
/* Returns the number of overrides, "device.plugin=cuda" and "device.share=yes". The strings stay valid. */
size_t device_choice_overrides(const char *out[DEVICE_CHOICE_MOST]);

#endif
