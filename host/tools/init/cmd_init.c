/* host/tools/init/cmd_init.c: `weft init`: writes a first configuration for a model and a data file. */
#include "cli/flags.h"

#include "base/alloc.h"
#include "base/file.h"
#include "cli/directory.h"
#include "tools/init/compose.h"
#include "program/sections.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const weft_flag flags[] = {
    {"out", "FILE", false, "File to write, also -o FILE; - prints it (default run.ini)."},
    {"overwrite", NULL, false, "Replace an existing file."},
    {"fresh", NULL, false, "Start from config.json with random weights."},
    WEFT_FIT_FLAG,
    {NULL, NULL, false, NULL},
};

/* ---- paths ---- */

typedef struct places {
    weft_directory directory;
    weft_learned learned; /* adapter to continue */
    char *model, *data, *family;
    char out[300]; /* [run] out */
} places;

/* Finds the model's directory: a run directory means its model/, an adapter's means the adapter on its base. */
static weft_status find_model(places *self, const char *path, bool fresh, weft_error *err) {
    char *inner = NULL;
    bool is_adapter = false;
    weft_status status = weft_learned_read(&self->learned, &is_adapter, path, err);
    if (status == WEFT_OK && is_adapter && fresh)
        status = weft_error_set(
            err, WEFT_E_USER,
            "%.1000s is an adapter, which needs its trained base. Fix: remove --fresh, or use its base, %.1000s", path,
            self->learned.base);
    if (status == WEFT_OK && !is_adapter) status = weft_directory_read(&self->directory, path, true, err);
    if (status != WEFT_OK) return status;
    inner = weft_text_of("%s%s", is_adapter ? self->learned.base : path, self->directory.ini != NULL ? "/model" : "");
    if (self->directory.ini != NULL) {
        weft_directory_clear(&self->directory);
        status = weft_directory_read(&self->directory, inner, true, err);
    }
    self->model = realpath(inner, NULL);
    free(inner);
    if (status == WEFT_OK && self->model == NULL)
        status = weft_error_set(err, WEFT_E_USER, "%.1000s: %s", path, strerror(errno));
    return status;
}

/* Finds the model plugin. */
static weft_status find_family(places *self, const char **out, weft_error *err) {
    *out = self->family = weft_family_read(self->model);
    if (self->family != NULL) return WEFT_OK;
    if (weft_family_check(self->model, "config.json", err) != WEFT_OK) return err->code;
    return weft_error_set(err, WEFT_E_USER,
                          "%s/config.json has no model_type, so that no model plugin can be selected: weft plugins "
                          "list prints the available ones",
                          self->model);
}

/* Chooses "runs/TinyLlama", or the first free "runs/TinyLlama-2", because a run needs a new directory. */
static void choose_out(places *self, const char *file) {
    const char *slash = strrchr(file, '/'), *name = strrchr(self->model, '/');
    const int n = slash == NULL ? 0 : (int)(slash - file) + 1;
    for (int i = 1; i < 1000; i++) {
        char path[5000], number[16] = "";
        if (i > 1) (void)snprintf(number, sizeof number, "-%d", i);
        (void)snprintf(self->out, sizeof self->out, "runs/%.200s%s", name[1] != '\0' ? name + 1 : "one", number);
        (void)snprintf(path, sizeof path, "%.*s%s", n, file, self->out);
        if (access(path, F_OK) != 0) return;
    }
}

static void forget(places *self) {
    weft_directory_clear(&self->directory);
    weft_learned_clear(&self->learned);
    free(self->model);
    free(self->data);
    free(self->family);
}

/* ---- output file ---- */

/* Checks the output file before slow operations. */
static weft_status check_file(const weft_args *args, const char *file, weft_error *err) {
    bool is_there = false;
    weft_status status = WEFT_OK;
    if (strcmp(file, "-") == 0 || weft_args_has(args, "overwrite")) return WEFT_OK;
    status = weft_file_exists(&is_there, file, err);
    if (status != WEFT_OK || !is_there) return status;
    return weft_error_set(err, WEFT_E_USER, "%s exists. Fix: --overwrite replaces it, -o FILE sets another name", file);
}

static weft_status write_file(const weft_draft *draft, const char *file, const char *title, weft_error *err) {
    weft_file out;
    FILE *stream = NULL;
    if (strcmp(file, "-") == 0) {
        weft_draft_write(draft, title, stdout);
        return WEFT_OK;
    }
    stream = weft_file_begin(&out, file, err);
    if (stream == NULL) return WEFT_E_SYSTEM;
    weft_draft_write(draft, title, stream);
    return weft_file_commit(&out, err);
}

static weft_status make_file(const weft_args *args, places *self, const char *file, int64_t room, weft_error *err) {
    weft_init_wish wish = {.model = self->model,
                           .adapter = self->learned.adapter,
                           .stored = self->learned.stored,
                           .tokens = self->learned.tokens,
                           .pad = self->learned.pad,
                           .data = self->data,
                           .out = self->out,
                           .fresh = weft_args_has(args, "fresh"),
                           .room = room};
    weft_draft *draft = weft_alloc(1, sizeof *draft);
    char told[300] = "", title[600];
    weft_status status = find_family(self, &wish.plugin, err);
    if (status == WEFT_OK) status = weft_init_compose(draft, told, sizeof told, &wish, err);
    (void)snprintf(
        title, sizeof title,
        "A first run, by weft init: %s. It runs as it is, and every line may be changed: weft config describe "
        "and weft plugins describe have all keys.",
        told);
    if (status == WEFT_OK) status = write_file(draft, file, title, err);
    if (status == WEFT_OK && strcmp(file, "-") != 0)
        (void)printf("%s: %s\nweft plan %s shows more, weft train %s starts it\n", file, told, file, file);
    free(draft);
    return status;
}

/* Removes the "command line" prefix from an error: the keys are the draft's, not typed by the user. */
static void name_source(const char *model, weft_error *err) {
    static const char typed[] = "command line: ", plugin[] = "[model] plugin = ";
    char text[sizeof err->text];
    if (strncmp(err->text, typed, sizeof typed - 1) != 0) return;
    (void)snprintf(text, sizeof text, "%s", err->text + sizeof typed - 1);
    if (strncmp(text, plugin, sizeof plugin - 1) == 0)
        (void)snprintf(err->text, sizeof err->text, "%.1000s/config.json: model_type = %.1000s", model,
                       text + sizeof plugin - 1);
    else (void)snprintf(err->text, sizeof err->text, "%s", text);
}

static weft_exit run_init(const weft_args *args, weft_error *err) {
    const char *file = weft_args_value(args, "out") != NULL ? weft_args_value(args, "out") : "run.ini";
    const char *data = weft_args_extra(args, 1);
    places self = {.out = ""};
    int64_t room = 0;
    weft_status status = WEFT_OK;
    if (!weft_command_room(args, &room, err)) return WEFT_EXIT_USAGE;
    status = check_file(args, file, err);
    if (status == WEFT_OK) status = find_model(&self, weft_args_extra(args, 0), weft_args_has(args, "fresh"), err);
    if (status == WEFT_OK && (self.data = realpath(data, NULL)) == NULL)
        status = weft_error_set(err, WEFT_E_USER, "%.1000s: %s", data, strerror(errno));
    if (status == WEFT_OK) {
        choose_out(&self, file);
        status = make_file(args, &self, file, room, err);
        if (status != WEFT_OK) name_source(self.model, err);
    }
    forget(&self);
    return weft_exit_from(status);
}

static const weft_command weft_command_init = {
    .name = "init",
    .usage = "MODEL_DIR DATA",
    .takes = WEFT_TAKES_ARGUMENTS,
    .min_extra = 2,
    .max_extra = 2,
    .flags = flags,
    .more = "MODEL_DIR is a Hugging Face directory, or the directory of a run ([run] out), for its model/. An adapter, "
            "of a run or in PEFT's format, is continued on its base. DATA is text, JSONL, PGN, or questions with "
            "answers. Each line of the file has the reason for its value; the configuration fits this machine.",
    .examples = "  weft init /models/TinyLlama story.txt\n"
                "  weft init /models/TinyLlama chat.jsonl -o chat.ini\n",
    .run = run_init,
};

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_init, NULL};
    return weft_cli_main(argc, argv, commands);
}
