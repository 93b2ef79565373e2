/* copies.cpp: copies and fills. An asynchronous copy reads its source when it runs, also from pageable memory; until
 * then its host destination is NaN. Other copies follow CUDA's documentation strictly. cudaMemcpy from pageable memory
 * returns after staging the source, and a stream that does not wait for the default stream does not see the bytes yet.
 * cudaMemset and copies on the device only queue. */
#include <cstring>

#include "emulator.h"

using namespace weft_emulator;

namespace {

struct Move {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
};

bool device_side(const void *pointer) {
    return sort_of(pointer) == Sort::DEVICE;
}

/* Validates the given direction against the memory's location. */
cudaError_t judge(const char *function, const Move &m, cudaMemcpyKind kind) {
    const size_t to_bytes = m.to_pitch * (m.height - 1) + m.width, from_bytes = m.from_pitch * (m.height - 1) + m.width;
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (!whole(m.to, to_bytes, function, "the target") || !whole(m.from, from_bytes, function, "the source"))
        return cudaErrorInvalidValue;
    if (kind != cudaMemcpyDefault && (device_side(m.to) != to_device || device_side(m.from) != from_device))
        return refuse(cudaErrorInvalidValue, "%s: the direction %d is not that of its pointers", function, kind);
    return cudaSuccess;
}

constexpr double COPIED_PER_SECOND = 1e10; /* bytes, of the emulated time */

void run(const Move &m) {
    for (size_t row = 0; row < m.height; row++)
        std::memmove(m.to + row * m.to_pitch, m.from + row * m.from_pitch, m.width);
    emulated_seconds() += static_cast<double>(m.width * m.height) / COPIED_PER_SECOND;
}

cudaError_t move_later(const char *function, const Move &m, cudaMemcpyKind kind, cudaStream_t stream) {
    const StreamRef s = stream_of(stream);
    cudaError_t code = s == nullptr ? cudaErrorInvalidResourceHandle : device_ready();
    if (code != cudaSuccess || m.width == 0 || m.height == 0) return code;
    code = judge(function, m, kind);
    if (code != cudaSuccess) return code;
    if (sort_of(m.to) == Sort::PAGEABLE || sort_of(m.from) == Sort::PAGEABLE) (void)planted("pageableCopy");
    if (s->capture != nullptr && (sort_of(m.to) == Sort::PAGEABLE || sort_of(m.from) == Sort::PAGEABLE))
        return refuse(capture_breaks(s, cudaErrorStreamCaptureUnsupported), "%s: pageable memory in a capture",
                      function);
    if (s->capture == nullptr && !device_side(m.to) && device_side(m.from))
        for (size_t row = 0; row < m.height; row++) std::memset(m.to + row * m.to_pitch, 0xff, m.width);
    return queue(stream, function, once([m] { run(m); }));
}

/* The host waits for the default stream, and for the copy's writes to host memory. */
cudaError_t move_now(const Move &m, cudaMemcpyKind kind) {
    cudaError_t code = capturing_blocking() ? cudaErrorStreamCaptureImplicit : capture_allows("cudaMemcpy");
    if (code == cudaSuccess) code = device_ready();
    if (code == cudaSuccess && m.width > 0) code = judge("cudaMemcpy", m, kind);
    if (code != cudaSuccess || m.width == 0) return code;
    if (device_side(m.to) && device_side(m.from)) return queue(nullptr, "cudaMemcpy", once([m] { run(m); }));
    if (device_side(m.to) && sort_of(m.from) == Sort::PAGEABLE) {
        const auto staged = std::make_shared<std::vector<char>>(m.from, m.from + m.width);
        code = run_until(end_of(stream_of(nullptr)));
        if (code != cudaSuccess) return code;
        return queue(nullptr, "cudaMemcpy", once([m, staged] { std::memcpy(m.to, staged->data(), m.width); }));
    }
    code = queue(nullptr, "cudaMemcpy", once([m] { run(m); }));
    return code == cudaSuccess ? run_until(end_of(stream_of(nullptr))) : code;
}

Move line(void *to, const void *from, size_t bytes) {
    return {static_cast<char *>(to), static_cast<const char *>(from), bytes, bytes, bytes, 1};
}

cudaError_t fill(const char *function, const Move &m, int value, cudaStream_t stream) {
    if (m.width == 0) return device_ready();
    if (!whole(m.to, m.to_pitch * (m.height - 1) + m.width, function, "the target")) return cudaErrorInvalidValue;
    if (sort_of(m.to) == Sort::PAGEABLE)
        return refuse(cudaErrorInvalidValue, "%s: the target is not the device's", function);
    return queue(stream, function, once([m, value] {
                     for (size_t row = 0; row < m.height; row++) std::memset(m.to + row * m.to_pitch, value, m.width);
                 }));
}

} // namespace

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    CALL("cudaMemcpy");
    return answer(move_now(line(to, from, bytes), kind));
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    CALL("cudaMemcpyAsync");
    return answer(move_later("cudaMemcpyAsync", line(to, from, bytes), kind, stream));
}

EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                     size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    CALL("cudaMemcpy2DAsync");
    if (width > to_pitch || width > from_pitch) return answer(cudaErrorInvalidValue);
    const Move m = {static_cast<char *>(to), static_cast<const char *>(from), to_pitch, from_pitch, width, height};
    return answer(move_later("cudaMemcpy2DAsync", m, kind, stream));
}

EXPORT cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    CALL("cudaMemset");
    return answer(fill("cudaMemset", line(to, nullptr, bytes), value, nullptr));
}

EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    CALL("cudaMemsetAsync");
    return answer(fill("cudaMemsetAsync", line(to, nullptr, bytes), value, stream));
}

EXPORT cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                                     cudaStream_t stream) {
    CALL("cudaMemset2DAsync");
    if (width > pitch) return answer(cudaErrorInvalidValue);
    if (height == 0) return answer(device_ready());
    return answer(
        fill("cudaMemset2DAsync", {static_cast<char *>(to), nullptr, pitch, 0, width, height}, value, stream));
}
