/* The installed tree is all that a plugin author needs: it is installed, moved, and the template is built against it in
 * another folder, once with CMake and once with pkg-config; what comes out is held against a reference in double. */
#include "workshop.h"

#include <math.h>

#include "config/config.h"
#include "plugin/services.h"
#include <weft/optimizer.h>

#define N      1009 /* elements; odd, so that vector and scalar loops both run */
#define STEPS  100
#define BOUND  2e-6 /* relative, in norm */
#define LR     3e-3
#define BETA1  0.9
#define BETA2  0.99
#define DECAY  0.1
#define SHRINK 0.5 /* the range's share of the learning rate */

static char installed[400], by_cmake[600], by_pkg_config[600];

/* Runs a command whose words are workshop paths; its output is shown only if it fails. */
static void run(const char *format, ...) WEFT_PRINTF(1, 2);
static void run(const char *format, ...) {
    char command[6000];
    size_t n;
    va_list args;
    (void)snprintf(command, sizeof command, "cd %s && { ", workshop);
    n = strlen(command);
    va_start(args, format);
    (void)vsnprintf(command + n, sizeof command - n, format, args);
    va_end(args);
    n = strlen(command);
    (void)snprintf(command + n, sizeof command - n, "; } > log 2>&1 || { cat log; false; }");
    workshop_run(command);
}

static void install_and_build(void) {
    const char *build = getenv("WEFT_BUILD");
    ck_assert_msg(build != NULL, "WEFT_BUILD must name the build directory; ctest sets it");
    workshop_open();
    (void)snprintf(installed, sizeof installed, "%s/moved", workshop);
    (void)snprintf(by_cmake, sizeof by_cmake, "%s/elsewhere/build/weft-optimizer-lion.so", workshop);
    (void)snprintf(by_pkg_config, sizeof by_pkg_config, "%s/pc/weft-optimizer-lion.so", workshop);
    run("cmake --install %s --prefix %s/installed && mv installed moved && "
        "cp -r moved/share/weft/template/optimizer-lion elsewhere && mkdir pc",
        build, workshop);
    run("cmake -S elsewhere -B elsewhere/build -DCMAKE_PREFIX_PATH=%s && cmake --build elsewhere/build", installed);
    run("export PKG_CONFIG_PATH=$(dirname $(find %s -name weft.pc)) && "
        "cc -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags weft) elsewhere/lion.c "
        "-o %s $(pkg-config --libs weft) && test -d $(pkg-config --variable=plugindir weft)",
        installed, by_pkg_config);
}

/* --- the update against a reference --- */

static float gradient(uint32_t i, uint32_t step) {
    uint32_t x = i * 0x9E3779B1u + step * 0x85EBCA77u;
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    x ^= x >> 12;
    return ((float)(x >> 8) / 8388608.0f - 1.0f) + (i % 2 == 0 ? 0.25f : -0.25f);
}

static double rate(uint32_t step) {
    return LR * (1 - (double)step / (2 * STEPS));
}

/* Lion in double; the first half of the elements decays. */
static void reference(double *w) {
    static double m[N];
    uint32_t step, i;
    memset(m, 0, sizeof m);
    for (step = 1; step <= STEPS; step++) {
        for (i = 0; i < N; i++) {
            const double g = (double)gradient(i, step), d = BETA1 * m[i] + (1 - BETA1) * g;
            w[i] -= SHRINK * rate(step) * ((d > 0) - (d < 0) + DECAY * (i < N / 2) * w[i]);
            m[i] = BETA2 * m[i] + (1 - BETA2) * g;
        }
    }
}

static void drive(const weft_optimizer_plugin *table, weft_optimizer *optimizer, float *w) {
    static float m[N], g[N];
    const weft_range ranges[2] = {{(uint32_t)sizeof(weft_range), 0, 0, N / 2, (float)SHRINK, 1.0f},
                                  {(uint32_t)sizeof(weft_range), 0, N / 2, N - N / 2, (float)SHRINK, 0.0f}};
    const weft_elementwise *kernel = table->update(optimizer);
    float hp[64];
    uint32_t step, i, r;
    memset(m, 0, sizeof m);
    for (step = 1; step <= STEPS; step++) {
        const weft_step_info info = {(uint32_t)sizeof info, 0, step, rate(step)};
        ck_assert_int_eq(table->prepare(optimizer, hp, &info, NULL), WEFT_OK);
        for (i = 0; i < N; i++)
            g[i] = gradient(i, step);
        for (r = 0; r < 2; r++) {
            const weft_range *range = &ranges[r];
            const weft_elementwise_call call = {(uint32_t)sizeof call,         0,    w,     g,
                                                {m, NULL, NULL, NULL},         hp,   range, range->offset,
                                                range->offset + range->length, 1.0f, 0};
            kernel->cpu(&call);
        }
    }
}

static void load_and_drive(const char *path, float *w) {
    static const char *const overrides[] = {"optimizer.lr=3e-3", "optimizer.beta2=0.99", "optimizer.weight_decay=0.1"};
    const weft_plugins_options options = {NULL, NULL};
    double filled[64];
    const weft_loaded *loaded = NULL;
    weft_plugins *plugins = NULL;
    weft_config *config = NULL;
    weft_optimizer *optimizer = NULL;
    weft_error err = WEFT_ERROR_INIT;
    int64_t n_states = 0, i;
    ck_assert_msg(weft_plugins_create(&plugins, &options, &err) == WEFT_OK, "%s", err.text);
    ck_assert_msg(weft_plugins_get(plugins, &loaded, "optimizer", path, &err) == WEFT_OK, "%s", err.text);
    ck_assert_str_eq(loaded->plugin->id, "lion");
    ck_assert_uint_le(loaded->plugin->config_size, sizeof filled);
    ck_assert_msg(weft_config_load(&config, NULL, overrides, 3, &err) == WEFT_OK, "%s", err.text);
    ck_assert_msg(weft_config_fill(config, filled, "optimizer", loaded->plugin->keys, loaded->plugin->n_keys,
                                   loaded->plugin->key_stride, &err) == WEFT_OK,
                  "%s", err.text);
    ck_assert_double_eq(filled[0], LR);
    ck_assert_int_eq(weft_loaded_table(loaded, optimizer)->create(&optimizer, weft_services(), filled, &err), WEFT_OK);
    (void)weft_loaded_table(loaded, optimizer)->states(optimizer, &n_states);
    ck_assert_int_eq(n_states, 1);
    for (i = 0; i < N; i++)
        w[i] = gradient((uint32_t)i, 12345);
    drive(weft_loaded_table(loaded, optimizer), optimizer, w);
    weft_loaded_table(loaded, optimizer)->destroy(optimizer);
    weft_config_free(config);
    weft_plugins_destroy(plugins);
}

START_TEST(its_update_is_that_of_the_reference) {
    static float first[N], second[N];
    static double exact[N];
    double difference = 0, size = 0, moved = 0;
    uint32_t i;
    for (i = 0; i < N; i++)
        exact[i] = (double)gradient(i, 12345);
    reference(exact);
    load_and_drive(by_cmake, first);
    load_and_drive(by_pkg_config, second);
    for (i = 0; i < N; i++) {
        difference += ((double)first[i] - exact[i]) * ((double)first[i] - exact[i]);
        size += exact[i] * exact[i];
        moved += fabs(exact[i] - (double)gradient(i, 12345)) / N;
    }
    ck_assert_msg(sqrt(difference / size) < BOUND, "off by %.2e", sqrt(difference / size));
    ck_assert_double_gt(moved, 0.01); /* there was something to compare */
    ck_assert_mem_eq(first, second, sizeof first);
}
END_TEST

/* --- the installed program --- */

static void expect_output(const char *command, const char *fragment) {
    char text[20000] = "";
    FILE *output = popen(command, "r");
    ck_assert_ptr_nonnull(output);
    text[fread(text, 1, sizeof text - 1, output)] = 0;
    ck_assert_msg(pclose(output) == 0, "%s failed: %s", command, text);
    ck_assert_msg(strstr(text, fragment) != NULL, "\"%s\" is not in the output of %s:\n%s", fragment, command, text);
}

START_TEST(the_moved_program_finds_its_plugins_and_the_new_one) {
    char command[2000], found[1000];
    (void)snprintf(command, sizeof command,
                   "cd / && unset WEFT_PLUGIN_PATH && %s/bin/weft plugins describe optimizer:adamw", installed);
    (void)snprintf(found, sizeof found, "file    %s/", installed);
    expect_output(command, found);
    (void)snprintf(command, sizeof command,
                   "WEFT_PLUGIN_PATH=%s/elsewhere/build %s/bin/weft plugins describe optimizer:lion", workshop,
                   installed);
    expect_output(command, "optimizer:lion 0.1.0 (optimizer/1)");
    expect_output(command, "beta2         0.99");
    (void)snprintf(command, sizeof command, "WEFT_PLUGIN_PATH=%s/elsewhere/build %s/bin/weft plugins list --json",
                   workshop, installed);
    expect_output(command, "\"id\": \"lion\"");
    expect_output(command, "\"id\": \"sgd\"");
    (void)snprintf(command, sizeof command,
                   "cd %s/elsewhere/build && %s/bin/weft plugins describe "
                   "optimizer:./weft-optimizer-lion.so",
                   workshop, installed);
    expect_output(command, "optimizer:lion 0.1.0 (optimizer/1)");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("out of tree");
    TCase *tests = tcase_create("out of tree");
    SRunner *runner = NULL;
    int failed;
    tcase_set_timeout(tests, 120);
    tcase_add_unchecked_fixture(tests, install_and_build, workshop_close);
    tcase_add_test(tests, its_update_is_that_of_the_reference);
    tcase_add_test(tests, the_moved_program_finds_its_plugins_and_the_new_one);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
