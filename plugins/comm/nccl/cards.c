/* cards.c: see world.h. NCCL rejects a world in which two ranks share a GPU, with a short error on those two only. Like
 * NCCL, this file identifies GPUs by their PCI bus ids: all parts of a divided GPU (MIG) count as one. */
#include "../../common/machine.h"
#include "world.h"

#include <dlfcn.h>

typedef struct card {
    uint64_t machine, place;
} card;

enum { ROOM = 700 }; /* for the list of sharing ranks */

/* Driver functions: NCCL has no query for it, and the CUDA runtime is inside the device plugin. */
typedef int get_device(int *out, int index);
typedef int get_place(char *out, int bytes, int device);

static weft_status no_place(const char *why, int code, weft_error *err) {
    return weft_error_set(err, WEFT_E_DEVICE, "NCCL, the address of this rank's card: %s answered %d.", why, code);
}

/* Parses "0000:1b:00.0", in hexadecimal digits. */
static weft_status read_place(uint64_t *out, const char *text, weft_error *err) {
    unsigned domain = 0, bus = 0, device = 0, function = 0;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
        return weft_error_set(err, WEFT_E_DEVICE, "NCCL, the address of this rank's card: \"%s\" is not valid.", text);
    *out = (uint64_t)domain << 32 | bus << 16 | device << 8 | function;
    return WEFT_OK;
}

static void write_place(char *out, size_t size, uint64_t place) {
    (void)snprintf(out, size, "%04x:%02x:%02x.%x", (unsigned)(place >> 32), (unsigned)(place >> 16 & 0xffff),
                   (unsigned)(place >> 8 & 0xff), (unsigned)(place & 0xff));
}

static weft_status ask_driver(uint64_t *out, void *driver, int index, weft_error *err) {
    get_device *device_of = NULL;
    get_place *place_of = NULL;
    char text[40] = "";
    int device = 0, code = 0;
    *(void **)&device_of = dlsym(driver, "cuDeviceGet");
    *(void **)&place_of = dlsym(driver, "cuDeviceGetPCIBusId");
    if (device_of == NULL || place_of == NULL)
        return weft_error_set(err, WEFT_E_DEVICE,
                              NCCL_DRIVER " has no function %s, by which NCCL's ranks compare their cards.",
                              device_of == NULL ? "cuDeviceGet" : "cuDeviceGetPCIBusId");
    code = device_of(&device, index);
    if (code != 0) return no_place("cuDeviceGet", code, err);
    code = place_of(text, (int)sizeof text, device);
    return code == 0 ? read_place(out, text, err) : no_place("cuDeviceGetPCIBusId", code, err);
}

static weft_status find_place(uint64_t *out, const weft_comm *comm, weft_error *err) {
    void *driver = dlopen(NCCL_DRIVER, RTLD_LAZY | RTLD_LOCAL);
    weft_status status = WEFT_OK;
    if (driver == NULL)
        return weft_error_set(err, WEFT_E_DEVICE,
                              NCCL_DRIVER " was not found, by which NCCL's ranks compare their "
                                          "cards.");
    status = ask_driver(out, driver, comm->native->index(comm->device), err);
    (void)dlclose(driver);
    return status;
}

static bool are_one(const card *a, const card *b) {
    return a->machine == b->machine && a->place == b->place;
}

static void append(char *text, size_t size, const char *more) {
    const size_t used = strlen(text);
    (void)snprintf(text + used, size - used, "%s", more);
}

/* Appends "ranks 0, 2 share card 0000:1b:00.0" if `first` is the lowest of several ranks on a GPU. */
static void name_sharers(char *text, size_t size, const card *cards, int32_t ranks, int32_t first) {
    char place[40], more[60];
    int32_t n = 1;
    for (int32_t r = 0; r < first; r++)
        if (are_one(&cards[r], &cards[first])) return;
    for (int32_t r = first + 1; r < ranks; r++) {
        if (!are_one(&cards[r], &cards[first])) continue;
        if (n++ == 1) {
            (void)snprintf(more, sizeof more, "%sranks %d", text[0] == '\0' ? "" : "; ", (int)first);
            append(text, size, more);
        }
        (void)snprintf(more, sizeof more, ", %d", (int)r);
        append(text, size, more);
    }
    if (n == 1) return;
    write_place(place, sizeof place, cards[first].place);
    (void)snprintf(more, sizeof more, " share card %s", place);
    append(text, size, more);
}

static weft_status judge_cards(const card *cards, int32_t ranks, weft_error *err) {
    char who[ROOM] = "";
    for (int32_t r = 0; r < ranks; r++) name_sharers(who, sizeof who, cards, ranks, r);
    if (who[0] == '\0') return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_USER,
        "NCCL needs a card for each rank, and %s. Fix: start as many ranks as there are cards, or set "
        "[comm] plugin = mpi, whose ranks can share one",
        who);
}

weft_status nccl_compare_cards(const weft_comm *comm, const weft_host_exchange *exchange, weft_error *err) {
    const int32_t rank = comm->info.rank, size = comm->info.size;
    card *cards = comm->host->alloc(comm->host, (size_t)size * sizeof *cards, 8);
    weft_status status = WEFT_OK;
    if (cards == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for a list of %d cards.", (int)size);
    cards[rank].machine = machine_number();
    status = find_place(&cards[rank].place, comm, err);
    if (status == WEFT_OK)
        status = nccl_tell_all(&(nccl_told){comm->host, exchange, "card", cards, sizeof *cards, rank, size}, err);
    if (status == WEFT_OK) status = judge_cards(cards, size, err);
    comm->host->release(comm->host, cards);
    return status;
}
