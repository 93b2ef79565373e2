/* tests/common/graph_cases.h: runs a test's model through all operator checks: gradients against finite differences,
 * and two devices against each other, in fp32 and bf16. */
#ifndef WEFT_TESTS_GRAPH_CASES_H
#define WEFT_TESTS_GRAPH_CASES_H

#include "graph_rig.h"

typedef struct graph_case {
    rig_model model;
    int32_t first, last; /* segments to run */
} graph_case;

/* Checks every trained parameter and the incoming carry. */
void graph_case_check_gradients(const graph_case *c, int device);
/* Compares all results of device/cpu and the reference device. */
void graph_case_check_devices(const graph_case *c, int32_t dtype);
/* Checks that bf16 differs from fp32, but only slightly. */
void graph_case_check_bf16(const graph_case *c);

#endif
