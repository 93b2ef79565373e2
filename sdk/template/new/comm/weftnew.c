/* weftnew-id: a communicator that wraps another one, counts its exchanges, and logs the counts at the end.
 *
 * Each slot forwards its call. The handles are the wrapped communicator's own; this plugin's own data is global to the
 * process. Its ranks are launched like those of the wrapped communicator (WEFT_NOTE_LAUNCH_AS). The main thread calls
 * all slots. Slots that start an exchange return immediately: join, test or wait ends it. */
#define WEFT_MIN_SDK   WEFT_SDK(1, 0) /* the oldest supported host; newer declarations are hidden */
#define WEFT_NOTE_MORE WEFT_NOTE_LAUNCH_AS("mpi")
#include <weft/comm.h>
#include <weft/host.h>
#include <weft/plugin.h>

/* The keys of [comm]: type, name, default, range, unit, flags, help. They define struct weftnew_config. */
/* clang-format off */
#define WEFTNEW_KEYS(K)                                                                                                \
    K(STR, wraps, "mpi", "", "", WEFT_SAME, "The communicator that works: of those that WEFT_NOTE_LAUNCH_AS names.")
/* clang-format on */
WEFT_KEYS(weftnew_config, WEFTNEW_KEYS)

static const weft_comm_plugin *inner; /* table of the wrapped communicator, set by the first `create` */
static const weft_host *teller;       /* host for logging */
static int64_t exchanges, elements;   /* started exchanges, and elements of this rank's operands */
static int32_t worlds;                /* number of existing worlds */
static int left_alone;                /* this rank has failed, and the wrapped communicator cannot be destroyed */

static weft_status weftnew_create(weft_comm **out, const weft_host *given, const void *config, const weft_comm_job *job,
                                  weft_error *err) {
    const char *name = ((const weftnew_config *)config)->wraps;
    const weft_host_plugins *plugins = (const weft_host_plugins *)given->extension(given, WEFT_HOST_PLUGINS);
    const weft_plugin *plugin = NULL;
    const void *keys = NULL;
    weft_status status;
    if (plugins == NULL) return weft_error_set(err, WEFT_E_UNSUPPORTED, "this host lends no plugins to wrap");
    status = plugins->get(given, "comm", name, &plugin, &keys, err);
    if (status != WEFT_OK) return status;
    if (worlds > 0 && inner != plugin->table)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "wraps = %s: this process wraps another one", name);
    inner = (const weft_comm_plugin *)plugin->table;
    teller = given;
    status = inner->create(out, given, keys, job, err);
    if (status == WEFT_OK) worlds++;
    return status;
}

static void weftnew_destroy(weft_comm *comm) {
    if (!left_alone) inner->destroy(comm);
    worlds--;
    weft_log(teller, WEFT_LOG_INFO, "weftnew-id: %lld exchanges of %lld elements", (long long)exchanges,
             (long long)elements);
}

static void weftnew_info(const weft_comm *comm, weft_comm_info *out) {
    inner->info(comm, out);
}

static weft_status weftnew_attach(weft_comm *comm, weft_device *device, const weft_device_plugin *kernels,
                                  weft_error *err) {
    return inner->attach(comm, device, kernels, err);
}

static weft_status weftnew_group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n,
                                 weft_error *err) {
    return inner->group(comm, out, ranks, n, err);
}

#define EXCHANGE(name)                                                                                                 \
    static weft_status weftnew_##name(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what,              \
                                      weft_error *err) {                                                               \
        exchanges++;                                                                                                   \
        elements += what->n;                                                                                           \
        return inner->name(comm, out, what, err);                                                                      \
    }

EXCHANGE(all_gather)
EXCHANGE(all_to_all)
EXCHANGE(reduce_scatter)
EXCHANGE(all_reduce)
EXCHANGE(broadcast)
EXCHANGE(barrier)
EXCHANGE(send)
EXCHANGE(recv)

static int32_t weftnew_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    return inner->test(comm, handle, err);
}

static weft_status weftnew_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    return inner->wait(comm, handle, err);
}

/* ---- slots that the wrapped communicator may lack: the host's fallback ---- */

static weft_status weftnew_join(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err) {
    return inner->join == NULL ? inner->wait(comm, handle, err) : inner->join(comm, handle, stream, err);
}

static void weftnew_poke(weft_comm *comm) {
    if (inner->poke != NULL) inner->poke(comm);
}

static const void *weftnew_extension(const weft_comm *comm, const char *id) {
    return inner->extension == NULL ? NULL : inner->extension(comm, id);
}

static weft_status weftnew_connect(weft_comm *comm, weft_comm_group *group, int32_t peer, int32_t lane, int32_t sends,
                                   weft_error *err) {
    return !WEFT_HAS(inner, connect) || inner->connect == NULL ? WEFT_OK
                                                               : inner->connect(comm, group, peer, lane, sends, err);
}

static void weftnew_abandon(weft_comm *comm) {
    if (WEFT_HAS(inner, abandon) && inner->abandon != NULL) inner->abandon(comm);
    else left_alone = 1;
}

static weft_status weftnew_check(weft_comm *comm, weft_error *err) {
    return !WEFT_HAS(inner, check) || inner->check == NULL ? WEFT_OK : inner->check(comm, err);
}

/* clang-format off */
static const weft_comm_plugin weftnew_table = {
    (uint32_t)sizeof(weft_comm_plugin), 0, weftnew_create, weftnew_destroy, weftnew_info, weftnew_attach,
    weftnew_group, weftnew_all_gather, weftnew_all_to_all, weftnew_reduce_scatter, weftnew_all_reduce,
    weftnew_broadcast, weftnew_barrier, weftnew_send, weftnew_recv, weftnew_test, weftnew_wait, weftnew_join,
    weftnew_poke, weftnew_extension, weftnew_connect, weftnew_abandon, weftnew_check};
/* clang-format on */

WEFT_PLUGIN(comm, 1, "weftnew-id", "0.1.0", "A wrapper of another communicator that counts its bytes.", weftnew_config,
            NULL, weftnew_table)
