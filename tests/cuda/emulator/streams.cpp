/* streams.cpp: streams are queues, and nothing in them runs early.
 *
 *   WEFT_EMULATOR_MODE=last   when the host waits, only the awaited work and its dependencies run
 *   WEFT_EMULATOR_MODE=any    when the host waits, random runnable work runs, chosen by WEFT_EMULATOR_SEED, until the
 *                           awaited work is done; sometimes work runs while the host does not wait
 *   WEFT_EMULATOR_MODE=soon   work runs as soon as it is queued
 *
 * The host's own thread runs it. An operation that needs another process (NCCL) is retried. */
#include <thread>
#include <unistd.h>

#include "emulator.h"

namespace weft_emulator {
namespace {

enum { PATIENCE = 16 }; /* queries before work is run */

StreamRef make_legacy() {
    return std::make_shared<Stream>();
}

const StreamRef &legacy() {
    static const StreamRef stream = make_legacy();
    return stream;
}

bool can_run(const Stream &s) {
    if (s.queue.empty()) return false;
    for (const Point &point : s.queue.front().after)
        if (!point.reached()) return false;
    return true;
}

void forget_destroyed() {
    std::vector<StreamRef> &all = all_streams();
    for (size_t i = all.size(); i-- > 0;)
        if (all[i]->destroyed && all[i]->queue.empty()) all.erase(all.begin() + static_cast<long>(i));
}

/* Tries a stream's first operation. After a sticky error the GPU does nothing any more. */
Step run_head(const StreamRef &s) {
    Op &op = s->queue.front();
    running(op.name.c_str());
    const Step step = sticking() == cudaSuccess ? op.work() : Step::DONE;
    running("");
    if (step == Step::DONE) {
        s->queue.pop_front();
        s->done++;
    }
    return step;
}

/* Returns the stream whose head must run before that point is reached; empty: no stream can. */
StreamRef needed_for(const Point &wanted) {
    StreamRef s = wanted.stream;
    while (!s->queue.empty()) {
        const Point *missing = nullptr;
        for (const Point &point : s->queue.front().after)
            if (!point.reached()) missing = &point;
        if (missing == nullptr) return s;
        s = missing->stream;
    }
    return nullptr;
}

StreamRef drawn() {
    std::vector<StreamRef> can;
    for (const StreamRef &s : all_streams())
        if (can_run(*s)) can.push_back(s);
    return can.empty() ? nullptr : can[draw(can.size())];
}

/* Another process must act first: runs any other work, which that process may be waiting for. */
void let_others_go() {
    const StreamRef other = drawn();
    if (other == nullptr || run_head(other) == Step::IDLE) lock_of_all().give_way(50);
}

/* Returns the stream with work that other processes wait for. */
StreamRef wanted_by_others() {
    for (const StreamRef &s : all_streams())
        for (size_t i = 0; i < s->queue.size(); i++)
            if (s->queue[i].shared) return needed_for({s, s->done + i + 1});
    return nullptr;
}

/* Progresses work that other processes wait for while the host does something else. */
void nudge() {
    for (;;) {
        (void)usleep(2000);
        if (!lock_of_all().try_lock()) continue;
        for (int i = 0; i < 64 && !in_kernel(); i++) {
            Open open;
            const StreamRef s = wanted_by_others();
            if (s == nullptr || run_head(s) == Step::IDLE) break;
        }
        lock_of_all().unlock();
    }
}

void run_some(uint64_t chance) {
    if (draw(chance) != 0) return;
    Open open;
    const StreamRef s = drawn();
    if (s != nullptr) (void)run_head(s);
    forget_destroyed();
}

/* Runs everything except work that needs other processes. */
void run_what_can() {
    Open open;
    for (bool moved = true; moved;) {
        const std::vector<StreamRef> all = all_streams();
        moved = false;
        for (const StreamRef &s : all)
            while (can_run(*s) && run_head(s) != Step::IDLE) moved = true;
    }
    forget_destroyed();
}

/* Orders by the legacy default stream: it waits for all blocking streams, and they wait for it. */
void order_by_legacy(const StreamRef &stream, std::vector<Point> &after) {
    if (stream == legacy()) {
        for (const StreamRef &s : all_streams())
            if (s != stream && s->blocking && s->done < s->queued) after.push_back(end_of(s));
    } else if (stream->blocking && legacy()->done < legacy()->queued) {
        after.push_back(end_of(legacy()));
    }
}

void append(const StreamRef &stream, Op op) {
    order_by_legacy(stream, op.after);
    stream->queue.push_back(std::move(op));
    stream->queued++;
    if (mode() == SOON) run_what_can();
    else if (mode() == ANY) run_some(16);
}

cudaError_t may_wait(cudaStream_t stream, const char *function) {
    const StreamRef s = stream_of(stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (s->capture != nullptr) return capture_breaks(s, cudaErrorStreamCaptureUnsupported);
    return capture_allows(function);
}

cudaError_t create(cudaStream_t *out, unsigned int flags) {
    const cudaError_t code = device_ready();
    if (code != cudaSuccess) return code;
    if (out == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    const StreamRef s = std::make_shared<Stream>();
    s->blocking = flags == cudaStreamDefault;
    s->device = device_now();
    all_streams().push_back(s);
    *out = reinterpret_cast<cudaStream_t>(s.get());
    return cudaSuccess;
}

} // namespace

bool Point::reached() const {
    return stream == nullptr || stream->done >= ticket;
}

std::vector<StreamRef> &all_streams() {
    static std::vector<StreamRef> all = {legacy()};
    return all;
}

StreamRef stream_of(cudaStream_t handle) {
    if (handle == nullptr || handle == cudaStreamLegacy) return legacy();
    for (const StreamRef &s : all_streams())
        if (reinterpret_cast<cudaStream_t>(s.get()) == handle && !s->destroyed) return s;
    return nullptr;
}

Point end_of(const StreamRef &stream) {
    return {stream, stream->queued};
}

static cudaError_t may_queue(const StreamRef &s, const char *name) {
    if (s == nullptr) return refuse(cudaErrorInvalidResourceHandle, "%s: there is no such stream", name);
    if (device_ready() != cudaSuccess) return device_ready();
    if (s->capture != nullptr) return s->capture->broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    return s == legacy() && capturing_blocking() ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

cudaError_t queue(cudaStream_t stream, const char *name, Maker maker, bool kernel) {
    const StreamRef s = stream_of(stream);
    const cudaError_t code = may_queue(s, name);
    if (code != cudaSuccess) return code;
    if (s->capture != nullptr) capture_add(s, name, kernel, std::move(maker));
    else append(s, {name, kernel, {}, maker(), false});
    return cudaSuccess;
}

cudaError_t queue_behind(cudaStream_t stream, const char *name, Maker maker, Point &last, std::weak_ptr<Graph> &graph,
                         size_t &node) {
    const StreamRef s = stream_of(stream);
    const cudaError_t code = may_queue(s, name);
    if (code != cudaSuccess) return code;
    if (s->capture != nullptr) {
        if (graph.lock() == s->capture->graph) s->tips.push_back(node);
        capture_add(s, name, false, std::move(maker));
        graph = s->capture->graph;
        node = s->tips[0];
    } else {
        append(s, {name, false, {last}, maker(), true});
        last = end_of(s);
    }
    return cudaSuccess;
}

void run_for_others() {
    Open open;
    const StreamRef s = wanted_by_others();
    if (s != nullptr) (void)run_head(s);
}

void queue_wait(const StreamRef &stream, const Point &point) {
    if (point.reached()) return;
    append(stream, {"cudaStreamWaitEvent", false, {point}, [] { return Step::DONE; }, false});
}

cudaError_t run_until(const Point &point) {
    if (point.reached()) return cudaSuccess;
    Open open;
    while (!point.reached()) {
        const StreamRef s = mode() == LAST ? needed_for(point) : drawn();
        if (s == nullptr) fault("streams wait for each other, and nothing can run");
        if (run_head(s) == Step::IDLE) let_others_go();
    }
    forget_destroyed();
    return sticking();
}

cudaError_t run_all() {
    for (;;) {
        Point busy;
        for (const StreamRef &s : all_streams())
            if (s->done < s->queued) busy = end_of(s);
        if (busy.stream == nullptr) return sticking();
        const cudaError_t code = run_until(busy);
        if (code != cudaSuccess) return code;
    }
}

bool asked_for(const Point &point, int &asked) {
    if (!point.reached() && ++asked > PATIENCE) {
        asked = 0;
        Open open;
        const StreamRef s = mode() == LAST ? needed_for(point) : drawn();
        if (s != nullptr) (void)run_head(s);
    }
    return point.reached();
}

bool kernels_wait() {
    for (const StreamRef &s : all_streams())
        for (const Op &op : s->queue)
            if (op.kernel) return true;
    return false;
}

/* When the process ends, each other thread stops at its next request for the lock. The exiting thread keeps the lock,
 * because the data is being destroyed. */
struct Standstill {
    ~Standstill() {
        lock_of_all().lock();
    }
};

void queue_is_shared() {
    static bool started = false;
    if (started) return;
    started = true;
    (void)draw(1); /* objects created later are destroyed earlier */
    (void)all_streams();
    static const Standstill end;
    std::thread(nudge).detach();
}

Maker once(std::function<void()> run) {
    return [run = std::move(run)]() -> Work {
        return [run] {
            run();
            return Step::DONE;
        };
    };
}

} // namespace weft_emulator

using namespace weft_emulator;

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *out) {
    CALL("cudaStreamCreate");
    return answer(create(out, cudaStreamDefault));
}

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags) {
    CALL("cudaStreamCreateWithFlags");
    return answer(create(out, flags));
}

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int) {
    CALL("cudaStreamCreateWithPriority");
    return answer(create(out, flags));
}

/* Its queued work still runs. */
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    CALL("cudaStreamDestroy");
    const StreamRef s = stream_of(stream);
    if (s == nullptr || stream == nullptr || stream == cudaStreamLegacy) return answer(cudaErrorInvalidResourceHandle);
    if (s->capture != nullptr) (void)capture_breaks(s, cudaSuccess);
    s->destroyed = true;
    forget_destroyed();
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    CALL("cudaStreamSynchronize");
    cudaError_t code = may_wait(stream, "cudaStreamSynchronize");
    if (code == cudaSuccess) code = run_until(end_of(stream_of(stream)));
    return answer(code);
}

EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
    CALL("cudaStreamQuery");
    const cudaError_t code = may_wait(stream, "cudaStreamQuery");
    if (code != cudaSuccess) return answer(code);
    const StreamRef s = stream_of(stream);
    return asked_for(end_of(s), s->asked) ? cudaSuccess : cudaErrorNotReady;
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *context) {
    CALL("cudaLaunchHostFunc");
    return answer(queue(stream, "cudaLaunchHostFunc", once([function, context] { function(context); })));
}
