/* fibres.cpp: threads of a block run on separate stacks and switch in user space: the callee-saved registers are
 * pushed, and the stack pointers are exchanged. Stacks are reused for the next block. */
#include <pthread.h>
#include <sys/mman.h>

#include "emulator.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__)
#error "The emulator's fibres are written for x86-64."
#endif

extern "C" void emulator_switch(void **from, void *to);
__asm__(".text\n"
        ".globl emulator_switch\n"
        ".hidden emulator_switch\n"
        ".type emulator_switch,@function\n"
        "emulator_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size emulator_switch,.-emulator_switch\n");

namespace weft_emulator {

namespace {
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t STACK = 512 << 10;
#else
constexpr size_t STACK = 128 << 10;
#endif
constexpr size_t PAGE = 4096;

std::deque<Fibre> all_fibres;
std::vector<Fibre *> idle;
void *main_pointer;
#if defined(__SANITIZE_ADDRESS__)
void *main_fake, *main_bottom;
size_t main_bytes;
void note_stack() { /* of the thread that runs a kernel */
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) fault("the stack of this thread is not known");
    (void)pthread_attr_getstack(&attributes, &main_bottom, &main_bytes);
    (void)pthread_attr_destroy(&attributes);
}
#endif

Fibre *make() {
    Fibre fibre;
    void *memory =
        mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, PAGE, PROT_NONE) != 0) fault("no memory for the stack of a thread");
    fibre.stack = static_cast<char *>(memory) + PAGE;
    fibre.bytes = STACK;
    all_fibres.push_back(fibre);
    return &all_fibres.back();
}

/* The first function on every stack. */
void (*body_now)();
void begin() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    body_now();
    __builtin_trap(); /* a body never returns */
}
} // namespace

Fibre *fibre_take(void (*body)()) {
    Fibre *fibre = nullptr;
    body_now = body;
    if (!idle.empty()) {
        fibre = idle.back();
        idle.pop_back();
        return fibre;
    }
    fibre = make();
    void **top = reinterpret_cast<void **>(fibre->stack + fibre->bytes);
    *--top = nullptr; /* aligned as after a call */
    *--top = reinterpret_cast<void *>(begin);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fibre->stack_pointer = top;
    return fibre;
}

void fibre_give(Fibre *fibre) {
    idle.push_back(fibre);
}

void fibre_switch(Fibre *from, Fibre *to) {
    void **save = from == nullptr ? &main_pointer : &from->stack_pointer;
    void *const next = to == nullptr ? main_pointer : to->stack_pointer;
#if defined(__SANITIZE_ADDRESS__)
    if (from == nullptr) note_stack();
    void **fake = from == nullptr ? &main_fake : &from->fake;
    __sanitizer_start_switch_fiber(fake, to == nullptr ? main_bottom : to->stack,
                                   to == nullptr ? main_bytes : to->bytes);
#endif
    emulator_switch(save, next);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(*fake, nullptr, nullptr);
#endif
}

const Fibre *fibre_guarding(uintptr_t address) {
    for (const Fibre &fibre : all_fibres) {
        const uintptr_t low = reinterpret_cast<uintptr_t>(fibre.stack);
        if (address >= low - PAGE && address < low) return &fibre;
    }
    return nullptr;
}

} // namespace weft_emulator
