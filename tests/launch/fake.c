/* A communicator that only has a note: its launcher, and the variables with the rank. The compiler's flags set FAKE_ID,
 * FAKE_LAUNCH and FAKE_LAUNCHED. */
#define WEFT_NOTE_MORE WEFT_NOTE_LAUNCH(FAKE_LAUNCH) WEFT_NOTE_LAUNCHED(FAKE_LAUNCHED)
#include <weft/comm.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* the signatures of the table */

WEFT_NO_KEYS(fake_config)

static weft_status fake_create(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                               weft_error *err) {
    return weft_error_set(err, WEFT_E_UNSUPPORTED, "A fake communicator makes no world.");
}
static void fake_destroy(weft_comm *comm) {}
static void fake_info(const weft_comm *comm, weft_comm_info *out) {}
static weft_status fake_attach(weft_comm *comm, weft_device *device, const weft_device_plugin *kernels,
                               weft_error *err) {
    return WEFT_OK;
}
static weft_status fake_group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n,
                              weft_error *err) {
    return WEFT_OK;
}
static weft_status fake_exchange(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return WEFT_OK;
}
static int32_t fake_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    return 1;
}
static weft_status fake_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    return WEFT_OK;
}

static const weft_comm_plugin fake_table = {(uint32_t)sizeof(weft_comm_plugin),
                                            0,
                                            fake_create,
                                            fake_destroy,
                                            fake_info,
                                            fake_attach,
                                            fake_group,
                                            fake_exchange,
                                            fake_exchange,
                                            fake_exchange,
                                            fake_exchange,
                                            fake_exchange,
                                            fake_exchange,
                                            fake_exchange,
                                            fake_exchange,
                                            fake_test,
                                            fake_wait,
                                            NULL,
                                            NULL,
                                            NULL};

WEFT_PLUGIN(comm, 1, FAKE_ID, "0.1.0", "A note.", fake_config, NULL, fake_table)
