/* loops_avx512.c: the inner loops for AVX-512. Runs only after a check of the processor. */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#define LOOPS_AVX512
#define LOOPS_TABLE cpu_loops_avx512
#include "loops_body.h"
#else
typedef int loops_avx512_has_no_code_here;
#endif
