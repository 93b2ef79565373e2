/* tests/common/instruction_set.h: a test that is meant for one instruction set of the CPU device is told so in
 * WEFT_TEST_ISA, beside the variable that keeps oneDNN to it: "base", "avx2", "avx512" or "amx-bf16", as the device's
 * info says; the last one is everywhere in a device of the tests (device/amx). */
#ifndef WEFT_TEST_INSTRUCTION_SET_H
#define WEFT_TEST_INSTRUCTION_SET_H

#include <stdbool.h>

enum { INSTRUCTION_SET_SKIPPED = 77 }; /* the status of a program that could do nothing here */

/* Has this machine what the set needs? False, after one line that begins with "skipped: ", where it lacks it. NULL is
 * any set. */
bool instruction_set_is_here(const char *name);

/* Fails the test unless the device runs on the set that WEFT_TEST_ISA names. Unset or empty: any will do. */
void instruction_set_check(const char *of_device);

#endif
