/* host/tools/merge/cmd_merge.c: `weft merge`. Opens no device, and plans only the model's tree. */
#include "cli/cli.h"

#include "tools/merge/merge.h"
#include "adapter/stack.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "run/staging.h"
#include "program/plan.h"
#include "program/sections.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const weft_flag flags[] = {
    {"dtype", "TYPE", false, "Type of the merged weights: fp32, bf16 or fp16; default: each tensor's own."},
    {"any-base", NULL, false, "Merge even if the adapter was trained on other weights."},
    {NULL, NULL, false, NULL},
};

typedef struct merge_command {
    const char *base, *adapter, *out;
    char parent[WEFT_PATH_BYTES], name[256];
    int32_t dtype;
} merge_command;

static weft_status read_dtype(int32_t *out, const char *text, weft_error *err) {
    static const int32_t dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    for (int i = 0; text != NULL && i < 3; i++)
        if (strcmp(text, weft_dtype_name(dtypes[i])) == 0) *out = dtypes[i];
    if (text == NULL || *out != 0) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_USER,
        "--dtype = %s. Allowed: fp32, bf16, fp16. A merged model is not packed, because its update would be "
        "lost between the steps of the blocks",
        text);
}

/* Splits the path of the new directory, which must not exist. */
static weft_status split_out(merge_command *self, weft_error *err) {
    size_t n = strlen(self->out);
    const char *slash = NULL;
    char whole[WEFT_PATH_BYTES];
    bool is_there = false;
    weft_status status = WEFT_OK;
    while (n > 1 && self->out[n - 1] == '/') n--;
    if (n >= sizeof whole) return weft_error_set(err, WEFT_E_USER, "%s: the path is too long", self->out);
    (void)snprintf(whole, sizeof whole, "%.*s", (int)n, self->out);
    status = weft_file_exists(&is_there, whole, err);
    if (status != WEFT_OK) return status;
    if (is_there) return weft_error_set(err, WEFT_E_USER, "%s exists. Fix: name a new directory", whole);
    slash = strrchr(whole, '/');
    (void)snprintf(self->parent, sizeof self->parent, "%.*s",
                   slash == NULL ? 1 : (int)(slash - whole) + (slash == whole), slash == NULL ? "." : whole);
    (void)snprintf(self->name, sizeof self->name, "%.255s", slash == NULL ? whole : slash + 1);
    return self->name[0] != '\0' ? WEFT_OK
                                 : weft_error_set(err, WEFT_E_USER, "%s: is no name of a directory", self->out);
}

/* Replaces the value, which may be NULL and is freed, by "KEY=VALUE". */
static char *as_override(const char *key, char *value) {
    char *text = value == NULL ? NULL : weft_text_of("%s=%s", key, value);
    free(value);
    return text;
}

/* Adds the tokens of the adapter's run ([tokenizer] add and pad) to the base. texts: two, which the caller frees. *n:
 * grows by the overrides. */
static weft_status add_tokens(char *texts[2], const char **overrides, size_t *n, const merge_command *self,
                              weft_error *err) {
    char *had = NULL, *pad = NULL, *more = NULL;
    weft_status status = weft_token_files_pad(&had, self->base, err);
    if (status == WEFT_OK && had == NULL) status = weft_token_files_pad(&pad, self->adapter, err);
    if (status == WEFT_OK) status = weft_token_files_more(&more, self->base, self->adapter, err);
    texts[0] = as_override("tokenizer.pad_token", pad);
    texts[1] = as_override("tokenizer.add", more);
    if (texts[0] != NULL) overrides[(*n)++] = "tokenizer.pad=add";
    for (int i = 0; i < 2; i++)
        if (texts[i] != NULL) overrides[(*n)++] = texts[i];
    free(had);
    return status;
}

/* Checks the adapter's origin with this command's messages; the session reports bases that cannot be compared. */
static weft_status check_origin(const merge_command *self, weft_error *err) {
    weft_adapter_origin of = {0}, now = {0};
    bool same = true;
    if (weft_origin_load(&of, self->adapter, NULL) != WEFT_OK ||
        weft_base_compare(&same, &now, &of, self->base, NULL) != WEFT_OK || same)
        return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_USER,
        "%s was made on other weights than those in %s. Fix: name its own base, or use --any-base to merge it "
        "anyway",
        self->adapter, self->base);
}

/* The command line has arguments, and errors of the configuration name the keys that open_plan sets from them. */
static void name_argument(weft_error *err) {
    static const char *const names[][2] = {{"[model] path = ", "BASE = "}, {"[adapter] from = ", "ADAPTER = "}};
    static const char source[] = "command line: ";
    char text[sizeof err->text];
    if (err == NULL || strncmp(err->text, source, sizeof source - 1) != 0) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *at = err->text + sizeof source - 1;
        const size_t n = strlen(names[i][0]);
        if (strncmp(at, names[i][0], n) != 0) continue;
        (void)snprintf(text, sizeof text, "%s%s", names[i][1], at + n);
        memcpy(err->text, text, sizeof text);
        return;
    }
}

static weft_status open_plan(weft_run **run, weft_plan *plan, const weft_args *args, const merge_command *self,
                             weft_error *err) {
    char model[WEFT_PATH_BYTES + 16], from[WEFT_PATH_BYTES + 16], *texts[2] = {NULL, NULL};
    const char *overrides[6] = {model, from};
    size_t n = 2;
    weft_status status = add_tokens(texts, overrides, &n, self, err);
    const uint32_t needs = WEFT_NEEDS(WEFT_PART_MODEL) | WEFT_NEEDS(WEFT_PART_POLICY) |
                           (n > 2 ? WEFT_NEEDS(WEFT_PART_TOKENIZER) : 0);
    (void)snprintf(model, sizeof model, "model.path=%s", self->base);
    (void)snprintf(from, sizeof from, "adapter.from=%s", self->adapter);
    if (weft_args_has(args, "any-base")) overrides[n++] = "adapter.any_base=yes";
    if (status == WEFT_OK) status = weft_run_open(run, NULL, overrides, n, needs, err);
    free(texts[0]);
    free(texts[1]);
    if (status == WEFT_OK) status = weft_plan_open(plan, *run, err);
    if (status != WEFT_OK) name_argument(err);
    return status;
}

static weft_status merge_into(const merge_command *self, const weft_run *run, const weft_plan *plan, weft_error *err) {
    weft_merging what = {.declared = plan->declared,
                         .host = run->host,
                         .base = run->settings.model.path,
                         .adapter = run->settings.adapter_from,
                         .dtype = self->dtype};
    weft_staging staging = {0};
    weft_status status = weft_staging_begin(&staging, self->parent, self->name, err);
    if (status != WEFT_OK) return status;
    what.directory = staging.path;
    status = weft_adapter_merge(&what, err);
    if (status == WEFT_OK) status = weft_staging_commit(&staging, err);
    weft_staging_cancel(&staging);
    return status;
}

/* Prints the unmergeable parts, which are in the merged model's directory. */
static void print_carried(const weft_plan *plan, const char *out) {
    for (int32_t i = 0; i < plan->declared->n_adapters; i++) {
        char path[WEFT_PATH_BYTES];
        if (i == weft_stack_home(plan->declared) || weft_stack_place(path, plan->declared, i, out, NULL) != WEFT_OK ||
            access(path, F_OK) != 0)
            continue;
        (void)printf("unmerged   %s, an adapter of the merged model, for [adapter] from\n", path);
    }
}

static weft_exit run_merge(const weft_args *args, weft_error *err) {
    merge_command self = {weft_args_extra(args, 0), weft_args_extra(args, 1), weft_args_extra(args, 2), "", "", 0};
    weft_run *run = NULL;
    weft_plan plan = {.world = 1, .nodes = 1};
    weft_status status = read_dtype(&self.dtype, weft_args_value(args, "dtype"), err);
    if (status == WEFT_OK) status = split_out(&self, err);
    if (status == WEFT_OK && !weft_args_has(args, "any-base")) status = check_origin(&self, err);
    if (status == WEFT_OK) status = open_plan(&run, &plan, args, &self, err);
    if (status == WEFT_OK) status = merge_into(&self, run, &plan, err);
    if (status == WEFT_OK) (void)printf("merged     %s\n", self.out);
    if (status == WEFT_OK) print_carried(&plan, self.out);
    weft_plan_close(&plan);
    weft_run_close(run);
    return weft_exit_from(status);
}

static const weft_command weft_command_merge = {
    .name = "merge",
    .usage = "BASE ADAPTER OUT",
    .takes = WEFT_TAKES_ARGUMENTS,
    .min_extra = 3,
    .max_extra = 3,
    .flags = flags,
    .more =
        "BASE is the directory of a model. ADAPTER holds adapter_config.json, as written by PEFT or a run. OUT is "
        "created atomically, with the files of BASE; no device is needed. Sums are computed in fp32 and rounded once.",
    .examples = "  weft merge /models/TinyLlama runs/lora/model merged\n"
                "  weft merge base adapter merged --dtype bf16\n",
    .run = run_merge,
};

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_merge, NULL};
    return weft_cli_main(argc, argv, commands);
}
