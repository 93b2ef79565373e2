/* The plugin in SOURCE under the id ID. LAUNCH: for a communicator, the launcher of its ranks. */
#include <weft/plugin.h>

#undef WEFT_PLUGIN
#define WEFT_PLUGIN(kind, interface, id, ...) WEFT_PLUGIN_THAT(kind, interface, ID, __VA_ARGS__, NULL)

#ifdef LAUNCH
#include <weft/comm.h>
#undef WEFT_NOTE_MORE
#define WEFT_NOTE_MORE WEFT_NOTE_LAUNCH(LAUNCH) WEFT_NOTE_LAUNCHED("TEST_RANK TEST_SIZE")
#endif

#include SOURCE
