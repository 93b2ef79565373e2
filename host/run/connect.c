/* host/run/connect.c: see connect.h. */
#include "run/connect.h"

#include "launch/heartbeat.h"
#include "plugin/enter.h"

bool weft_ranks_need_connecting(const weft_ranks *self) {
    return self->world > 1 && self->comm != NULL && WEFT_HAS(self->plugin, connect) && self->plugin->connect != NULL;
}

static weft_status connect_channels(const weft_ranks *self, int32_t peer, const bool *lanes, bool sends,
                                    weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t lane = 0; lane < WEFT_COMM_LANES && status == WEFT_OK; lane++)
        if (lanes[lane])
            WEFT_PLUGIN_CALL(status, self->plugin, connect, err, self->comm, self->everyone, peer, lane, sends);
    if (status == WEFT_OK) return WEFT_OK;
    return weft_error_prefix(err, "connecting %s rank %d: ", sends ? "to" : "from", (int)peer);
}

weft_status weft_ranks_connect(const weft_ranks *self, const weft_p2p_channels *lanes, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!weft_ranks_need_connecting(self)) return WEFT_OK;
    weft_heartbeat_wait();
    for (int32_t sender = 0; sender < self->world && status == WEFT_OK; sender++) {
        if (sender != self->rank) status = connect_channels(self, sender, lanes[sender].takes, false, err);
        for (int32_t to = 0; sender == self->rank && to < self->world && status == WEFT_OK; to++)
            status = connect_channels(self, to, lanes[to].sends, true, err);
    }
    weft_heartbeat_go();
    if (status != WEFT_OK) self->process_context->broken = true;
    return status;
}
