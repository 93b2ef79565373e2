/* tests/common/instruction_set.c: see instruction_set.h. */
#include "instruction_set.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns true for unknown names, so that a misspelt set fails the later check. */
static bool processor_has(const char *name) {
    bool avx2 = false, avx512 = false;
#if defined(__x86_64__)
    avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
#endif
    if (strcmp(name, "avx2") == 0) return avx2;
    return strcmp(name, "avx512") != 0 || avx512;
}

bool instruction_set_is_here(const char *name) {
    if (name == NULL || processor_has(name)) return true;
    printf("skipped: this processor has no %s\n", name);
    return false;
}

void instruction_set_check(const char *of_device) {
    const char *name = getenv("WEFT_TEST_ISA");
    if (name == NULL || *name == 0) return;
    ck_assert_msg(strcmp(of_device, name) == 0, "the device runs on %s, and this test is meant for %s", of_device,
                  name);
}
