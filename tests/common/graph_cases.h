/* tests/common/graph_cases.h: a model of a test's own held in every way that an operator is: its gradients against
 * finite differences, and the two devices against each other, in fp32 and in bf16. */
#ifndef WEFT_TESTS_GRAPH_CASES_H
#define WEFT_TESTS_GRAPH_CASES_H

#include "graph_rig.h"

typedef struct graph_case {
    rig_model model;
    int32_t first, last; /* segments that are run */
} graph_case;

/* Of every trained parameter and of the carry that comes in. */
void graph_case_check_gradients(const graph_case *c, int device);
/* All that it leaves behind, on device/cpu and on the reference device. */
void graph_case_check_devices(const graph_case *c, int32_t dtype);
/* bf16 differs from fp32, and not by much. */
void graph_case_check_bf16(const graph_case *c);

#endif
