/* host/conform/whole_rules.c: rules of every kind: it is loaded, and runs with it are what runs have to be. Those are
 * this program's own commands, on a small model. */
#include "conform/own_command.h"
#include "conform/rule.h"

static weft_status is_loaded(weft_subject *subject, weft_error *err) {
    (void)subject;
    (void)err;
    return WEFT_OK; /* whoever got here has loaded it and filled its keys */
}

/* ---- runs with it ---- */

/* What a run of the directory has learnt. */
static void name_learnt(char out[WEFT_PATH_BYTES], const weft_subject *subject, const char *run) {
    const bool is_adapter = strcmp(subject->options->kind, "adapter") == 0;
    (void)snprintf(out, WEFT_PATH_BYTES, "%s/model/%s", run,
                   is_adapter ? "adapter_model.safetensors" : "model.safetensors");
}

static weft_status resumes(weft_subject *subject, weft_error *err) {
    char ini[WEFT_PATH_BYTES], one[WEFT_PATH_BYTES], two[WEFT_PATH_BYTES];
    weft_status status = weft_own_ini(ini, subject, err);
    const char *const whole[] = {"train", ini, "run.out=whole", "train.steps=4", "checkpoint.every=2", NULL};
    const char *const half[] = {"train", ini, "run.out=halves", "train.steps=2", "checkpoint.every=2", NULL};
    const char *const rest[] = {"train",    ini, "run.out=halves", "train.steps=4", "checkpoint.every=2",
                                "--resume", NULL};
    if (status == WEFT_OK) status = weft_own_command(subject, whole, true, err);
    if (status == WEFT_OK) status = weft_own_command(subject, half, true, err);
    if (status == WEFT_OK) status = weft_own_command(subject, rest, true, err);
    name_learnt(one, subject, "whole");
    name_learnt(two, subject, "halves");
    if (status == WEFT_OK && !weft_same_files(one, two))
        status = WEFT_BROKEN(err, "four steps give another model than two, a stop and two more");
    return status;
}

static weft_status proved(weft_subject *subject, weft_error *err) {
    const bool is_comm = strcmp(subject->loaded->plugin->kind, "comm") == 0; /* it knows what it can start */
    char ini[WEFT_PATH_BYTES];
    const weft_status status = weft_own_ini(ini, subject, err);
    const char *const words[] = {"prove", ini, "run.out=proof", "--steps", "2", is_comm ? NULL : "--ranks", "2", NULL};
    return status == WEFT_OK ? weft_own_command(subject, words, true, err) : status;
}

const weft_rule weft_rules_all[] = {{"R26", NULL, "is loaded, and its keys hold", is_loaded, false},
                                    {"R27", NULL, "trains, stops and resumes to the same bits", resumes, true},
                                    {"R28", NULL, "is proved under every strategy", proved, true},
                                    {NULL, NULL, NULL, NULL, false}};
