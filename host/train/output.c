/* host/train/output.c: see output.h. */
#include "train/output.h"

#include "base/tree.h"
#include "train/leavings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const left_by_a_run[] = {"config.ini",        "starts.jsonl", "metrics.jsonl",   "evaluations.jsonl",
                                            "checkpoints.jsonl", "phases.jsonl", "similarity.json", "ranks.json",
                                            "tensorboard",       "report.html",  "checkpoints",     "model"};
enum { N_LEFT = (int)(sizeof left_by_a_run / sizeof left_by_a_run[0]) };

weft_status weft_output_path(const weft_output *output, char *path, size_t size, const char *name, weft_error *err) {
    const int n = snprintf(path, size, "%s/%s", output->directory, name);
    if (n < 0 || (size_t)n >= size)
        return weft_error_set(err, WEFT_E_USER, "[run] out: the path %s/%s is too long", output->directory, name);
    return WEFT_OK;
}

static weft_status take_lock(weft_output *output, weft_error *err) {
    char path[4096];
    weft_status status = weft_output_path(output, path, sizeof path, ".lock", err);
    if (status != WEFT_OK) return status;
    output->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (output->lock < 0) return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", path, strerror(errno));
    if (flock(output->lock, LOCK_EX | LOCK_NB) != 0)
        return weft_error_set(err, WEFT_E_USER, "%s is in use by another run: wait for it, or choose another [run] out",
                              output->directory);
    return WEFT_OK;
}

/* Name of something that a run left, or NULL. */
static const char *what_is_there(const weft_output *output) {
    for (int i = 0; i < N_LEFT; i++) {
        char path[4096];
        struct stat info;
        if (weft_output_path(output, path, sizeof path, left_by_a_run[i], NULL) == WEFT_OK && lstat(path, &info) == 0)
            return left_by_a_run[i];
    }
    return NULL;
}

static weft_status judge_directory(const weft_output *output, weft_output_mode mode, weft_error *err) {
    const char *found = what_is_there(output);
    if (mode == WEFT_OUTPUT_NEW && found != NULL)
        return weft_error_set(err, WEFT_E_USER,
                              "%s already holds a run (%s): --resume goes on with it, --overwrite removes "
                              "it, or choose another [run] out",
                              output->directory, found);
    if (mode == WEFT_OUTPUT_RESUME && found == NULL)
        return weft_error_set(err, WEFT_E_USER, "%s holds no run to resume: start it without --resume",
                              output->directory);
    return WEFT_OK;
}

/* A resume is judged before the directory is made: a mistyped [run] out leaves nothing behind. */
static weft_status take_directory(weft_output *output, weft_output_mode mode, weft_error *err) {
    weft_status status = mode == WEFT_OUTPUT_RESUME ? judge_directory(output, mode, err) : WEFT_OK;
    if (status == WEFT_OK) status = weft_tree_make(output->directory, err);
    if (status == WEFT_OK) status = take_lock(output, err);
    return status == WEFT_OK ? judge_directory(output, mode, err) : status;
}

weft_status weft_output_open(weft_output **out, const char *directory, weft_output_mode mode, bool writes,
                             weft_error *err) {
    weft_status status = WEFT_OK;
    weft_output *output = calloc(1, sizeof *output);
    if (output != NULL) output->directory = strdup(directory);
    if (output == NULL || output->directory == NULL) {
        free(output);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the output directory's name");
    }
    output->lock = -1;
    output->writes = writes;
    if (writes) status = take_directory(output, mode, err);
    if (status == WEFT_OK) *out = output;
    else weft_output_close(output);
    return status;
}

void weft_output_close(weft_output *output) {
    if (output == NULL) return;
    if (output->lock >= 0) (void)close(output->lock);
    free(output->directory);
    free(output);
}

weft_status weft_output_clear(weft_output *output, weft_error *err) {
    weft_status status = output->writes ? weft_leavings_judge(output->directory, err) : WEFT_OK;
    for (int i = 0; output->writes && i < N_LEFT && status == WEFT_OK; i++) {
        char path[4096];
        status = weft_output_path(output, path, sizeof path, left_by_a_run[i], err);
        if (status == WEFT_OK) status = weft_tree_remove(path, err);
    }
    return status;
}

/* True if `inside` is `path` or lies below it; both are real paths. */
static bool lies_in(const char *inside, const char *path) {
    const size_t n = strlen(path);
    return strncmp(inside, path, n) == 0 && (inside[n] == '\0' || inside[n] == '/');
}

weft_status weft_output_protect(const weft_output *output, const char *path, weft_error *err) {
    char *input = path != NULL && output->writes ? realpath(path, NULL) : NULL;
    weft_status status = WEFT_OK;
    for (int i = 0; input != NULL && i < N_LEFT && status == WEFT_OK; i++) {
        char name[4096];
        char *own = NULL;
        status = weft_output_path(output, name, sizeof name, left_by_a_run[i], err);
        own = status == WEFT_OK ? realpath(name, NULL) : NULL;
        if (own != NULL && lies_in(input, own))
            status = weft_error_set(err, WEFT_E_USER,
                                    "%s is read by this run and would be removed or written over by it: "
                                    "choose another [run] out, or move it out of %s",
                                    path, output->directory);
        free(own);
    }
    free(input);
    return status;
}

static bool is_same_directory(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

weft_status weft_output_judge_place(const char *directory, const char *model, const char *tokenizer, weft_error *err) {
    const char *const read[] = {model, tokenizer};
    if (is_same_directory(directory, "/"))
        return weft_error_set(err, WEFT_E_USER,
                              "[run] out = %s is the root of the file system: give a directory of "
                              "the run's own, such as runs/one",
                              directory);
    for (int i = 0; i < 2; i++)
        if (read[i] != NULL && is_same_directory(directory, read[i]))
            return weft_error_set(err, WEFT_E_USER,
                                  "[run] out = %s is the directory of the %s that this run reads: "
                                  "give a directory of the run's own, such as runs/one",
                                  directory, i == 0 ? "model" : "tokenizer");
    return WEFT_OK;
}
