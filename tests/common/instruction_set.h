/* tests/common/instruction_set.h: WEFT_TEST_ISA names the instruction set of the CPU device that a test requires;
 * another variable limits oneDNN to it. Values are those of the device's info: "base", "avx2", "avx512" or "amx-bf16".
 * A test device supports the last one on every machine (device/amx). */
#ifndef WEFT_TEST_INSTRUCTION_SET_H
#define WEFT_TEST_INSTRUCTION_SET_H

#include <stdbool.h>

enum { INSTRUCTION_SET_SKIPPED = 77 }; /* exit status of a program that skipped its tests */

/* Returns true if this machine supports the set; NULL is any set. Otherwise prints a line that starts with "skipped:
 * ". */
bool instruction_set_is_here(const char *name);

/* Fails the test unless the device uses the set in WEFT_TEST_ISA. Unset or empty: any set. */
void instruction_set_check(const char *of_device);

#endif
