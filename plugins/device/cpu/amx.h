/* amx.h: the tile instructions of AMX, one macro each, and whether this process may use them (amx.c).
 *
 * A tile is up to 16 rows of up to 64 bytes. TILE_DOT multiplies a tile of a, (16 rows, 16 words), by one of b, (16
 * words, 16 columns), a word being two bf16 that follow one another along the inner dimension, and adds the 16 x 16
 * sums to those of a third one: 16,384 operations in 16 cycles. The processor's description (TDPBF16PS) sums the first
 * and the second values of the 16 words in a chain each, from zero, adds the two, and adds that to what was there, all
 * in fp32 to the nearest; what lies below 2^-126 counts as zero, coming in and going out.
 *
 * Written as assembly, so that a compiler need not know of them, and with memory named as changed: the loads of gcc
 * 12's own header name none, and may pass what was stored before them.
 */
#ifndef WEFT_DEVICE_CPU_AMX_H
#define WEFT_DEVICE_CPU_AMX_H

#include <stdbool.h>
#include <stdint.h>

#define AMX_TILES 8
#define AMX_ROWS  16
#define AMX_BYTES ((int64_t)64) /* of a row */
#define AMX_WORDS 16            /* of 32 bits in a row */

/* What LDTILECFG reads. */
typedef struct amx_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_configuration;

/* What decides, apart from each other so that it can be tested. `allow` asks the kernel for the state of tiles. */
typedef struct amx_facts {
    unsigned most;     /* dnnl_cpu_isa_t: what oneDNN may use */
    uint32_t features; /* cpuid(7, 0).edx */
    uint64_t saved;    /* XCR0: what the system saves of a thread */
    bool (*allow)(void);
} amx_facts;

bool amx_decide(const amx_facts *facts);
/* Whether the processor has tiles for bf16, used or not. */
bool amx_is_built_in(void);
/* Whether this process may use them; asks the kernel once. A thread that the kernel has not allowed dies of its first
 * tile. */
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
