/* failure.c: see world.h. */
#include "world.h"

/* Returns the error category, as far as NCCL reports it. */
static weft_status status_of(ncclResult_t code) {
    switch (code) {
    case ncclRemoteError: return WEFT_E_PEER;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
    case ncclInternalError: /* a bug in NCCL, or its memory was overwritten */
    case ncclUnhandledCudaError: return WEFT_E_DEVICE;
    default: return WEFT_E_SYSTEM;
    }
}

weft_status nccl_judge(ncclResult_t code, ncclComm_t comm, const char *what, weft_error *err) {
    const char *more = NULL;
    if (code == ncclSuccess) return WEFT_OK;
    more = ncclGetLastError(comm);
    return weft_error_set(err, status_of(code), "NCCL, %s: %s%s%.300s", what, ncclGetErrorString(code),
                          more == NULL || more[0] == '\0' ? "" : ": ", more == NULL ? "" : more);
}

void nccl_end(const weft_comm *comm, ncclComm_t nccl) {
    const ncclResult_t code = nccl == NULL ? ncclSuccess : ncclCommDestroy(nccl);
    if (code == ncclSuccess) return;
    weft_log(comm->host, WEFT_LOG_ERROR, "NCCL: ncclCommDestroy answered %s.", ncclGetErrorString(code));
}
