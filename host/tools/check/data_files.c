/* host/tools/check/data_files.c: data that are to be read from a wrong file. */
#include "tools/check/data_trial.h"

#include "base/join.h"
#include "tools/check/wrong_files.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Where the keys have the file that is learned from; NULL: no such key. */
const char **weft_data_path_in(const weft_plugin_under_test *tested, void *config) {
    const weft_key *key = weft_plugin_under_test_key(tested, "path", WEFT_KEY_PATH);
    return key == NULL ? NULL : (const char **)(void *)((char *)config + key->offset);
}

static weft_status judge_refusal(weft_wrong wrong, const char *path, weft_status status, const weft_error *said,
                                 weft_error *err) {
    if (status != WEFT_E_UNSUPPORTED && status != WEFT_E_SYSTEM) /* what instance_open makes of a user's mistake */
        return WEFT_BROKEN(err, "%s as path: %s", weft_wrong_name(wrong), said->text);
    if (strstr(said->text, path) == NULL)
        return WEFT_BROKEN(err, "it refuses %s as path by a sentence that does not name it: %s", weft_wrong_name(wrong),
                           said->text);
    return WEFT_OK;
}

static weft_status read_wrong(const weft_plugin_under_test *tested, weft_wrong wrong, const char *path,
                              weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    weft_data_instance self;
    const weft_status status = weft_data_open(&self, tested, WEFT_POISON_ONE, &said);
    const uint64_t targets = status == WEFT_OK ? self.splits[WEFT_SPLIT_TRAIN].targets : 0;
    weft_status left = WEFT_OK;
    if (self.refused) left = weft_plugin_under_test_refused(status, self.made, weft_wrong_name(wrong), err);
    if (self.refused) self.made = NULL;
    weft_data_close(&self);
    if (left != WEFT_OK) return left;
    if (status != WEFT_OK) return judge_refusal(wrong, path, status, &said, err);
    if (weft_wrong_is_nothing(wrong) || targets == 0)
        return WEFT_BROKEN(err, "it takes %s as path, with %llu targets to learn", weft_wrong_name(wrong),
                           (unsigned long long)targets);
    return WEFT_OK;
}

/* As another file of the same name, for what goes by its ending. */
static weft_status each_wrong(weft_plugin_under_test *wrong, const char **path, weft_error *err) {
    const char *right = *path, *slash = strrchr(right, '/');
    char here[WEFT_PATH_BYTES], made[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    if (getcwd(here, sizeof here) == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "the working directory cannot be told: %s", strerror(errno));
    status = weft_path_join(made, here, slash == NULL ? right : slash + 1, err);
    *path = made;
    for (int w = 0; w < WEFT_N_WRONG && status == WEFT_OK; w++) {
        weft_plugin_under_test_asks("%s as path", weft_wrong_name((weft_wrong)w));
        status = weft_wrong_make(made, (weft_wrong)w, right, err);
        if (status == WEFT_OK) status = read_wrong(wrong, (weft_wrong)w, made, err);
    }
    *path = right;
    return status;
}

weft_status weft_data_refuses_wrong_files(weft_plugin_under_test *tested, weft_error *err) {
    const size_t size = tested->loaded->plugin->config_size;
    weft_plugin_under_test wrong = *tested;
    const char **path = NULL;
    weft_status status = WEFT_OK;
    wrong.config = malloc(size + 8);
    if (wrong.config == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the keys");
    memcpy(wrong.config, tested->config, size);
    path = weft_data_path_in(tested, wrong.config);
    if (path == NULL || *path == NULL || (*path)[0] != '/')
        status = WEFT_MOOT(tested, err, "it has no key path that names a file, and need not");
    else status = each_wrong(&wrong, path, err);
    free(wrong.config);
    return status;
}
