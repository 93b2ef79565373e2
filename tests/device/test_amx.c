/* Tests the AMX tiles in plain C (amx/plain.h), which replace missing hardware in tests of the panels; their checks for
 * misuse; and the detection of AMX. On processors with AVX-512 the shipped panels pack like the plain ones; on
 * processors with tiles they multiply like them, bit for bit. */
#include <dnnl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "amx.h"
#include "amx/plain.h"
#include "panels.h"
#include "suite.h"

#include <check.h>

extern const cpu_panels plain_panels;

/* ---- tiles in plain C ---- */

typedef struct shape {
    uint8_t rows, row_bytes;
} shape;

/* Tile 0: sums, 1: of a, 2: of b. */
static void configure(shape sums, shape a, shape b) {
    const shape shapes[] = {sums, a, b};
    amx_configuration c = {.palette = 1};
    for (int i = 0; i < 3; i++) {
        c.rows[i] = shapes[i].rows;
        c.row_bytes[i] = shapes[i].row_bytes;
    }
    plain_configure(&c);
}

static const shape whole = {16, 64};

static uint32_t word_of(float first, float second) {
    uint32_t x = 0, y = 0;
    memcpy(&x, &first, sizeof x);
    memcpy(&y, &second, sizeof y);
    ck_assert_uint_eq((x & 0xFFFFu) | (y & 0xFFFFu), 0);
    return x >> 16 | y;
}

/* Returns `sum` plus word k of row 0 of a times word k of column 0 of b, for all k. */
static float dot(float sum, int n, const uint32_t *a, const uint32_t *b) {
    uint32_t left[16][16] = {{0}}, right[16][16] = {{0}};
    float sums[16][16] = {{0}};
    sums[0][0] = sum;
    for (int k = 0; k < n; k++) {
        left[0][k] = a[k];
        right[k][0] = b[k];
    }
    configure(whole, whole, whole);
    plain_load(0, sums, 64);
    plain_load(1, left, 64);
    plain_load(2, right, 64);
    plain_dot(0, 1, 2);
    plain_store(0, sums, 64);
    plain_release();
    return sums[0][0];
}

TEST(a_word_adds_both_its_products_at_once) {
    const uint32_t ones[2] = {word_of(1, 1), word_of(1, 1)};
    ck_assert(dot(3, 1, (uint32_t[]){word_of(2, 5)}, (uint32_t[]){word_of(7, -3)}) == 2);
    ck_assert(dot(0x1p24f, 1, ones, ones) == 0x1p24f + 2); /* added one by one they would be lost */
    ck_assert(dot(0x1p25f, 2, ones, ones) == 0x1p25f + 4);
    /* First and second values are separate chains: 2^24 absorbs a 1 of its own chain, but not the other chain's sum. */
    ck_assert(dot(0, 2, (uint32_t[]){word_of(0x1p24f, 1), word_of(1, 1)}, ones) == 0x1p24f + 2);
}

TEST(what_is_below_normal_numbers_counts_as_zero) {
    const float tiny = 0x1p-130f;
    ck_assert(dot(0, 1, (uint32_t[]){word_of(tiny, 0)}, (uint32_t[]){word_of(0x1p100f, 0)}) == 0);
    ck_assert(dot(0, 1, (uint32_t[]){word_of(0, 0x1p-70f)}, (uint32_t[]){word_of(0, 0x1p-70f)}) == 0);
    ck_assert(dot(tiny, 1, (uint32_t[]){word_of(0, 0)}, (uint32_t[]){word_of(0, 0)}) == 0);
    ck_assert(dot(0, 1, (uint32_t[]){word_of(0, 0x1p-63f)}, (uint32_t[]){word_of(0, 0x1p-63f)}) == 0x1p-126f);
}

TEST(infinity_and_nan_arrive) {
    ck_assert(isinf(dot(1, 1, (uint32_t[]){word_of(INFINITY, 0)}, (uint32_t[]){word_of(1, 1)})));
    ck_assert(isnan(dot(1, 1, (uint32_t[]){word_of(INFINITY, 0)}, (uint32_t[]){word_of(0, 1)})));
    ck_assert(isnan(dot(INFINITY, 1, (uint32_t[]){word_of(-INFINITY, 0)}, (uint32_t[]){word_of(1, 1)})));
}

TEST(a_tile_has_the_rows_and_bytes_that_it_was_given) {
    unsigned char from[16][80], to[16][80];
    memset(from, 7, sizeof from);
    memset(to, 9, sizeof to);
    configure(whole, (shape){3, 20}, whole);
    plain_load(1, from, 80);
    plain_store(1, to, 80);
    plain_release();
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 80; j++) ck_assert_int_eq(to[i][j], i < 3 && j < 20 ? 7 : 9);
    }
}

/* ---- misuse ---- */

#define WHOLE                                                                                                          \
    { 16, 64 }
enum { NOTHING = -2, MULTIPLY = -1 };

typedef struct misuse {
    shape sums, a, b;
    int load, to;        /* the tile to load; MULTIPLY: multiplies into tile `to` */
    int times, releases; /* configurations and releases before it */
} misuse;

static const misuse misuses[] = {
    {.load = MULTIPLY},                                           /* without a configuration */
    {WHOLE, WHOLE, WHOLE, .load = 0, .times = 1, .releases = 1},  /* after its release */
    {WHOLE, WHOLE, WHOLE, .load = 3, .times = 1},                 /* a tile without rows */
    {WHOLE, WHOLE, WHOLE, .load = 8, .times = 1},                 /* the ninth tile */
    {WHOLE, {15, 64}, WHOLE, .load = MULTIPLY, .times = 1},       /* other rows than the sums */
    {WHOLE, WHOLE, {16, 60}, .load = MULTIPLY, .times = 1},       /* other columns */
    {WHOLE, {16, 32}, WHOLE, .load = MULTIPLY, .times = 1},       /* other words */
    {WHOLE, {16, 62}, {15, 64}, .load = MULTIPLY, .times = 1},    /* half a word */
    {WHOLE, WHOLE, WHOLE, .load = MULTIPLY, .to = 1, .times = 1}, /* into an operand */
    {{17, 64}, WHOLE, WHOLE, .load = NOTHING, .times = 1},        /* too many rows */
    {WHOLE, WHOLE, WHOLE, .load = NOTHING, .times = 2},           /* two configurations */
    {.load = NOTHING, .releases = 1},                             /* a release without a configuration */
};

static void misuse_tiles(const misuse *m) {
    uint32_t row[16] = {0};
    for (int i = 0; i < m->times; i++) configure(m->sums, m->a, m->b);
    for (int i = 0; i < m->releases; i++) plain_release();
    if (m->load == MULTIPLY) plain_dot(m->to, 1, 2);
    if (m->load >= 0) plain_load(m->load, row, 0);
}

TESTS(misuse_ends_the_program, (int)LENGTH(misuses) + 1) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        if (_i < (int)LENGTH(misuses)) misuse_tiles(&misuses[_i]);
        else plain_configure(&(amx_configuration){0}); /* no palette */
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "misuse %d was let through", _i);
}

/* ---- detection ---- */

static int asked;
static bool allow(void) {
    asked++;
    return true;
}
static bool refuse(void) {
    asked++;
    return false;
}

TEST(tiles_need_the_library_the_processor_the_system_and_the_kernel) {
    const unsigned all = dnnl_cpu_isa_avx512_core_amx, without = dnnl_cpu_isa_avx512_core_bf16;
    const uint32_t has = 1u << 24 | 1u << 22;
    const uint64_t saves = 7u << 5 | 3u << 17 | 7u;
    asked = 0;
    ck_assert(!amx_decide(&(amx_facts){without, has, saves, allow})); /* DNNL_MAX_CPU_ISA */
    ck_assert(!amx_decide(&(amx_facts){all, 1u << 24, saves, allow}));
    ck_assert(!amx_decide(&(amx_facts){all, 1u << 22, saves, allow}));
    ck_assert(!amx_decide(&(amx_facts){all, has, saves & ~(1u << 17), allow}));
    ck_assert(!amx_decide(&(amx_facts){all, has, saves & ~(1u << 18), allow}));
    ck_assert(!amx_decide(&(amx_facts){all, has, saves & ~(1u << 5), allow}));
    ck_assert_int_eq(asked, 0); /* no request for unused state */
    ck_assert(!amx_decide(&(amx_facts){all, has, saves, refuse}));
    ck_assert(amx_decide(&(amx_facts){all, has, saves, allow}));
    ck_assert_int_eq(asked, 2);
}

/* True if /proc/cpuinfo lists tiles, for the kernel and the processor. */
static bool kernel_lists_tiles(void) {
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[8192];
    bool found = false;
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL)
        found = strncmp(line, "flags", 5) == 0 && strstr(line, " amx_tile ") != NULL &&
                strstr(line, "amx_bf16") != NULL;
    if (f != NULL) (void)fclose(f);
    return found;
}

/* True if the kernel can grant the tile state (arch_prctl, ARCH_GET_XCOMP_SUPP). */
static bool kernel_gives_tiles(void) {
#if defined(__x86_64__) && defined(__linux__)
    uint64_t states = 0;
    return syscall(SYS_arch_prctl, 0x1021, &states) == 0 && (states >> 18 & 1) != 0;
#else
    return false;
#endif
}

TEST(tiles_are_used_where_they_are_and_nowhere_else) {
    const bool here = amx_is_here(dnnl_cpu_isa_avx512_core_amx);
    if (here) ck_assert(kernel_lists_tiles());
    if (here) ck_assert(amx_is_built_in());
    if (kernel_lists_tiles() && kernel_gives_tiles()) ck_assert(here);
}

/* ---- shipped and plain panels ---- */

static uint32_t state = 1;
static uint16_t any(void) {
    state = state * 1664525u + 1013904223u;
    return (uint16_t)(state >> 16);
}
/* Returns numbers up to 2^4, some of them zero or subnormal, or so small that their products are. */
static uint16_t some_number(void) {
    const uint16_t x = any(), kind = any() % 32;
    if (kind == 0) return x & 0x807F;
    if (kind == 1) return (uint16_t)((x & 0x807F) | (unsigned)(1 + any() % 70) << 7);
    return (uint16_t)((x & 0x807F) | (unsigned)(119 + any() % 12) << 7);
}

#if defined(__x86_64__)
static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

enum { LANES = 70, VALUES = 200 };

/* Compares the words of the slabs; the gaps between slabs are not written. */
static void expect_same_panel(const uint32_t *x, const uint32_t *y, int64_t lanes, int64_t k) {
    const int64_t words = (k + 1) / 2, room = panel_room(words);
    for (int64_t slab = 0; slab < lanes; slab += PANEL_LANES) {
        const int64_t n = (words + 15) / 16 * 16 * PANEL_LANES;
        ck_assert_mem_eq(x + slab * room, y + slab * room, (size_t)n * sizeof *x);
    }
}

TEST(the_shipped_panels_pack_as_the_plain_ones) {
    static uint16_t from[VALUES * VALUES];
    static uint32_t shipped[20000], plain[20000];
    if (!has_avx512()) {
        printf("skipped: packing for tiles, which needs AVX-512\n");
        return;
    }
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) from[i] = any();
    for (int i = 0; i < 400; i++) {
        const int along = i % 2, is_a = i / 2 % 2;
        const panel_source s = {from + any() % 64, along ? VALUES - 90 : LANES + 3, any() % LANES + 1,
                                any() % (VALUES - 100) + 1, along};
        memset(shipped, 0x11, sizeof shipped);
        memset(plain, 0x22, sizeof plain);
        (is_a ? cpu_panels_bf16_amx.pack_a : cpu_panels_bf16_amx.pack_b)(shipped, &s);
        (is_a ? plain_panels.pack_a : plain_panels.pack_b)(plain, &s);
        expect_same_panel(shipped, plain, s.lanes, s.k);
    }
}

enum { ROWS = 45, COLUMNS = 83, INNER = 1100 };

/* Computes c from random operands by the given panels. */
static void multiply_by(const cpu_panels *panels, const uint16_t *a, const uint16_t *b, float *c) {
    const int64_t words = INNER / 2;
    uint32_t *left = aligned_alloc(64, (size_t)panel_bytes(ROWS, words)),
             *right = aligned_alloc(64, (size_t)panel_bytes(COLUMNS, words));
    const panel_source of_a = {a, INNER, ROWS, INNER, 1}, of_b = {b, INNER, COLUMNS, INNER, 1};
    const panel_block p = {.a = left,
                           .b = right,
                           .a_slab = panels->rows_of_a * panel_room(words),
                           .room = panel_room(words),
                           .words = words,
                           .rows = ROWS,
                           .columns = COLUMNS,
                           .c = c,
                           .ldc = COLUMNS};
    panels->pack_a(left, &of_a);
    panels->pack_b(right, &of_b);
    panels->enter();
    panels->multiply(&p);
    panels->leave();
    free(left), free(right);
}

TEST(the_processors_tiles_multiply_as_the_plain_ones) {
    static uint16_t a[ROWS * INNER], b[COLUMNS * INNER];
    static float shipped[ROWS * COLUMNS], plain[ROWS * COLUMNS];
    if (!amx_is_here(dnnl_cpu_isa_avx512_core_amx)) {
        printf("skipped: the processor's own tiles: it has none, or the kernel allows none\n");
        return;
    }
    for (size_t i = 0; i < sizeof a / sizeof *a; i++) a[i] = some_number();
    for (size_t i = 0; i < sizeof b / sizeof *b; i++) b[i] = some_number();
    multiply_by(&cpu_panels_bf16_amx, a, b, shipped);
    multiply_by(&plain_panels, a, b, plain);
    ck_assert_mem_eq(shipped, plain, sizeof plain);
}
#endif

int main(void) {
    TCase *tests = tcase_create("device.amx");
#if defined(__x86_64__)
#endif
    return run_tests(tests);
}
