/* loops_avx2.c: the inner loops for AVX2 with FMA and F16C. Nothing of this file runs before the processor was asked.
 */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c")
#define LOOPS_AVX2
#define LOOPS_TABLE cpu_loops_avx2
#include "loops_body.h"
#else
typedef int loops_avx2_has_no_code_here;
#endif
