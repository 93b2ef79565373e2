/* block.cpp: the threads of one block, or of two interleaved blocks. A thread runs until it must wait for others, at a
 * barrier of its block or a rendezvous of its warp; then a randomly chosen thread continues. In most blocks a chosen
 * warp continues through all its own rendezvous up to the next barrier, as far ahead of the others as possible. In the
 * rest any runnable thread is chosen. With two blocks, each of these choices is first one between the blocks. A thread
 * that never waits needs no stack of its own: the next one runs on the same. */
#include <cstring>

#include "emulator.h"

using namespace weft_emulator;

extern "C" {
__attribute__((visibility("default"))) struct emulator_place emulator_here;
}

namespace {

enum State : unsigned char { NEW, READY, AT_BARRIER, AT_MEETING, ENDED };

struct Thread {
    State state;
    Fibre *fibre;
    const char *what, *file; /* location of the wait */
    int line;
    unsigned mask;
    void *mine;
    void (*together)(void **, unsigned);
};

struct Site {
    const char *what, *file;
    int line;
};

/* Runnable lanes of a warp: those after a wait, and those not started. */
struct Warp {
    unsigned ready, unbegun;
    unsigned turn;  /* the lane where the search for the next one starts */
    unsigned place; /* in `runnable`, if any lane can run */
    bool can_run() const {
        return (ready | unbegun) != 0;
    }
};
constexpr unsigned NONE = ~0u, MIXED = 4; /* one block of four mixes its threads */
constexpr uint64_t MOST_WAITS = 1u << 28; /* of a block for conditions; more are a deadlock */

const emulator_launch *launch; /* running; NULL: no launch */
const void *arguments;
unsigned n_threads;

struct Block {
    uint3 place;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<unsigned> runnable; /* warps that can run; empty if all threads have ended */
    unsigned current;               /* warp that continues while it can; NONE: choose one */
    bool begin_first, mixed;
    unsigned now; /* the running thread */
    unsigned ended;
    unsigned at_barrier, votes, result;
    uint64_t waits; /* calls of emulator_wait_again */
    Site barrier;
    std::vector<unsigned> met; /* of each warp, by the lowest lane of a mask: number of arrived lanes */
};
Block blocks[MOST_BLOCKS];
Block *self = blocks; /* block of the running thread */

uint3 place_of(unsigned thread) {
    const dim3 &b = launch->block;
    return {thread % b.x, thread / b.x % b.y, thread / (b.x * b.y)};
}

std::string name_of(unsigned thread) {
    const uint3 p = place_of(thread);
    return "thread (" + std::to_string(p.x) + "," + std::to_string(p.y) + "," + std::to_string(p.z) + ")";
}

std::string waits_at(unsigned thread) {
    const Thread &t = self->threads[thread];
    return name_of(thread) + " waits at " + t.what + " (" + t.file + ":" + std::to_string(t.line) + ")";
}

void add_runnable(unsigned warp) {
    self->warps[warp].place = static_cast<unsigned>(self->runnable.size());
    self->runnable.push_back(warp);
}

void drop_runnable(unsigned warp) {
    const unsigned last = self->runnable.back();
    self->runnable[self->warps[warp].place] = last;
    self->warps[last].place = self->warps[warp].place;
    self->runnable.pop_back();
}

void make_ready(unsigned thread) {
    Warp &warp = self->warps[thread / 32];
    self->threads[thread].state = READY;
    if (!warp.can_run()) add_runnable(thread / 32);
    warp.ready |= 1u << thread % 32;
}

/* Makes the block that of the running thread. */
void select(Block &block) {
    self = &block;
    emulator_here.block = block.place;
    shared_select(static_cast<unsigned>(self - blocks));
}

void enter(unsigned thread) {
    self->now = thread;
    emulator_here.thread = place_of(thread);
}

/* Reports a deadlock: no thread can run. */
[[noreturn]] void explain() {
    unsigned waiting = 0, other = n_threads;
    while (self->threads[waiting].state != AT_BARRIER && self->threads[waiting].state != AT_MEETING) waiting++;
    for (unsigned i = 0; i < n_threads && other == n_threads; i++) {
        const Thread &a = self->threads[waiting], &b = self->threads[i];
        const bool asked = a.state == AT_BARRIER || (i / 32 == waiting / 32 && (a.mask >> (i % 32) & 1) != 0);
        const bool came = a.state == b.state && (a.state == AT_BARRIER || a.mask == b.mask);
        if (asked && !came) other = i;
    }
    if (other == n_threads) fault("%s, and nothing lets it go on", waits_at(waiting).c_str());
    if (self->threads[other].state == ENDED)
        fault("%s, and %s has ended without coming there", waits_at(waiting).c_str(), name_of(other).c_str());
    fault("%s, and %s", waits_at(waiting).c_str(), waits_at(other).c_str());
}

/* Removes and returns the next lane of a warp to run. */
unsigned take_lane(unsigned warp) {
    Warp &w = self->warps[warp];
    unsigned &from = w.ready == 0 || (self->begin_first && w.unbegun != 0) ? w.unbegun : w.ready;
    const unsigned turned = w.turn == 0 ? from : from >> w.turn | from << (32 - w.turn);
    const unsigned lane = (w.turn + static_cast<unsigned>(__builtin_ctz(turned))) % 32;
    from &= ~(1u << lane);
    if (!w.can_run()) drop_runnable(warp);
    return lane;
}

/* True: the running block must choose another warp, or another thread. */
bool must_choose() {
    return self->mixed || self->current == NONE || !self->warps[self->current].can_run();
}

/* Returns the next thread to run, of the block that it selects; n_threads: all have ended. It may be new. */
unsigned choose() {
    Block &other = blocks[self == blocks ? 1 : 0];
    if (self->runnable.empty() && self->ended != n_threads) explain();
    if (!other.runnable.empty() && (self->runnable.empty() || (must_choose() && draw(2) != 0))) select(other);
    if (self->runnable.empty()) return n_threads;
    if (must_choose()) {
        self->current = self->runnable[draw(self->runnable.size())];
        self->warps[self->current].turn = static_cast<unsigned>(draw(32));
    }
    return self->current * 32 + take_lane(self->current);
}

void body();

/* Switches to `next` until this thread is resumed. */
void give_way(Fibre *from, unsigned next) {
    Thread &t = self->threads[next];
    if (t.fibre == nullptr) t.fibre = fibre_take(body);
    enter(next);
    fibre_switch(from, t.fibre);
}

/* Runs new threads one after another; in between its stack may serve any thread. */
void body() {
    for (;;) {
        Fibre *const mine = self->threads[self->now].fibre;
        self->threads[self->now].state = READY;
        launch->call(launch->kernel, arguments);
        copies_end(self->now);
        self->threads[self->now].state = ENDED;
        self->threads[self->now].fibre = nullptr;
        self->ended++;
        const unsigned next = choose();
        if (next == n_threads) {
            fibre_give(mine);
            fibre_switch(mine, nullptr);
        } else if (self->threads[next].fibre == nullptr) {
            self->threads[next].fibre = mine;
            enter(next);
        } else {
            fibre_give(mine);
            give_way(mine, next);
        }
    }
}

void wait_here(State state) {
    Thread &me = self->threads[self->now];
    me.state = state;
    const unsigned next = choose();
    if (&self->threads[next] != &me) give_way(me.fibre, next);
}

void note_wait(const char *what, const char *file, int line) {
    Thread &t = self->threads[self->now];
    if (launch == nullptr) fault("%s is called outside of a kernel", what);
    t.what = what;
    t.file = file;
    t.line = line;
}

bool same(const char *a, const char *b) {
    return a == b || (a != nullptr && std::strcmp(a, b) == 0);
}

/* Makes all arrived threads runnable except the running one. */
void release_block() {
    for (unsigned thread = 0; thread < n_threads; thread++)
        if (thread != self->now) make_ready(thread);
}

void release_warp(unsigned first, unsigned mask) {
    self->warps[first / 32].turn = static_cast<unsigned>(draw(32));
    for (unsigned left = mask; left != 0; left &= left - 1) {
        const unsigned thread = first + static_cast<unsigned>(__builtin_ctz(left));
        if (thread != self->now) make_ready(thread);
    }
}

/* All threads are unstarted. */
void fill_warps() {
    const unsigned n = (n_threads + 31) / 32, last = n_threads - (n - 1) * 32;
    self->warps.assign(n, Warp{0, ~0u, 0, 0});
    self->warps.back().unbegun = last == 32 ? ~0u : (1u << last) - 1;
    self->runnable.clear();
    for (unsigned warp = 0; warp < n; warp++) add_runnable(warp);
    self->current = NONE;
}

void begin_block(Block &block, uint3 place) {
    block.place = place;
    select(block);
    block.threads.assign(n_threads, Thread{NEW, nullptr, nullptr, nullptr, 0, 0, nullptr, nullptr});
    block.met.assign((n_threads + 31) / 32 * 32, 0);
    fill_warps();
    block.ended = block.at_barrier = 0;
    block.waits = 0;
    block.begin_first = draw(2) != 0;
    block.mixed = draw(MIXED) == 0;
    shared_begin(*launch);
}

} // namespace

EXPORT int emulator_barrier(const char *what, int vote, const char *file, int line) {
    note_wait(what, file, line);
    if (self->at_barrier > 0 &&
        !(self->barrier.line == line && same(self->barrier.what, what) && same(self->barrier.file, file)))
        fault("threads of one block meet at %s (%s:%d) and at %s (%s:%d)", self->barrier.what, self->barrier.file,
              self->barrier.line, what, file, line);
    self->barrier = {what, file, line};
    if (self->at_barrier == 0) self->votes = 0;
    self->votes += vote != 0;
    if (++self->at_barrier < n_threads) {
        wait_here(AT_BARRIER);
    } else {
        self->at_barrier = 0;
        self->result = self->votes;
        release_block();
        /* The last arrival continues at once, or a random thread does. */
        if (draw(2) != 0) {
            self->current = NONE;
            make_ready(self->now);
            wait_here(READY);
        }
    }
    return static_cast<int>(self->result);
}

EXPORT void emulator_wait_again(const char *what, const char *file, int line) {
    note_wait(what, file, line);
    if (++self->waits > MOST_WAITS) fault("%s without end", waits_at(self->now).c_str());
    self->current = NONE;
    make_ready(self->now);
    wait_here(READY);
}

EXPORT int emulator_lane(void) {
    return static_cast<int>(self->now % 32);
}

EXPORT void emulator_meet_at(unsigned mask, const char *what, void *mine, void (*together)(void **, unsigned),
                             const char *file, int line) {
    note_wait(what, file, line);
    const unsigned first = self->now & ~31u, lane = self->now % 32;
    const unsigned there = n_threads - first >= 32 ? ~0u : (1u << (n_threads - first)) - 1u;
    if ((mask >> lane & 1) == 0)
        fault("%s (%s:%d): the mask %08x leaves out the lane that calls", what, file, line, mask);
    mask &= there;
    Thread &me = self->threads[self->now];
    me.mask = mask;
    me.mine = mine;
    unsigned &come = self->met[first + static_cast<unsigned>(__builtin_ctz(mask))];
    if (++come < static_cast<unsigned>(__builtin_popcount(mask))) {
        wait_here(AT_MEETING);
        return;
    }
    come = 0;
    void *lanes[32] = {};
    for (unsigned i = 0; i < 32; i++) {
        if ((mask >> i & 1) == 0) continue;
        const Thread &t = self->threads[first + i];
        const bool came = first + i == self->now || (t.state == AT_MEETING && t.mask == mask);
        if (!came || !(t.line == line && same(t.what, what) && same(t.file, file)))
            fault("lanes of one warp meet at %s (%s:%d) with mask %08x and at %s (%s:%d) with mask %08x", what, file,
                  line, mask, t.what == nullptr ? "nothing" : t.what, t.file == nullptr ? "" : t.file, t.line, t.mask);
        lanes[i] = t.mine;
    }
    together(lanes, mask);
    release_warp(first, mask);
}

namespace weft_emulator {

bool in_kernel() {
    return launch != nullptr;
}
unsigned thread_now() {
    return self->now;
}
const emulator_launch *launch_now() {
    return launch;
}

void run_blocks(const emulator_launch &what, const void *with, const uint3 *places, unsigned n) {
    launch = &what;
    arguments = with;
    n_threads = what.block.x * what.block.y * what.block.z;
    emulator_here.block_dim = what.block;
    emulator_here.grid_dim = what.grid;
    for (unsigned i = 0; i < n; i++) begin_block(blocks[i], places[i]);
    give_way(nullptr, choose());
    for (unsigned i = 0; i < n; i++) {
        select(blocks[i]);
        shared_end();
    }
    launch = nullptr;
}

} // namespace weft_emulator
