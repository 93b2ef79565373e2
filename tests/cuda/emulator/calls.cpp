/* calls.cpp: common part of every call. Errors are planted by WEFT_EMULATOR_FAIL="cudaMalloc:2=2,kernel:5=700": the
 * second call of cudaMalloc returns 2 and does nothing; the fifth kernel that runs fails with 700, which is sticky. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "emulator.h"

namespace weft_emulator {
namespace {

struct Plant {
    std::string name;
    long long at;
    int code;
};

/* Counts, written to the file of WEFT_EMULATOR_COUNTS when the process ends: "call cudaMalloc 3". */
struct Counts {
    std::map<std::string, long long> calls, kernels;
    std::vector<Plant> plants;
    uint64_t state = 1;
    Mode mode = LAST;
    Counts();
    ~Counts();
};

Counts &counts() {
    static Counts all;
    return all;
}

std::vector<Plant> read_plants(const char *text) {
    std::vector<Plant> plants;
    char name[64];
    long long at = 0;
    int code = 0, used = 0;
    for (; text != nullptr && *text != 0; text += used + (text[used] == ',')) {
        used = 0;
        if (sscanf(text, "%63[A-Za-z0-9_]:%lld=%d%n", name, &at, &code, &used) != 3 ||
            (text[used] != ',' && text[used] != 0))
            fault("WEFT_EMULATOR_FAIL is to be like cudaMalloc:2=2,kernel:5=700, and has \"%s\"", text);
        plants.push_back({name, at, code});
    }
    return plants;
}

Mode mode_of(const char *name) {
    if (strcmp(name, "last") == 0) return LAST;
    if (strcmp(name, "any") == 0) return ANY;
    if (strcmp(name, "soon") == 0) return SOON;
    fault("WEFT_EMULATOR_MODE is last, any or soon, and not \"%s\"", name);
}

/* True if errors are planted in this rank, of those that a launcher or the host has started. */
bool is_meant() {
    const char *wanted = getenv("WEFT_EMULATOR_FAIL_RANK");
    if (wanted == nullptr || *wanted == 0) return true;
    for (const char *name : {"WEFT_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"}) {
        const char *rank = getenv(name);
        if (rank != nullptr) return strcmp(rank, wanted) == 0;
    }
    return false;
}

Counts::Counts()
    : plants(read_plants(is_meant() ? getenv("WEFT_EMULATOR_FAIL") : nullptr)),
      state(static_cast<uint64_t>(number("WEFT_EMULATOR_SEED", 1))),
      mode(mode_of(setting("WEFT_EMULATOR_MODE", "last"))) {}

Counts::~Counts() {
    const char *path = getenv("WEFT_EMULATOR_COUNTS");
    FILE *file = path == nullptr || !is_meant() ? nullptr : fopen(path, "a");
    if (file == nullptr) return;
    for (const auto &[name, n] : calls) (void)fprintf(file, "call %s %lld\n", name.c_str(), n);
    for (const auto &[name, n] : kernels) (void)fprintf(file, "kernel %s %lld\n", name.c_str(), n);
    (void)fclose(file);
}

thread_local cudaError_t last_error = cudaSuccess;
cudaError_t stuck = cudaSuccess;

bool tells_of_errors(const char *name) {
    return strcmp(name, "cudaGetLastError") == 0 || strcmp(name, "cudaPeekAtLastError") == 0;
}

} // namespace

void Lock::lock() {
    if (owner.load() != std::this_thread::get_id()) {
        mutex.lock();
        owner = std::this_thread::get_id();
    }
    depth++;
}

bool Lock::try_lock() {
    if (owner.load() != std::this_thread::get_id()) {
        if (!mutex.try_lock()) return false;
        owner = std::this_thread::get_id();
    }
    depth++;
    return true;
}

void Lock::unlock() {
    if (--depth > 0) return;
    owner = std::thread::id();
    mutex.unlock();
}

void Lock::give_way(unsigned microseconds) {
    const int held = depth;
    depth = 0;
    owner = std::thread::id();
    mutex.unlock();
    (void)usleep(microseconds);
    mutex.lock();
    owner = std::this_thread::get_id();
    depth = held;
}

Lock &lock_of_all() {
    static Lock lock;
    return lock;
}

const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value == nullptr || *value == 0 ? otherwise : value;
}

long long number(const char *name, long long otherwise) {
    const char *value = getenv(name);
    return value == nullptr || *value == 0 ? otherwise : strtoll(value, nullptr, 0);
}

uint64_t draw(uint64_t below) { /* splitmix64 */
    uint64_t x = counts().state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 31)) % below;
}

Mode mode() {
    return counts().mode;
}

int planted(const char *name) {
    const long long n = ++counts().calls[name];
    for (const Plant &plant : counts().plants)
        if (plant.at == n && plant.name == name) return plant.code;
    return 0;
}

void stick(cudaError_t code) {
    if (stuck == cudaSuccess) stuck = code;
}

cudaError_t sticking() {
    return stuck;
}

cudaError_t answer(cudaError_t code) {
    if (code != cudaSuccess && code != cudaErrorNotReady) last_error = code;
    return code;
}

Call::Call(const char *name) : lock(lock_of_all()), code(static_cast<cudaError_t>(planted(name))) {
    if (in_kernel()) fault("%s is called from a kernel", name);
    if (code == cudaSuccess && stuck != cudaSuccess && !tells_of_errors(name)) code = stuck;
    (void)answer(code);
}

LastErrorKept::LastErrorKept() : before(last_error) {}
LastErrorKept::~LastErrorKept() {
    last_error = before;
}

void count_launch(const char *kernel) {
    counts().kernels[kernel]++;
}

} // namespace weft_emulator

using namespace weft_emulator;

EXPORT void emulator_seed(uint64_t seed) {
    counts().state = seed;
}

EXPORT int emulator_mode(const char *name) {
    if (strcmp(name, "last") != 0 && strcmp(name, "any") != 0 && strcmp(name, "soon") != 0) return 0;
    counts().mode = mode_of(name);
    return 1;
}

static long long total(const std::map<std::string, long long> &of, const char *name) {
    long long n = 0;
    for (const auto &[key, value] : of)
        if (name == nullptr || key == name) n += value;
    return n;
}

EXPORT long long emulator_launches(const char *kernel) {
    return total(counts().kernels, kernel);
}

EXPORT long long emulator_calls(const char *function) {
    return total(counts().calls, function);
}

EXPORT void emulator_plant(const char *what) {
    counts().plants = read_plants(what);
    counts().calls.clear();
    stuck = last_error = cudaSuccess;
}

EXPORT cudaError_t cudaGetLastError(void) {
    CALL("cudaGetLastError");
    const cudaError_t code = stuck != cudaSuccess ? stuck : last_error;
    last_error = cudaSuccess;
    return code;
}

EXPORT cudaError_t cudaPeekAtLastError(void) {
    CALL("cudaPeekAtLastError");
    return stuck != cudaSuccess ? stuck : last_error;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
#define ERROR_ROW(name, value, text) {value, #name, text},
    EMULATOR_ERRORS(ERROR_ROW)};

EXPORT const char *cudaGetErrorName(cudaError_t code) {
    for (const auto &error : errors)
        if (error.code == static_cast<int>(code)) return error.name;
    return "unrecognized error code";
}

EXPORT const char *cudaGetErrorString(cudaError_t code) {
    for (const auto &error : errors)
        if (error.code == static_cast<int>(code)) return error.text;
    return "unrecognized error code";
}
