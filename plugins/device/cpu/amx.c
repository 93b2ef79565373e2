/* amx.c: detects if this process may use AMX tiles. Three sources must agree: oneDNN's ISA limit, which lets a user
 * restrict the complete device; the processor; and the kernel. The kernel grants the 8 KB of tile state only to
 * processes that request it, once and before the first tile (Linux 5.16). If one refuses, nothing is logged: the device
 * runs without tiles, and its info names the ISA used. */
#include "amx.h"

#include <dnnl.h>
#include <stdatomic.h>
#include <stddef.h>

#define BF16_FEATURE  (1u << 22)                            /* cpuid(7, 0).edx: AMX-BF16 */
#define TILE_FEATURES (1u << 24 | BF16_FEATURE)             /* and AMX-TILE */
#define SAVED         (7ull << 5 | 1ull << 17 | 1ull << 18) /* XCR0: AVX-512, and tiles with their configuration */

bool amx_decide(const amx_facts *facts) {
    const unsigned limit = dnnl_cpu_isa_avx512_core_amx;
    if ((facts->most & limit) != limit) return false;
    if ((facts->features & TILE_FEATURES) != TILE_FEATURES || (facts->saved & SAVED) != SAVED) return false;
    return facts->allow();
}

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUEST_STATE 0x1023 /* arch_prctl: ARCH_REQ_XCOMP_PERM */
#define TILE_DATA     18     /* number of the state component */

static bool ask_the_kernel(void) {
    return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
}

static uint64_t read_saved(void) {
    unsigned a = 0, b = 0, c = 0, d = 0, low = 0, high = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static uint32_t read_features(void) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 ? 0 : d;
}

bool amx_is_built_in(void) {
    return (read_features() & BF16_FEATURE) != 0;
}

static bool look(unsigned most) {
    const amx_facts facts = {.most = most, .features = read_features(), .saved = read_saved(), .allow = ask_the_kernel};
    return amx_decide(&facts);
}
#else
bool amx_is_built_in(void) {
    return false;
}

static bool look(unsigned most) {
    (void)most;
    return false;
}
#endif

bool amx_is_here(unsigned most) {
    static _Atomic int known; /* 1: no, 2: yes; concurrent calls compute the same answer */
    int answer = atomic_load(&known);
    if (answer == 0) {
        answer = look(most) ? 2 : 1;
        atomic_store(&known, answer);
    }
    return answer == 2;
}
