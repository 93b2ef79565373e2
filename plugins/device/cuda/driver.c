/* driver.c: is there a driver and a card that this plugin can use, and which card is this rank's.
 *
 * What is asked before a device is made starts nothing on any card: the driver's version, the presence of libraries,
 * and what the first card is.
 */
#include "../../common/machine.h"
#include "cuda.h"

/* As CUDA writes versions: 1000 * major + 10 * minor. */
#define MAJOR(version) ((version) / 1000)
#define MINOR(version) ((version) % 1000 / 10)

/* Drivers run what was compiled for any version of their own major one. */
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
        return weft_error_set(
            err, WEFT_E_DEVICE,
            "There is a driver and no NVIDIA card that this process may use; CUDA_VISIBLE_DEVICES and "
            "the container's settings say which.");
    }
    return cuda_judge_call(code, "cudaGetDeviceCount", "how many cards there are", err);
}

/* Ranks of this machine, as far as it is known. */
static int local_ranks(const weft_host *host, int32_t index) {
    const weft_host_world *world = (const weft_host_world *)host->extension(host, WEFT_HOST_WORLD);
    const int told = world == NULL ? 1 : world->local_size;
    return told > index ? told : index + 1;
}

/* Ranks of a machine in a plan for ranks that are not there; 0: they are. */
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

/* The card of the rank of that index, where ranks take them in turn. It starts nothing on the card. */
static weft_status look_at_card(struct cudaDeviceProp *out, int *cards, int *taken, int32_t index, weft_error *err) {
    weft_status status = count_cards(cards, err);
    if (status != WEFT_OK) return status;
    *taken = index % *cards;
    status = cuda_judge(cudaGetDeviceProperties(out, *taken), "what the card is", err);
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

/* ---- ranks that share a card ---- */

#define MOST_RANKS 64 /* of a machine */

typedef struct card_name {
    char uuid[sizeof(cudaUUID_t)];
} card_name;

/* The ranks of this machine, by local rank, tell one another something of one name and size. */
static weft_status tell_all(const weft_host *host, const weft_host_exchange *exchange, const char *what, char *all,
                            size_t bytes, int ranks, int32_t index, weft_error *err) {
    const unsigned long long machine = machine_number();
    char key[60];
    weft_status status = WEFT_OK;
    (void)snprintf(key, sizeof key, "cuda.%s.%016llx.%d", what, machine, (int)index);
    status = exchange->put(host, key, all + (size_t)index * bytes, bytes, err);
    if (status != WEFT_OK) return weft_error_prefix(err, "Telling the other ranks of this machine this one's card: ");
    for (int i = 0; i < ranks && status == WEFT_OK; i++) {
        if (i == index) continue;
        (void)snprintf(key, sizeof key, "cuda.%s.%016llx.%d", what, machine, i);
        status = exchange->get(host, key, all + (size_t)i * bytes, bytes, err);
        if (status != WEFT_OK) return weft_error_prefix(err, "What the rank of local number %d tells of its card: ", i);
    }
    return status;
}

/* A rank that gives up may end what the others still read from: it waits until all have, as far as they say so. */
static void await_readers(const weft_host *host, const weft_host_exchange *exchange, int ranks, int32_t index) {
    char have_read[MOST_RANKS] = {0};
    weft_error lost = WEFT_ERROR_INIT;
    (void)tell_all(host, exchange, "read", have_read, 1, ranks, index, &lost);
}

static bool are_one(const card_name *a, const card_name *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* Ranks that were each shown other cards have more of them than any one sees. */
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

/* Where each rank can have a card of its own, it has: they take them in turn. */
static weft_status count_sharers(weft_device *device, const cuda_config *keys, int cards, int32_t index,
                                 weft_error *err) {
    const int ranks = local_ranks(device->host, index), planned = planned_ranks(device->host);
    const weft_host_exchange *exchange =
        (const weft_host_exchange *)device->host->extension(device->host, WEFT_HOST_EXCHANGE);
    weft_status status = WEFT_OK;
    device->sharers = (ranks - 1 - device->index) / cards + 1;
    if (planned > 0) device->sharers = keys->share ? (planned - 1) / cards + 1 : 1; /* else each is to have its own */
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

/* Of ranks that share a card each has as much in buffers, as far as this one knows; in a plan it is alone there. */
cudaError_t cuda_card_held(const weft_device *device, int64_t *out) {
    const int32_t there = planned_ranks(device->host) > 0 ? 1 : device->sharers;
    size_t left = 0, all = 0;
    const cudaError_t code = cudaMemGetInfo(&left, &all);
    if (code == cudaSuccess) *out = size_max((int64_t)(all - left) / there - device->live_bytes, 0);
    return code;
}
