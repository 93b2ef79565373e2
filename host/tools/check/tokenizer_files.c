/* host/tools/check/tokenizer_files.c: a tokenizer that is to read a wrong file. */
#include "tools/check/tokenizer_trial.h"

#include "base/join.h"
#include "tools/check/wrong_files.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* Its first file, which it cannot do without; "": it reads none. */
static weft_status find_file(char *name, size_t size, const weft_plugin_under_test *tested, weft_error *err) {
    const char *first = NULL;
    weft_tokenizer_instance self;
    const weft_status status = weft_tokenizer_open(&self, tested, err);
    if (status == WEFT_OK && self.table->file != NULL) first = self.table->file(self.made, 0);
    (void)snprintf(name, size, "%s", first == NULL ? "" : first);
    weft_tokenizer_close(&self);
    return status;
}

/* `wrong` looks into a directory where only that file lies. */
static weft_status read_wrong(const weft_plugin_under_test *wrong, weft_wrong how, const char *name, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    weft_tokenizer_instance self;
    const weft_status status = weft_tokenizer_open(&self, wrong, &said);
    weft_status left = WEFT_OK;
    if (self.refused) left = weft_plugin_under_test_refused(status, self.made, weft_wrong_name(how), err);
    if (self.refused) self.made = NULL;
    weft_tokenizer_close(&self);
    if (left != WEFT_OK) return left;
    if (status == WEFT_OK && name[0] != '\0')
        return WEFT_BROKEN(err, "it takes %s as its %s", weft_wrong_name(how), name);
    if (status != WEFT_OK && strstr(said.text, name) == NULL && strstr(said.text, wrong->options->directory) == NULL)
        return WEFT_BROKEN(err, "it refuses %s as its %s by a sentence that does not name it: %s", weft_wrong_name(how),
                           name, said.text);
    return WEFT_OK;
}

weft_status weft_tokenizer_refuses_wrong_files(weft_plugin_under_test *tested, weft_error *err) {
    char here[WEFT_PATH_BYTES], directory[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES], right[WEFT_PATH_BYTES], name[256];
    weft_plugin_under_test_options options = *tested->options;
    weft_plugin_under_test wrong = *tested;
    weft_status status = find_file(name, sizeof name, tested, err);
    options.directory = directory;
    wrong.options = &options;
    if (status == WEFT_OK && getcwd(here, sizeof here) == NULL)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the working directory cannot be told: %s", strerror(errno));
    if (status == WEFT_OK) status = weft_path_join(directory, here, "wrong", err);
    if (status == WEFT_OK) status = weft_path_join(path, directory, name[0] == '\0' ? "none" : name, err);
    if (status == WEFT_OK) status = weft_path_join(right, tested->options->directory, name, err);
    if (status == WEFT_OK) (void)mkdir(directory, 0700);
    for (int w = 0; w < (name[0] == '\0' ? WEFT_WRONG_DIRECTORY : WEFT_N_WRONG) && status == WEFT_OK; w++) {
        weft_plugin_under_test_asks("%s as its %s", weft_wrong_name((weft_wrong)w), name);
        status = weft_wrong_make(path, (weft_wrong)w, right, err);
        if (status == WEFT_OK) status = read_wrong(&wrong, (weft_wrong)w, name, err);
    }
    return status;
}
