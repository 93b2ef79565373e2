/* The plugin in SOURCE under the id ID. */
#include <weft/plugin.h>

#undef WEFT_PLUGIN
#define WEFT_PLUGIN(kind, interface, id, ...) WEFT_PLUGIN_THAT(kind, interface, ID, __VA_ARGS__, NULL)

#include SOURCE
