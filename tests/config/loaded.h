/* tests/config/loaded.h: a temporary directory, and the configuration loaded last. */
#ifndef WEFT_TEST_CONFIG_LOADED_H
#define WEFT_TEST_CONFIG_LOADED_H

#include "helper.h"

static weft_error err;
static weft_config *config;

static void setup(void) {
    const weft_error none = WEFT_ERROR_INIT;
    scratch_enter();
    err = none;
    config = NULL;
}

static void teardown(void) {
    weft_config_free(config);
    scratch_leave();
}

static weft_status load_config(const char *path, const char *const *overrides, size_t n) {
    weft_config_free(config);
    config = NULL;
    return weft_config_load(&config, path, overrides, n, &err);
}

#endif
