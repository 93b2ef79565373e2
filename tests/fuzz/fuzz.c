/* fuzz.c: see fuzz.h. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "plugin/services.h"
#include <weft/plugin.h>

static char directory[64];
static char path[512];

static void fail(const char *what, const char *text) {
    (void)fprintf(stderr, "fuzz: %s: \"%s\"\n", what, text);
    abort();
}

void fuzz_judge(weft_status status, const weft_error *err) {
    if (status == WEFT_OK) return;
    if (err->text[0] == '\0' || err->code != (int32_t)status) fail("a failure without its message", err->text);
    for (const unsigned char *at = (const unsigned char *)err->text; *at != '\0'; at++)
        if ((*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7f)
            fail("a sentence with a control character", err->text);
}

static void remove_directory(void) {
    DIR *open = opendir(directory);
    for (const struct dirent *entry = NULL; open != NULL && (entry = readdir(open)) != NULL;) {
        (void)snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] != '.') (void)unlink(path);
    }
    if (open != NULL) (void)closedir(open);
    (void)rmdir(directory);
}

const char *fuzz_directory(void) {
    if (directory[0] != '\0') return directory;
    (void)snprintf(directory, sizeof directory, "%s/weft-fuzz-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(directory) == NULL) fail("no directory for files", directory);
    (void)atexit(remove_directory);
    return directory;
}

const char *fuzz_file(const char *name, const void *bytes, size_t n) {
    FILE *file = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
    file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, n, file) != n || fclose(file) != 0) fail("a file cannot be written", path);
    return path;
}

const struct weft_plugin *fuzz_plugin(fuzz_entry *entry) {
    weft_error err = WEFT_ERROR_INIT;
    const weft_plugin_list *list = entry(weft_services(), &err);
    (void)weft_services_log_level(-1); /* plugins log random text */
    if (list == NULL) fail("the plugin cannot work here", err.text);
    return &list->plugins[0];
}

void *fuzz_config(weft_config **config, const struct weft_plugin *plugin, const char *const *overrides, size_t n) {
    weft_error err = WEFT_ERROR_INIT;
    void *filled = calloc(1, plugin->config_size + 1);
    if (filled == NULL) fail("no memory", "");
    if (weft_config_load(config, NULL, overrides, n, &err) != WEFT_OK ||
        weft_config_fill(*config, filled, plugin->kind, plugin->keys, plugin->n_keys, plugin->key_stride, &err) !=
            WEFT_OK)
        fail("its own keys are refused", err.text);
    return filled;
}

void fuzz_config_free(weft_config *config, void *filled) {
    weft_config_free(config);
    free(filled);
}
