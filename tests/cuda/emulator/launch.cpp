/* launch.cpp: validates a launch as the driver does, copies its arguments, and queues it. Blocks run in random order,
 * one after another, or in some launches in interleaved pairs. */
#include <cstring>
#include <numeric>

#include "emulator.h"

namespace weft_emulator {
namespace {

constexpr size_t SHARED = 48 << 10;
constexpr unsigned INTERLEAVED = 4;     /* one launch of four interleaves pairs of blocks */
std::map<const void *, size_t> allowed; /* dynamic shared memory, of kernels with a raised limit */

/* Strips the parentheses: "(norm<T>)" is norm<T>. */
std::string plain_name(const char *text) {
    std::string name = text;
    if (name.size() > 2 && name.front() == '(' && name.back() == ')') name = name.substr(1, name.size() - 2);
    return name;
}

cudaError_t judge(const emulator_launch &l) {
    const dim3 &g = l.grid, &b = l.block;
    if (g.x == 0 || g.y == 0 || g.z == 0 || b.x == 0 || b.y == 0 || b.z == 0)
        return refuse(cudaErrorInvalidConfiguration, "%s (%s:%d) is launched with nothing to do", l.name, l.file,
                      l.line);
    if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535 || b.x > 1024 || b.y > 1024 || b.z > 64 ||
        static_cast<uint64_t>(b.x) * b.y * b.z > 1024)
        return refuse(cudaErrorInvalidConfiguration, "%s (%s:%d): a grid of (%u,%u,%u) blocks of (%u,%u,%u) threads",
                      l.name, l.file, l.line, g.x, g.y, g.z, b.x, b.y, b.z);
    if (l.shared > dynamic_shared_most(l.kernel))
        return refuse(cudaErrorInvalidValue, "%s (%s:%d): %zu bytes of shared memory, and %zu are allowed", l.name,
                      l.file, l.line, l.shared, dynamic_shared_most(l.kernel));
    return cudaSuccess;
}

uint3 place_of(const emulator_launch &l, uint64_t at) {
    const uint64_t plane = static_cast<uint64_t>(l.grid.x) * l.grid.y;
    return {static_cast<unsigned>(at % l.grid.x), static_cast<unsigned>(at % plane / l.grid.x),
            static_cast<unsigned>(at / plane)};
}

} // namespace

size_t dynamic_shared_most(const void *kernel) {
    const auto it = allowed.find(kernel);
    return it == allowed.end() ? SHARED : it->second;
}

void run_grid(const emulator_launch &l, const void *arguments) {
    const uint64_t n = static_cast<uint64_t>(l.grid.x) * l.grid.y * l.grid.z;
    const uint64_t start = draw(n);
    uint64_t stride = 1 + draw(n);
    /* The model that counts bytes has one block at a time. */
    const bool interleaved = n > 1 && !bytes_are_counted() && draw(INTERLEAVED) == 0;
    if (interleaved && draw(2) != 0) stride = 1; /* neighbours */
    while (std::gcd(stride, n) != 1) stride = stride % n + 1;
    watch_faults();
    count_launch(l.name);
    const int code = planted("kernel");
    if (code != 0) {
        stick(static_cast<cudaError_t>(code));
        return;
    }
    bytes_begin_launch(l.name);
    for (uint64_t i = 0, at = start, together; i < n; i += together, at = (at + together * stride) % n) {
        const uint3 places[] = {place_of(l, at), place_of(l, (at + stride) % n)};
        together = interleaved && i + 1 < n ? 2 : 1;
        bytes_begin_block(static_cast<size_t>(l.block.x) * l.block.y * l.block.z);
        run_blocks(l, arguments, places, static_cast<unsigned>(together));
    }
    bytes_end_launch();
}

} // namespace weft_emulator

using namespace weft_emulator;

EXPORT cudaError_t emulator_launch_queue(const emulator_launch *what, const void *arguments, cudaStream_t stream) {
    CALL("cudaLaunchKernel");
    cudaError_t code = device_ready();
    if (code == cudaSuccess) code = judge(*what);
    if (code != cudaSuccess) return answer(code);
    const auto name = std::make_shared<std::string>(plain_name(what->name));
    const auto copy = std::make_shared<std::vector<max_align_t>>(what->bytes / sizeof(max_align_t) + 1);
    std::memcpy(copy->data(), arguments, what->bytes);
    emulator_launch l = *what;
    l.name = name->c_str();
    return answer(queue(stream, name->c_str(), once([l, name, copy] { run_grid(l, copy->data()); }), true));
}

EXPORT cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value) {
    CALL("cudaFuncSetAttribute");
    if (device_ready() != cudaSuccess) return answer(device_ready());
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || static_cast<size_t>(value) > device_shared_most()) return answer(cudaErrorInvalidValue);
    allowed[kernel] = static_cast<size_t>(value);
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, const void *kernel) {
    CALL("cudaFuncGetAttributes");
    if (device_ready() != cudaSuccess) return answer(device_ready());
    *out = cudaFuncAttributes{};
    out->maxThreadsPerBlock = 1024;
    out->binaryVersion = out->ptxVersion = device_capability();
    out->maxDynamicSharedSizeBytes = static_cast<int>(dynamic_shared_most(kernel));
    return cudaSuccess;
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int block, size_t shared) {
    CALL("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    const int by_shared = static_cast<int>(device_shared_most() / (shared + 1024));
    *blocks = block <= 0 ? 0 : 2048 / block;
    if (*blocks > by_shared) *blocks = by_shared;
    if (*blocks > 32) *blocks = 32;
    return cudaSuccess;
}
