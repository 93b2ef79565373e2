/* double.h: what the rooms of the emulator share.
 *
 *     calls.cpp     every call of CUDA goes through `Call`: the lock, counts, planted errors, the last error
 *     device.cpp    cards, as the environment describes them        memory.cpp   the arena; pinned memory
 *     streams.cpp   queues, and what runs next                      events.cpp   events
 *     copies.cpp    copies and fills                                graphs.cpp   capture and replay
 *     launch.cpp    a launch judged and queued                      block.cpp    the threads of a block
 *     fibres.cpp    stacks that threads run on                      shared.cpp   shared memory
 *     fault.cpp     what a kernel or the host does wrong, as a sentence
 */
#ifndef WEFT_EMULATOR_INTERNAL_H
#define WEFT_EMULATOR_INTERNAL_H

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda_runtime.h"
#include "weft_emulator.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace weft_emulator {

/* ---- calls.cpp ---- */

/* One for all. Whoever waits for something that is not this process's gives it away meanwhile. */
class Lock {
  public:
    void lock();
    bool try_lock();
    void unlock();
    void give_way(unsigned microseconds);

  private:
    std::mutex mutex;
    std::atomic<std::thread::id> owner;
    int depth = 0;
};

/* One call of CUDA: locks, counts, and says if an error is planted for it or an earlier one sticks. */
struct Call {
    explicit Call(const char *name);
    std::unique_lock<Lock> lock;
    cudaError_t code; /* what the call has to answer, or cudaSuccess */
};
/* While it lives the runtime's last error stays what it was, as the driver's own calls leave it. */
struct LastErrorKept {
    LastErrorKept();
    ~LastErrorKept();
    LastErrorKept(const LastErrorKept &) = delete;
    LastErrorKept &operator=(const LastErrorKept &) = delete;
    cudaError_t before;
};
Lock &lock_of_all();
cudaError_t answer(cudaError_t code); /* remembered for cudaGetLastError */
int planted(const char *name);        /* counts a call of `name`, of any library; the code planted for it, or 0 */
void stick(cudaError_t code);         /* every later call answers it */
cudaError_t sticking();
uint64_t draw(uint64_t below);                                /* from 0 to below - 1 */
const char *setting(const char *name, const char *otherwise); /* of the environment */
long long number(const char *name, long long otherwise);
enum Mode { LAST, ANY, SOON };
Mode mode();
void count_launch(const char *kernel);

#define CALL(name)                                                                                                     \
    Call call(name);                                                                                                   \
    if (call.code != cudaSuccess) return call.code

/* ---- fault.cpp ---- */

/* A sentence on stderr, and the process ends. */
[[noreturn]] void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A sentence on stderr beside an answer that says less. */
cudaError_t refuse(cudaError_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void watch_faults();
std::string where_now(); /* "kernel scale<float>, block (1,0,0), thread (3,0,0)", or what runs else */
void running(const char *what);

/* ---- memory.cpp ---- */

enum class Sort { DEVICE, PINNED, PAGEABLE };
struct Allocation {
    uintptr_t base = 0, map = 0;
    size_t size = 0, mapped = 0;
    int device = 0;
    bool live = true, registered = false;
    Sort sort = Sort::DEVICE;
};
const Allocation *allocation_at(uintptr_t address);   /* live or not; NULL: none */
const Allocation *allocation_near(uintptr_t address); /* whose pages or guard pages hold it */
bool in_arena(uintptr_t address);
Sort sort_of(const void *pointer);
/* Not within one live piece of device or pinned memory: the sentence is told. Any other memory is the host's. */
bool whole(const void *pointer, size_t bytes, const char *function, const char *which);
/* While one of them lives, what its thread touches of device memory is opened for it; it is closed behind the last one
 * of all threads, of which one may wait for another process. */
struct Open {
    Open();
    ~Open();
    Open(const Open &) = delete;
    Open &operator=(const Open &) = delete;
};
void library_takes(long long bytes);   /* of device memory, beside all allocations; less than 0: it gives them back */
bool open_for_work(uintptr_t address); /* of the fault's handler; true: go on */

/* ---- streams.cpp ---- */

struct Stream;
using StreamRef = std::shared_ptr<Stream>;
struct Point { /* in a stream: all that was queued up to `ticket` */
    StreamRef stream;
    uint64_t ticket = 0;
    bool reached() const;
};
enum class Step { DONE, MOVED, IDLE };
/* Makes a thing to be run, once for each time that it is queued: a graph queues again what it has recorded. */
using Work = std::function<Step()>;
using Maker = std::function<Work()>;
struct Op {
    std::string name;
    bool kernel = false;
    std::vector<Point> after;
    Work work;
    bool shared = false; /* others wait for it */
};
struct Capture;
struct Stream {
    std::deque<Op> queue;
    uint64_t queued = 0, done = 0;
    bool blocking = true, destroyed = false;
    int device = 0;
    int asked = 0; /* how often the host has asked since something ran */
    std::shared_ptr<Capture> capture;
    std::vector<size_t> tips; /* nodes of the capture that come last in this stream */
};
StreamRef stream_of(cudaStream_t handle); /* empty: no such stream */
std::vector<StreamRef> &all_streams();
/* Queues it, or adds it to the stream's capture. */
cudaError_t queue(cudaStream_t stream, const char *name, Maker maker, bool kernel = false);
void queue_wait(const StreamRef &stream, const Point &point);
Point end_of(const StreamRef &stream);
cudaError_t run_until(const Point &point);
cudaError_t run_all();
bool asked_for(const Point &point, int &asked); /* the host asks whether it is reached; it may be moved on */
bool kernels_wait();
struct Graph;
/* The same behind another operation, of a stream or of the capture that the stream is in; the new one takes its
 * place. */
cudaError_t queue_behind(cudaStream_t stream, const char *name, Maker maker, Point &last, std::weak_ptr<Graph> &graph,
                         size_t &node);
void run_for_others();  /* one operation, if any can run */
void queue_is_shared(); /* with other processes: their streams may need ours to go on while our host does not wait */

Maker once(std::function<void()> run); /* that is done when it has run */

/* ---- graphs.cpp ---- */

struct Node {
    std::string name;
    bool kernel = false;
    Maker maker;
    std::vector<size_t> after;
};
struct Graph {
    std::vector<Node> nodes;
};
struct Capture {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    StreamRef origin;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    unsigned long long thread = 0;
    bool broken = false;
    std::vector<StreamRef> members;
};
void capture_add(const StreamRef &stream, const char *name, bool kernel, Maker maker);
/* May this thread make a call that is no part of a capture? If not, captures that it harms are broken. */
cudaError_t capture_allows(const char *function);
cudaError_t capture_breaks(const StreamRef &stream, cudaError_t code); /* the stream's, if it is in one */
bool capturing_blocking();                                             /* a stream that the legacy one waits for */

/* ---- device.cpp ---- */

cudaError_t device_ready(); /* there is a driver and a card */
int device_now();
uint64_t device_card(); /* which of the machine's it is, the same for all processes that have it */
bool device_place(char *out, int length, int device); /* on the bus; false: there is no such card */
size_t device_memory();
size_t device_context(); /* bytes that a process has of it before it allocates any */
int device_capability(); /* 90 */
size_t device_shared_most();

/* ---- fibres.cpp ---- */

struct Fibre {
    void *stack_pointer = nullptr;
    char *stack = nullptr;
    size_t bytes = 0;
    void *fake = nullptr; /* AddressSanitizer's */
};
Fibre *fibre_take(void (*body)());
void fibre_give(Fibre *fibre);
/* Goes on with `to`; NULL: with whoever called fibre_enter. `from` may be NULL likewise. */
void fibre_switch(Fibre *from, Fibre *to);
const Fibre *fibre_guarding(uintptr_t address); /* whose guard page that is */

/* ---- block.cpp, shared.cpp ---- */

void run_block(const emulator_launch &launch, const void *arguments, uint3 block);
void shared_begin(const emulator_launch &launch);
void shared_end();
bool shared_holds(uintptr_t address);
void copies_end(unsigned thread); /* what it has copied asynchronously and not waited for */
bool in_kernel();
unsigned thread_now();
const emulator_launch *launch_now();

/* ---- bytes.cpp ---- */

bool bytes_are_counted();
void bytes_begin_launch(const char *kernel);
void bytes_begin_block(size_t threads);
void bytes_end_launch();
void bytes_read(const void *at, size_t bytes); /* by a copy that the kernel has begun */

/* ---- launch.cpp ---- */

size_t dynamic_shared_most(const void *kernel);
void run_grid(const emulator_launch &launch, const void *arguments);

} // namespace weft_emulator

#endif
