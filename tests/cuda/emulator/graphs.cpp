/* graphs.cpp: work queued in a captured stream becomes nodes, ordered by streams and events. A replay makes each node
 * again, and runs nodes in any order that the graph allows, chosen by the seed. */
#include <algorithm>
#include <pthread.h>

#include "emulator.h"

using namespace weft_emulator;

struct CUgraph_st {
    std::shared_ptr<Graph> graph;
};
struct CUgraphExec_st {
    std::shared_ptr<const Graph> graph;
};

namespace {

std::vector<std::unique_ptr<CUgraph_st>> graphs;
std::vector<std::unique_ptr<CUgraphExec_st>> execs;
std::vector<std::shared_ptr<Capture>> captures; /* in progress */

unsigned long long this_thread() {
    return static_cast<unsigned long long>(pthread_self());
}

template <typename T> bool exists(const std::vector<std::unique_ptr<T>> &in, const T *what) {
    return std::any_of(in.begin(), in.end(), [what](const auto &x) { return x.get() == what; });
}
template <typename T> bool forget(std::vector<std::unique_ptr<T>> &in, const T *what) {
    const auto it = std::find_if(in.begin(), in.end(), [what](const auto &x) { return x.get() == what; });
    if (it == in.end()) return false;
    in.erase(it);
    return true;
}

/* A replay in progress. */
struct Replay {
    std::shared_ptr<const Graph> graph;
    std::vector<Work> works; /* empty: not started */
    std::vector<bool> done;
    size_t n_done = 0;

    bool ready(size_t i) const {
        const std::vector<size_t> &after = graph->nodes[i].after;
        return !done[i] && std::all_of(after.begin(), after.end(), [this](size_t j) { return done[j]; });
    }
    Step go_on() {
        std::vector<size_t> can;
        for (size_t i = 0; i < graph->nodes.size(); i++)
            if (ready(i)) can.push_back(i);
        if (can.empty()) return Step::DONE;
        const size_t i = can[draw(can.size())];
        if (!works[i]) works[i] = graph->nodes[i].maker();
        running(graph->nodes[i].name.c_str());
        const Step step = works[i]();
        if (step != Step::DONE) return step;
        done[i] = true;
        return ++n_done == done.size() ? Step::DONE : Step::MOVED;
    }
};

Maker replay_of(const std::shared_ptr<const Graph> &graph) {
    return [graph]() -> Work {
        const auto replay = std::make_shared<Replay>();
        replay->graph = graph;
        replay->works.resize(graph->nodes.size());
        replay->done.resize(graph->nodes.size());
        return [replay] { return replay->go_on(); };
    };
}

/* True if every joined stream has joined back to the origin. */
bool is_joined(const Capture &capture) {
    std::vector<bool> seen(capture.graph->nodes.size());
    std::vector<size_t> open = capture.origin->tips;
    while (!open.empty()) {
        const size_t i = open.back();
        open.pop_back();
        if (seen[i]) continue;
        seen[i] = true;
        open.insert(open.end(), capture.graph->nodes[i].after.begin(), capture.graph->nodes[i].after.end());
    }
    return std::all_of(seen.begin(), seen.end(), [](bool s) { return s; });
}

void end(const std::shared_ptr<Capture> &capture) {
    for (const StreamRef &s : capture->members) {
        s->capture = nullptr;
        s->tips.clear();
    }
    capture->origin = nullptr;
    capture->members.clear();
    captures.erase(std::find(captures.begin(), captures.end(), capture));
}

cudaError_t judge_end(const Capture &capture) {
    if (capture.broken) return cudaErrorStreamCaptureInvalidated;
    if (capture.mode != cudaStreamCaptureModeRelaxed && capture.thread != this_thread())
        return cudaErrorStreamCaptureWrongThread;
    return is_joined(capture) ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

} // namespace

namespace weft_emulator {

void capture_add(const StreamRef &stream, const char *name, bool kernel, Maker maker) {
    std::vector<Node> &nodes = stream->capture->graph->nodes;
    nodes.push_back({name, kernel, std::move(maker), stream->tips});
    stream->tips = {nodes.size() - 1};
}

cudaError_t capture_allows(const char *) {
    cudaError_t code = cudaSuccess;
    for (const auto &capture : captures) {
        if (capture->mode == cudaStreamCaptureModeRelaxed) continue;
        if (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread != this_thread()) continue;
        capture->broken = true;
        code = cudaErrorStreamCaptureUnsupported;
    }
    return code;
}

cudaError_t capture_breaks(const StreamRef &stream, cudaError_t code) {
    if (stream->capture != nullptr) stream->capture->broken = true;
    return code;
}

bool capturing_blocking() {
    bool any = false;
    for (const auto &capture : captures)
        for (const StreamRef &s : capture->members)
            if (s->blocking) any = capture->broken = true;
    return any;
}

} // namespace weft_emulator

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    CALL("cudaStreamBeginCapture");
    const StreamRef s = stream_of(stream);
    if (s == nullptr) return answer(cudaErrorInvalidResourceHandle);
    if (s == stream_of(nullptr)) return answer(cudaErrorStreamCaptureUnsupported);
    if (s->capture != nullptr) return answer(capture_breaks(s, cudaErrorStreamCaptureUnsupported));
    s->capture = std::make_shared<Capture>();
    s->capture->origin = s;
    s->capture->mode = mode;
    s->capture->thread = this_thread();
    s->capture->members = {s};
    s->tips.clear();
    captures.push_back(s->capture);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    CALL("cudaStreamEndCapture");
    const StreamRef s = stream_of(stream);
    if (s == nullptr) return answer(cudaErrorInvalidResourceHandle);
    *out = nullptr;
    const std::shared_ptr<Capture> capture = s->capture;
    if (capture == nullptr) return answer(cudaErrorInvalidValue);
    if (capture->origin != s) return answer(capture_breaks(s, cudaErrorStreamCaptureUnmatched));
    const cudaError_t code = judge_end(*capture);
    end(capture);
    if (code != cudaSuccess) return answer(code);
    graphs.push_back(std::make_unique<CUgraph_st>());
    graphs.back()->graph = capture->graph;
    *out = graphs.back().get();
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *out) {
    CALL("cudaStreamIsCapturing");
    const StreamRef s = stream_of(stream);
    if (s == nullptr) return answer(cudaErrorInvalidResourceHandle);
    *out = s->capture == nullptr ? cudaStreamCaptureStatusNone
           : s->capture->broken  ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    CALL("cudaThreadExchangeStreamCaptureMode");
    thread_local cudaStreamCaptureMode now = cudaStreamCaptureModeGlobal;
    std::swap(now, *mode);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n) {
    CALL("cudaGraphGetNodes");
    if (!exists(graphs, graph) || nodes != nullptr) return answer(cudaErrorInvalidValue);
    *n = graph->graph->nodes.size();
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
    CALL("cudaGraphInstantiate");
    if (!exists(graphs, graph)) return answer(cudaErrorInvalidValue);
    execs.push_back(std::make_unique<CUgraphExec_st>());
    execs.back()->graph = graph->graph;
    *out = execs.back().get();
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t) {
    CALL("cudaGraphUpload");
    return exists(execs, graph) ? cudaSuccess : answer(cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    CALL("cudaGraphLaunch");
    if (!exists(execs, graph)) return answer(cudaErrorInvalidValue);
    const auto &nodes = graph->graph->nodes;
    const bool kernels = std::any_of(nodes.begin(), nodes.end(), [](const Node &n) { return n.kernel; });
    return answer(queue(stream, "cudaGraphLaunch", replay_of(graph->graph), kernels));
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    CALL("cudaGraphExecDestroy");
    return forget(execs, graph) ? cudaSuccess : answer(cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    CALL("cudaGraphDestroy");
    return forget(graphs, graph) ? cudaSuccess : answer(cudaErrorInvalidValue);
}
