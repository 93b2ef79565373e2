/* ini.c: a configuration file, up to the host's own keys; accepted ones again as written. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "config/config.h"
#include "config/settings.h"

static weft_status read_it(weft_config **config, weft_settings *settings, const char *path, weft_error *err) {
    const char *id = NULL;
    weft_status status = weft_config_load(config, path, NULL, 0, err);
    if (status == WEFT_OK) status = weft_settings_load(settings, *config, err);
    if (status == WEFT_OK) status = weft_config_plugin(*config, &id, "optimizer", "adamw", err);
    return status == WEFT_OK ? weft_config_finish(*config, err) : status;
}

/* Saves the resolved values to `path` and returns their text; freed by the caller. */
static char *resolved(const weft_config *config, const char *path) {
    char *text = NULL;
    size_t n = 0;
    weft_error err = WEFT_ERROR_INIT;
    if (weft_config_save_resolved(config, path, &err) != WEFT_OK ||
        weft_text_read(&text, &n, path, 1 << 20, &err) != 0) {
        (void)fprintf(stderr, "fuzz: resolved values cannot be saved: %s\n", err.text);
        abort();
    }
    return text;
}

static void read_again(const weft_config *config) {
    char path[512], *first = NULL, *second = NULL;
    weft_config *again = NULL;
    weft_settings settings;
    weft_error err = WEFT_ERROR_INIT;
    (void)snprintf(path, sizeof path, "%s", fuzz_file("resolved.ini", "", 0));
    memset(&settings, 0, sizeof settings);
    first = resolved(config, path);
    if (read_it(&again, &settings, path, &err) != WEFT_OK || strcmp(first, second = resolved(again, path)) != 0) {
        (void)fprintf(stderr, "fuzz: resolved values are rejected or change: %s\n%s\n", err.text, first);
        abort();
    }
    free(first);
    free(second);
    weft_config_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    weft_config *config = NULL;
    weft_settings settings;
    weft_error err = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    memset(&settings, 0, sizeof settings);
    status = read_it(&config, &settings, fuzz_file("run.ini", data, size), &err);
    fuzz_judge(status, &err);
    if (status == WEFT_OK) read_again(config);
    weft_config_free(config);
    return 0;
}
