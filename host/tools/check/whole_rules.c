/* host/tools/check/whole_rules.c: rules for every kind: the plugin loads, and runs with it behave correctly. The runs
 * are this program's own commands on a small model. */
#include "tools/check/own_command.h"
#include "tools/check/rule.h"

#include "base/file.h"
#include "base/safetensors.h"
#include "tools/common/messages.h"

/* The plugin is loaded and configured here. A plugin that cannot work on this machine passes, too. */
static weft_status is_loaded(weft_plugin_under_test *tested, weft_error *err) {
    const weft_status status = weft_usable(tested, err);
    return status == WEFT_E_UNSUPPORTED ? WEFT_OK : status;
}

/* ---- runs ---- */

/* Returns the path of the weights that a run has trained. */
static void name_learnt(char out[WEFT_PATH_BYTES], const weft_plugin_under_test *tested, const char *run) {
    const bool is_adapter = strcmp(tested->options->kind, "adapter") == 0;
    (void)snprintf(out, WEFT_PATH_BYTES, "%s/model/%s", run,
                   is_adapter ? "adapter_model.safetensors" : "model.safetensors");
}

/* ---- answers in another process ---- */

static weft_status print_apart(const weft_tensor *one, const weft_tensor *two, weft_error *err) {
    const char *const why = "its results depend on the process: its id, an address, the time, or uninitialized memory";
    int64_t at = 0;
    float a = 0, b = 0;
    while (one->dtype == WEFT_F32 && at + 1 < one->numel && memcmp(one->data + at * 4, two->data + at * 4, 4) == 0)
        at++;
    if (one->dtype != WEFT_F32)
        return WEFT_BROKEN(err, "two equal processes train to different weights, and differ in %s: %s", one->name, why);
    memcpy(&a, one->data + at * 4, sizeof a);
    memcpy(&b, two->data + at * 4, sizeof b);
    return WEFT_BROKEN(err,
                       "two equal processes train to different weights: element %lld of %s is %.9g from one and %.9g "
                       "from the other; %s",
                       (long long)at, one->name, (double)a, (double)b, why);
}

/* Compares two weight files and reports the first tensor that differs. */
static weft_status compare_weights(const char *one, const char *two, weft_error *err) {
    weft_safetensors *a = NULL, *b = NULL;
    weft_error unread = WEFT_ERROR_INIT;
    weft_status status = weft_safetensors_open(&a, one, &unread);
    if (status == WEFT_OK) status = weft_safetensors_open(&b, two, &unread);
    for (int32_t i = 0; status == WEFT_OK && i < a->n_tensors; i++) {
        const weft_tensor *tensor = &a->tensors[i], *other = weft_safetensors_find(b, tensor->name);
        if (other == NULL || other->bytes != tensor->bytes || other->dtype != tensor->dtype) continue;
        if (memcmp(tensor->data, other->data, (size_t)tensor->bytes) != 0) status = print_apart(tensor, other, err);
    }
    weft_safetensors_close(a);
    weft_safetensors_close(b);
    return status == WEFT_E_PLUGIN ? status : WEFT_OK;
}

/* Extends an error: runs two identical single-process runs. If they differ, the answers depend on the process, and that
 * is the reason. Failing runs are no evidence, unless one hangs. */
static weft_status blame_process(const weft_plugin_under_test *tested, const char *ini, weft_status status,
                                 weft_error *err) {
    const char *const once[] = {"train", ini, "run.out=once", "train.steps=2", NULL};
    const char *const twice[] = {"train", ini, "run.out=twice", "train.steps=2", NULL};
    char one[WEFT_PATH_BYTES], two[WEFT_PATH_BYTES];
    weft_error said = WEFT_ERROR_INIT;
    weft_status ran = WEFT_OK;
    if (status == WEFT_OK || weft_own_command_hangs()) return status;
    ran = weft_own_command(tested, once, true, &said);
    if (ran == WEFT_OK) ran = weft_own_command(tested, twice, true, &said);
    name_learnt(one, tested, "once");
    name_learnt(two, tested, "twice");
    if (ran == WEFT_OK) ran = compare_weights(one, two, &said);
    else if (!weft_own_command_hangs()) return status;
    return ran == WEFT_OK ? status : weft_error_set(err, ran, "%s", said.text);
}

/* ---- unsupported machines ---- */

/* Checks that a run stops with the plugin's message from `works` (in err). No other test follows. */
static weft_status stops_runs(const weft_plugin_under_test *tested, const char *ini, weft_error *err) {
    const char *const words[] = {"train", ini, "run.out=unusable", "train.steps=1", NULL};
    const weft_error said = *err;
    weft_error ran = WEFT_ERROR_INIT;
    const weft_status status = weft_own_command(tested, words, true, &ran);
    if (status == WEFT_E_UNSUPPORTED || strstr(ran.text, err->text) != NULL) return WEFT_E_UNSUPPORTED;
    if (status == WEFT_OK) return WEFT_BROKEN(err, "works fails here, and a run with the plugin trains: %s", said.text);
    return WEFT_BROKEN(err, "works fails with: %.700s; and a run with the plugin fails without this message: %.1100s",
                       said.text, ran.text);
}

/* ---- the rules ---- */

static weft_status resume(weft_plugin_under_test *tested, const char *ini, weft_error *err) {
    char one[WEFT_PATH_BYTES], two[WEFT_PATH_BYTES];
    const char *const whole[] = {"train", ini, "run.out=whole", "train.steps=4", "checkpoint.every=2", NULL};
    const char *const half[] = {"train", ini, "run.out=halves", "train.steps=2", "checkpoint.every=2", NULL};
    const char *const rest[] = {"train",    ini, "run.out=halves", "train.steps=4", "checkpoint.every=2",
                                "--resume", NULL};
    weft_status status = weft_own_command(tested, whole, true, err);
    if (status == WEFT_OK) status = weft_own_command(tested, half, true, err);
    if (status == WEFT_OK) status = weft_own_command(tested, rest, true, err);
    name_learnt(one, tested, "whole");
    name_learnt(two, tested, "halves");
    if (status == WEFT_OK && !weft_files_are_equal(one, two))
        status = blame_process(
            tested, ini,
            WEFT_BROKEN(err, "four steps train to a different model than two steps, a stop and two more steps"), err);
    return status;
}

static weft_status resumes(weft_plugin_under_test *tested, weft_error *err) {
    char ini[WEFT_PATH_BYTES];
    weft_status status = weft_own_ini(ini, tested, err);
    if (status != WEFT_OK) return status;
    status = weft_usable(tested, err);
    if (status == WEFT_E_UNSUPPORTED) return stops_runs(tested, ini, err);
    return status == WEFT_OK ? resume(tested, ini, err) : status;
}

static weft_status proved(weft_plugin_under_test *tested, weft_error *err) {
    const bool is_comm = strcmp(tested->loaded->plugin->kind, "comm") == 0; /* it limits its own launch */
    char ini[WEFT_PATH_BYTES];
    weft_status status = weft_own_ini(ini, tested, err);
    const char *const words[] = {"prove", ini, "run.out=proof", "--steps", "2", is_comm ? NULL : "--ranks", "2", NULL};
    if (status == WEFT_OK) status = weft_usable(tested, err);
    if (status != WEFT_OK) return status;
    status = weft_own_command(tested, words, true, err);
    if (status == WEFT_E_UNSUPPORTED && strstr(err->text, WEFT_PROVE_APART) != NULL)
        status = WEFT_E_PLUGIN; /* both processes run on this machine, with the same files */
    return is_comm ? status : blame_process(tested, ini, status, err);
}

const weft_rule weft_rules_all[] = {{"R26", "is loaded, and its keys are valid", is_loaded, false},
                                    {"R27", "trains, stops and resumes to the same bits", resumes, true},
                                    {"R28", "gives the same bits under every strategy", proved, true},
                                    {NULL, NULL, NULL, false}};
