/* tests/common/graph_cases.h: runs a test's model through all operator checks: gradients against finite differences,
 * and two devices against each other, in fp32 and bf16. */
#ifndef WEFT_TESTS_GRAPH_CASES_H
#define WEFT_TESTS_GRAPH_CASES_H

#include "graph_rig.h"
#include "suite.h"

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

/* Registers these checks as tests of all cases of an array. */
#define GRAPH_CASE_TESTS(cases)                                                                                        \
    TESTS(gradients_agree_with_finite_differences, LENGTH(cases) * RIG_DEVICES) {                                      \
        graph_case_check_gradients(&(cases)[_i / RIG_DEVICES], _i % RIG_DEVICES);                                      \
    }                                                                                                                  \
    TESTS(devices_agree, LENGTH(cases)) {                                                                              \
        graph_case_check_devices(&(cases)[_i], WEFT_F32);                                                              \
    }                                                                                                                  \
    TESTS(devices_agree_in_bf16, LENGTH(cases)) {                                                                      \
        graph_case_check_devices(&(cases)[_i], WEFT_BF16);                                                             \
    }                                                                                                                  \
    TESTS(bf16_is_near_fp32, LENGTH(cases)) {                                                                          \
        graph_case_check_bf16(&(cases)[_i]);                                                                           \
    }

#endif
