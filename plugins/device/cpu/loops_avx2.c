/* loops_avx2.c: the inner loops for AVX2 with FMA and F16C. Runs only after a check of the processor. */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c")
#define LOOPS_AVX2
#define LOOPS_TABLE cpu_loops_avx2
#include "loops_body.h"
#else
typedef int loops_avx2_has_no_code_here;
#endif
