/* driver.c: is there a driver and a card that this plugin can use, and which card is this rank's.
 *
 * What is asked before a device is made starts nothing on any card: the driver's version and the presence of libraries.
 */
#include "cuda.h"

/* As CUDA writes versions: 1000 * major + 10 * minor. */
#define MAJOR(version) ((version) / 1000)
#define MINOR(version) ((version) % 1000 / 10)

/* Drivers run what was compiled for any version of their own major one. */
static weft_status check_driver(weft_error *err) {
    int driver = 0, runtime = 0;
    const cudaError_t code = cudaDriverGetVersion(&driver);
    weft_status status = cuda_judge(code, "cudaDriverGetVersion", err);
    if (status != WEFT_OK) return status;
    if (driver == 0)
        return weft_error_set(err, WEFT_E_DEVICE,
                              "there is no NVIDIA driver on this machine (libcuda.so.1 was not found).");
    status = cuda_judge(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion", err);
    if (status != WEFT_OK || MAJOR(driver) >= MAJOR(runtime)) return status;
    return weft_error_set(
        err, WEFT_E_DEVICE,
        "the NVIDIA driver is too old: it runs CUDA up to %d.%d, and this plugin was built with %d.%d. "
        "Install a driver for CUDA %d, or build Weft with a toolkit of CUDA %d.",
        MAJOR(driver), MINOR(driver), MAJOR(runtime), MINOR(runtime), MAJOR(runtime), MAJOR(driver));
}

weft_status cuda_works(const weft_host *host, weft_error *err) {
    cuda_libraries libraries;
    const weft_status status = check_driver(err);
    (void)host;
    return status == WEFT_OK ? cuda_libraries_open(&libraries, err) : status;
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
    return cuda_judge(code, "cudaGetDeviceCount", err);
}

/* Ranks of this machine, as far as it is known. */
static int local_ranks(const weft_host *host, int32_t index) {
    const weft_host_world *world = (const weft_host_world *)host->extension(host, WEFT_HOST_WORLD);
    const int told = world == NULL ? 1 : world->local_size;
    return told > index ? told : index + 1;
}

static weft_status check_share(const weft_host *host, const cuda_config *keys, int cards, int32_t index,
                               weft_error *err) {
    const int ranks = local_ranks(host, index);
    if (keys->share || ranks <= cards) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "This machine has %d card%s for %d ranks. Start at most %d, or let ranks share a card with "
                          "share = yes in [device].",
                          cards, cards == 1 ? "" : "s", ranks, cards);
}

static weft_status check_card(const struct cudaDeviceProp *card, int index, weft_error *err) {
    if (card->major >= 8) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_DEVICE,
        "Card %d, %s, has compute capability %d.%d; 8.0 (Ampere) is the least that Weft's kernels run "
        "on. CUDA_VISIBLE_DEVICES can name another card.",
        index, card->name, card->major, card->minor);
}

weft_status cuda_card_pick(weft_device *device, const cuda_config *keys, int32_t index, weft_error *err) {
    int cards = 0;
    weft_status status = count_cards(&cards, err);
    if (status == WEFT_OK) status = check_share(device->host, keys, cards, index, err);
    if (status != WEFT_OK) return status;
    device->index = index % cards;
    device->sharers = (local_ranks(device->host, index) - 1 - device->index) / cards + 1;
    status = cuda_judge(cudaGetDeviceProperties(&device->card, device->index), "cudaGetDeviceProperties", err);
    if (status == WEFT_OK) status = check_card(&device->card, device->index, err);
    if (status == WEFT_OK) status = cuda_judge(cudaSetDevice(device->index), "cudaSetDevice", err);
    return status;
}
