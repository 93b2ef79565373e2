/* host/tools/check/comm_rules.c: rules for communicators beyond R28: the sums that a run delegates. */
#include "tools/check/own_command.h"
#include "tools/check/rule.h"

#include "plugin/load.h"

#include <math.h>

/* Evaluates a model trained by `run`. */
static weft_status measure(double *loss, const weft_plugin_under_test *tested, const char *ini, const char *path,
                           weft_error *err) {
    const char *const words[] = {"eval", ini, path, "model.start=weights", "--json", NULL};
    return weft_own_loss(loss, tested, words, false, err);
}

static weft_status compare(const weft_plugin_under_test *tested, const char *ini, const char *strategy,
                           const char *path, double alone, weft_error *err) {
    double loss = 0;
    const weft_status status = measure(&loss, tested, ini, path, err);
    if (status != WEFT_OK || fabs(loss - alone) <= 1e-5 * fabs(alone)) return status;
    return WEFT_BROKEN(err, "the loss of two ranks by %s with reduce = fast is %.7g, and of one rank %.7g", strategy,
                       loss, alone);
}

static weft_status can_start(const weft_plugin_under_test *tested, weft_error *err) {
    weft_preflight note;
    const weft_status status = weft_plugin_file_note(&note, tested->options->file, NULL, err);
    if (status == WEFT_OK && note.launch[0] == '\0')
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "its note has no command that starts ranks");
    return status;
}

/* Checks reduced sums within rounding: a communicator may add in any order. */
static weft_status sums(weft_plugin_under_test *tested, weft_error *err) {
    char ini[WEFT_PATH_BYTES];
    double alone = 0;
    weft_status status = weft_own_ini(ini, tested, err);
    const char *const single[] = {"train", ini, "run.out=alone", "train.steps=4", "strategy.plugin=single", NULL};
    const char *const ddp[] = {
        "train",   ini, "run.out=ddp", "train.steps=4", "strategy.plugin=ddp", "strategy.reduce=fast",
        "--ranks", "2", NULL};
    const char *const fsdp[] = {
        "train", ini, "run.out=fsdp", "train.steps=4", "strategy.plugin=fsdp", "strategy.reduce=fast", "--ranks",
        "2",     NULL};
    if (status == WEFT_OK) status = can_start(tested, err);
    if (status == WEFT_OK) status = weft_own_command(tested, single, false, err);
    if (status == WEFT_OK) status = measure(&alone, tested, ini, "model.path=alone/model", err);
    if (status == WEFT_OK) status = weft_own_command(tested, ddp, true, err);
    if (status == WEFT_OK) status = compare(tested, ini, "ddp", "model.path=ddp/model", alone, err);
    if (status == WEFT_OK) status = weft_own_command(tested, fsdp, true, err);
    return status == WEFT_OK ? compare(tested, ini, "fsdp", "model.path=fsdp/model", alone, err) : status;
}

/* Runs the exchange test. The ranks report a hanging exchange before the timeout of this rule. */
static weft_status exchange(const weft_plugin_under_test *tested, const char *how, weft_error *err) {
    char ini[WEFT_PATH_BYTES], seconds[32];
    weft_status status = weft_own_ini(ini, tested, err);
    const char *const words[] = {"plugins", "exchange", ini, "run.out=exchanged", "--ranks", "3", "--seconds",
                                 seconds,   how,        NULL};
    (void)snprintf(seconds, sizeof seconds, "%g", tested->options->seconds);
    if (status == WEFT_OK) status = can_start(tested, err);
    return status == WEFT_OK ? weft_own_command(tested, words, true, err) : status;
}

WEFT_RULE_BY(exchanges, exchange, NULL)
WEFT_RULE_BY(exchanges_later, exchange, "--later")
WEFT_RULE_BY(exchanges_at_once, exchange, "--at-once")

const weft_rule weft_rules_comm[] = {
    {"R110", "sums the contributions of the ranks if a run delegates sums to it", sums, true},
    {"R111", "exchanges any count, in any group, ended by wait, test or join", exchanges, true},
    {"R112", "exchanges the same with a host that has longer structs", exchanges_later, true},
    {"R113", "keeps concurrent exchanges separate", exchanges_at_once, true},
    {NULL, NULL, NULL, false}};
