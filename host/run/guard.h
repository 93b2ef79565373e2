/* host/run/guard.h: who watches the ranks of this machine, arranged among them (launch/sidecar.h). */
#ifndef WEFT_HOST_RUN_GUARD_H
#define WEFT_HOST_RUN_GUARD_H

#include "model/process_group.h"
#include <weft/comm.h>

/* After the communicator has begun: the lowest rank of each machine shares memory with the others of it and tells its
 * watcher. Nothing, where the parent of all ranks watches. [collective] */
weft_status weft_guard_arrange(const weft_process_group *peers, const weft_comm_info *info, weft_error *err);

#endif
