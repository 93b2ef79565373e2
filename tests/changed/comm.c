/* The communicator in SOURCE, in which rank 1 waits forever in its 40th all-to-all: only a step has so many. */
#include "changed/changed.h"

#undef WEFT_NOTE_MORE
#include SOURCE

#include <sched.h>

static weft_status join(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err) {
    static int joins;
    const int waits = comm->info.rank == 1 && strcmp(handle->name, "all_to_all") == 0 && ++joins == 40;
    while (waits) sched_yield();
    return original.join(comm, handle, stream, err);
}

static void change(weft_comm_plugin *to) {
    to->join = join;
}
