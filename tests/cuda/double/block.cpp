/* block.cpp: the threads of one block. A thread runs until it has to wait for others, at a barrier of the block or a
 * meeting of its warp; then another one goes on. Which one is drawn: who begins, in which order those go on who have
 * waited, and whether those go first who have waited or who have not begun. A thread that never waits needs no stack of
 * its own: the next one runs on the same. */
#include <cstring>
#include <numeric>

#include "double.h"

using namespace weft_double;

extern "C" {
__attribute__((visibility("default"))) struct double_place double_here;
}

namespace {

enum State : unsigned char { NEW, READY, AT_BARRIER, AT_MEETING, ENDED };

struct Thread {
    State state;
    Fibre *fibre;
    const char *what, *file; /* where it waits */
    int line;
    unsigned mask;
    void *mine;
    void (*together)(void **, unsigned);
};

struct Site {
    const char *what, *file;
    int line;
};

/* A draw of an order of n: from a start on, by a stride without a common divisor. */
struct Order {
    unsigned n = 1, at = 0, stride = 1, left = 0;
    void begin(unsigned of) {
        n = left = of;
        at = static_cast<unsigned>(draw(n));
        stride = static_cast<unsigned>(1 + draw(n));
        while (std::gcd(stride, n) != 1) stride = stride % n + 1;
    }
    unsigned next() {
        const unsigned now = at;
        at = static_cast<unsigned>((static_cast<unsigned long long>(at) + stride) % n);
        left--;
        return now;
    }
};

const double_launch *launch; /* that runs; NULL: none */
const void *arguments;
unsigned n_threads;
std::vector<Thread> threads;
std::vector<unsigned> ready; /* a ring */
size_t ready_from, n_ready;
Order unbegun;
bool begin_first;
unsigned now; /* the thread that runs */
unsigned ended;
unsigned at_barrier, votes, result;
Site barrier;
std::vector<unsigned> met; /* of each warp, by the lowest lane of a mask: how many have come */

uint3 place_of(unsigned thread) {
    const dim3 &b = launch->block;
    return {thread % b.x, thread / b.x % b.y, thread / (b.x * b.y)};
}

std::string name_of(unsigned thread) {
    const uint3 p = place_of(thread);
    return "thread (" + std::to_string(p.x) + "," + std::to_string(p.y) + "," + std::to_string(p.z) + ")";
}

std::string waits_at(unsigned thread) {
    const Thread &t = threads[thread];
    return name_of(thread) + " waits at " + t.what + " (" + t.file + ":" + std::to_string(t.line) + ")";
}

void make_ready(unsigned thread) {
    threads[thread].state = READY;
    ready[(ready_from + n_ready++) % n_threads] = thread;
}

void enter(unsigned thread) {
    now = thread;
    double_here.thread = place_of(thread);
}

/* Nobody can go on. */
[[noreturn]] void explain() {
    unsigned waiting = 0, other = n_threads;
    while (threads[waiting].state != AT_BARRIER && threads[waiting].state != AT_MEETING) waiting++;
    for (unsigned i = 0; i < n_threads && other == n_threads; i++) {
        const Thread &a = threads[waiting], &b = threads[i];
        const bool asked = a.state == AT_BARRIER || (i / 32 == waiting / 32 && (a.mask >> (i % 32) & 1) != 0);
        const bool came = a.state == b.state && (a.state == AT_BARRIER || a.mask == b.mask);
        if (asked && !came) other = i;
    }
    if (other == n_threads) fault("%s, and nothing lets it go on", waits_at(waiting).c_str());
    if (threads[other].state == ENDED)
        fault("%s, and %s has ended without coming there", waits_at(waiting).c_str(), name_of(other).c_str());
    fault("%s, and %s", waits_at(waiting).c_str(), waits_at(other).c_str());
}

/* The thread that goes on; n_threads: all have ended. It may be new. */
unsigned choose() {
    if (unbegun.left > 0 && (begin_first || n_ready == 0)) return unbegun.next();
    if (n_ready > 0) {
        const unsigned thread = ready[ready_from];
        ready_from = (ready_from + 1) % n_threads;
        n_ready--;
        return thread;
    }
    if (ended != n_threads) explain();
    return n_threads;
}

void body();

/* Gives way to `next` until somebody makes this thread go on. */
void give_way(Fibre *from, unsigned next) {
    Thread &t = threads[next];
    if (t.fibre == nullptr) t.fibre = fibre_take(body);
    enter(next);
    fibre_switch(from, t.fibre);
}

/* Runs new threads one after another; in between its stack may serve any thread. */
void body() {
    for (;;) {
        Fibre *const mine = threads[now].fibre;
        threads[now].state = READY;
        launch->call(launch->kernel, arguments);
        copies_end(now);
        threads[now].state = ENDED;
        threads[now].fibre = nullptr;
        ended++;
        const unsigned next = choose();
        if (next == n_threads) {
            fibre_give(mine);
            fibre_switch(mine, nullptr);
        } else if (threads[next].fibre == nullptr) {
            threads[next].fibre = mine;
            enter(next);
        } else {
            fibre_give(mine);
            give_way(mine, next);
        }
    }
}

void wait_here(State state) {
    const unsigned me = now;
    threads[me].state = state;
    give_way(threads[me].fibre, choose());
}

void note_wait(const char *what, const char *file, int line) {
    Thread &t = threads[now];
    if (launch == nullptr) fault("%s is called outside of a kernel", what);
    t.what = what;
    t.file = file;
    t.line = line;
}

bool same(const char *a, const char *b) {
    return a == b || (a != nullptr && std::strcmp(a, b) == 0);
}

/* Those that have come go on, in a drawn order, all but the one that runs. */
void release_block() {
    const unsigned start = static_cast<unsigned>(draw(n_threads));
    const bool down = draw(2) != 0;
    for (unsigned i = 0; i < n_threads; i++) {
        const unsigned thread = (start + (down ? n_threads - i : i)) % n_threads;
        if (thread != now) make_ready(thread);
    }
}

void release_warp(unsigned first, unsigned mask) {
    const unsigned turn = static_cast<unsigned>(draw(32));
    for (unsigned i = 0; i < 32; i++) {
        const unsigned lane = i ^ turn;
        if ((mask >> lane & 1) != 0 && first + lane != now) make_ready(first + lane);
    }
}

} // namespace

EXPORT int double_barrier(const char *what, int vote, const char *file, int line) {
    note_wait(what, file, line);
    if (at_barrier > 0 && !(barrier.line == line && same(barrier.what, what) && same(barrier.file, file)))
        fault("threads of one block meet at %s (%s:%d) and at %s (%s:%d)", barrier.what, barrier.file, barrier.line,
              what, file, line);
    barrier = {what, file, line};
    if (at_barrier == 0) votes = 0;
    votes += vote != 0;
    if (++at_barrier < n_threads) {
        wait_here(AT_BARRIER);
    } else {
        at_barrier = 0;
        result = votes;
        release_block();
        /* Who came last goes on at once or behind the others. */
        if (n_threads > 1 && draw(2) != 0) {
            make_ready(now);
            wait_here(READY);
        }
    }
    return static_cast<int>(result);
}

EXPORT int double_lane(void) {
    return static_cast<int>(now % 32);
}

EXPORT void double_meet_at(unsigned mask, const char *what, void *mine, void (*together)(void **, unsigned),
                           const char *file, int line) {
    note_wait(what, file, line);
    const unsigned first = now & ~31u, lane = now % 32;
    const unsigned there = n_threads - first >= 32 ? ~0u : (1u << (n_threads - first)) - 1u;
    if ((mask >> lane & 1) == 0)
        fault("%s (%s:%d): the mask %08x leaves out the lane that calls", what, file, line, mask);
    mask &= there;
    Thread &me = threads[now];
    me.mask = mask;
    me.mine = mine;
    unsigned &come = met[first + static_cast<unsigned>(__builtin_ctz(mask))];
    if (++come < static_cast<unsigned>(__builtin_popcount(mask))) {
        wait_here(AT_MEETING);
        return;
    }
    come = 0;
    void *lanes[32] = {};
    for (unsigned i = 0; i < 32; i++) {
        if ((mask >> i & 1) == 0) continue;
        const Thread &t = threads[first + i];
        const bool came = first + i == now || (t.state == AT_MEETING && t.mask == mask);
        if (!came || !(t.line == line && same(t.what, what) && same(t.file, file)))
            fault("lanes of one warp meet at %s (%s:%d) with mask %08x and at %s (%s:%d) with mask %08x", what, file,
                  line, mask, t.what == nullptr ? "nothing" : t.what, t.file == nullptr ? "" : t.file, t.line, t.mask);
        lanes[i] = t.mine;
    }
    together(lanes, mask);
    release_warp(first, mask);
}

namespace weft_double {

bool in_kernel() {
    return launch != nullptr;
}
unsigned thread_now() {
    return now;
}
const double_launch *launch_now() {
    return launch;
}

void run_block(const double_launch &what, const void *with, uint3 block) {
    launch = &what;
    arguments = with;
    n_threads = what.block.x * what.block.y * what.block.z;
    threads.assign(n_threads, Thread{NEW, nullptr, nullptr, nullptr, 0, 0, nullptr, nullptr});
    ready.resize(n_threads);
    met.assign((n_threads + 31) / 32 * 32, 0);
    ready_from = n_ready = 0;
    ended = at_barrier = 0;
    begin_first = draw(2) != 0;
    unbegun.begin(n_threads);
    double_here.block = block;
    double_here.block_dim = what.block;
    double_here.grid_dim = what.grid;
    shared_begin(what);
    give_way(nullptr, choose());
    shared_end();
    launch = nullptr;
}

} // namespace weft_double
