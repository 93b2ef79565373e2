/* fault.cpp: reports errors as messages. An invalid access raises a signal: this handler runs before the previous one,
 * prints its message, and lets the previous one continue. */
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include "emulator.h"

namespace weft_emulator {
namespace {

std::string running_now;
const int signals[] = {SIGSEGV, SIGBUS, SIGILL};
constexpr size_t n_signals = sizeof signals / sizeof signals[0];
struct sigaction before[n_signals];
alignas(16) char signal_stack[64 << 10];

void say(const char *text) {
    std::string line = "cuda emulator: ";
    const std::string where = where_now();
    line += where.empty() ? text : where + ": " + text;
    line += ".\n";
    (void)!write(STDERR_FILENO, line.data(), line.size());
}

std::string byte_of(const Allocation &a, uintptr_t address) {
    const std::string size = "an allocation of " + std::to_string(a.size) + " bytes" +
                             (a.live ? "" : " that was freed");
    if (address < a.base) return std::to_string(a.base - address) + " bytes before " + size;
    if (address < a.base + a.size) return "byte " + std::to_string(address - a.base) + " of " + size;
    return std::to_string(address - a.base - a.size) + " bytes behind the end of " + size;
}

std::string explain(uintptr_t address) {
    char text[64];
    if (in_arena(address)) {
        const Allocation *a = allocation_near(address);
        const std::string what = a == nullptr ? "device memory that nobody has" : byte_of(*a, address);
        return (where_now().empty() ? "the host touches device memory, " : "touches ") + what;
    }
    if (in_kernel() && shared_holds(address)) return "reaches out of shared memory";
    if (in_kernel() && fibre_guarding(address) != nullptr) return "a thread's stack is full";
    if (!in_kernel()) return "";
    (void)snprintf(text, sizeof text, "touches memory at %#llx, which is not the device's",
                   static_cast<unsigned long long>(address));
    return text;
}

/* Device code is compiled so that a misaligned access is an invalid instruction (cuda.cmake). */
void handler(int signal, siginfo_t *info, void *) {
    std::string text;
    if (signal == SIGSEGV && open_for_work(reinterpret_cast<uintptr_t>(info->si_addr))) return;
    if (signal != SIGILL) text = explain(reinterpret_cast<uintptr_t>(info->si_addr));
    else if (in_kernel()) text = "an access at the wrong alignment";
    if (!text.empty()) say(text.c_str());
    for (size_t i = 0; i < n_signals; i++) /* the access repeats, and the previous handler runs */
        if (signals[i] == signal) (void)sigaction(signal, &before[i], nullptr);
}

} // namespace

void watch_faults() {
    static bool done = false;
    struct sigaction action = {};
    stack_t stack = {};
    if (done) return;
    done = true;
    if (sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE) != 0) {
        stack = {};
        stack.ss_sp = signal_stack;
        stack.ss_size = sizeof signal_stack;
        (void)sigaltstack(&stack, nullptr);
    }
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (size_t i = 0; i < n_signals; i++) (void)sigaction(signals[i], &action, &before[i]);
}

void running(const char *what) {
    running_now = what;
}

std::string where_now() {
    char text[160];
    if (!in_kernel()) return running_now;
    const uint3 b = emulator_here.block, t = emulator_here.thread;
    (void)snprintf(text, sizeof text, ", block (%u,%u,%u), thread (%u,%u,%u)", b.x, b.y, b.z, t.x, t.y, t.z);
    return "kernel " + running_now + text;
}

void fault(const char *format, ...) {
    char text[1024];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(text, sizeof text, format, values);
    va_end(values);
    say(text);
    abort();
}

cudaError_t refuse(cudaError_t code, const char *format, ...) {
    char text[1024];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(text, sizeof text, format, values);
    va_end(values);
    say(text);
    return code;
}

} // namespace weft_emulator

EXPORT void emulator_trap(const char *file, int line) {
    weft_emulator::fault("__trap (%s:%d)", file, line);
}
