/* module.h: code compiled at run time, shared by nvrtc.cpp and driver.cpp. */
#ifndef WEFT_EMULATOR_MODULE_INTERNAL_H
#define WEFT_EMULATOR_MODULE_INTERNAL_H

#include <vector>

namespace weft_emulator {

enum { MODULE_VERSION = 1 }; /* increment if emulator_module.h or its callees change */

std::vector<char> module_image(const std::vector<char> &shared_object);

} // namespace weft_emulator
#endif
