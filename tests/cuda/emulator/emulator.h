/* emulator.h: shared declarations of the CUDA emulator.
 *
 *     calls.cpp     `Call`, used by every CUDA function: the lock, counts, planted errors, the last error
 *     device.cpp    GPUs, as described by the environment           memory.cpp   the arena; pinned memory
 *     streams.cpp   queues, and the order of execution              events.cpp   events
 *     copies.cpp    copies and fills                                graphs.cpp   capture and replay
 *     launch.cpp    validates and queues a launch                   block.cpp    the threads of blocks
 *     fibres.cpp    stacks of threads                               shared.cpp   shared memory
 *     fault.cpp     reports errors of kernels and of the host */
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

/* The global lock. A thread that waits for another process releases it meanwhile. */
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

/* One CUDA call: locks, counts, and checks for a planted or sticky error. */
struct Call {
    explicit Call(const char *name);
    std::unique_lock<Lock> lock;
    cudaError_t code; /* the result that the call must return, or cudaSuccess */
};
/* Preserves the runtime's last error during its lifetime, as driver calls do. */
struct LastErrorKept {
    LastErrorKept();
    ~LastErrorKept();
    LastErrorKept(const LastErrorKept &) = delete;
    LastErrorKept &operator=(const LastErrorKept &) = delete;
    cudaError_t before;
};
Lock &lock_of_all();
cudaError_t answer(cudaError_t code); /* stored for cudaGetLastError */
int planted(const char *name);        /* counts a call of `name`, of any library; returns the code planted for it, or
                                       * 0 */
void stick(cudaError_t code);         /* every later call returns it */
cudaError_t sticking();
uint64_t draw(uint64_t below);                                /* random, from 0 to below - 1 */
const char *setting(const char *name, const char *otherwise); /* an environment variable */
double &emulated_seconds();                                   /* of the GPU (lt.cpp) */
long long number(const char *name, long long otherwise);
enum Mode { LAST, ANY, SOON };
Mode mode();
void count_launch(const char *kernel);

#define CALL(name)                                                                                                     \
    Call call(name);                                                                                                   \
    if (call.code != cudaSuccess) return call.code

/* ---- fault.cpp ---- */

/* Prints a message to stderr and ends the process. */
[[noreturn]] void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a detailed message to stderr for an error code. */
cudaError_t refuse(cudaError_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void watch_faults();
std::string where_now(); /* "kernel scale<float>, block (1,0,0), thread (3,0,0)", or other running work */
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
const Allocation *allocation_at(uintptr_t address);   /* live or freed; NULL: no allocation */
const Allocation *allocation_near(uintptr_t address); /* by its pages or guard pages */
bool in_arena(uintptr_t address);
Sort sort_of(const void *pointer);
/* False, with a message, unless the range is inside one live device or pinned allocation. All other memory belongs to
 * the host. */
bool whole(const void *pointer, size_t bytes, const char *function, const char *which);
/* During its lifetime, device memory that its thread touches is made accessible. The last one of all threads protects
 * it again; a thread may wait for another process meanwhile. */
struct Open {
    Open();
    ~Open();
    Open(const Open &) = delete;
    Open &operator=(const Open &) = delete;
};
void library_takes(long long bytes);   /* of device memory, in addition to allocations; negative: returns them */
bool open_for_work(uintptr_t address); /* for the fault handler; true: continue */

/* ---- streams.cpp ---- */

struct Stream;
using StreamRef = std::shared_ptr<Stream>;
struct Point { /* all work of a stream up to `ticket` */
    StreamRef stream;
    uint64_t ticket = 0;
    bool reached() const;
};
enum class Step { DONE, MOVED, IDLE };
/* Creates the work of one execution; a graph executes its recorded makers again. */
using Work = std::function<Step()>;
using Maker = std::function<Work()>;
struct Op {
    std::string name;
    bool kernel = false;
    std::vector<Point> after;
    Work work;
    bool shared = false; /* other processes wait for it */
};
struct Capture;
struct Stream {
    std::deque<Op> queue;
    uint64_t queued = 0, done = 0;
    bool blocking = true, destroyed = false;
    int device = 0;
    int asked = 0; /* queries by the host since the last execution */
    std::shared_ptr<Capture> capture;
    std::vector<size_t> tips; /* last captured nodes in this stream */
};
StreamRef stream_of(cudaStream_t handle); /* empty: no such stream */
std::vector<StreamRef> &all_streams();
/* Queues work, or adds it to the stream's capture. */
cudaError_t queue(cudaStream_t stream, const char *name, Maker maker, bool kernel = false);
void queue_wait(const StreamRef &stream, const Point &point);
Point end_of(const StreamRef &stream);
cudaError_t run_until(const Point &point);
cudaError_t run_all();
bool asked_for(const Point &point, int &asked); /* the host queries if it is reached, which may advance the stream */
bool kernels_wait();
struct Graph;
/* Same, after another operation, of a stream or of the stream's capture; the new operation replaces it as `last`. */
cudaError_t queue_behind(cudaStream_t stream, const char *name, Maker maker, Point &last, std::weak_ptr<Graph> &graph,
                         size_t &node);
void run_for_others();  /* runs one operation, if any can run */
void queue_is_shared(); /* with other processes: their streams may need ours to progress while our host does not wait */

Maker once(std::function<void()> run); /* done after one execution */

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
/* Checks if this thread may make a call outside a capture. If not, invalidates the affected captures. */
cudaError_t capture_allows(const char *function);
cudaError_t capture_breaks(const StreamRef &stream, cudaError_t code); /* invalidates the stream's capture, if it is in
                                                                        * one */
bool capturing_blocking();                                             /* a capture on a stream that the legacy stream
                                                                        * waits for */

/* ---- device.cpp ---- */

cudaError_t device_ready(); /* a driver and a GPU exist */
int device_now();
uint64_t device_card(); /* the machine's physical GPU, equal in all processes that use it */
bool device_place(char *out, int length, int device); /* PCI bus id; false: no such GPU */
size_t device_memory();
size_t device_context(); /* bytes that a process uses before its first allocation */
int device_capability(); /* such as 90 */
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
/* Switches to `to`; NULL: to the caller of fibre_enter. `from` may be NULL likewise. */
void fibre_switch(Fibre *from, Fibre *to);
const Fibre *fibre_guarding(uintptr_t address); /* by the address of its guard page */

/* ---- block.cpp, shared.cpp ---- */

constexpr unsigned MOST_BLOCKS = 2; /* that run interleaved */
void run_blocks(const emulator_launch &launch, const void *arguments, const uint3 *places, unsigned n);
void shared_select(unsigned block); /* of those that run */
void shared_begin(const emulator_launch &launch);
void shared_end();
bool shared_holds(uintptr_t address);
void copies_end(unsigned thread); /* asynchronous copies without a wait */
bool in_kernel();
unsigned thread_now();
const emulator_launch *launch_now();

/* ---- bytes.cpp ---- */

bool bytes_are_counted();
void bytes_begin_launch(const char *kernel);
void bytes_begin_block(size_t threads);
void bytes_end_launch();
void bytes_read(const void *at, size_t bytes); /* by an asynchronous copy of the kernel */

/* ---- launch.cpp ---- */

size_t dynamic_shared_most(const void *kernel);
void run_grid(const emulator_launch &launch, const void *arguments);

} // namespace weft_emulator

#endif
