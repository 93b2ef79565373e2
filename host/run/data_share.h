/* host/run/data_share.h: bytes that one rank of each machine makes, and that the other ranks of the machine map.
 *
 * The bytes are in a sealed memory file (memfd_create), which has no name and ends with its last user. The lowest rank
 * of a machine makes them and holds a lock on the file meanwhile. The others open it through /proc/PID/fd/N and sleep
 * on that lock, which the kernel also takes away when the process ends. */
#ifndef WEFT_HOST_RUN_DATA_SHARE_H
#define WEFT_HOST_RUN_DATA_SHARE_H

#include "model/process_group.h"
#include <weft/data.h>

typedef struct weft_data_share {
    const weft_process_group *peers; /* all ranks; NULL: this one only */
    const weft_host *host;
    int32_t node;    /* machine of this rank */
    bool is_called;  /* weft_data_share_make was called */
    bool has_ended;  /* nothing is exchanged any more */
    bool is_apart;   /* this rank could not map another rank's bytes, and made its own */
    const void *map; /* NULL: nothing is mapped */
    size_t bytes;    /* of the map */
} weft_data_share;

/* Makes or maps the bytes. [collective: ranks that do not call this call weft_data_share_end] */
weft_status weft_data_share_make(weft_data_share *self, weft_share_make *make, void *context, const void **bytes,
                                 size_t *n, weft_error *err);
/* After create, with its status: the ranks that wait in weft_data_share_make fail with it. [collective] */
weft_status weft_data_share_end(weft_data_share *self, weft_status status, weft_error *err);
void weft_data_share_close(weft_data_share *self);

#endif
