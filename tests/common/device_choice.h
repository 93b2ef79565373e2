/* tests/common/device_choice.h: the device that the environment chooses for tests that run on any: WEFT_TEST_DEVICE
 * has its
 * name, cpu if it is not set, and WEFT_TEST_KEYS keys of it, "share=yes workspace=1Mi". */
#ifndef WEFT_TEST_DEVICE_CHOICE_H
#define WEFT_TEST_DEVICE_CHOICE_H

#include <stddef.h>

enum { DEVICE_CHOICE_MOST = 8 };

const char *device_choice(void);
/* The same as overrides, "device.plugin=cuda" and "device.share=yes"; how many. The texts live on. */
size_t device_choice_overrides(const char *out[DEVICE_CHOICE_MOST]);

#endif
