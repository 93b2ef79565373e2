/* module.h: code that was compiled at run time, of nvrtc.cpp and driver.cpp. */
#ifndef WEFT_EMULATOR_MODULE_INTERNAL_H
#define WEFT_EMULATOR_MODULE_INTERNAL_H

#include <vector>

namespace weft_emulator {

enum { MODULE_VERSION = 1 }; /* another one where emulator_module.h or what it calls has changed */

std::vector<char> module_image(const std::vector<char> &shared_object);

} // namespace weft_emulator
#endif
