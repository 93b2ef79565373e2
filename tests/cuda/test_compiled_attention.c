/* Attention through cuDNN: cuDNN makes and compiles a plan of the graph for GPUs that are only described to it.
 * driver_stand_in.c replaces a missing driver. Nothing runs. */
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../plugins/device/cuda/attention_graph.h"
#include "suite.h"

static cudnn_calls calls;

/* cuDNN finds the driver, or driver_stand_in.c, because it is loaded already. */
static void load_libraries(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *cudnn = NULL;
    if (driver == NULL) driver = dlopen(WEFT_DRIVER_STAND_IN, RTLD_NOW | RTLD_GLOBAL);
    ck_assert_msg(driver != NULL, "%s", dlerror());
    cudnn = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
    ck_assert_msg(cudnn != NULL, "%s", dlerror());
#define LOOK_UP(name)                                                                                                  \
    *(void **)&calls.name = dlsym(RTLD_DEFAULT, #name);                                                                \
    ck_assert_msg(calls.name != NULL, "cuDNN has no " #name);
    CUDNN_CALLS(LOOK_UP)
}

typedef struct card {
    const char *name;
    int version, units;
    int64_t shared; /* maximum bytes of shared memory per block */
} card;
static const card cards[] = {
    {"NVIDIA A100-SXM4-80GB", 800, 108, 166912},
    {"NVIDIA L40S", 890, 142, 101376},
    {"NVIDIA H100 80GB HBM3", 900, 132, 232448},
};

static char *description(const card *c) {
    static char json[2048];
    (void)snprintf(json, sizeof json,
                   "{\"deviceName\":\"%s\",\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"isTccDriver\":0,"
                   "\"maxCtasPerSM\":24,\"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,"
                   "\"maxSharedMemoryPerBlockOptin\":%lld,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":1536,"
                   "\"memClockRateKHz\":2000000,\"multiProcessorCount\":%d,\"pciDeviceId\":0,\"regsPerBlock\":65536,"
                   "\"reservedSharedMemoryPerBlock\":1024,\"smClockRateKHz\":1500000,\"supportCoopLaunch\":1,"
                   "\"l2CacheSize\":41943040,\"totalGlobalMem\":42949672960,\"warpSize\":32,"
                   "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]}",
                   c->name, c->version, (long long)c->shared, c->units);
    return json;
}

TESTS(each_card_has_a_plan_for_heads_of_8_to_256, 3) {
    static const attention_shape shapes[] = {{2, 1024, 8, 2, 64, 0, 0}, {2, 777, 8, 8, 80, 1, 0},
                                             {2, 1024, 8, 2, 96, 0, 1}, {2, 777, 8, 8, 128, 1, 1},
                                             {1, 1, 2, 1, 8, 0, 0},     {1, 67, 2, 1, 72, 0, 0},
                                             {1, 67, 2, 1, 256, 0, 0}};
    for (size_t i = 0; i < LENGTH(shapes); i++) {
        attention_plan plan;
        weft_error err = WEFT_ERROR_INIT;
        const weft_status status = attention_plan_open(&plan, &calls, NULL, description(&cards[_i]), &shapes[i], &err);
        ck_assert_msg(status == WEFT_OK, "%s, shape %zu: %s", cards[_i].name, i, err.text);
        ck_assert_int_ge(plan.workspace, 0);
        ck_assert_int_le(plan.workspace, 1 << 20);
        attention_plan_close(&plan, &calls);
        ck_assert_int_eq(plan.n, 0);
    }
}

static void expect_no_plan(const card *c, int64_t size) {
    const attention_shape shape = {2, 1024, 8, 2, size, 0, 0};
    attention_plan plan;
    weft_error err = WEFT_ERROR_INIT;
    char says[128];
    (void)snprintf(says, sizeof says,
                   "has no plan for 2 sequences of 1024 positions, 8 heads, 2 of keys, of %d numbers", (int)size);
    ck_assert_int_eq(attention_plan_open(&plan, &calls, NULL, description(c), &shape, &err), WEFT_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.text, says) != NULL && strstr(err.text, "attention = auto") != NULL, "%s", err.text);
    attention_plan_close(&plan, &calls);
}

/* The cuDNN emulator rejects these too (emulator/dnn_graph.cpp). */
TESTS(what_cudnn_does_not_take_is_a_sentence, 3) {
    expect_no_plan(&cards[_i], 7);
    expect_no_plan(&cards[_i], 12);
    expect_no_plan(&cards[_i], 100);
}

int main(void) {
    TCase *tests = tcase_create("attention");
    tcase_add_unchecked_fixture(tests, load_libraries, NULL);
    tcase_set_timeout(tests, 300);
    return run_tests_in_one_process(tests); /* cuDNN keeps threads */
}
