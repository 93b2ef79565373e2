/* driver.c: checks the driver and the GPU, and picks the GPU of each rank.
 *
 * The checks made before a device is created start nothing on any GPU. They read the driver version, the libraries and
 * the properties of the first GPU. */
#include "../../common/machine.h"
#include "cuda.h"

/* CUDA encodes versions as 1000 * major + 10 * minor. */
#define MAJOR(version) ((version) / 1000)
#define MINOR(version) ((version) % 1000 / 10)

/* Fails if the driver is older than the runtime's major version; a driver runs code compiled for any minor version of
 * its major one. */
static weft_status check_driver(weft_error *err) {
    int driver = 0, runtime = 0;
    const cudaError_t code = cudaDriverGetVersion(&driver);
    weft_status status = cuda_judge_call(code, "cudaDriverGetVersion", "the version of the driver", err);
    if (status != WEFT_OK) return status;
    if (driver == 0)
        return weft_error_set(err, WEFT_E_DEVICE,
                              "there is no NVIDIA driver on this machine (libcuda.so.1 was not found).");
    status = cuda_judge(cudaRuntimeGetVersion(&runtime), "the version of the runtime", err);
    if (status != WEFT_OK || MAJOR(driver) >= MAJOR(runtime)) return status;
    return weft_error_set(
        err, WEFT_E_DEVICE,
        "the NVIDIA driver is too old: it runs CUDA up to %d.%d, and this plugin was built with %d.%d. "
        "Install a driver for CUDA %d, or build Weft with a toolkit of CUDA %d.",
        MAJOR(driver), MINOR(driver), MAJOR(runtime), MINOR(runtime), MAJOR(runtime), MAJOR(driver));
}

static weft_status count_cards(int *out, weft_error *err) {
    const cudaError_t code = cudaGetDeviceCount(out);
    if (code == cudaErrorNoDevice || (code == cudaSuccess && *out == 0)) {
        (void)cudaGetLastError();
        return weft_error_set(err, WEFT_E_DEVICE,
                              "The driver is installed, but this process may use no NVIDIA card. Fix: check "
                              "CUDA_VISIBLE_DEVICES and the container's settings.");
    }
    return cuda_judge_call(code, "cudaGetDeviceCount", "how many cards there are", err);
}

static int local_ranks(const weft_host *host, int32_t index) {
    const weft_host_world *world = (const weft_host_world *)host->extension(host, WEFT_HOST_WORLD);
    const int told = world == NULL ? 1 : world->local_size;
    return told > index ? told : index + 1;
}

/* Returns the planned number of ranks per machine if the run is only a plan, 0 for a real run. */
static int planned_ranks(const weft_host *host) {
    const weft_host_world *world = (const weft_host_world *)host->extension(host, WEFT_HOST_WORLD);
    return world == NULL ? 0 : world->planned;
}

static weft_status check_card(const struct cudaDeviceProp *card, int index, weft_error *err) {
    if (card->major >= 8) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_DEVICE,
        "Card %d, %s, has compute capability %d.%d; 8.0 (Ampere) is the least that Weft's kernels run "
        "on. CUDA_VISIBLE_DEVICES can name another card.",
        index, card->name, card->major, card->minor);
}

/* Reads the properties of the GPU for that rank index; ranks take GPUs round robin. Starts nothing on the GPU. */
static weft_status look_at_card(struct cudaDeviceProp *out, int *cards, int *taken, int32_t index, weft_error *err) {
    weft_status status = count_cards(cards, err);
    if (status != WEFT_OK) return status;
    *taken = index % *cards;
    status = cuda_judge(cudaGetDeviceProperties(out, *taken), "the properties of the card", err);
    return status == WEFT_OK ? check_card(out, *taken, err) : status;
}

weft_status cuda_works(const weft_host *host, weft_error *err) {
    struct cudaDeviceProp card;
    cuda_libraries libraries;
    int cards = 0, taken = 0;
    weft_status status = check_driver(err);
    (void)host;
    if (status == WEFT_OK) status = cuda_libraries_open(&libraries, err);
    return status == WEFT_OK ? look_at_card(&card, &cards, &taken, 0, err) : status;
}

/* ---- ranks that share a GPU ---- */

#define MOST_RANKS 64 /* per machine */

typedef struct card_name {
    char uuid[sizeof(cudaUUID_t)];
} card_name;

/* All-gathers `bytes` per rank among the ranks of this machine, indexed by local rank, under the key `what`. */
static weft_status tell_all(const weft_host *host, const weft_host_exchange *exchange, const char *what, char *all,
                            size_t bytes, int ranks, int32_t index, weft_error *err) {
    const unsigned long long machine = machine_number();
    char key[60];
    weft_status status = WEFT_OK;
    (void)snprintf(key, sizeof key, "cuda.%s.%016llx.%d", what, machine, (int)index);
    status = exchange->put(host, key, all + (size_t)index * bytes, bytes, err);
    if (status != WEFT_OK) return weft_error_prefix(err, "Sending the other ranks of this machine this rank's card: ");
    for (int i = 0; i < ranks && status == WEFT_OK; i++) {
        if (i == index) continue;
        (void)snprintf(key, sizeof key, "cuda.%s.%016llx.%d", what, machine, i);
        status = exchange->get(host, key, all + (size_t)i * bytes, bytes, err);
        if (status != WEFT_OK) return weft_error_prefix(err, "The message of local rank %d about its card: ", i);
    }
    return status;
}

/* A failing rank may destroy values that other ranks still read. Waits until the others report that they have read
 * them. */
static void await_readers(const weft_host *host, const weft_host_exchange *exchange, int ranks, int32_t index) {
    char have_read[MOST_RANKS] = {0};
    weft_error lost = WEFT_ERROR_INIT;
    (void)tell_all(host, exchange, "read", have_read, 1, ranks, index, &lost);
}

static bool are_one(const card_name *a, const card_name *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* Counts the distinct GPUs of all ranks by UUID. Needed if each rank sees different GPUs (CUDA_VISIBLE_DEVICES). */
static weft_status compare_cards(weft_device *device, int *cards, int ranks, int32_t index,
                                 const weft_host_exchange *exchange, weft_error *err) {
    card_name names[MOST_RANKS];
    weft_status status = WEFT_OK;
    memcpy(names[index].uuid, device->card.uuid.bytes, sizeof names[index].uuid);
    status = tell_all(device->host, exchange, "card", names[0].uuid, sizeof *names, ranks, index, err);
    if (status != WEFT_OK) return status;
    *cards = 0;
    device->sharers = 0;
    for (int i = 0; i < ranks; i++) {
        int first = 0;
        while (!are_one(&names[first], &names[i])) first++;
        *cards += first == i;
        device->sharers += are_one(&names[index], &names[i]);
    }
    return WEFT_OK;
}

/* Counts the ranks that share this rank's GPU. Fails if there are fewer GPUs than ranks and `share` is no. */
static weft_status count_sharers(weft_device *device, const cuda_config *keys, int cards, int32_t index,
                                 weft_error *err) {
    const int ranks = local_ranks(device->host, index), planned = planned_ranks(device->host);
    const weft_host_exchange *exchange =
        (const weft_host_exchange *)device->host->extension(device->host, WEFT_HOST_EXCHANGE);
    weft_status status = WEFT_OK;
    device->sharers = (ranks - 1 - device->index) / cards + 1;
    if (planned > 0) device->sharers = keys->share ? (planned - 1) / cards + 1 : 1; /* otherwise one GPU per rank */
    if (ranks <= cards) return WEFT_OK;
    if (exchange != NULL && ranks <= MOST_RANKS) status = compare_cards(device, &cards, ranks, index, exchange, err);
    if (status != WEFT_OK || keys->share || ranks <= cards) return status;
    if (exchange != NULL && ranks <= MOST_RANKS) await_readers(device->host, exchange, ranks, index);
    return weft_error_set(err, WEFT_E_USER,
                          "This machine has %d card%s for %d ranks. Start at most %d, or let ranks share a card with "
                          "share = yes in [device], which takes [comm] plugin = mpi.",
                          cards, cards == 1 ? "" : "s", ranks, cards);
}

weft_status cuda_card_pick(weft_device *device, const cuda_config *keys, int32_t index, weft_error *err) {
    int cards = 0;
    weft_status status = check_driver(err);
    if (status == WEFT_OK) status = look_at_card(&device->card, &cards, &device->index, index, err);
    if (status == WEFT_OK) status = count_sharers(device, keys, cards, index, err);
    if (status == WEFT_OK) status = cuda_judge(cudaSetDevice(device->index), "taking the card", err);
    return status;
}

/* Assumes that ranks on one GPU have equally many bytes in buffers. A plan counts one rank per GPU. */
cudaError_t cuda_card_held(const weft_device *device, int64_t *out) {
    const int32_t there = planned_ranks(device->host) > 0 ? 1 : device->sharers;
    size_t left = 0, all = 0;
    const cudaError_t code = cudaMemGetInfo(&left, &all);
    if (code == cudaSuccess) *out = size_max((int64_t)(all - left) / there - device->live_bytes, 0);
    return code;
}
