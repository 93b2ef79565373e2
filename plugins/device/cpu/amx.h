/* amx.h: one macro per AMX tile instruction, and the detection of AMX (amx.c).
 *
 * A tile is up to 16 rows of up to 64 bytes. TILE_DOT multiplies a tile of a, (16 rows, 16 words), by one of b, (16
 * words, 16 columns). It adds the 16 x 16 sums to a third tile: 16,384 operations in 16 cycles. A word is two bf16
 * adjacent along the inner dimension. By the processor manual (TDPBF16PS), the first and the second values of the 16
 * words are summed in a chain each, starting at zero. The two chains are added, and the result is added to the previous
 * sum, all in fp32 to nearest. Inputs and outputs below 2^-126 count as zero.
 *
 * The macros are inline assembly, so the compiler needs no AMX support. They have a memory clobber: the loads of gcc
 * 12's own header have none and may be moved before earlier stores. */
#ifndef WEFT_DEVICE_CPU_AMX_H
#define WEFT_DEVICE_CPU_AMX_H

#include <stdbool.h>
#include <stdint.h>

#define AMX_TILES 8
#define AMX_ROWS  16
#define AMX_BYTES ((int64_t)64) /* per row */
#define AMX_WORDS 16            /* 32-bit words per row */

/* Operand of LDTILECFG. */
typedef struct amx_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_configuration;

/* Inputs of the decision, separate for tests. `allow` requests tile state from the kernel. */
typedef struct amx_facts {
    unsigned most;     /* dnnl_cpu_isa_t: the maximum for oneDNN */
    uint32_t features; /* cpuid(7, 0).edx */
    uint64_t saved;    /* XCR0: state that the system saves per thread */
    bool (*allow)(void);
} amx_facts;

bool amx_decide(const amx_facts *facts);
/* True if the processor has bf16 tiles, used or not. */
bool amx_is_built_in(void);
/* True if this process may use tiles; requests permission from the kernel once. Without permission, a thread's first
 * tile instruction kills the process. */
bool amx_is_here(unsigned most);

#if defined(__x86_64__) && !defined(WEFT_AMX_PLAIN)
#define TILE_CONFIGURE(to)    __asm__ volatile("ldtilecfg %0" ::"m"(*(to)))
#define TILE_RELEASE()        __asm__ volatile("tilerelease" ::: "memory")
#define TILE_ZERO(t)          __asm__ volatile("tilezero %%tmm" #t ::)
#define TILE_LOAD(t, at, ld)  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(at), "r"(ld) : "memory")
#define TILE_STORE(t, at, ld) __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(at), "r"(ld) : "memory")
#define TILE_DOT(sum, a, b)   __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum ::)
#endif

#endif
